import type { InterfaceRef, ObjectRef } from '@pothos/core'
import type { AnyProcedure } from '@trpc/server'
import type { GraphQLResolveInfo } from 'graphql'
import type { z } from 'zod'
import { withByteBudget } from '../lib/page.ts'
import { builder, type Extensions, type GraphQLContext, type Types } from './builder.ts'
import { afterCursor, type Order, orderBy, reversed, toCursor } from './cursor.ts'
import { argsFromZod, parseArgs } from './inputs.ts'
import { addTo } from './limits.ts'
import { readLists } from './lists.ts'
import { loadOne } from './loader.ts'
import {
  listArgs,
  NOTHING,
  type Page,
  type PageArgs,
  type Part,
  pageOf,
  partOf,
  RELATION_ROWS,
  RelationArgs,
  ROOT_ROWS,
  readingOf,
  readPart,
} from './page.ts'
import { procedureExtensions } from './procedures.ts'
import { delegateOf, type Rows, selectRows } from './rows.ts'

/** Whether there is a row beyond an end of a page: known, or looked up on demand. */
type Beyond = boolean | ((info: GraphQLResolveInfo) => Promise<boolean>)

const isBeyond = (beyond: Beyond, info: GraphQLResolveInfo) => (typeof beyond === 'function' ? beyond(info) : beyond)

/** A part of a list, in Relay's terms. */
export type Connection<Row> = {
  rows: readonly Row[]
  cursorOf: (row: Row) => string
  hasNextPage: Beyond
  hasPreviousPage: Beyond
  /** Counts on demand. */
  total: (info: GraphQLResolveInfo) => Promise<number> | number
}

const PageInfo = builder.objectRef<Connection<never>>('PageInfo').implement({
  description: 'Position of a page in its list',
  fields: (t) => ({
    hasNextPage: t.boolean({
      description: 'Whether the list has rows after the page',
      resolve: ({ hasNextPage }, _, __, info) => isBeyond(hasNextPage, info),
    }),
    hasPreviousPage: t.boolean({
      description: 'Whether the list has rows before the page',
      resolve: ({ hasPreviousPage }, _, __, info) => isBeyond(hasPreviousPage, info),
    }),
    startCursor: t.string({
      nullable: true,
      description: 'Cursor of the first row, for the previous page (`before`); null for an empty page',
      resolve: ({ rows: [first], cursorOf }) => first && cursorOf(first),
    }),
    endCursor: t.string({
      nullable: true,
      description: 'Cursor of the last row, for the next page (`after`); null for an empty page',
      resolve: ({ rows, cursorOf }) => (rows.length ? cursorOf(rows.at(-1)!) : null),
    }),
  }),
})

/** Creates the list types of a type: `AgentConnection` and `AgentEdge` for `Agent`. */
export function connectionType<Row extends object>(
  name: string,
  rows: ObjectRef<Types, Row> | InterfaceRef<Types, Row>,
  what: string,
  { counted = true }: { counted?: boolean } = {},
) {
  type Edge = { row: Row; cursorOf: (row: Row) => string }
  const edge = builder.objectRef<Edge>(`${name}Edge`).implement({
    description: `A row, with its cursor, of a list of ${what}`,
    fields: (t) => ({
      cursor: t.string({ description: 'Cursor of the row', resolve: ({ row, cursorOf }) => cursorOf(row) }),
      node: t.field({ type: rows, description: 'The row', resolve: ({ row }) => row as never }),
    }),
  })
  return builder.objectRef<Connection<Row>>(`${name}Connection`).implement({
    description: `A list of ${what}`,
    fields: (t) => ({
      edges: t.field({
        type: [edge],
        description: 'The rows with their cursors',
        // The list itself determines the number of rows.
        extensions: { rows: 1 },
        resolve: ({ rows, cursorOf }) => rows.map((row) => ({ row, cursorOf })),
      }),
      nodes: t.field({
        type: [rows],
        description: 'The rows',
        extensions: { rows: 1 },
        resolve: ({ rows }) => rows as never,
      }),
      pageInfo: t.field({
        type: PageInfo,
        description: 'Cursors of the page',
        resolve: (connection) => connection as never,
      }),
      ...(counted && {
        totalCount: t.int({
          description: 'Total number of rows in the list',
          resolve: ({ total }, _, __, info) => total(info),
        }),
      }),
    }),
  })
}

/** Paths of the rows in a list. */
export const PATHS = [['nodes'], ['edges', 'node']]

/** Cost of a list on a row, because finding its rows takes longer than many values (see limits.ts). */
export const LIST_COST = 60

/** Returns whether a list has rows that match a filter. */
type Exists = (order: Order, where: object, info: GraphQLResolveInfo) => Promise<boolean>

/** Converts a page into a connection. Rows beyond the cursor are looked up only on demand, and so is `count`. */
export function toConnection<Row extends object>(
  { rows, more }: Part<Row>,
  { backwards, after, before }: Page,
  order: Order,
  count: Connection<Row>['total'],
  exists: Exists,
): Connection<Row> {
  const beyond = (order: Order, cursor: string | undefined): Beyond =>
    cursor !== undefined && ((info) => exists(order, afterCursor(order, cursor, { inclusive: true }), info))
  return {
    rows,
    cursorOf: (row) => toCursor(order, row),
    hasNextPage: (more && !backwards) || beyond(order, before),
    hasPreviousPage: (more && backwards) || beyond(reversed(order), after),
    total: after === undefined && before === undefined && !more ? () => rows.length : count,
  }
}

/** Defines a root list with the filters and rows of a procedure, and its own count if it has one. */
export function rootList<Row extends object, Shape extends z.ZodRawShape>(
  type: ObjectRef<Types, Connection<Row>>,
  rows: Rows<Row>,
  procedure: AnyProcedure,
  input: z.ZodObject<Shape>,
  where: (context: GraphQLContext, input: z.output<z.ZodObject<Shape>>) => object | Promise<object>,
  count?: (context: GraphQLContext, input: z.output<z.ZodObject<Shape>>, where: object) => Promise<number>,
) {
  const Args = listArgs(input)
  return {
    ...procedureExtensions(procedure, { rows: ROOT_ROWS, input: Args }),
    type,
    args: argsFromZod(Args),
    async resolve(_: unknown, args: object, context: GraphQLContext, info: GraphQLResolveInfo) {
      const parsed = parseArgs(Args, args) as PageArgs & z.output<z.ZodObject<Shape>>
      const page = pageOf(parsed, ROOT_ROWS)
      const { order } = readingOf(rows.order, page)
      const all = await where(context, parsed)
      const delegate = delegateOf(context.deps.db, rows)
      const selected = selectRows(context, info, rows, PATHS)
      const part = await readPart<Row>(rows, page, (limit, from) =>
        delegate.findMany({
          ...selected,
          where: { AND: [all, from] },
          orderBy: orderBy(order),
          ...withByteBudget({ take: limit + 1 }),
        }),
      )
      addTo(context.answer, part.rows)
      const total = () => count?.(context, parsed, all) ?? delegate.count({ where: all })
      const exists: Exists = async (order, where) => {
        const query = { select: rows.columns, where: { AND: [all, where] }, orderBy: orderBy(order), take: 1 }
        return (await delegate.findMany(query)).length > 0
      }
      return toConnection(part, page, rows.order, total, exists)
    },
  }
}

/** A list on a row: its type, and the column that refers to the row. */
export type Relation = {
  column: string
  description: string
  extensions?: Extensions
  /** Further arguments, and the filters for them. */
  narrow?: {
    args: z.ZodObject
    where: (context: GraphQLContext, ids: readonly string[], args: Record<string, unknown>) => Promise<object>
  }
  /** Resolves the stored number of rows, if there is one. */
  total?: (row: { id: string }, args: object, context: GraphQLContext, info: GraphQLResolveInfo) => Promise<number>
}

/**
 * Returns the options of a list on a row. The lists of all rows are read together: one statement finds the first keys
 * of each, another reads the rows.
 */
export function relationList<Row extends object>(
  type: ObjectRef<Types, Connection<Row>>,
  rows: Rows<Row>,
  { column, description, extensions = {}, total, narrow }: Relation,
) {
  const key: string = column
  const Args = narrow ? RelationArgs.extend(narrow.args.shape) : RelationArgs
  return {
    type,
    description,
    nullable: true as const,
    args: argsFromZod(Args),
    extensions: { rows: RELATION_ROWS, cost: LIST_COST, ...extensions },
    async resolve({ id }: { id: string }, args: object, context: GraphQLContext, info: GraphQLResolveInfo) {
      const parsed = parseArgs(Args, args) as z.output<typeof RelationArgs> & Record<string, unknown>
      const { first, after, last, before, ...more } = parsed
      const page = pageOf(parsed, RELATION_ROWS)
      const { order, range } = readingOf(rows.order, page)
      const { db } = context.deps
      const narrowed = async (ids: readonly string[]) => (narrow ? narrow.where(context, ids, more) : {})
      const delegate = delegateOf(db, rows)
      const listed = rows.listed(context.actor)
      const query = selectRows(context, info, { ...rows, columns: { ...rows.columns, [key]: true } }, PATHS)
      const part = await loadOne(context, info, id, async (ids) => {
        const where = { AND: [listed, await narrowed(ids)] }
        const read = { ids, column: key, query }
        const [only] = ids
        if (ids.length === 1 && only !== undefined) {
          const part = await readPart<Row>(rows, page, (limit, from) =>
            readLists(context, { ...rows, order }, { ...read, where: { AND: [where, from] }, take: limit + 1 }),
          )
          return new Map([[only, part]])
        }
        const condition = { AND: [where, ...range] }
        const found = await readLists(context, { ...rows, order }, { ...read, where: condition, take: page.take + 1 })
        const lists = Map.groupBy(found, (row) => (row as Record<string, string>)[key]!)
        return new Map(Array.from(lists, ([id, list]) => [id, partOf(list, page, rows)]))
      })
      const exists: Exists = async (order, where, info) =>
        (await loadOne(context, info, id, async (ids) => {
          const select = { ...rows.columns, [key]: true }
          const condition = { AND: [listed, await narrowed(ids), where] }
          const read = { ids, column: key, where: condition, take: 1, query: { select } }
          const found = await readLists(context, { ...rows, order }, read)
          return new Map(found.map((row) => [(row as Record<string, string>)[key]!, true]))
        })) ?? false
      const count = (info: GraphQLResolveInfo) =>
        loadOne(context, info, id, async (ids) => {
          const counted = { AND: [{ [key]: { in: ids } }, listed, await narrowed(ids)] }
          const counts = await delegate.groupBy({ by: [key], where: counted, _count: true })
          return new Map(counts.map((row) => [row[key]!, row._count]))
        }).then((counted) => counted ?? 0)
      // Filtered lists are counted.
      const known =
        total && !Object.keys(more).length && ((info: GraphQLResolveInfo) => total({ id }, {}, context, info))
      return toConnection(part ?? NOTHING, page, rows.order, known || count, exists)
    },
  }
}
