import { Prisma, type PrismaClient } from '../../../prisma/generated/sqlite/client.ts'
import type { Dialect } from './dialect.ts'
import type { Runner } from './load-relations.ts'
import { type Delegate, METHODS, type Method, type Model } from './methods.ts'
import { overrideMembers } from './override-members.ts'
import { tablesOf } from './schema.ts'
import type { Args, Statement } from './statement.ts'
import { type Table, UNSUPPORTED } from './tables.ts'

/** A transaction that Prisma knows nothing of, unless it has to. */
export type Transaction = {
  runner: Runner
  /** The transaction of Prisma's that `start` begins is this one, and how it ends is not Prisma's to say. */
  adopt: <T>(start: () => T) => T
  commit: () => Promise<void>
  /** Does nothing when it has ended. */
  rollback: () => Promise<void>
}

/** What a driver adapter offers beside Prisma's way. */
export type FastPathDriver = {
  dialect: Dialect
  plain: Runner
  /** Undone when it lasts too long; rejects when its turn does not come in time. */
  begin: () => Promise<Transaction>
}

/**
 * A Prisma client that does without Prisma's query compiler where a call concerns rows of a table, known by what they are
 * related to or not, or reads what belongs to them: that costs a tenth of the time. Everything else ({@link UNSUPPORTED}),
 * whatever fails to be found, and every error in what was asked is Prisma's: its client is asked for then, and not
 * before, since it and its compiler take 60 MiB. `onQuery` is told the statements that Prisma does not see.
 */
export function createFastClient(
  prisma: () => PrismaClient,
  { dialect, plain, begin }: FastPathDriver,
  onQuery?: (sql: string) => void,
): PrismaClient {
  const tables = tablesOf(dialect)
  const logged = (runner: Runner) => (onQuery ? withQueryLog(runner, onQuery) : runner)
  const instead = (client: () => Tx, runner: Runner, more: object, inTransaction: boolean) =>
    overrideMembers(
      client,
      { ...rawOf(client, runner, dialect), ...more },
      wrapAll(client, tables, runner, inTransaction),
    )
  const $transaction = async (work: unknown, options?: object) => {
    // Calls on this client begin at once: a list of them would be outside every transaction.
    if (typeof work !== 'function')
      throw new TypeError('$transaction takes a function; a list of calls is not supported')
    if (options) return prisma().$transaction(work as never, options)
    const transaction = await begin()
    const theirs = joining(prisma, transaction)
    try {
      const answer = await work(instead(() => theirs.client, logged(transaction.runner), {}, true))
      await theirs.end()
      await transaction.commit()
      return answer
    } catch (error) {
      await theirs.end()
      await transaction.rollback()
      throw error
    }
  }
  return instead(prisma, logged(plain), { $transaction }, false) as PrismaClient
}

type Tx = Prisma.TransactionClient

/**
 * Prisma's client within a transaction, which Prisma joins when it is first asked for something: most transactions can
 * do without, and to begin one costs it as much as all their statements.
 */
function joining(prisma: () => PrismaClient, { adopt }: Transaction) {
  let joined: { tx: Promise<Tx>; end: () => Promise<void> } | undefined
  function join() {
    const { promise: tx, resolve, reject } = Promise.withResolvers<Tx>()
    const over = Promise.withResolvers<void>()
    const done = adopt(() =>
      prisma().$transaction(async (begun) => {
        resolve(begun)
        await over.promise
      }),
    ).catch(reject)
    return {
      tx,
      end: async () => {
        over.resolve()
        await done
      },
    }
  }
  const call =
    (model: string | null, name: string) =>
    async (...args: unknown[]) => {
      joined ??= join()
      const tx = await joined.tx
      const target = model ? Reflect.get(tx, model) : tx
      return Reflect.get(target, name).apply(target, args)
    }
  const members = (get: (name: string) => unknown): object =>
    new Proxy({}, { get: (_, name) => (typeof name === 'string' ? get(name) : undefined) })
  const within = members((name) => (name.startsWith('$') ? call(null, name) : members((method) => call(name, method))))
  return { client: within as Tx, end: async () => joined?.end() }
}

/** The same, which tells of each statement when it is done, as Prisma does. */
const withQueryLog = ({ rows, typedRows, changes }: Runner, tell: (sql: string) => void): Runner => ({
  rows: (statement, exact) => rows(statement, exact).finally(() => tell(statement.sql)),
  typedRows: (statement) => typedRows(statement).finally(() => tell(statement.sql)),
  changes: (statement) => changes(statement).finally(() => tell(statement.sql)),
})

/** Raw statements, and raw queries that only read. */
function rawOf(client: () => Tx, { typedRows, changes }: Runner, { rawText }: Dialect) {
  const statementOf = (query: RawQuery, values: unknown[]): Statement => {
    const sql: Prisma.Sql & Pick<Statement, 'adds'> = 'sql' in query ? query : Prisma.sql(query, ...values)
    return { sql: rawText(sql), args: sql.values, ...(sql.adds && { adds: sql.adds }) }
  }
  return {
    async $queryRaw(query: RawQuery, ...values: unknown[]): Promise<unknown> {
      return (await typedRows(statementOf(query, values))) ?? client().$queryRaw(query, ...values)
    },
    $executeRaw: async (query: RawQuery, ...values: unknown[]): Promise<number> => changes(statementOf(query, values)),
  }
}

type RawQuery = Prisma.Sql | TemplateStringsArray

/** A statement that adds one row, or changes it where it is there: like an insert, a transaction need not wait for it. */
export const addsOne = (sql: Prisma.Sql): Prisma.Sql => Object.assign(sql, { adds: 1 })

/** A call without what Prisma knows nothing of. */
function theirs(call: unknown): unknown {
  const { room, ...rest } = (call ?? {}) as Args
  return room === undefined ? call : rest
}

/** The models of a client. */
function wrapAll(client: () => object, tables: ReadonlyMap<string, Table>, runner: Runner, inTransaction: boolean) {
  return (name: string): unknown => {
    const table = tables.get(name)
    if (!table) return undefined
    const delegate = () => Reflect.get(client(), name) as Delegate
    const model: Model = {
      table,
      runner,
      inTransaction,
      prisma: (method, call) => (delegate()[method] as Method)(theirs(call)),
    }
    const own: Delegate = overrideMembers(delegate, {}, (method) => METHODS.get(method)?.(model, own))
    return own
  }
}
