import { createHash, randomUUID } from 'node:crypto'
import { accessSync, constants, existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type Sqlite from 'better-sqlite3'
import { codeIn, isUnavailable } from '../lib/database-errors.ts'
import { troubleIn } from '../lib/database-troubles.ts'
import { makeFolder } from '../lib/folders.ts'
import { hostsOf } from '../lib/postgres-url.ts'
import { KEEP_ALIVE } from './limits.ts'
import { WITHOUT_TIME_LIMITS } from './postgresql/session.ts'
import { accessAdvice } from './sqlite/file-lock.ts'
import { writeStatistics } from './sqlite/statistics.ts'
import { sortBeside } from './sqlite/temp-files.ts'

/** Thrown if migrations failed. The tables are unchanged. The message states the reason. */
export class MigrationError extends Error {
  override name = 'MigrationError'
}

type Applied = { name: string }

/**
 * Page size of a new SQLite file (bytes). A run changes one or two rows in each of thirty tables and indexes, and each
 * changed page goes to the log. SQLite's default of 4 KiB takes twice as long.
 */
const PAGE_SIZE = 2048

const MIGRATIONS = join(import.meta.dirname, '..', '..', 'prisma', 'migrations')

/** The lock that Prisma's own tools take on PostgreSQL. */
const ADVISORY_LOCK = 72707369

/** Oldest major version of PostgreSQL that knows all statements of the migrations. */
const OLDEST_POSTGRESQL = 13

/**
 * Maximum wait of a migration for the locks of other sessions, and time between two tries (ms). All requests for the
 * same table queue behind a waiting migration, which a dump of the database would block for hours.
 */
const LOCK_WAIT = { longest: 2_000, pause: 5_000 }

/** PostgreSQL's codes of a lock that another session did not give up in time, or that led to a deadlock. */
const BLOCKED = /^(55P03|40P01)$/

// The history is Prisma's own table, column for column, so that its tools can read it.
const HISTORY = {
  sqlite: `CREATE TABLE IF NOT EXISTS "_prisma_migrations" (
    "id" TEXT PRIMARY KEY NOT NULL, "checksum" TEXT NOT NULL, "finished_at" DATETIME, "migration_name" TEXT NOT NULL,
    "logs" TEXT, "rolled_back_at" DATETIME, "started_at" DATETIME NOT NULL DEFAULT current_timestamp,
    "applied_steps_count" INTEGER UNSIGNED NOT NULL DEFAULT 0)`,
  postgresql: `CREATE TABLE IF NOT EXISTS "_prisma_migrations" (
    "id" VARCHAR(36) PRIMARY KEY NOT NULL, "checksum" VARCHAR(64) NOT NULL, "finished_at" TIMESTAMPTZ,
    "migration_name" VARCHAR(255) NOT NULL, "logs" TEXT, "rolled_back_at" TIMESTAMPTZ,
    "started_at" TIMESTAMPTZ NOT NULL DEFAULT now(), "applied_steps_count" INTEGER NOT NULL DEFAULT 0)`,
}
const APPLIED = `SELECT "migration_name" AS "name" FROM "_prisma_migrations" 
  WHERE "finished_at" IS NOT NULL AND "rolled_back_at" IS NULL`
const RECORD = `INSERT INTO "_prisma_migrations"
  ("id", "checksum", "migration_name", "started_at", "finished_at", "applied_steps_count") VALUES`

/**
 * Applies pending migrations to an SQLite file, which is created if missing. All run in one transaction: a failure
 * leaves the file unchanged, and another migrating process waits.
 */
export const migrateSqlite = (file: string, migrations = MIGRATIONS): Promise<void> =>
  naming(file, () => inSqlite(file, migrations, true))

/** Throws if migrations are pending. Only servers migrate the database. */
export const requireSqlite = (file: string): Promise<void> => naming(file, () => inSqlite(file, MIGRATIONS, false))

async function inSqlite(file: string, migrations: string, mayApply: boolean): Promise<void> {
  const { default: Sqlite } = await import('better-sqlite3')
  const folder = join(migrations, 'sqlite')
  makeFolder(dirname(file))
  sortBeside(file)
  // An unwritable file would be opened read-only.
  if (existsSync(file)) accessSync(file, constants.R_OK | constants.W_OK)
  const connection = new Sqlite(file, { timeout: 10_000 })
  const missing = () => missingInSqlite(connection, folder, mayApply)
  const apply = () => {
    connection.pragma(`page_size = ${PAGE_SIZE}`)
    // Rebuilding a table drops it, so references are disabled meanwhile and checked at the end.
    connection.pragma('foreign_keys = OFF')
    connection.exec('BEGIN IMMEDIATE')
    connection.exec(HISTORY.sqlite)
    for (const name of missing()) {
      const { sql, checksum } = read(folder, name)
      const startedAt = Date.now()
      try {
        connection.exec(sql)
      } catch (error) {
        throw failure(name, error)
      }
      connection.prepare(`${RECORD} (?, ?, ?, ?, ?, 1)`).run(randomUUID(), checksum, name, startedAt, Date.now())
    }
    const [broken] = connection.pragma('foreign_key_check') as { table: string }[]
    if (broken) throw new MigrationError(`The migration was undone: rows of ${broken.table} would refer to nothing.`)
    connection.exec('COMMIT')
  }
  try {
    if (missing().length) apply()
    if (mayApply) writeStatistics(connection)
  } finally {
    // Closing rolls back an open transaction.
    connection.close()
  }
}

/** Throws unless an open SQLite database is Muster's and has all migrations. */
export const requireMigrated = (connection: Sqlite.Database): void =>
  void missingInSqlite(connection, join(MIGRATIONS, 'sqlite'), false)

function missingInSqlite(connection: Sqlite.Database, folder: string, mayApply: boolean): string[] {
  const applied = requireOwnTables(connection) ? connection.prepare<[], Applied>(APPLIED).all() : []
  return missingIn(connection.name, folder, applied, mayApply)
}

/**
 * Returns whether an SQLite database has a history of migrations. Throws a MigrationError if it has only tables of
 * another program. Tables of tools, such as Litestream's, begin with an underscore and may be the first.
 */
export function requireOwnTables(connection: Sqlite.Database): boolean {
  const names = connection
    .prepare<[], string>(`SELECT "name" FROM "sqlite_schema" WHERE "type" = 'table' AND "name" NOT GLOB 'sqlite_*'`)
    .pluck()
    .all()
  if (names.includes('_prisma_migrations')) return true
  const foreign = names.find((name) => !name.startsWith('_'))
  if (foreign !== undefined) throw foreignDatabase(connection.name, `a table ${foreign}`)
  return false
}

/**
 * Throws like {@link requireOwnTables}, and changes neither the file nor a log that seems to belong to another file:
 * that of another program numbers its changes in its own way. A file that cannot be read with its log is ignored.
 */
export async function requireOwnFile(file: string): Promise<void> {
  const { default: Sqlite } = await import('better-sqlite3')
  const connection = new Sqlite(file, { readonly: true, timeout: 10_000 })
  try {
    requireOwnTables(connection)
  } catch (error) {
    if (error instanceof MigrationError) throw error
  } finally {
    connection.close()
  }
}

const foreignDatabase = (database: string, found: string) =>
  new MigrationError(
    `The database ${database} belongs to another program: it has ${found}, and no tables of Muster. ` +
      'Give Muster a database of its own (DATABASE_URL or DATA_DIR).',
  )

/** A migration that waits, and the sessions of PostgreSQL whose transactions have locked the tables. */
export type BlockedMigration = { migration: string; sessions: { pid: number; user: string; application: string }[] }

type MigrateOptions = {
  migrations?: string
  lockWait?: typeof LOCK_WAIT
  /** Called after each try that could not lock the tables. */
  onBlocked?: ((blocked: BlockedMigration) => void) | undefined
}

/**
 * Applies pending migrations to PostgreSQL, each in its own transaction under an advisory lock. Waits for tables that
 * other sessions have locked, but lets requests pass meanwhile.
 */
export const migratePostgresql = (url: string, options: MigrateOptions = {}): Promise<void> =>
  naming(hostsOf(url), () => inPostgresql(url, options, true))

/** Throws unless all migrations are applied, like {@link requireSqlite}. */
export const requirePostgresql = (url: string): Promise<void> =>
  naming(hostsOf(url), () => inPostgresql(url, {}, false))

async function inPostgresql(url: string, options: MigrateOptions, mayApply: boolean): Promise<void> {
  const { migrations = MIGRATIONS, lockWait = LOCK_WAIT, onBlocked = () => {} } = options
  const [{ PrismaPg }, { findWritableHost }, { sharesSessions }] = await Promise.all([
    import('@prisma/adapter-pg'),
    import('./postgresql/hosts.ts'),
    import('./postgresql/pooler.ts'),
  ])
  const folder = join(migrations, 'postgresql')
  const adapter = await new PrismaPg({
    ...KEEP_ALIVE,
    connectionString: await findWritableHost(url),
    max: 1,
    connectionTimeoutMillis: 10_000,
  }).connect()
  try {
    const connection = await adapter.underlyingDriver().connect()
    // A connection that breaks fails its statement, too.
    connection.on('error', () => {})
    const missing = async () => {
      const history = await connection.query<{ found: boolean; pid: number; schema: string | null; version: string }>(
        `SELECT to_regclass('"_prisma_migrations"') IS NOT NULL AS "found", pg_backend_pid() AS "pid",
          current_schema() AS "schema", current_setting('server_version') AS "version"`,
      )
      const { schema, version } = history.rows[0]!
      if (Number.parseInt(version, 10) < OLDEST_POSTGRESQL)
        throw new MigrationError(
          `Muster needs PostgreSQL ${OLDEST_POSTGRESQL} or later. ${hostsOf(url)} has ${version}.`,
        )
      if (schema !== 'public') throw new MigrationError(`${OTHER_SCHEMA} It is ${schema ?? 'none'}.`)
      // A pooler has a number of its own for the session.
      const { processID } = connection as typeof connection & { processID: number | null }
      if (history.rows[0]?.pid !== processID && (await sharesSessions(url))) throw new MigrationError(NO_SESSIONS)
      const applied = history.rows[0]?.found ? (await connection.query<Applied>(APPLIED)).rows : []
      return missingIn(hostsOf(url), folder, applied, mayApply)
    }
    const applyNext = async (next: string) => {
      let name: string | undefined = next
      try {
        await connection.query(`BEGIN; ${WITHOUT_TIME_LIMITS}; SET LOCAL standard_conforming_strings = on;
          SET LOCAL lock_timeout = ${lockWait.longest}; SELECT pg_advisory_xact_lock(${ADVISORY_LOCK})`)
        await connection.query(HISTORY.postgresql)
        ;[name] = await missing()
        if (name) await apply(name)
      } catch (error) {
        if (!BLOCKED.test(codeIn(error))) throw error
        await connection.query('ROLLBACK')
        onBlocked({ migration: name ?? next, sessions: (await connection.query(BLOCKING)).rows })
        return sleep(lockWait.pause)
      }
      return connection.query('COMMIT')
    }
    const apply = async (name: string) => {
      const { sql, checksum } = read(folder, name)
      try {
        await connection.query(sql)
      } catch (error) {
        throw BLOCKED.test(codeIn(error)) ? error : failure(name, error)
      }
      await connection.query(`${RECORD} ($1, $2, $3, now(), clock_timestamp(), 1)`, [randomUUID(), checksum, name])
    }
    try {
      // Otherwise the session of a killed server keeps its locks until its statement has ended. PostgreSQL 13, and one on
      // another system than Linux, may not have the setting.
      const notice = `SET client_connection_check_interval = ${lockWait.longest}`
      if (mayApply) await connection.query(notice).catch(() => {})
      for (let [next] = await missing(); next; [next] = await missing()) await applyNext(next)
    } finally {
      // true closes the connection instead of pooling it, which rolls back an open transaction.
      connection.release(true)
    }
  } finally {
    await adapter.dispose()
  }
}

/** Sessions that migrate, or whose transactions have locked tables of Muster. */
const BLOCKING = `SELECT DISTINCT "pid", "usename" AS "user", "application_name" AS "application"
  FROM pg_locks JOIN pg_stat_activity USING ("pid") LEFT JOIN pg_class ON pg_class."oid" = "relation"
  WHERE "granted" AND "pid" <> pg_backend_pid() AND "datname" = current_database()
    AND ("relnamespace" = 'public'::regnamespace OR "locktype" = 'advisory' AND "objid" = ${ADVISORY_LOCK})
  ORDER BY 1 LIMIT 10`

const OTHER_SCHEMA =
  'The first schema in the search_path of the role must be public. Set it: ALTER ROLE … SET search_path = public.'

const NO_SESSIONS =
  'The database is behind a pooler that lends connections by transaction, where notices and prepared statements do not ' +
  'work. Set DATABASE_DIRECT_URL to the address of PostgreSQL itself.'

/** Throws unless transactions work through a pooler. */
export const requireTransactions = (url: string): Promise<void> =>
  naming(hostsOf(url), async () => {
    const { refusesTransactions } = await import('./postgresql/pooler.ts')
    if (await refusesTransactions(url))
      throw new MigrationError(
        'The database is behind a pooler that lends connections by statement, where transactions do not work. ' +
          'Set its pool_mode to transaction.',
      )
  })

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
async function naming(database: string, work: () => Promise<void>): Promise<void> {
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
function missingIn(database: string, folder: string, applied: Applied[], mayApply: boolean): string[] {
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

function read(folder: string, name: string): { sql: string; checksum: string } {
  const sql = readFileSync(join(folder, name, 'migration.sql'), 'utf8')
  return { sql, checksum: createHash('sha256').update(sql).digest('hex') }
}

/** PostgreSQL's codes of a table, type or function that another program has made in the schema. */
const TAKEN = /^(42P07|42710|42723)$/

function failure(name: string, cause: unknown): MigrationError {
  const { message: reason = String(cause), code = '' } = cause as Partial<NodeJS.ErrnoException>
  const wayOut = TAKEN.test(code)
    ? '. Give Muster a database of its own (DATABASE_URL)'
    : /must be UTF8$/.test(reason)
      ? ". Create the database again: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
      : ''
  return new MigrationError(`The migration ${name} failed and was undone: ${reason}${wayOut}`, { cause })
}
