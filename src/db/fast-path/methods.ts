import { type Row, type Runner, read, readEach } from './load-relations.ts'
import { toCount, toFirstOfEach, toGroups, toSelect } from './select.ts'
import type { Query, Statement } from './statement.ts'
import { type Table, UNSUPPORTED } from './tables.ts'
import { requireWhere, type UniqueKey, uniqueKeyOf } from './unique-key.ts'
import { toDelete, toInsert, toInserts, toUpdate, toUpsert } from './write.ts'

/** The ways to reach the rows of a client or a transaction: statements, or methods of Prisma's models. */
export type Access = {
  runner: Runner
  inTransaction: boolean
  /** Executes statements in this transaction, or in one of their own. */
  together: <T>(work: (access: Access) => Promise<T>) => Promise<T>
  /** Executes a method of one of Prisma's models, or with the name '' of its client. */
  prisma: (model: string, method: string, ...args: unknown[]) => Promise<unknown>
}

/** A model of a client, with the methods of Prisma's. It is created for each use in a transaction, so it is small. */
export class Model {
  readonly name: string
  readonly table: Table
  readonly access: Access
  /** Calls of `findUnique` in this turn of the event loop. */
  uniqueReads: UniqueRead[] | null = null

  constructor(name: string, table: Table, access: Access) {
    this.name = name
    this.table = table
    this.access = access
  }
}

type UniqueRead = { call: unknown; unique: UniqueKey | null; resolve: (answer: Promise<unknown>) => void }

/** Executes a call. Throws UNSUPPORTED, before anything is written, if Prisma has to execute it. */
type Fast = (model: Model, call: unknown) => Promise<unknown>

const first = (found: readonly Row[]): unknown => found[0] ?? null

/** Leaves a row that is not found to Prisma, which throws the error for that. */
function orThrowViaPrisma(found: unknown): unknown {
  if (found === null) throw UNSUPPORTED
  return found
}

/** Returns the row of a query, without `await`, whose frame would take a caller's place in the stack of an error. */
const readOne = ({ access }: Model, query: Query) => read(access.runner, query).then(first)

/** Executes statements and returns the number of changed rows. */
async function change({ access }: Pick<Model, 'access'>, statements: readonly Statement[]): Promise<{ count: number }> {
  let count = 0
  for (const statement of statements) count += await access.runner.changes(statement)
  return { count }
}

const readUnique: Fast = (model, call) => readOne(model, toSelect(model.table, requireWhere(model.table, call)))

/** Merges `findUnique` calls of one event loop turn that differ only in their keys into one statement. */
function batchFindUnique(model: Model, call: unknown): Promise<unknown> {
  const unique = uniqueKeyOf(model.table, call)
  return new Promise((resolve) => {
    if (!model.uniqueReads) process.nextTick(readTogether, model)
    model.uniqueReads ??= []
    model.uniqueReads.push({ call, unique, resolve })
  })
}

function readTogether(model: Model): void {
  const uniqueReads = model.uniqueReads ?? []
  model.uniqueReads = null
  for (const alike of Map.groupBy(uniqueReads, ({ unique, call }) => unique?.shape ?? call).values()) {
    const keys = alike.map(({ unique }) => unique?.key ?? {})
    const nested = alike[0]?.unique?.nested
    const found = nested && alike.length > 1 ? readEach(model.access.runner, nested, keys) : null
    for (const [index, { call, resolve }] of alike.entries()) {
      // An error thrown here would be unhandled.
      resolve(found ? found.then((rows) => rows[index]) : Promise.try(readUnique, model, call))
    }
  }
}

const findUnique: Fast = (model, call) =>
  model.access.inTransaction ? readUnique(model, call) : batchFindUnique(model, call)

const findFirst: Fast = (model, call) => readOne(model, toSelect(model.table, call, 1))

const FAST = {
  findFirst,
  findFirstOrThrow: async (model, call) => orThrowViaPrisma(await findFirst(model, call)),
  findMany: ({ table, access }, call) => read(access.runner, toSelect(table, call)),
  findUnique,
  findUniqueOrThrow: async (model, call) => orThrowViaPrisma(await findUnique(model, call)),
  async findFirstOfEach({ table, access }, call) {
    try {
      return await read(access.runner, toFirstOfEach(table, call))
    } catch (error) {
      if (error === UNSUPPORTED) throw new TypeError(`findFirstOfEach of ${table.name}: unsupported arguments`)
      throw error
    }
  },
  async count({ table, access }, call) {
    const [row] = await access.runner.rows(toCount(table, call), false)
    return Number(row?.count)
  },
  async groupBy({ table, access }, call) {
    const groups = await read(access.runner, toGroups(table, call))
    return groups.map((group) => ({ ...group, _count: Number(group._count) }))
  },
  create: (model, call) => readOne(model, toInsert(model.table, call)),
  createMany({ table, access }, call) {
    const inserts = toInserts(table, call)
    return access.together((access) => change({ access }, inserts))
  },
  upsert: (model, call) => readOne(model, toUpsert(model.table, call)),
  update: async (model, call) =>
    orThrowViaPrisma(await readOne(model, toUpdate(model.table, requireWhere(model.table, call), true))),
  updateMany: (model, call) => change(model, [toUpdate(model.table, call, false)]),
  updateManyAndReturn: ({ table, access }, call) => read(access.runner, toUpdate(table, call, true)),
  deleteMany: (model, call) => change(model, [toDelete(model.table, call)]),
} satisfies Record<string, Fast>

/** Methods that the fast path supports. */
export type FastMethod = keyof typeof FAST

/** Methods that Prisma alone has. */
const PRISMA_METHODS = ['aggregate', 'createManyAndReturn', 'delete']

/** Adds a method to all models. */
const define = (name: string, method: Fast) =>
  Object.defineProperty(Model.prototype, name, {
    writable: true,
    value(this: Model, call: unknown) {
      return method(this, call)
    },
  })

for (const [name, fast] of Object.entries<Fast>(FAST)) {
  define(name, async (model, call) => {
    try {
      return await fast(model, call)
    } catch (error) {
      if (error === UNSUPPORTED) return model.access.prisma(model.name, name, call)
      throw error
    }
  })
}
for (const name of PRISMA_METHODS) define(name, ({ access, name: model }, call) => access.prisma(model, name, call))
