import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Prisma, PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import type { Settings } from '../settings.ts'
import { direct } from './direct.ts'
import { TRANSACTION } from './limits.ts'
import { migratePostgresql, migrateSqlite } from './migrate.ts'

export type * from '../../prisma/generated/sqlite/client.ts'
export { Prisma } from '../../prisma/generated/sqlite/client.ts'

/** The database as everybody sees it, whichever it is. */
export type Db = PrismaClient

/** The client inside a transaction. */
export type Tx = Prisma.TransactionClient

type Source = Pick<Settings, 'DATABASE_URL' | 'DATA_DIR' | 'DATABASE_POOL_SIZE'> &
  Partial<Pick<Settings, 'DATABASE_DIRECT_URL'>>

export type Database = {
  client: Db
  kind: 'sqlite' | 'postgresql'
  /** Ends every connection, when the transactions that are open have ended. */
  close: () => Promise<void>
}

/** The absolute path of the SQLite file that the settings name; null where they name a PostgreSQL. */
export function databaseFile({ DATABASE_URL, DATA_DIR }: Pick<Settings, 'DATABASE_URL' | 'DATA_DIR'>): string | null {
  if (!DATABASE_URL) return resolve(join(DATA_DIR, 'muster.db'))
  if (!DATABASE_URL.startsWith('file:')) return null
  return DATABASE_URL.startsWith('file://') ? fileURLToPath(DATABASE_URL) : resolve(DATABASE_URL.slice('file:'.length))
}

/**
 * What stands at the end of a SELECT in a transaction, so that nobody changes its rows before the transaction ends. On
 * SQLite nobody else writes meanwhile.
 */
export const rowLock = (settings: Pick<Settings, 'DATABASE_URL' | 'DATA_DIR'>): Prisma.Sql =>
  databaseFile(settings) === null ? Prisma.sql`FOR NO KEY UPDATE` : Prisma.empty

/**
 * Opens the database that the settings name, with its tables brought up to date; makes an SQLite file that is missing.
 * `onQuery` is told every SQL statement. Throws a MigrationError, or the driver's error when nothing answers.
 */
export async function openDatabase(settings: Source, onQuery?: (sql: string) => void): Promise<Database> {
  const file = databaseFile(settings)
  const options: Options = {
    log: onQuery ? [{ emit: 'event', level: 'query' }] : [],
    transactionOptions: TRANSACTION,
  }
  const { client, wrap } = await (file ? openSqlite(file, options) : openPostgresql(settings, options))
  if (onQuery) client.$on('query', (event) => onQuery(event.query))
  await client.$connect()
  return {
    client: wrap(client, onQuery),
    kind: file ? 'sqlite' : 'postgresql',
    close: () => client.$disconnect(),
  }
}

type Options = { log: { emit: 'event'; level: 'query' }[]; transactionOptions: typeof TRANSACTION }

// Each driver is loaded only where it is used: loading takes most of the time that opening takes.

type Opened = {
  client: PrismaClient<'query'>
  /** What makes it the client that everybody gets. */
  wrap: (client: PrismaClient, onQuery?: (sql: string) => void) => PrismaClient
}

async function openSqlite(file: string, options: Options): Promise<Opened> {
  const [{ sqliteAdapter }] = await Promise.all([import('./sqlite.ts'), migrateSqlite(file)])
  const adapter = sqliteAdapter(file)
  return {
    client: new PrismaClient({ ...options, adapter }),
    wrap: (client, onQuery) => direct(client, adapter, onQuery),
  }
}

async function openPostgresql(settings: Source, options: Options): Promise<Opened> {
  const { DATABASE_URL: url = '', DATABASE_DIRECT_URL: directUrl = url, DATABASE_POOL_SIZE: connections } = settings
  const [{ postgresqlAdapter, postgresqlClient, retryDeadlocks }] = await Promise.all([
    import('./postgresql.ts'),
    migratePostgresql(directUrl),
  ])
  const adapter = await postgresqlAdapter(url, connections)
  return {
    client: postgresqlClient(adapter, options),
    wrap: (client, onQuery) => retryDeadlocks(direct(client, adapter, onQuery)),
  }
}
