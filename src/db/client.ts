import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { SqlDriverAdapterFactory } from '@prisma/driver-adapter-utils'
import { Prisma, PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import type { Settings } from '../settings.ts'
import { createFastClient, type FastMethod, type FastPathDriver, overrideMembers } from './fast-path/index.ts'
import { TRANSACTION } from './limits.ts'
import { MigrationError, migratePostgresql, migrateSqlite, requirePostgresql, requireSqlite } from './migrate.ts'
import type { SqliteOptions } from './sqlite/adapter.ts'
import { hasForeignLog, isOrphanedLog, logOf } from './sqlite/write-ahead-log.ts'

export type * from '../../prisma/generated/sqlite/client.ts'
export { Prisma } from '../../prisma/generated/sqlite/client.ts'

/** The database client of either database: the methods that the fast path knows, and no others of Prisma's. */
export type Db = Tx & {
  $transaction<T>(work: (tx: Tx) => Promise<T>, options?: { maxWait?: number; timeout?: number }): Promise<T>
}

/** The client inside a transaction. */
export type Tx = Pick<PrismaClient, '$queryRaw' | '$executeRaw'> & {
  [Model in Uncapitalize<Prisma.ModelName>]: Pick<PrismaClient[Model], FastMethod & keyof PrismaClient[Model]>
}

type Source = Pick<Settings, 'DATABASE_URL' | 'DATA_DIR' | 'DATABASE_POOL_SIZE'> &
  Partial<Pick<Settings, 'DATABASE_DIRECT_URL'>>

export type Database = {
  client: Db
  kind: 'sqlite' | 'postgresql'
  /** Ends every connection, when the transactions that are open have ended. */
  close: () => Promise<void>
}

type OpenOptions = {
  /** Whether its tables are brought up to date. Default: they are. */
  migrate?: boolean
  /** Whether an SQLite file is kept up to date with its log, as its one server does. Default: no. */
  keepsFile?: boolean
  /** Is called with the database's own code for each statement that finds it damaged. */
  onDamage?: ((code: string) => void) | undefined
  /** Is told every SQL statement. */
  onQuery?: ((sql: string) => void) | undefined
  /** How long to wait for PostgreSQL's answer to one (ms). Default: for ever. */
  statementTimeout?: number | undefined
}

/** The absolute path of the SQLite file that the settings name; null where they name a PostgreSQL. */
export function databaseFile({ DATABASE_URL, DATA_DIR }: Place): string | null {
  if (!DATABASE_URL) return resolve(join(DATA_DIR, 'muster.db'))
  if (!DATABASE_URL.startsWith('file:')) return null
  return DATABASE_URL.startsWith('file://') ? fileURLToPath(DATABASE_URL) : resolve(DATABASE_URL.slice('file:'.length))
}

type Place = Pick<Settings, 'DATABASE_URL' | 'DATA_DIR'>

const lock = (settings: Place, strength: string): Prisma.Sql =>
  databaseFile(settings) === null ? Prisma.raw(`FOR ${strength}`) : Prisma.empty

/**
 * What stands at the end of a SELECT in a transaction, so that nobody changes its rows before the transaction ends. On
 * SQLite nobody else writes meanwhile.
 */
export const rowLock = (settings: Place): Prisma.Sql => lock(settings, 'NO KEY UPDATE')

/** The same, leaving out rows that somebody else has locked. */
export const freeRowLock = (settings: Place): Prisma.Sql => lock(settings, 'NO KEY UPDATE SKIP LOCKED')

/** So that nobody deletes its rows: what refers to them can be written. */
export const keyLock = (settings: Place): Prisma.Sql => lock(settings, 'KEY SHARE')

/** Takes one of these locks on the rows of these ids that are there: what is read of them next holds until the end. */
export async function lockRows(
  tx: Tx,
  table: 'Agent' | 'Chat' | 'McpServer' | 'Media' | 'Mission' | 'Organization' | 'Skill' | 'Space' | 'Task' | 'User',
  ids: readonly string[],
  lock: Prisma.Sql,
): Promise<void> {
  if (lock === Prisma.empty) return
  const from = Prisma.raw(`"${table}"`)
  await tx.$queryRaw(Prisma.sql`SELECT "id" FROM ${from} WHERE "id" IN (${Prisma.join(ids)}) ${lock}`)
}

/**
 * Opens the database that the settings name, with its tables brought up to date; makes an SQLite file that is missing.
 * With `migrate: false` it is left as it is, and refused unless its tables are up to date. Throws a MigrationError, or the
 * driver's error when nothing answers.
 */
export async function openDatabase(settings: Source, options: OpenOptions = {}): Promise<Database> {
  const { migrate = true, keepsFile = false, onDamage, onQuery, statementTimeout } = options
  const file = databaseFile(settings)
  const opening = file
    ? openSqlite(file, migrate, { keepsFile, onDamage })
    : openPostgresql(settings, migrate, { statementTimeout, onDamage })
  const { adapter, create, wrap } = await opening
  const connected = await adapter.connect()
  // Prisma's, on connections that are not its own to end.
  const lent = { ...adapter, connect: async () => overrideMembers(() => connected, { dispose: async () => {} }) }
  let prisma: PrismaClient | undefined
  function makePrisma(): PrismaClient {
    const client = create({
      adapter: lent,
      log: onQuery ? [{ emit: 'event', level: 'query' }] : [],
      transactionOptions: TRANSACTION,
    })
    if (onQuery) client.$on('query', (event) => onQuery(event.query))
    return client
  }
  return {
    client: wrap(createFastClient(() => (prisma ??= makePrisma()), adapter, onQuery)),
    kind: file ? 'sqlite' : 'postgresql',
    async close() {
      await prisma?.$disconnect()
      await connected.dispose()
    },
  }
}

type Options = {
  adapter: SqlDriverAdapterFactory
  log: { emit: 'event'; level: 'query' }[]
  transactionOptions: typeof TRANSACTION
}

// Each driver is loaded only where it is used: loading takes most of the time that opening takes.

type Opened = {
  adapter: SqlDriverAdapterFactory & FastPathDriver
  create: (options: Options) => PrismaClient<'query'>
  /** What makes a client the one that everybody gets. */
  wrap: (client: PrismaClient) => PrismaClient
}

async function openSqlite(file: string, migrate: boolean, options: SqliteOptions): Promise<Opened> {
  requireOwnLog(file)
  const prepare = migrate ? migrateSqlite : requireSqlite
  const [{ sqliteAdapter }] = await Promise.all([import('./sqlite/adapter.ts'), prepare(file)])
  return {
    adapter: sqliteAdapter(file, options),
    create: (options) => new PrismaClient(options),
    wrap: (client) => client,
  }
}

/** Throws where the log beside an SQLite file would be mixed into it, or be deleted (sqlite-log.ts). */
export function requireOwnLog(file: string): void {
  const log = logOf(file)
  if (isOrphanedLog(file))
    throw new MigrationError(`${file} is missing or empty, and ${log} has its data. Put the file back beside it.`)
  if (hasForeignLog(file))
    throw new MigrationError(`${log} belongs to another database than ${file}, and would damage it. Remove ${log}.`)
}

async function openPostgresql(
  settings: Source,
  migrate: boolean,
  options: Pick<OpenOptions, 'statementTimeout' | 'onDamage'>,
): Promise<Opened> {
  const prepare = migrate ? migratePostgresql : requirePostgresql
  const { DATABASE_URL: url = '', DATABASE_DIRECT_URL: directUrl = url, DATABASE_POOL_SIZE: connections } = settings
  const [{ postgresqlAdapter, postgresqlClient, retryDeadlocks }] = await Promise.all([
    import('./postgresql/adapter.ts'),
    prepare(directUrl),
  ])
  const adapter = await postgresqlAdapter(url, connections, { pooled: directUrl !== url, ...options })
  return { adapter, create: postgresqlClient, wrap: retryDeadlocks }
}
