import type { Prisma, PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import { type Dialect, decode } from './dialects.ts'
import { over } from './over.ts'
import { type Query, type Statement, toCount, toDelete, toInsert, toInserts, toSelect, toUpdate } from './statements.ts'
import { BEYOND, type Table, tableOf } from './tables.ts'

/** Runs statements without Prisma. */
export type Runner = {
  /** Rows with the values as they are stored, numbers as BigInt if `exact`. */
  rows: (statement: Statement, exact: boolean) => Promise<Record<string, unknown>[]>
  /** Rows with the values that the columns declare; null, and it was not run, if the statement writes. */
  typedRows: (statement: Statement) => Promise<object[] | null>
  /** How many rows the statement changed. */
  changes: (statement: Statement) => Promise<number>
}

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
export type Shortcut = {
  dialect: Dialect
  plain: Runner
  /** Undone when it lasts too long; rejects when its turn does not come in time. */
  begin: () => Promise<Transaction>
}

type Method = (call?: unknown) => Promise<unknown>
type Delegate = Record<string, Method>

/**
 * A Prisma client that does without Prisma's query compiler where a call concerns rows of one table, though it may know
 * them by what they are related to: that costs a tenth of the time. Everything else, whatever fails to be found, and
 * every error in what was asked is Prisma's. `onQuery` is told the statements that Prisma does not see.
 */
export function direct<Client extends PrismaClient>(
  client: Client,
  { dialect, plain, begin }: Shortcut,
  onQuery?: (sql: string) => void,
): Client {
  const tables = tablesOf(client, dialect)
  const told = (runner: Runner) => (onQuery ? telling(runner, onQuery) : runner)
  const runner = told(plain)
  const $transaction = async (work: unknown, options?: object) => {
    if (typeof work !== 'function' || options) return client.$transaction(work as never, options)
    const transaction = await begin()
    const theirs = joining(client, transaction)
    const within = told(transaction.runner)
    try {
      const answer = await work(
        over(theirs.client, rawOf(theirs.client, within, dialect), wrapAll(theirs.client, tables, within, true)),
      )
      await theirs.end()
      await transaction.commit()
      return answer
    } catch (error) {
      await theirs.end()
      await transaction.rollback()
      throw error
    }
  }
  return over(client, { ...rawOf(client, runner, dialect), $transaction }, wrapAll(client, tables, runner, false))
}

type Tx = Prisma.TransactionClient

/**
 * Prisma's client within a transaction, which Prisma joins when it is first asked for something: most transactions can
 * do without, and to begin one costs it as much as all their statements.
 */
function joining(client: PrismaClient, { adopt }: Transaction) {
  let joined: { tx: Promise<Tx>; end: () => Promise<void> } | undefined
  function join() {
    const { promise: tx, resolve, reject } = Promise.withResolvers<Tx>()
    const over = Promise.withResolvers<void>()
    const done = adopt(() =>
      client.$transaction(async (begun) => {
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
const telling = ({ rows, typedRows, changes }: Runner, tell: (sql: string) => void): Runner => ({
  rows: (statement, exact) => rows(statement, exact).finally(() => tell(statement.sql)),
  typedRows: (statement) => typedRows(statement).finally(() => tell(statement.sql)),
  changes: (statement) => changes(statement).finally(() => tell(statement.sql)),
})

/** Raw statements, and raw queries that only read. */
function rawOf(
  client: Pick<PrismaClient, '$queryRaw' | '$executeRaw'>,
  { typedRows, changes }: Runner,
  { rawText }: Dialect,
) {
  type Said = Prisma.Sql | TemplateStringsArray
  return {
    async $queryRaw(query: Said, ...values: unknown[]): Promise<unknown> {
      const found = 'sql' in query ? await typedRows({ sql: rawText(query), args: query.values }) : null
      return found ?? client.$queryRaw(query, ...values)
    },
    async $executeRaw(query: Said, ...values: unknown[]): Promise<number> {
      return 'sql' in query
        ? changes({ sql: rawText(query), args: query.values })
        : client.$executeRaw(query, ...values)
    },
  }
}

type Field = { name: string; kind: string; type: string; relationName?: string }

/** Prisma's own description of the models: what every client carries, though it is not declared. */
function tablesOf(client: object, dialect: Dialect): ReadonlyMap<string, Table> {
  const { models } = Reflect.get(client, '_runtimeDataModel') as { models: Record<string, { fields: Field[] }> }
  const { inlineSchema: schema } = Reflect.get(client, '_engineConfig') as { inlineSchema: string }
  const tables = new Map(
    Object.entries(models).map(([name, { fields }]) => {
      const columns = fields.filter(({ kind }) => kind !== 'object').map((field) => [field.name, field.type] as const)
      return [name, tableOf(name, new Map(columns), dialect)]
    }),
  )
  for (const { model, field, optional, own, theirs } of foreignKeys(schema)) {
    const { type = '', relationName } = models[model]?.fields.find(({ name }) => name === field) ?? {}
    const [from, to] = [tables.get(model), tables.get(type)]
    const back = models[type]?.fields.find((other) => other.relationName === relationName && other.name !== field)
    if (!from || !to) continue
    const on = own.map((column, index) => [column, theirs[index] ?? ''] as const)
    from.relations.set(field, { to, number: optional ? 'maybe' : 'one', on })
    if (back) to.relations.set(back.name, { to: from, number: 'many', on: on.map(([a, b]) => [b, a] as const) })
  }
  return new Map([...tables].map(([name, table]) => [name.charAt(0).toLowerCase() + name.slice(1), table]))
}

/** The relations of a Prisma schema, as they are written at the side that has the columns. */
function* foreignKeys(schema: string) {
  for (const [, model = '', body = ''] of schema.matchAll(/^model (\w+) \{$(.*?)^\}$/gms)) {
    const relation = /^ *(\w+) +\w+(\??) +@relation\((?:"\w+", )?fields: \[(.+?)\], references: \[(.+?)\]/gm
    for (const [, field = '', optional = '', own = '', theirs = ''] of body.matchAll(relation)) {
      yield { model, field, optional: optional !== '', own: own.split(', '), theirs: theirs.split(', ') }
    }
  }
}

/** The models of a client, each wrapped when it is first asked for. */
function wrapAll(client: object, tables: ReadonlyMap<string, Table>, runner: Runner, inTransaction: boolean) {
  const known = new Map<string, unknown>()
  return (name: string): unknown => {
    const table = tables.get(name)
    if (!table) return undefined
    const delegate = known.get(name) ?? wrap(Reflect.get(client, name) as Delegate, table, runner, inTransaction)
    known.set(name, delegate)
    return delegate
  }
}

function wrap(prisma: Delegate, table: Table, { rows, changes }: Runner, inTransaction: boolean): Delegate {
  async function read(query: Query): Promise<object[]> {
    const exact = query.selected.some((name) => table.columns.get(name) === 'BigInt')
    const found = await rows(query, exact)
    return found.map((row) => decode(table, query.selected, row))
  }
  /** The short way, where there is one. */
  function either<S>(name: string, plan: (call: unknown) => S, run: (plan: S) => Promise<unknown>): Method {
    const theirs = prisma[name] as Method
    return (call) => {
      let planned: S
      try {
        planned = plan(call)
      } catch (error) {
        if (error === BEYOND) return theirs(call)
        throw error
      }
      return run(planned)
    }
  }
  /** What is not there is for Prisma to say. */
  const orTheirs = (name: string, method: Method): Method => {
    const theirs = prisma[name] as Method
    return async (call) => (await method(call)) ?? theirs(call)
  }
  const first = async (query: Query) => (await read(query))[0] ?? null
  const count = async (statement: Statement) => ({ count: await changes(statement) })
  const findFirst = either('findFirst', (call) => toSelect(table, call, 1), first)
  const findUnique = either('findUnique', (call) => toSelect(table, call), first)
  const createMany = either(
    'createMany',
    (call) => toInserts(table, call),
    async (inserts) => {
      let count = 0
      for (const insert of inserts) count += await changes(insert)
      return { count }
    },
  )
  const update = either('update', (call) => toUpdate(table, call, true), first)
  const methods = {
    findFirst,
    findFirstOrThrow: orTheirs('findFirstOrThrow', findFirst),
    findMany: either('findMany', (call) => toSelect(table, call), read),
    count: either(
      'count',
      (call) => toCount(table, call),
      async (statement) => {
        const [row] = await rows(statement, false)
        return Number(row?.count)
      },
    ),
    // Outside a transaction Prisma puts those that are asked together into one statement.
    ...(inTransaction && { findUnique, findUniqueOrThrow: orTheirs('findUniqueOrThrow', findUnique), createMany }),
    create: either('create', (call) => toInsert(table, call), first),
    update: orTheirs('update', update),
    updateMany: either('updateMany', (call) => toUpdate(table, call, false), count),
    updateManyAndReturn: either('updateManyAndReturn', (call) => toUpdate(table, call, true), read),
    deleteMany: either('deleteMany', (call) => toDelete(table, call), count),
  }
  return over(prisma, methods)
}
