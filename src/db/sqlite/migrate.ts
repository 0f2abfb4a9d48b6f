import { randomUUID } from 'node:crypto'
import { accessSync, constants, existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type Sqlite from 'better-sqlite3'
import { makeFolder } from '../../lib/folders.ts'
import {
  APPLIED,
  type Applied,
  failure,
  foreignDatabase,
  MIGRATIONS,
  MigrationError,
  missingIn,
  naming,
  RECORD,
  read,
} from '../migrations.ts'
import { writeStatistics } from './statistics.ts'
import { sortBeside } from './temp-files.ts'

/**
 * Page size of a new SQLite file (bytes). A run changes one or two rows in each of thirty tables and indexes, and each
 * changed page goes to the log. SQLite's default of 4 KiB takes twice as long.
 */
const PAGE_SIZE = 2048

/** The history of migrations: Prisma's own table, column for column, so that its tools can read it. */
const HISTORY = `CREATE TABLE IF NOT EXISTS "_prisma_migrations" (
  "id" TEXT PRIMARY KEY NOT NULL, "checksum" TEXT NOT NULL, "finished_at" DATETIME, "migration_name" TEXT NOT NULL,
  "logs" TEXT, "rolled_back_at" DATETIME, "started_at" DATETIME NOT NULL DEFAULT current_timestamp,
  "applied_steps_count" INTEGER UNSIGNED NOT NULL DEFAULT 0)`

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
    connection.exec(HISTORY)
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
