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
import { bounded, inTime, KEEP_ALIVE, TRANSACTION } from '../limits.ts'

/** How often a transaction that was undone for another's sake is tried again, and how long at most in between (ms). */
const RETRIES = 5
const PAUSE = 50

/** A client that uses the adapter. Those of the two databases differ in what nobody uses: isolation levels. */
export const postgresqlClient = (options: ConstructorParameters<typeof PrismaClient>[0]) =>
  new PrismaClient(options) as unknown as SqliteClient<'query'>

type PostgresqlOptions = {
  /** Another program shares out the real connections, each for a transaction, so that they keep nothing. */
  pooled?: boolean
  /** How long to wait for the answer to a statement (ms): then its connection is closed. Default: for ever. */
  statementTimeout?: number | undefined
  /** Is called with PostgreSQL's code for each statement that finds a damaged page or index. */
  onDamage?: ((code: string) => void) | undefined
}

/** PostgreSQL's codes for a damaged page and a damaged index. */
const DAMAGE = /^XX00[12]$/

/** Prisma's own adapter with so many connections, and the short way beside it: on the same ones, with the same errors. */
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
    // It may be lost before whoever asked for it listens; what is said next finds out.
    client.on('error', () => {})
    // Nobody waits for this: it goes with the first statement.
    client.query(ABANDONED).catch(() => {})
  })
  const named = pooled ? {} : { statementNameGenerator: statementNames() }
  const factory = new PrismaPg(pool, { disposeExternalPool: true, ...named })
  /** Looks at why a statement failed, and fails for it. */
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
      const transaction = openTransaction(await inTime(adapter.startTransaction(), undo), failed)
      return bounded(transaction, pipelining(runnerOf(transaction)), joined)
    },
  }
}

/** A transaction of the adapter's, which says COMMIT and ROLLBACK itself. `failed` throws why a statement failed. */
function openTransaction(begun: Transaction, failed: (error: unknown) => never): Transaction {
  let isOpen = true
  /** Whatever fails in a transaction of PostgreSQL's undoes it: its COMMIT would be a ROLLBACK, and say nothing. */
  let failure: unknown

  function assertOpen(): void {
    if (isOpen) return
    throw new DriverAdapterError({ kind: 'TransactionAlreadyClosed', cause: 'The transaction has ended.' })
  }

  /** Statements are sent at once, and answered in their order. What comes after one that failed, fails for its sake. */
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
    // Prisma then sends no COMMIT and ROLLBACK of its own.
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
      // The adapter's commit gives the connection back.
      await begun.executeRaw(plainQuery('COMMIT')).finally(() => begun.commit())
      if (failure) throw failure
    },
  }
}

/** Undoes a transaction. Where it cannot be said, the connection is broken, and the transaction has ended with it. */
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

/** How many inserts of a transaction may be on their way. */
const IN_FLIGHT = 8

/**
 * The same within a transaction, which does not wait for the insert of a row: one that fails is told of by whatever comes
 * after it, by COMMIT at the latest.
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

/** A socket by which the statements of one turn of the event loop go together: each write is dear, and wakes the database. */
function batchingSocket(): Socket {
  const socket = new Socket()
  const { uncork } = socket
  socket.uncork = () => process.nextTick(() => uncork.call(socket))
  return socket
}

/**
 * The database ends a transaction of which it has heard nothing for longer than one may last: its server hangs, and would
 * keep all others from the rows that it has locked.
 */
const ABANDONED = `SET idle_in_transaction_session_timeout = ${TRANSACTION.timeout}`

/** How many statements each connection keeps prepared, and how long one may be: the database has a plan of each in memory. */
const MAX_PREPARED = 500
const MAX_LENGTH = 4096

/**
 * The names under which connections keep statements prepared. The first so many have one, but none that takes any rows
 * that meet a condition: PostgreSQL believes that they are soon met, keeps the plan to look at all rows, and finds out
 * at the last.
 */
function statementNames(): (query: SqlQuery) => string {
  const names = new Map<string, string>()
  return ({ sql, args }) => {
    const known = names.get(sql)
    if (known !== undefined) return known
    // COMMIT among them: prepared, it is several messages, and a connection that ends between them has committed.
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

/** What Prisma's raw queries make of what the adapter says, of the types that columns and expressions have here. */
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
 * The same client, whose transactions are done again when the database has undone them because two waited for each
 * other. So a transaction does nothing that may not happen twice: it awaits the database and changes nothing else.
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
