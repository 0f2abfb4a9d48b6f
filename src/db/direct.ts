import { Prisma, type PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import type { Dialect } from './dialects.ts'
import { over } from './over.ts'
import { type Row, type Runner, read, readEach } from './read.ts'
import { tablesOf } from './schema.ts'
import {
  keyed,
  type Query,
  type Sought,
  type Statement,
  soughtBy,
  toCount,
  toDelete,
  toGroups,
  toInsert,
  toInserts,
  toSelect,
  toUpdate,
  toUpsert,
} from './statements.ts'
import { BEYOND, type Table } from './tables.ts'

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
 * A Prisma client that does without Prisma's query compiler where a call concerns rows of a table, known by what they are
 * related to or not, or reads what belongs to them: that costs a tenth of the time. Everything else ({@link BEYOND}),
 * whatever fails to be found, and every error in what was asked is Prisma's: its client is asked for then, and not
 * before, since it and its compiler take 60 MiB. `onQuery` is told the statements that Prisma does not see.
 */
export function direct(
  prisma: () => PrismaClient,
  { dialect, plain, begin }: Shortcut,
  onQuery?: (sql: string) => void,
): PrismaClient {
  const tables = tablesOf(dialect)
  const told = (runner: Runner) => (onQuery ? telling(runner, onQuery) : runner)
  const instead = (client: () => Tx, runner: Runner, more: object, inTransaction: boolean) =>
    over(client, { ...rawOf(client, runner, dialect), ...more }, wrapAll(client, tables, runner, inTransaction))
  const $transaction = async (work: unknown, options?: object) => {
    if (typeof work !== 'function' || options) return prisma().$transaction(work as never, options)
    const transaction = await begin()
    const theirs = joining(prisma, transaction)
    try {
      const answer = await work(instead(() => theirs.client, told(transaction.runner), {}, true))
      await theirs.end()
      await transaction.commit()
      return answer
    } catch (error) {
      await theirs.end()
      await transaction.rollback()
      throw error
    }
  }
  return instead(prisma, told(plain), { $transaction }, false) as PrismaClient
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
const telling = ({ rows, typedRows, changes }: Runner, tell: (sql: string) => void): Runner => ({
  rows: (statement, exact) => rows(statement, exact).finally(() => tell(statement.sql)),
  typedRows: (statement) => typedRows(statement).finally(() => tell(statement.sql)),
  changes: (statement) => changes(statement).finally(() => tell(statement.sql)),
})

/** Raw statements, and raw queries that only read. */
function rawOf(client: () => Tx, { typedRows, changes }: Runner, { rawText }: Dialect) {
  const statementOf = (query: Said, values: unknown[]): Statement => {
    const sql = 'sql' in query ? query : Prisma.sql(query, ...values)
    return { sql: rawText(sql), args: sql.values }
  }
  return {
    async $queryRaw(query: Said, ...values: unknown[]): Promise<unknown> {
      return (await typedRows(statementOf(query, values))) ?? client().$queryRaw(query, ...values)
    },
    $executeRaw: async (query: Said, ...values: unknown[]): Promise<number> => changes(statementOf(query, values)),
  }
}

type Said = Prisma.Sql | TemplateStringsArray

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
      prisma: (method, call) => (delegate()[method] as Method)(call),
    }
    const own: Delegate = over(delegate, {}, (method) => METHODS.get(method)?.(model, own))
    return own
  }
}

/** A table, and how its rows are reached: by statements, or by a method of Prisma's. */
type Model = {
  table: Table
  runner: Runner
  inTransaction: boolean
  prisma: (method: string, call: unknown) => Promise<unknown>
}

/** The short way, where there is one. */
function either<S>(
  { prisma }: Model,
  name: string,
  plan: (call: unknown) => S,
  run: (plan: S) => Promise<unknown>,
): Method {
  return (call) => {
    let planned: S
    try {
      planned = plan(call)
    } catch (error) {
      if (error === BEYOND) return prisma(name, call)
      throw error
    }
    return run(planned)
  }
}

/** What is not there is for Prisma to say. */
const orTheirs =
  ({ prisma }: Model, name: string, method: Method | undefined): Method =>
  async (call) =>
    (await method?.(call)) ?? prisma(name, call)

/** Those that are asked in one turn of the event loop, and differ only in whom they look for, are one statement. */
function together({ table, runner, prisma }: Model, name: string, method: Method): Method {
  type Asked = { call: unknown; sought: Sought | null; resolve: (answer: Promise<unknown>) => void }
  let turn: Asked[] = []
  function ask(): void {
    const asked = turn
    turn = []
    for (const alike of Map.groupBy(asked, ({ sought, call }) => sought?.shape ?? call).values()) {
      const keys = alike.map(({ sought }) => sought?.key ?? {})
      const nested = alike[0]?.sought?.nested
      const found = nested && alike.length > 1 ? readEach(runner, nested, keys) : null
      for (const [index, { call, resolve }] of alike.entries()) {
        const otherwise = (error: unknown) => (error === BEYOND ? prisma(name, call) : Promise.reject(error))
        // Nobody would hear of what is thrown here.
        resolve(found ? found.then((rows) => rows[index], otherwise) : Promise.try(method, call))
      }
    }
  }
  return (call) =>
    new Promise((resolve) => {
      const sought = soughtBy(table, call)
      if (!turn.length) process.nextTick(ask)
      turn.push({ call, sought, resolve })
    })
}

/** What a query finds, and what belongs to it: too many for one statement, perhaps, which only then is known. */
const reading = <T>(model: Model, name: string, plan: (call: unknown) => Query, answer: (rows: Row[]) => T) =>
  either(
    model,
    name,
    (call) => ({ query: plan(call), call }),
    async ({ query, call }) => {
      try {
        return answer(await read(model.runner, query))
      } catch (error) {
        if (error === BEYOND) return model.prisma(name, call)
        throw error
      }
    },
  )

const head = (found: Row[]) => found[0] ?? null
const first = async ({ runner }: Model, query: Query) => head(await read(runner, query))
const counting = async ({ runner }: Model, statement: Statement) => ({ count: await runner.changes(statement) })

function findUnique(model: Model): Method {
  const find = reading(model, 'findUnique', (call) => toSelect(model.table, keyed(call)), head)
  return model.inTransaction ? find : together(model, 'findUnique', find)
}

const update = (model: Model) =>
  either(
    model,
    'update',
    (call) => toUpdate(model.table, keyed(call), true),
    (query) => first(model, query),
  )

const createMany = (model: Model) =>
  either(
    model,
    'createMany',
    (call) => toInserts(model.table, call),
    async (inserts) => {
      let count = 0
      for (const insert of inserts) count += await model.runner.changes(insert)
      return { count }
    },
  )

type Make = (model: Model, own: Delegate) => Method | undefined

/** The methods of a model. Each is made when it is first asked for: most transactions ask for few, and once. */
const METHODS = new Map<string, Make>(
  Object.entries({
    findFirst: (model) => reading(model, 'findFirst', (call) => toSelect(model.table, call, 1), head),
    findFirstOrThrow: (model, own) => orTheirs(model, 'findFirstOrThrow', own.findFirst),
    findMany: (model) =>
      reading(
        model,
        'findMany',
        (call) => toSelect(model.table, call),
        (found) => found,
      ),
    count: (model) =>
      either(
        model,
        'count',
        (call) => toCount(model.table, call),
        async (statement) => {
          const [row] = await model.runner.rows(statement, false)
          return Number(row?.count)
        },
      ),
    groupBy: (model) =>
      either(
        model,
        'groupBy',
        (call) => toGroups(model.table, call),
        async (query) => (await read(model.runner, query)).map((row) => ({ ...row, _count: Number(row._count) })),
      ),
    findUnique,
    findUniqueOrThrow: (model, own) => orTheirs(model, 'findUniqueOrThrow', own.findUnique),
    // Outside a transaction, rows that differ in their columns are Prisma's to create together.
    createMany: (model) => (model.inTransaction ? createMany(model) : undefined),
    create: (model) =>
      either(
        model,
        'create',
        (call) => toInsert(model.table, call),
        (query) => first(model, query),
      ),
    upsert: (model) =>
      either(
        model,
        'upsert',
        (call) => toUpsert(model.table, call),
        (query) => first(model, query),
      ),
    update: (model) => orTheirs(model, 'update', update(model)),
    updateMany: (model) =>
      either(
        model,
        'updateMany',
        (call) => toUpdate(model.table, call, false),
        (statement) => counting(model, statement),
      ),
    updateManyAndReturn: (model) =>
      either(
        model,
        'updateManyAndReturn',
        (call) => toUpdate(model.table, call, true),
        (query) => read(model.runner, query),
      ),
    deleteMany: (model) =>
      either(
        model,
        'deleteMany',
        (call) => toDelete(model.table, call),
        (statement) => counting(model, statement),
      ),
  } satisfies Record<string, Make>),
)
