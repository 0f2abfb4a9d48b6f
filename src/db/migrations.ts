import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { codeIn, isUnavailable } from '../lib/database-errors.ts'
import { troubleIn } from '../lib/database-troubles.ts'
import { accessAdvice } from './sqlite/file-lock.ts'

// The folders of migrations, and the errors of applying them. Each database applies them in its own way
// (`sqlite/migrate.ts`, `postgresql/migrate.ts`).

/** Thrown if migrations failed. The tables are unchanged. The message states the reason. */
export class MigrationError extends Error {
  override name = 'MigrationError'
}

/** The folder of all migrations, which has one of each database. */
export const MIGRATIONS = join(import.meta.dirname, '..', '..', 'prisma', 'migrations')

/** A row of the history of migrations. */
export type Applied = { name: string }

/** Statements on the history of migrations: the applied ones, and the beginning of a new row. */
export const APPLIED = `SELECT "migration_name" AS "name" FROM "_prisma_migrations" 
  WHERE "finished_at" IS NOT NULL AND "rolled_back_at" IS NULL`
export const RECORD = `INSERT INTO "_prisma_migrations"
  ("id", "checksum", "migration_name", "started_at", "finished_at", "applied_steps_count") VALUES`

/** Makes the error of a database with the tables of another program. */
export const foreignDatabase = (database: string, found: string) =>
  new MigrationError(
    `The database ${database} belongs to another program: it has ${found}, and no tables of Muster. ` +
      'Give Muster a database of its own (DATABASE_URL or DATA_DIR).',
  )

/** Remedies by PostgreSQL's code and the words of its refusal, or of its client's. */
const REMEDIES: readonly (readonly [refusal: RegExp, remedy: string])[] = [
  [/^42501 /, 'Make the role of DATABASE_URL the owner of the database'],
  // PostgreSQL itself, Azure and Neon.
  [
    /\b(no encryption|SSL off|SSL connection is required|connection is insecure)\b/,
    'If PostgreSQL demands encryption, add sslmode=require to DATABASE_URL',
  ],
  [
    /valid client certificate|certificate authentication failed/,
    'Add a client certificate whose common name is the user, and its key, to DATABASE_URL: ' +
      'sslcert=/path/client.pem&sslkey=/path/client.key',
  ],
  [
    /key values mismatch/,
    'The certificate and the key in DATABASE_URL do not belong together: correct sslcert or sslkey',
  ],
  [/^ENOENT .*, open /, 'Correct the path in DATABASE_URL: sslrootcert, sslcert or sslkey'],
  [
    /^28P01 /,
    'Correct the user or the password in DATABASE_URL, where a password has %40 for @, %3A for :, %2F for / and %25 for %',
  ],
  [
    /client password must be a|empty password returned|no PostgreSQL user name/,
    'Add the user and the password to DATABASE_URL: postgresql://user:password@host/database',
  ],
  [/^3D000 /, 'Create it, or correct its name in DATABASE_URL: postgresql://user:password@host/database'],
]

/** Adds the database to errors, such as a file that is not a database, or a missing database or role. */
export async function naming(database: string, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    const access = accessAdvice(error)
    if (error instanceof MigrationError || !(error instanceof Error)) throw error
    const refusal = `${codeIn(error)} ${error.message}`
    const remedy = REMEDIES.find(([refusals]) => refusals.test(refusal))?.[1]
    const isAway = isUnavailable(error) && troubleIn(error)?.name !== 'refused' && !access
    if (isAway && !remedy) throw error
    const wayOut = remedy ? `. ${remedy}` : access && `.${access}`
    throw new MigrationError(`The database ${database} cannot be used: ${error.message}${wayOut}`, { cause: error })
  }
}

/** Returns the pending migrations of a folder in order. Throws if they may not be applied. */
export function missingIn(database: string, folder: string, applied: Applied[], mayApply: boolean): string[] {
  const names = readdirSync(folder)
    .filter((name) => /^\d/.test(name))
    .sort()
  const known = new Set(names)
  const unknown = applied.find(({ name }) => !known.has(name))
  if (unknown) {
    if (!applied.some(({ name }) => known.has(name))) throw foreignDatabase(database, `the migration ${unknown.name}`)
    throw new MigrationError(`The database was made by a newer version of Muster (it has ${unknown.name}). Upgrade.`)
  }
  const done = new Set(applied.map(({ name }) => name))
  const missing = names.filter((name) => !done.has(name))
  if (mayApply || missing.length === 0) return missing
  if (applied.length === 0) throw new MigrationError('The database is empty. Start Muster once.')
  throw new MigrationError(
    'The database schema is from an earlier version of Muster. Start the server once to migrate it.',
  )
}

/** Reads a migration, with the checksum that the history records. */
export function read(folder: string, name: string): { sql: string; checksum: string } {
  const sql = readFileSync(join(folder, name, 'migration.sql'), 'utf8')
  return { sql, checksum: createHash('sha256').update(sql).digest('hex') }
}

/** Ways out of failures of migrations, by PostgreSQL's code and the words of its refusal. */
const WAYS_OUT: readonly (readonly [refusal: RegExp, wayOut: string])[] = [
  // Another program has made a table, type or function of this name in the schema.
  [/^(?:42P07|42710|42723) /, 'Give Muster a database of its own (DATABASE_URL)'],
  [/must be UTF8$/, "Create the database again: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"],
  // A table belongs to another role, such as the one that restored a dump.
  [
    /^42501 /,
    'Make the role of DATABASE_URL the owner of all that Muster has made in the database: ALTER TABLE … OWNER TO …',
  ],
]

/** Makes the error of a migration that failed. */
export function failure(name: string, cause: unknown): MigrationError {
  const { message: reason = String(cause), code = '' } = cause as Partial<NodeJS.ErrnoException>
  const wayOut = WAYS_OUT.find(([refusal]) => refusal.test(`${code} ${reason}`))?.[1]
  return new MigrationError(`The migration ${name} failed and was undone: ${reason}${wayOut ? `. ${wayOut}` : ''}`, {
    cause,
  })
}
