import { Prisma, type PrismaClient } from '../../../prisma/generated/sqlite/client.ts'
import { type Dialect, failUnlessRows } from './dialect.ts'
import type { Runner } from './load-relations.ts'
import { type Delegate, METHODS, type Method, type Model } from './methods.ts'
import { overrideMembers } from './override-members.ts'
import { tablesOf } from './schema.ts'
import type { Args, Statement } from './statement.ts'
import { quote, type Table, UNSUPPORTED } from './tables.ts'

/** A transaction that begins without Prisma and involves it only if needed. */
export type Transaction = {
  runner: Runner
  /** Lets the Prisma transaction that `start` begins join this one. Prisma cannot commit or roll it back. */
  adopt: <T>(start: () => T) => T
  commit: () => Promise<void>
  /** Rolls back. Does nothing after the transaction has ended. */
  rollback: () => Promise<void>
}

/** Interface of a driver adapter for the fast path. */
export type FastPathDriver = {
  dialect: Dialect
  plain: Runner
  /**
   * Begins a transaction, which is rolled back when it exceeds its time limit. Rejects if its turn does not come in
   * time.
   */
  begin: () => Promise<Transaction>
}

/**
 * Creates a Prisma client that bypasses Prisma's query compiler for supported calls, in a tenth of the time. Everything
 * else ({@link UNSUPPORTED}), rows that are not found where that is an error, and all errors in the arguments are left
 * to Prisma. Its client is created on first use because it takes 60 MiB with its compiler. `onQuery` receives the
 * statements that Prisma does not see.
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
    // Calls on this client start at once, so a list of them would be outside any transaction.
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
 * Wraps Prisma's client in a transaction, which Prisma joins on first use. Most transactions need no Prisma, and
 * joining costs as much as all their statements.
 */
function joining(prisma: () => PrismaClient, { adopt }: Transaction) {
  let joined: { tx: Promise<Tx>; end: () => Promise<void> } | undefined
  function join() {
    const { promise: tx, resolve, reject } = Promise.withResolvers<Tx>()
    const ended = Promise.withResolvers<void>()
    const done = adopt(() =>
      prisma().$transaction(async (begun) => {
        resolve(begun)
        await ended.promise
      }),
    ).catch(reject)
    return {
      tx,
      end: async () => {
        ended.resolve()
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

/** Wraps a runner to report each statement when it is done, as Prisma does. */
const withQueryLog = ({ rows, typedRows, changes }: Runner, record: (sql: string) => void): Runner => ({
  rows: (statement, exact) => rows(statement, exact).finally(() => record(statement.sql)),
  typedRows: (statement) => typedRows(statement).finally(() => record(statement.sql)),
  changes: (statement) => changes(statement).finally(() => record(statement.sql)),
})

/** Executes raw statements and read-only raw queries. */
function rawOf(client: () => Tx, { typedRows, changes }: Runner, { rawText }: Dialect) {
  const statementOf = (query: RawQuery, values: unknown[]): Statement => {
    const sql: Certain = 'sql' in query ? query : Prisma.sql(query, ...values)
    const { certain, part } = sql
    return { sql: rawText(sql), args: sql.values, ...(certain !== undefined && { certain, ...(part && { part }) }) }
  }
  return {
    async $queryRaw(query: RawQuery, ...values: unknown[]): Promise<unknown> {
      return (await typedRows(statementOf(query, values))) ?? client().$queryRaw(query, ...values)
    },
    $executeRaw: async (query: RawQuery, ...values: unknown[]): Promise<number> => changes(statementOf(query, values)),
  }
}

type RawQuery = Prisma.Sql | TemplateStringsArray

type Certain = Prisma.Sql & Pick<Statement, 'certain' | 'part'>

/**
 * Returns a statement that inserts a row with a key, or adds its amounts to those of the row with this key. In a
 * transaction, like an insert, it need not be awaited, and those of concurrent transactions become one.
 */
export function addsTo(
  table: Prisma.ModelName,
  key: Readonly<Record<string, string>>,
  amounts: Readonly<Record<string, number>>,
): Prisma.Sql {
  const keys = Object.keys(key).map(quote)
  const sums = Object.keys(amounts).map(quote)
  const into = `INSERT INTO ${quote(table)} (${[...keys, ...sums].join(', ')}) VALUES `
  const added = sums.map((name) => `${name} = ${quote(table)}.${name} + excluded.${name}`)
  const onConflict = ` ON CONFLICT (${keys.join(', ')}) DO UPDATE SET ${added.join(', ')}`
  const values = Prisma.join([...Object.values(key), ...Object.values(amounts)])
  const sql = Prisma.sql`${Prisma.raw(into)}(${values})${Prisma.raw(onConflict)}`
  return Object.assign(sql, { certain: 1, part: { table, into, onConflict, sums: sums.length } })
}

/**
 * Returns a statement that locks rows of a table on PostgreSQL, and fails unless a SELECT locks as many as expected
 * ({@link isUnexpectedCount}). In a transaction it need not be awaited.
 */
export function locksRows(table: Prisma.ModelName, select: Prisma.Sql, rows: number): Prisma.Sql {
  const sql = Prisma.sql`${Prisma.raw(failUnlessRows(rows, ''))}(${select}) AS "locked"`
  const part = { table, returning: select.text, rows, isLock: true } as const
  return Object.assign(sql, { certain: rows, part })
}

/** Returns a call without the arguments that Prisma does not support. */
function theirs(call: unknown): unknown {
  const { byteBudget, expectsOne, ...rest } = (call ?? {}) as Args
  return byteBudget === undefined && expectsOne === undefined ? call : rest
}

/** Wraps the models of a client. */
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
