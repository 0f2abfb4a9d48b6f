import type { ObjectRef } from '@pothos/core'
import { queryFromInfo } from '@pothos/plugin-prisma'
import type { AnyProcedure } from '@trpc/server'
import type { GraphQLResolveInfo } from 'graphql'
import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Db, Prisma } from '../db/client.ts'
import { notFound, type ResourceName } from '../errors.ts'
import { takeWithinBudget, withByteBudget } from '../lib/page.ts'
import type { GraphQLContext, Types } from './builder.ts'
import { NEWEST_FIRST, type Order } from './cursor.ts'
import { argsFromZod, parseArgs } from './inputs.ts'
import { type Answer, addTo, answerTooLong, LIMITS } from './limits.ts'
import { batchScope, loadOne } from './loader.ts'
import { procedureExtensions } from './procedures.ts'

type Where = object

/** Methods of Prisma's models that are used for any model. */
type Delegate<Row> = {
  findMany(query: object): Promise<Row[]>
  findFirst(query: object): Promise<Row | null>
  count(query: { where: Where }): Promise<number>
  groupBy(query: object): Promise<(Record<string, string> & { _count: number })[]>
  /** The first rows of each of many lists (src/db/fast-path/select.ts). */
  findFirstOfEach(query: FirstOfEach): Promise<Readonly<Record<string, unknown>>[]>
}

type FirstOfEach = {
  column: string
  keys: readonly string[]
  where: object
  orderBy: readonly Readonly<Record<string, 'asc' | 'desc'>>[]
  take: number
  select: Readonly<Record<string, true>>
}

/** Describes how the rows of a type are found, for every caller and field. */
export type Rows<Row extends object = object> = {
  /** GraphQL type name. */
  type: string
  model: Prisma.ModelName
  /** Resource name in a 404; null if rows are not requested by id. */
  name: ResourceName | null
  /** Filter for access by id. */
  reachable: (actor: Actor) => Where
  /** Filter for lists. */
  listed: (actor: Actor) => Where
  order: Order
  /** Key columns, without those shared by all rows of a list. */
  key: readonly string[]
  /** Columns that resolvers always need. */
  columns: Readonly<Record<string, true>>
  /** Columns with long texts, which long lists cut (contract-2.md section 1.20). */
  texts: readonly string[]
  /** Type-level only. */
  row?: Row
}

type Options = Partial<Pick<Rows, 'name' | 'listed' | 'order' | 'key' | 'texts'>> & {
  columns?: Readonly<Record<string, true>>
}

/** Describes the rows of a type. Lists show all reachable rows, newest first, unless the options say otherwise. */
export function rowsOf<Row extends object = { id: string }>(
  type: string,
  model: Prisma.ModelName,
  reachable: Rows['reachable'],
  { name = null, listed = reachable, order = NEWEST_FIRST, key = ['id'], columns = {}, texts = [] }: Options = {},
): Rows<Row> {
  const needed = [...key, ...order.map(([column]) => column)].map((column) => [column, true] as const)
  const all = { ...columns, ...Object.fromEntries(needed) }
  return { type, model, name, reachable, listed, order, key, columns: all, texts }
}

/** Resolves whether the long texts of a row were cut: true or null. */
export const isTruncated = (row: object): boolean | null => ('truncated' in row ? true : null)

/** Returns the methods of a model. */
export function delegateOf<Row extends object>(db: Db, { model }: Rows<Row>): Delegate<Row> {
  const name = model.charAt(0).toLowerCase() + model.slice(1)
  return (db as unknown as Record<string, Delegate<Row>>)[name]!
}

/** Cost of a looked-up value (see limits.ts), which takes as long as several plain values. */
const LOOK_UP_COST = 6

/** Maximum size of a response with plain characters only (bytes of JSON). */
const MAX_ROWS_BYTES = LIMITS.answer / 6

/** Reads rows that are not a page. Stops and throws if the response becomes too long. */
export async function readAll<Row extends object>(
  db: Db,
  rows: Rows<Row>,
  query: object,
  answer: Answer = { size: 0 },
): Promise<Row[]> {
  const found = await delegateOf(db, rows).findMany(withByteBudget(query, MAX_ROWS_BYTES))
  if (takeWithinBudget(found, found.length, MAX_ROWS_BYTES).length < found.length) throw answerTooLong()
  addTo(answer, found)
  return found
}

/**
 * Returns the selected columns of a type's rows: of the field itself, or of the fields under any of the paths. Must be
 * called at each place of the response, even if one query reads the rows of all places, because Pothos reloads
 * selections that were never requested.
 */
export const selectRows = (
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  { type, columns }: Pick<Rows, 'type' | 'columns'>,
  paths: string[][] = [],
) => queryFromInfo({ context, info, typeName: type, paths, select: columns }) as { select: Record<string, true> }

/** Returns the error for a row that does not exist or that the caller cannot reach. */
export const missing = ({ type, name }: Pick<Rows, 'type' | 'name'>): Error =>
  name ? notFound(name) : new Error(`${type} no longer exists`)

/** Reloads a row after a procedure has checked access to it. Throws 404 if it was deleted meanwhile. */
export async function reload<Row extends object>(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  rows: Rows<Row>,
  id: string,
): Promise<Row> {
  const row = await delegateOf(context.deps.db, rows).findFirst({ ...selectRows(context, info, rows), where: { id } })
  if (!row) throw missing(rows)
  return row
}

/** Returns the options of a root field that returns a row by id, like a procedure. */
export const rootRow = <Row extends object>(
  type: ObjectRef<Types, Row>,
  rows: Rows<Row>,
  procedure: AnyProcedure,
  input: z.ZodObject<{ id: z.ZodType<string, string> }>,
) => ({
  ...procedureExtensions(procedure),
  type,
  nullable: true as const,
  args: argsFromZod(input),
  async resolve(_: unknown, args: object, context: GraphQLContext, info: GraphQLResolveInfo) {
    const { id } = parseArgs(input, args)
    return (await findRow(context, info, rows, id)) as never
  },
})

/** Finds a row. Throws 404 if the caller cannot reach it. */
export async function findRow<Row extends object>(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  rows: Rows<Row>,
  id: string,
): Promise<Row> {
  const where = { AND: [{ id }, rows.reachable(context.actor)] }
  const row = await delegateOf(context.deps.db, rows).findFirst({ ...selectRows(context, info, rows), where })
  if (!row) throw missing(rows)
  return row
}

/**
 * Loads the row that another row refers to, together with those of its neighbors, in one statement. Returns null
 * without a reference, or if the caller cannot reach the row.
 */
export async function loadRow<Row extends object>(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  rows: Rows<Row>,
  id: string | null,
): Promise<Row | null> {
  if (id === null) return null
  return loadOne(context, info, id, byId(context, info, rows))
}

/** Loads a list of ids in order. Leaves out unreachable rows. */
export async function loadRows<Row extends object>(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  rows: Rows<Row>,
  ids: readonly string[],
): Promise<Row[]> {
  const find = byId(context, info, rows)
  const found = await Promise.all(ids.map((id) => loadOne(context, info, id, find)))
  return found.filter((row) => row !== null)
}

/** Finds the rows with some ids that the caller can reach. */
function byId<Row extends object>(context: GraphQLContext, info: GraphQLResolveInfo, rows: Rows<Row>) {
  const query = selectRows(context, info, rows)
  return async (ids: string[]) => {
    const where = { AND: [{ id: { in: ids } }, rows.reachable(context.actor)] }
    const found = await readAll(context.deps.db, rows, { ...query, where })
    return new Map(found.map((row) => [(row as { id: string }).id, row]))
  }
}

/** Returns the options of a field for the row that a column refers to. */
export const rowIn = <Row extends object, const Column extends string>(
  type: ObjectRef<Types, Row>,
  rows: Rows<Row>,
  column: Column,
  description: string,
) => ({
  type,
  nullable: true as const,
  description,
  extensions: { cost: LOOK_UP_COST },
  select: { [column]: true } as Record<Column, true>,
  resolve: (row: Record<Column, string | null>, _: object, context: GraphQLContext, info: GraphQLResolveInfo) =>
    loadRow(context, info, rows, row[column]) as never,
})

/** Number of groups of computed fields, which have a batch each. */
let groups = 0

/**
 * Defines fields whose values a service computes (counts, names), once for all rows of a list with `findMany`. Throws
 * 404 for a row that was deleted meanwhile.
 */
export function computedBy<Shown extends { id: string }>(
  { type, name }: Pick<Rows, 'type' | 'name'>,
  findMany: (context: GraphQLContext, ids: string[]) => Promise<Shown[]>,
) {
  const place = `computed ${groups++}`
  return <Field extends keyof Shown>(field: Field) =>
    async (
      { id }: { id: string },
      _: object,
      context: GraphQLContext,
      info: GraphQLResolveInfo,
    ): Promise<Shown[Field]> => {
      const row = await loadOne(context, batchScope(info, place), id, async (ids) => {
        const found = await findMany(context, ids)
        return new Map(found.map((one) => [one.id, one]))
      })
      if (!row) throw missing({ type, name })
      return row[field]
    }
}
