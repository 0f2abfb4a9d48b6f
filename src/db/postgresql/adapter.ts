import { AsyncLocalStorage } from 'node:async_hooks'
import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { PrismaPg } from '@prisma/adapter-pg'
import {
  ColumnTypeEnum,
  DriverAdapterError,
  type SqlDriverAdapterFactory,
  type SqlQuery,
  type SqlQueryable,
  type SqlResultSet,
  type Transaction,
} from '@prisma/driver-adapter-utils'
import { Pool } from 'pg'
import { PrismaClient } from '../../../prisma/generated/postgresql/client.ts'
import { Prisma, type PrismaClient as SqliteClient } from '../../../prisma/generated/sqlite/client.ts'
import { isDeadlock } from '../../lib/database-errors.ts'
import { type FastPathDriver, overrideMembers, POSTGRESQL, type Runner, type Statement } from '../fast-path/index.ts'
import { bounded, KEEP_ALIVE, TRANSACTION, withTimeout } from '../limits.ts'

/** Maximum number of retries of a transaction rolled back by a deadlock, and maximum delay between them (ms). */
const RETRIES = 5
const PAUSE = 50

/** Creates a client that uses the adapter. The clients of both databases differ only in unused isolation levels. */
export const postgresqlClient = (options: ConstructorParameters<typeof PrismaClient>[0]) =>
  new PrismaClient(options) as unknown as SqliteClient<'query'>

type PostgresqlOptions = {
  /** Whether an external pooler shares connections per transaction, so that no session state survives. */
  pooled?: boolean
  /** Maximum wait for the answer to a statement (ms), after which its connection is closed. Default: unlimited. */
  statementTimeout?: number | undefined
  /** Called with PostgreSQL's error code for each statement that finds a damaged page or index. */
  onDamage?: ((code: string) => void) | undefined
}

/** PostgreSQL's error codes for a damaged page and a damaged index. */
const DAMAGE = /^XX00[12]$/

/** Creates Prisma's own adapter with a limited pool, and the fast path on the same connections with the same errors. */
export async function postgresqlAdapter(
  url: string,
  connections: number,
  { pooled = false, statementTimeout, onDamage = () => {} }: PostgresqlOptions = {},
): Promise<SqlDriverAdapterFactory & FastPathDriver> {
  const pool = new Pool({
    ...KEEP_ALIVE,
    connectionString: url,
    max: connections,
    connectionTimeoutMillis: TRANSACTION.maxWait,
    ...(statementTimeout && { query_timeout: statementTimeout }),
    pipeline: true,
    stream: batchingSocket,
  })
  pool.on('connect', (client) => {
    // The connection may be lost before its user listens for errors; the next statement then fails.
    client.on('error', () => {})
    // Not awaited, because it is sent with the first statement.
    client.query(ABANDONED).catch(() => {})
  })
  const named = pooled ? {} : { statementNameGenerator: statementNames() }
  const factory = new PrismaPg(pool, { disposeExternalPool: true, ...named })
  /** Inspects and rethrows the error of a statement. */
  function failed(error: unknown): never {
    const code = error instanceof DriverAdapterError ? (error.cause.originalCode ?? '') : ''
    if (DAMAGE.test(code)) onDamage(code)
    throw error
  }
  const connected = await factory.connect()
  const adapter = overrideMembers(() => connected, {
    queryRaw: (query: SqlQuery) => connected.queryRaw(query).catch(failed),
    executeRaw: (query: SqlQuery) => connected.executeRaw(query).catch(failed),
  })
  /** The transaction that Prisma joins instead of beginning one. */
  const joined = new AsyncLocalStorage<Transaction>()
  const shared = overrideMembers(() => adapter, {
    startTransaction: async (level?: never) => joined.getStore() ?? adapter.startTransaction(level),
  })
  return {
    provider: factory.provider,
    adapterName: factory.adapterName,
    connect: async () => shared,
    dialect: POSTGRESQL,
    plain: runnerOf(adapter),
    async begin() {
      const transaction = openTransaction(await withTimeout(adapter.startTransaction(), undo), failed)
      return bounded(transaction, pipelining(runnerOf(transaction)), joined)
    },
  }
}

/**
 * Wraps a transaction of the adapter, and sends COMMIT and ROLLBACK itself. `failed` throws the translated error of a
 * statement.
 */
function openTransaction(begun: Transaction, failed: (error: unknown) => never): Transaction {
  let isOpen = true
  /** PostgreSQL aborts a transaction after any failure: its COMMIT would silently be a ROLLBACK. */
  let failure: unknown

  function assertOpen(): void {
    if (isOpen) return
    throw new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'The transaction has ended.' })
  }

  /** Statements are sent at once and answered in order. Statements after a failed one fail with its error. */
  async function inside<T>(statement: () => Promise<T>): Promise<T> {
    assertOpen()
    try {
      return await statement().catch(failed)
    } catch (error) {
      failure ??= error
      throw failure
    }
  }

  async function rollback(): Promise<void> {
    if (!isOpen) return
    isOpen = false
    await undo(begun)
  }

  return {
    provider: begun.provider,
    adapterName: begun.adapterName,
    // Makes Prisma send no COMMIT and ROLLBACK of its own.
    options: { usePhantomQuery: true },
    queryRaw: (query) => inside(() => begun.queryRaw(query)),
    executeRaw: (query) => inside(() => begun.executeRaw(query)),
    rollback,
    async commit() {
      assertOpen()
      if (failure) {
        await rollback()
        throw failure
      }
      isOpen = false
      // The adapter's commit releases the connection.
      await begun.executeRaw(plainQuery('COMMIT')).finally(() => begun.commit())
      if (failure) throw failure
    },
  }
}

/** Rolls back a transaction. If that fails, the connection is broken and the transaction has ended with it. */
const undo = (begun: Transaction): Promise<void> =>
  begun
    .executeRaw(plainQuery('ROLLBACK'))
    .catch(() => {})
    .then(() => begun.rollback())

const plainQuery = (sql: string): SqlQuery => ({ sql, args: [], argTypes: [] })

const runnerOf = (connection: SqlQueryable): Runner => ({
  rows: async (statement) => objectsOf(await connection.queryRaw(toSqlQuery(statement))),
  typedRows: async (statement) => {
    const found = await connection.queryRaw(toSqlQuery(statement))
    const conversions = found.columnTypes.map((type) => CONVERSIONS.get(type))
    for (const row of found.rows) {
      for (const [index, convert] of conversions.entries()) {
        if (convert && row[index] !== null) row[index] = convert(row[index] as string)
      }
    }
    return objectsOf(found)
  },
  changes: (statement) => connection.executeRaw(toSqlQuery(statement)),
})

/** Maximum number of unanswered inserts in a transaction. */
const IN_FLIGHT = 8

/**
 * Wraps a runner for a transaction so that inserts are not awaited. A later statement, at the latest COMMIT, reports a
 * failure.
 */
function pipelining(runner: Runner): Runner {
  let inFlight = 0
  return {
    ...runner,
    async changes(statement) {
      const answer = runner.changes(statement)
      if (statement.adds !== 1 || inFlight === IN_FLIGHT) return answer
      inFlight++
      const answered = () => void inFlight--
      answer.then(answered, answered)
      return 1
    },
  }
}

/**
 * Creates a socket that sends the statements of one event loop turn together, because each write is expensive and wakes
 * the database.
 */
function batchingSocket(): Socket {
  const socket = new Socket()
  const { uncork } = socket
  socket.uncork = () => process.nextTick(() => uncork.call(socket))
  return socket
}

/**
 * PostgreSQL ends a transaction that is idle for longer than the limit, because a hung server would block the rows it
 * has locked.
 */
const ABANDONED = `SET idle_in_transaction_session_timeout = ${TRANSACTION.timeout}`

/**
 * Maximum number of prepared statements per connection, and maximum length of one (characters). The database holds a
 * plan of each in memory.
 */
const MAX_PREPARED = 500
const MAX_LENGTH = 4096

/**
 * Returns names for prepared statements. The first ones get a name, except statements that take any row that meets a
 * condition: PostgreSQL would keep a sequential scan, expecting a match soon, and reach the match last.
 */
function statementNames(): (query: SqlQuery) => string {
  const names = new Map<string, string>()
  return ({ sql, args }) => {
    const known = names.get(sql)
    if (known !== undefined) return known
    // This includes COMMIT: prepared, it is several messages, and a connection that breaks between them has committed.
    if (!args.length) return ''
    const takesAny = / LIMIT /.test(sql) && !/ ORDER BY |"id" = \$/.test(sql)
    if (takesAny || sql.length > MAX_LENGTH || names.size === MAX_PREPARED) return ''
    const name = `muster_${names.size}`
    names.set(sql, name)
    return name
  }
}

const SCALAR = { scalarType: 'unknown', arity: 'scalar' } as const
const LIST = { scalarType: 'unknown', arity: 'list' } as const

const toSqlQuery = ({ sql, args }: Statement): SqlQuery => ({
  sql,
  args,
  argTypes: args.map((value) => (Array.isArray(value) ? LIST : SCALAR)),
})

/** Converts the adapter's values of raw queries, by PostgreSQL types of columns and expressions. */
const CONVERSIONS = new Map<unknown, (value: string) => unknown>([
  [ColumnTypeEnum.Int64, BigInt],
  [ColumnTypeEnum.Numeric, (value) => new Prisma.Decimal(value)],
  [ColumnTypeEnum.DateTime, (value) => new Date(value)],
  [ColumnTypeEnum.Json, (value) => JSON.parse(value)],
  [ColumnTypeEnum.Bytes, (value) => new Uint8Array(Buffer.from(value))],
])

function objectsOf({ columnNames, rows }: SqlResultSet): Record<string, unknown>[] {
  return rows.map((row) => {
    const object: Record<string, unknown> = {}
    for (const [index, name] of columnNames.entries()) object[name] = row[index]
    return object
  })
}

/**
 * Wraps a client so that transactions are retried after a deadlock. A transaction must therefore only await the
 * database and change nothing else.
 */
export function retryDeadlocks<Client extends Pick<SqliteClient, '$transaction'>>(client: Client): Client {
  const $transaction = async (work: never, options?: object): Promise<unknown> => {
    for (let left = RETRIES; ; left--) {
      try {
        return await client.$transaction(work, options)
      } catch (error) {
        if (!left || !isDeadlock(error)) throw error
        await sleep(Math.random() * PAUSE)
      }
    }
  }
  return overrideMembers(() => client, { $transaction })
}
