import type { PrismaClient } from '../../../prisma/generated/sqlite/client.ts'
import * as Prisma from '../../../prisma/generated/sqlite/internal/prismaNamespace.ts'
import { type Dialect, failUnlessRows } from './dialect.ts'
import type { Runner } from './load-relations.ts'
import { type Access, Model } from './methods.ts'
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
  /** Returns the error of a failed transaction, or its time limit if the error says only that it has ended. */
  explain: (error: unknown) => unknown
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
  prisma: () => Promise<PrismaClient>,
  { dialect, plain, begin }: FastPathDriver,
  onQuery?: (sql: string) => void,
): PrismaClient {
  const tables = tablesOf(dialect)
  const logged = (runner: Runner) => (onQuery ? withQueryLog(runner, onQuery) : runner)
  const clientOf = clientsOf(tables, dialect)
  const $transaction = async (work: unknown, options?: object) => {
    // Calls on this client start at once, so a list of them would be outside any transaction.
    if (typeof work !== 'function')
      throw new TypeError('$transaction takes a function; a list of calls is not supported')
    if (options) return (await prisma()).$transaction(work as never, options)
    return together((access) => work(clientOf(access)))
  }
  async function together<T>(work: (access: Access) => Promise<T>): Promise<T> {
    const transaction = await begin()
    const theirs = joining(prisma, transaction)
    const access: Access = {
      runner: logged(transaction.runner),
      inTransaction: true,
      together: (more) => more(access),
      prisma: theirs.call,
    }
    try {
      const answer = await work(access)
      await theirs.end()
      await transaction.commit()
      return answer
    } catch (error) {
      await theirs.end()
      await transaction.rollback()
      throw transaction.explain(error)
    }
  }
  const access: Access = {
    runner: logged(plain),
    inTransaction: false,
    together,
    prisma: async (model, method, ...args) => callOf(await prisma(), model, method, ...args),
  }
  // Each model is made once, because it collects the calls of `findUnique` in a turn of the event loop.
  const models = [...tables].map(([name, table]) => [name, { value: new Model(name, table, access), writable: true }])
  return Object.defineProperties(
    Object.assign(clientOf(access), { $transaction }),
    Object.fromEntries(models),
  ) as PrismaClient
}

type Tx = Prisma.TransactionClient

/** Executes a call of a model, or with the model '' of the client, through Prisma. */
function callOf(client: object, model: string, method: string, ...args: unknown[]): Promise<unknown> {
  const target = model ? Reflect.get(client, model) : client
  return Reflect.get(target, method).apply(target, args.map(theirs))
}

/** Returns a function that creates a client without `$transaction`, as transactions have it. */
function clientsOf(tables: ReadonlyMap<string, Table>, dialect: Dialect): (access: Access) => object {
  class Client {
    readonly access: Access
    constructor(access: Access) {
      this.access = access
    }
    $queryRaw(query: RawQuery, ...values: unknown[]) {
      return queryRaw(this.access, dialect, query, values)
    }
    $executeRaw(query: RawQuery, ...values: unknown[]) {
      return executeRaw(this.access, dialect, query, values)
    }
  }
  for (const [name, table] of tables) {
    Object.defineProperty(Client.prototype, name, {
      get(this: Client) {
        return new Model(name, table, this.access)
      },
    })
  }
  return (access) => new Client(access)
}

/**
 * Returns a function that executes calls through Prisma in a transaction, which Prisma joins on the first one. Most
 * transactions need no Prisma, and joining costs as much as all their statements.
 */
function joining(prisma: () => Promise<PrismaClient>, { adopt }: Transaction) {
  let joined: { tx: Promise<Tx>; end: () => Promise<void> } | undefined
  function join() {
    const { promise: tx, resolve, reject } = Promise.withResolvers<Tx>()
    const ended = Promise.withResolvers<void>()
    const done = adopt(async () => {
      const client = await prisma()
      return client.$transaction(async (begun) => {
        resolve(begun)
        await ended.promise
      })
    }).catch(reject)
    return {
      tx,
      end: async () => {
        ended.resolve()
        await done
      },
    }
  }
  return {
    async call(model: string, method: string, ...args: unknown[]): Promise<unknown> {
      joined ??= join()
      return callOf(await joined.tx, model, method, ...args)
    },
    end: async () => joined?.end(),
  }
}

/** Wraps a runner to report each statement when it is done, as Prisma does. */
const withQueryLog = ({ rows, typedRows, changes }: Runner, record: (sql: string) => void): Runner => ({
  rows: (statement, exact) => rows(statement, exact).finally(() => record(statement.sql)),
  typedRows: (statement) => typedRows(statement).finally(() => record(statement.sql)),
  changes: (statement) => changes(statement).finally(() => record(statement.sql)),
})

/** Executes a raw query, through Prisma if it writes. */
const queryRaw = async ({ runner, prisma }: Access, dialect: Dialect, query: RawQuery, values: unknown[]) =>
  (await runner.typedRows(statementOf(dialect, query, values))) ?? prisma('', '$queryRaw', query, ...values)

const executeRaw = ({ runner }: Access, dialect: Dialect, query: RawQuery, values: unknown[]): Promise<number> =>
  runner.changes(statementOf(dialect, query, values))

function statementOf(dialect: Dialect, query: RawQuery, values: unknown[]): Statement {
  const sql: Certain = 'sql' in query ? query : Prisma.sql(query, ...values)
  const { certain, part } = sql
  const args = sql.values.map((value) => storedAs(dialect, value))
  return { sql: dialect.rawText(sql), args, ...(certain !== undefined && { certain, ...(part && { part }) }) }
}

/** Returns a parameter of a raw query as the database stores it. */
function storedAs(dialect: Dialect, value: unknown): unknown {
  if (typeof value === 'boolean') return dialect.boolean(value)
  return value instanceof Date ? dialect.date(value) : value
}

type RawQuery = Prisma.Sql | TemplateStringsArray

type Certain = Prisma.Sql & Pick<Statement, 'certain' | 'part'>

/**
 * Compiles a statement that inserts a row with a key, or adds its amounts to those of the row with this key. Returns a
 * function that makes it for a row. In a transaction, like an insert, it need not be awaited, and those of concurrent
 * transactions become one.
 */
export function addsTo<Key extends string, Sum extends string>(
  table: Prisma.ModelName,
  keys: readonly Key[],
  sums: readonly Sum[],
): (row: Readonly<Record<Key, string> & Record<Sum, number>>) => Prisma.Sql {
  const into = `INSERT INTO ${quote(table)} (${[...keys, ...sums].map(quote).join(', ')}) VALUES `
  const added = sums.map((name) => `${quote(name)} = ${quote(table)}.${quote(name)} + excluded.${quote(name)}`)
  const onConflict = ` ON CONFLICT (${keys.map(quote).join(', ')}) DO UPDATE SET ${added.join(', ')}`
  const names = [...keys, ...sums]
  const texts = [`${into}(`, ...names.slice(1).map(() => ', '), `)${onConflict}`]
  const certain = { certain: 1, part: { table, into, onConflict, sums: sums.length } }
  return (row) =>
    Object.assign(
      new Prisma.Sql(
        texts,
        names.map((name) => row[name]),
      ),
      certain,
    )
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

/** Returns arguments without those that Prisma does not support. */
function theirs(call: unknown): unknown {
  const { byteBudget, expectsOne, ...rest } = (call ?? {}) as Args
  return byteBudget === undefined && expectsOne === undefined ? call : rest
}
