import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { SqlDriverAdapterFactory } from '@prisma/driver-adapter-utils'
import type { PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import * as Prisma from '../../prisma/generated/sqlite/internal/prismaNamespace.ts'
import type { Settings } from '../settings.ts'
import { createFastClient, type FastMethod, type FastPathDriver } from './fast-path/index.ts'
import { TRANSACTION } from './limits.ts'
import { MigrationError } from './migrations.ts'
import { overrideMembers } from './override-members.ts'
import {
  type BlockedMigration,
  migratePostgresql,
  requirePostgresql,
  requireTransactions,
} from './postgresql/migrate.ts'
import type { SqliteOptions } from './sqlite/adapter.ts'
import { migrateSqlite, requireSqlite } from './sqlite/migrate.ts'
import { hasForeignLog, isOrphanedLog, logOf } from './sqlite/write-ahead-log.ts'

export type * from '../../prisma/generated/sqlite/client.ts'
export { Prisma }

/** Database client for both databases, with the methods that the fast path supports. */
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
  /** Closes all connections after open transactions have ended. */
  close: () => Promise<void>
}

type OpenOptions = {
  /** Whether to apply pending migrations. Default: true. */
  migrate?: boolean
  /** Whether to checkpoint an SQLite file regularly, as its only server does. Default: false. */
  keepsFile?: boolean
  /** Called with the database's own error code for each failed statement. */
  onFailure?: ((code: string) => void) | undefined
  /** Called with the first error of a regular checkpoint of an SQLite file since the last complete one. */
  onCheckpointFailure?: ((error: Error) => void) | undefined
  /** Called with every SQL statement. */
  onQuery?: ((sql: string) => void) | undefined
  /** Maximum wait for PostgreSQL's answer to a statement (ms). Default: unlimited. */
  statementTimeout?: number | undefined
  /** Called while a migration of PostgreSQL waits for tables that other sessions have locked. */
  onBlocked?: ((blocked: BlockedMigration) => void) | undefined
}

/** Returns the absolute path of the configured SQLite file, or null for PostgreSQL. */
export function databaseFile({ DATABASE_URL, DATA_DIR }: DatabaseSettings): string | null {
  if (!DATABASE_URL) return resolve(join(DATA_DIR, 'muster.db'))
  if (!DATABASE_URL.startsWith('file:')) return null
  return DATABASE_URL.startsWith('file://') ? fileURLToPath(DATABASE_URL) : resolve(DATABASE_URL.slice('file:'.length))
}

/** The settings that name the database. */
export type DatabaseSettings = Pick<Settings, 'DATABASE_URL' | 'DATA_DIR'>

const lock = (settings: DatabaseSettings, strength: string): Prisma.Sql =>
  databaseFile(settings) === null ? Prisma.raw(`FOR ${strength}`) : Prisma.empty

/**
 * Returns an SQL suffix that locks the rows of a SELECT until the transaction ends. It is empty on SQLite, which has
 * one writer.
 */
export const rowLock = (settings: DatabaseSettings): Prisma.Sql => lock(settings, 'NO KEY UPDATE')

/** Returns the suffix that locks rows like {@link rowLock}, but skips those that are locked already. */
export const freeRowLock = (settings: DatabaseSettings): Prisma.Sql => lock(settings, 'NO KEY UPDATE SKIP LOCKED')

/** Returns an SQL suffix that prevents the deletion of rows, so that references to them can be written. */
export const keyLock = (settings: DatabaseSettings): Prisma.Sql => lock(settings, 'KEY SHARE')

type LockedTable = Exclude<Prisma.ModelName, 'Membership'>

/** Locks the existing rows with these ids with one of these locks, so that later reads stay valid until the end. */
export async function lockRows(tx: Tx, table: LockedTable, ids: readonly string[], lock: Prisma.Sql): Promise<void> {
  if (lock === Prisma.empty) return
  const from = Prisma.raw(`"${table}"`)
  await tx.$queryRaw(Prisma.sql`SELECT "id" FROM ${from} WHERE "id" IN (${Prisma.join(ids)}) ${lock}`)
}

/**
 * Opens the configured database and applies pending migrations; creates a missing SQLite file. With `migrate: false` it
 * changes nothing and requires an up-to-date schema. Throws a MigrationError, or the driver's error if the database is
 * unreachable.
 */
export async function openDatabase(settings: Source, options: OpenOptions = {}): Promise<Database> {
  const { migrate = true, keepsFile = false, onFailure, onQuery } = options
  const { onCheckpointFailure, statementTimeout, onBlocked } = options
  const file = databaseFile(settings)
  const opening = file
    ? openSqlite(file, migrate, { keepsFile, onFailure, onCheckpointFailure })
    : openPostgresql(settings, migrate, { statementTimeout, onFailure, onBlocked })
  const { adapter, create, wrap } = await opening
  const connected = await adapter.connect()
  // A Prisma adapter whose connections Prisma must not close.
  const lent = { ...adapter, connect: async () => overrideMembers(connected, { dispose: async () => {} }) }
  let prisma: Promise<PrismaClient> | undefined
  async function makePrisma(): Promise<PrismaClient> {
    const client = await create({
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
      await (await prisma)?.$disconnect()
      await connected.dispose()
    },
  }
}

type Options = {
  adapter: SqlDriverAdapterFactory
  log: { emit: 'event'; level: 'query' }[]
  transactionOptions: typeof TRANSACTION
}

// Drivers and Prisma's clients are imported on demand. The driver takes most of the opening time; a client has 3 MB of
// source and data, which most servers never need.

type Opened = {
  adapter: SqlDriverAdapterFactory & FastPathDriver
  create: (options: Options) => Promise<PrismaClient<'query'>>
  /** Wraps the client for all users. */
  wrap: (client: PrismaClient) => PrismaClient
}

async function openSqlite(file: string, migrate: boolean, options: SqliteOptions): Promise<Opened> {
  requireOwnLog(file)
  const prepare = migrate ? migrateSqlite : requireSqlite
  const [{ sqliteAdapter }] = await Promise.all([import('./sqlite/adapter.ts'), prepare(file)])
  return {
    adapter: sqliteAdapter(file, options),
    async create(options) {
      const { PrismaClient } = await import('../../prisma/generated/sqlite/client.ts')
      return new PrismaClient(options)
    },
    wrap: (client) => client,
  }
}

/** Throws if the log beside an SQLite file would be mixed into it or deleted (sqlite/write-ahead-log.ts). */
export function requireOwnLog(file: string): void {
  const log = logOf(file)
  if (isOrphanedLog(file))
    throw new MigrationError(`${file} is missing or empty, but ${log} holds its data. Restore the file beside it.`)
  if (hasForeignLog(file))
    throw new MigrationError(`${log} belongs to another database than ${file} and would corrupt it. Remove ${log}.`)
}

async function openPostgresql(
  settings: Source,
  migrate: boolean,
  { onBlocked, ...options }: Pick<OpenOptions, 'statementTimeout' | 'onFailure' | 'onBlocked'>,
): Promise<Opened> {
  const { DATABASE_URL: url = '', DATABASE_DIRECT_URL: directUrl = url, DATABASE_POOL_SIZE: connections } = settings
  const pooled = directUrl !== url
  const [{ postgresqlAdapter, postgresqlClient }, { retryTransactions }] = await Promise.all([
    import('./postgresql/adapter.ts'),
    import('./postgresql/retry.ts'),
    migrate ? migratePostgresql(directUrl, { onBlocked }) : requirePostgresql(directUrl),
    pooled && requireTransactions(url),
  ])
  const adapter = await postgresqlAdapter(url, connections, { pooled, ...options })
  return { adapter, create: postgresqlClient, wrap: retryTransactions }
}
