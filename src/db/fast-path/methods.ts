import { type Row, type Runner, read, readEach } from './load-relations.ts'
import { toCount, toFirstOfEach, toGroups, toSelect } from './select.ts'
import type { Query, Statement } from './statement.ts'
import { type Table, UNSUPPORTED } from './tables.ts'
import { requireWhere, type UniqueKey, uniqueKeyOf } from './unique-key.ts'
import { toDelete, toInsert, toInserts, toUpdate, toUpsert } from './write.ts'

export type Method = (call?: unknown) => Promise<unknown>
export type Delegate = Record<string, Method>

/** A table with the ways to reach its rows: statements, or methods of Prisma. */
export type Model = {
  table: Table
  runner: Runner
  inTransaction: boolean
  prisma: (method: string, call: unknown) => Promise<unknown>
}

/** Uses the fast path if it supports the call, otherwise Prisma. */
function fastOrPrisma<S>(
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
      if (error === UNSUPPORTED) return prisma(name, call)
      throw error
    }
    return run(planned)
  }
}

/** Repeats a call through Prisma if it finds no row, because Prisma throws the error for that. */
const orThrowViaPrisma =
  ({ prisma }: Model, name: string, method: Method | undefined): Method =>
  async (call) =>
    (await method?.(call)) ?? prisma(name, call)

/** Merges `findUnique` calls of one event loop turn that differ only in their keys into one statement. */
function batchFindUnique({ table, runner, prisma }: Model, name: string, method: Method): Method {
  type Asked = { call: unknown; unique: UniqueKey | null; resolve: (answer: Promise<unknown>) => void }
  let turn: Asked[] = []
  function ask(): void {
    const asked = turn
    turn = []
    for (const alike of Map.groupBy(asked, ({ unique, call }) => unique?.shape ?? call).values()) {
      const keys = alike.map(({ unique }) => unique?.key ?? {})
      const nested = alike[0]?.unique?.nested
      const found = nested && alike.length > 1 ? readEach(runner, nested, keys) : null
      for (const [index, { call, resolve }] of alike.entries()) {
        const otherwise = (error: unknown) => (error === UNSUPPORTED ? prisma(name, call) : Promise.reject(error))
        // An error thrown here would be unhandled.
        resolve(found ? found.then((rows) => rows[index], otherwise) : Promise.try(method, call))
      }
    }
  }
  return (call) =>
    new Promise((resolve) => {
      const unique = uniqueKeyOf(table, call)
      if (!turn.length) process.nextTick(ask)
      turn.push({ call, unique, resolve })
    })
}

/**
 * Reads rows and their relations. Falls back to Prisma if the rows turn out to need more parameters than a statement
 * may have.
 */
const reading = <T>(model: Model, name: string, plan: (call: unknown) => Query, answer: (rows: Row[]) => T) =>
  fastOrPrisma(
    model,
    name,
    (call) => ({ query: plan(call), call }),
    async ({ query, call }) => {
      try {
        return answer(await read(model.runner, query))
      } catch (error) {
        if (error === UNSUPPORTED) return model.prisma(name, call)
        throw error
      }
    },
  )

const head = (found: Row[]) => found[0] ?? null

/** Writes a row and returns it. */
const writing = (model: Model, name: string, plan: (call: unknown) => Query) =>
  fastOrPrisma(model, name, plan, async (query) => head(await read(model.runner, query)))

/** Writes rows and returns their number. */
const changing = (model: Model, name: string, plan: (call: unknown) => readonly Statement[]) =>
  fastOrPrisma(model, name, plan, async (statements) => {
    let count = 0
    for (const statement of statements) count += await model.runner.changes(statement)
    return { count }
  })

function findUnique(model: Model): Method {
  const find = reading(model, 'findUnique', (call) => toSelect(model.table, requireWhere(model.table, call)), head)
  return model.inTransaction ? find : batchFindUnique(model, 'findUnique', find)
}

type Make = (model: Model, own: Delegate) => Method | undefined

const MAKERS = {
  findFirst: (model) => reading(model, 'findFirst', (call) => toSelect(model.table, call, 1), head),
  findFirstOrThrow: (model, own) => orThrowViaPrisma(model, 'findFirstOrThrow', own.findFirst),
  findMany: (model) =>
    reading(
      model,
      'findMany',
      (call) => toSelect(model.table, call),
      (found) => found,
    ),
  count: (model) =>
    fastOrPrisma(
      model,
      'count',
      (call) => toCount(model.table, call),
      async (statement) => {
        const [row] = await model.runner.rows(statement, false)
        return Number(row?.count)
      },
    ),
  groupBy: (model) =>
    fastOrPrisma(
      model,
      'groupBy',
      (call) => toGroups(model.table, call),
      async (query) => (await read(model.runner, query)).map((row) => ({ ...row, _count: Number(row._count) })),
    ),
  findFirstOfEach: (model) => async (call) => {
    try {
      return await read(model.runner, toFirstOfEach(model.table, call))
    } catch (error) {
      if (error === UNSUPPORTED) throw new TypeError(`findFirstOfEach of ${model.table.name}: unsupported arguments`)
      throw error
    }
  },
  findUnique,
  findUniqueOrThrow: (model, own) => orThrowViaPrisma(model, 'findUniqueOrThrow', own.findUnique),
  // Outside a transaction, Prisma creates rows that differ in their columns, so that they are atomic.
  createMany: (model) =>
    model.inTransaction ? changing(model, 'createMany', (call) => toInserts(model.table, call)) : undefined,
  create: (model) => writing(model, 'create', (call) => toInsert(model.table, call)),
  upsert: (model) => writing(model, 'upsert', (call) => toUpsert(model.table, call)),
  update: (model) =>
    orThrowViaPrisma(
      model,
      'update',
      writing(model, 'update', (call) => toUpdate(model.table, requireWhere(model.table, call), true)),
    ),
  updateMany: (model) => changing(model, 'updateMany', (call) => [toUpdate(model.table, call, false)]),
  updateManyAndReturn: (model) =>
    fastOrPrisma(
      model,
      'updateManyAndReturn',
      (call) => toUpdate(model.table, call, true),
      (query) => read(model.runner, query),
    ),
  deleteMany: (model) => changing(model, 'deleteMany', (call) => [toDelete(model.table, call)]),
} satisfies Record<string, Make>

/** Methods that the fast path supports. */
export type FastMethod = keyof typeof MAKERS

/**
 * Factories of the model methods. Each method is created on first use, because most transactions call few methods once.
 */
export const METHODS = new Map<string, Make>(Object.entries(MAKERS))
