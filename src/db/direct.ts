import type { Prisma, PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import { over } from './over.ts'
import {
  BEYOND,
  decode,
  type Query,
  type Statement,
  type Table,
  toCount,
  toDelete,
  toInsert,
  toInserts,
  toSelect,
  toUpdate,
} from './statements.ts'

/** Runs statements without Prisma. */
export type Runner = {
  /** Rows with the values as they are stored, numbers as BigInt if `exact`. */
  rows: (statement: Statement, exact: boolean) => Promise<Record<string, unknown>[]>
  /** Rows with the values that the columns declare; null, and it was not run, if the statement writes. */
  typedRows: (statement: Statement) => Promise<object[] | null>
  /** How many rows the statement changed. */
  changes: (statement: Statement) => Promise<number>
}

/** What a driver adapter offers beside Prisma's way. */
export type Shortcut = {
  plain: Runner
  /** In the transaction that has just begun. */
  inside: () => Runner
}

type Method = (call?: unknown) => Promise<unknown>
type Delegate = Record<string, Method>

/**
 * A Prisma client that does without Prisma's query compiler where a call concerns one table and nothing but its own
 * columns: that costs a tenth of the time. Everything else, whatever fails to be found, and every error in what was
 * asked is Prisma's. `onQuery` is told the statements that Prisma does not see.
 */
export function direct<Client extends PrismaClient>(
  client: Client,
  { plain, inside }: Shortcut,
  onQuery: (sql: string) => void = () => {},
): Client {
  const tables = tablesOf(client)
  const runner = told(plain, onQuery)
  const $transaction = (work: unknown, options?: object) => {
    if (typeof work !== 'function') return client.$transaction(work as never, options)
    return client.$transaction(async (tx) => {
      const within = told(inside(), onQuery)
      return work(over(tx, rawOf(tx, within), wrapAll(tx, tables, within, true)))
    }, options)
  }
  return over(client, { ...rawOf(client, runner), $transaction }, wrapAll(client, tables, runner, false))
}

const told = ({ rows, typedRows, changes }: Runner, tell: (sql: string) => void): Runner => ({
  rows: (statement, exact) => {
    tell(statement.sql)
    return rows(statement, exact)
  },
  typedRows: (statement) => {
    tell(statement.sql)
    return typedRows(statement)
  },
  changes: (statement) => {
    tell(statement.sql)
    return changes(statement)
  },
})

/** Raw statements, and raw queries that only read. */
function rawOf(client: Pick<PrismaClient, '$queryRaw' | '$executeRaw'>, { typedRows, changes }: Runner) {
  type Said = Prisma.Sql | TemplateStringsArray
  return {
    async $queryRaw(query: Said, ...values: unknown[]): Promise<unknown> {
      const found = 'sql' in query ? await typedRows({ sql: query.sql, args: query.values }) : null
      return found ?? client.$queryRaw(query, ...values)
    },
    async $executeRaw(query: Said, ...values: unknown[]): Promise<number> {
      return 'sql' in query ? changes({ sql: query.sql, args: query.values }) : client.$executeRaw(query, ...values)
    },
  }
}

/** Prisma's own description of the models: what every client carries, though it is not declared. */
function tablesOf(client: object): ReadonlyMap<string, Table> {
  type Field = { name: string; kind: string; type: string }
  const { models } = Reflect.get(client, '_runtimeDataModel') as { models: Record<string, { fields: Field[] }> }
  return new Map(
    Object.entries(models).map(([name, { fields }]) => {
      const columns = fields.filter(({ kind }) => kind !== 'object').map((field) => [field.name, field.type] as const)
      return [name.charAt(0).toLowerCase() + name.slice(1), { name, columns: new Map(columns) }]
    }),
  )
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
      for (const insert of inserts) await changes(insert)
      return { count: inserts.length }
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
