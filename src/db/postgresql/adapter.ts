import { AsyncLocalStorage } from 'node:async_hooks'
import { PrismaPg } from '@prisma/adapter-pg'
import {
  DriverAdapterError,
  type SqlDriverAdapterFactory,
  type SqlQuery,
  type Transaction,
} from '@prisma/driver-adapter-utils'
import { Pool, type PoolConfig, type QueryConfig } from 'pg'
import type { PrismaClient as PostgresqlClient } from '../../../prisma/generated/postgresql/client.ts'
import type { PrismaClient as SqliteClient } from '../../../prisma/generated/sqlite/client.ts'
import { codeIn, isLostConnection, isTimedOut, isUnavailable } from '../../lib/database-errors.ts'
import { type FastPathDriver, POSTGRESQL, type Statement } from '../fast-path/index.ts'
import { bounded, KEEP_ALIVE, TRANSACTION, withTimeout } from '../limits.ts'
import { overrideMembers } from '../override-members.ts'
import { createGroupCommit } from './group-commit.ts'
import { createLanes } from './lanes.ts'
import { type Connections, openPool } from './pool.ts'
import { passMark, retryStatement } from './retry.ts'
import { FORMS } from './session.ts'
import { openTransaction, type Prepare, runnerOf } from './transaction.ts'
import { toParameter } from './values.ts'

/** Creates a client that uses the adapter. The clients of both databases differ only in unused isolation levels. */
export async function postgresqlClient(
  options: ConstructorParameters<typeof PostgresqlClient>[0],
): Promise<SqliteClient<'query'>> {
  const { PrismaClient } = await import('../../../prisma/generated/postgresql/client.ts')
  return new PrismaClient(options) as unknown as SqliteClient<'query'>
}

type PostgresqlOptions = {
  /** Whether an external pooler shares connections per transaction, so that no session state survives. */
  pooled?: boolean
  /** Maximum wait for the answer to a statement (ms), after which its connection is closed. Default: unlimited. */
  statementTimeout?: number | undefined
  /** Called with PostgreSQL's error code for each failed statement and each connection that does not open. */
  onFailure?: ((code: string) => void) | undefined
}

/**
 * Maximum lifetime of a connection (s), after which it is replaced as soon as it is free. Changed settings of the role,
 * such as `statement_timeout`, and a new address of the host reach new connections only.
 */
const MAX_LIFETIME = 600

/** Creates Prisma's own adapter with a limited pool, and the fast path on the same connections with the same errors. */
export async function postgresqlAdapter(
  url: string,
  connections: number,
  { pooled = false, statementTimeout, onFailure = () => {} }: PostgresqlOptions = {},
): Promise<SqlDriverAdapterFactory & FastPathDriver> {
  const settings: PoolConfig = {
    ...KEEP_ALIVE,
    max: connections,
    maxLifetimeSeconds: MAX_LIFETIME,
    connectionTimeoutMillis: TRANSACTION.maxWait,
    ...(statementTimeout && { query_timeout: statementTimeout }),
    pipeline: true,
    onConnect(client) {
      // The connection may be lost before its user listens for errors; the next statement then fails, without the code.
      client.on('error', ({ code }: Error & { code?: unknown }) => {
        if (isTimedOut(code)) onFailure(code)
      })
      // Not awaited, because it is sent with the first statement.
      client.query(sessionSettings(statementTimeout)).catch(() => {})
    },
  }
  const pool = openPool(url, settings, onFailure)
  const nameOf = (prefix: string) => (pooled ? () => '' : statementNames(prefix))
  const options = { disposeExternalPool: true, statementNameGenerator: nameOf('prisma') }
  const factory = new PrismaPg(poolFor(pool), options)
  const { translate } = await errorTranslator()
  /** Inspects and rethrows the error of a statement. */
  async function failed(error: unknown): Promise<never> {
    const translated = asDriverError(await translate(error))
    // A translated error of a certificate has lost its code.
    if (translated instanceof DriverAdapterError) onFailure(codeIn(error))
    passMark(error, translated)
    throw translated
  }
  const connected = await factory.connect()
  const adapter = overrideMembers(connected, {
    queryRaw: (query: SqlQuery) => retryStatement(query.sql, () => connected.queryRaw(query).catch(failed)),
    executeRaw: (query: SqlQuery) => retryStatement(query.sql, () => connected.executeRaw(query).catch(failed)),
  })
  /** The transaction that Prisma joins instead of beginning one. */
  const joined = new AsyncLocalStorage<Transaction>()
  const shared = overrideMembers(adapter, {
    startTransaction: async (level?: never) => joined.getStore() ?? adapter.startTransaction(level),
  })
  const prepare = preparing(nameOf('muster'))
  const lanes = createLanes(pool)
  const { commit: commitWhole } = createGroupCommit(pool, prepare, pooled)
  const { give } = pool
  const take = () => withTimeout(pool.take().catch(failed), async (late) => give(late))
  return {
    provider: factory.provider,
    adapterName: factory.adapterName,
    connect: async () => shared,
    dialect: POSTGRESQL,
    plain: runnerOf((statement, returns, read) =>
      retryStatement(statement.sql, () => lanes.ask(prepare(statement, returns)).then(read).catch(failed)),
    ),
    async begin() {
      const { transaction, runner } = openTransaction({ take, give, commitWhole, prepare, failed, options })
      return bounded(transaction, runner, joined)
    },
  }
}

/** Translates the driver's errors as Prisma's adapter does, which does not export that. */
async function errorTranslator() {
  const query = async ({ values: [error] }: { values: unknown[] }) => Promise.reject(error)
  const rejecting = await new PrismaPg(Object.assign(Object.create(Pool.prototype), { query })).connect()
  const translate = (error: unknown): Promise<unknown> =>
    error instanceof DriverAdapterError
      ? Promise.resolve(error)
      : rejecting.executeRaw({ sql: '', args: [error], argTypes: [SCALAR] }).then(
          () => error,
          (translated) => translated,
        )
  return { translate }
}

/** Gives the form of the adapter's errors to a failed connection that Prisma does not know, such as a pool's time-out. */
function asDriverError(error: unknown): unknown {
  if (error instanceof DriverAdapterError || !(error instanceof Error) || !isUnavailable(error)) return error
  const { message: originalMessage, code, syscall } = error as NodeJS.ErrnoException
  // As for a host that cannot be reached, whose code Prisma leaves out.
  const originalCode = syscall ? undefined : code
  const isLate = /time.?out/i.test(originalMessage)
  const kind = isLostConnection(error) ? 'ConnectionClosed' : isLate ? 'SocketTimeout' : 'DatabaseNotReachable'
  return new DriverAdapterError({ kind, originalMessage, ...(originalCode && { originalCode }) })
}

/** Lends the connections to Prisma's adapter, which accepts only a pool. */
function poolFor({ take, give, end }: Connections): Pool {
  async function query(sent: QueryConfig) {
    const client = await take()
    let failure: unknown
    try {
      return await client.query(sent)
    } catch (error) {
      failure = error
      throw error
    } finally {
      give(client, failure)
    }
  }
  return Object.assign(Object.create(Pool.prototype), { query, connect: take, end })
}

const SCALAR = { scalarType: 'unknown', arity: 'scalar' } as const

/** Makes statements ready to be sent, with their names. */
const preparing =
  (nameOf: (query: Statement) => string): Prepare =>
  (statement, returns) => ({
    sql: statement.sql,
    values: statement.args.map(toParameter),
    name: nameOf(statement),
    returns,
  })

/**
 * Returns the statements that set a new session up, whatever its role and database have. PostgreSQL ends a transaction
 * that is idle for longer than the limit, because a hung server would block the rows it has locked. Transactions lock
 * rows and then read them again, which needs `read committed`. Compiling a statement that reads a large table takes
 * longer than executing it.
 *
 * `timeout`: the time after which this process gives a statement up (ms). PostgreSQL gives it up before, unless it does
 * so sooner anyway: a statement that waited longer for a lock would be committed after its caller got an error.
 */
const sessionSettings = (timeout?: number): string =>
  [
    `SET idle_in_transaction_session_timeout = ${TRANSACTION.timeout}`,
    `SET default_transaction_isolation = 'read committed'`,
    'SET jit = off',
    FORMS,
    ...(timeout
      ? [
          `SELECT set_config("name", '${timeout * SHARE}', false) FROM pg_settings
            WHERE "name" IN ('lock_timeout', 'statement_timeout') AND "setting"::int NOT BETWEEN 1 AND ${timeout * SHARE}`,
        ]
      : []),
  ].join('; ')

/** PostgreSQL's share of the time for a statement. */
const SHARE = 0.9

/**
 * Maximum number of prepared statements per connection, and maximum length of one (characters). The database holds a
 * plan of each in memory.
 */
const MAX_PREPARED = 500
const MAX_LENGTH = 16_384

/** Statements without parameters that many transactions have. */
const CONTROL = /^(?:BEGIN|COMMIT|SET LOCAL lock_timeout)\b/

/** Counts of the rows that a caller sees (counting.ts). */
const COUNT = /^\s*SELECT sum\(/

/**
 * Returns names for prepared statements. The first ones get a name, with two exceptions. For statements that take any
 * row that meets a condition, PostgreSQL would keep a sequential scan, which expects a match soon and may reach it last.
 * For counts, it would keep a plan that fits only few private rows.
 */
function statementNames(prefix: string): (query: Pick<SqlQuery, 'sql' | 'args'>) => string {
  const names = new Map<string, string>()
  return ({ sql, args }) => {
    const known = names.get(sql)
    if (known !== undefined) return known
    if (!args.length && !CONTROL.test(sql)) return ''
    const takesAny = / LIMIT /.test(sql) && !/ ORDER BY |"id" = \$/.test(sql)
    if (takesAny || COUNT.test(sql) || sql.length > MAX_LENGTH || names.size === MAX_PREPARED) return ''
    const name = `${prefix}_${names.size}`
    names.set(sql, name)
    return name
  }
}
