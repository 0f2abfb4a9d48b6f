import type { InterfaceRef, ObjectRef } from '@pothos/core'
import type { AnyProcedure } from '@trpc/server'
import type { GraphQLResolveInfo } from 'graphql'
import { z } from 'zod'
import type { Db } from '../db/client.ts'
import { MAX_IN } from '../db/fast-path/index.ts'
import { invalidField } from '../errors.ts'
import { chunk } from '../lib/chunk.ts'
import { queryInt } from '../lib/fields.ts'
import { cutTexts, MAX_ROWS, readPage, takeWithinBudget, withByteBudget } from '../lib/page.ts'
import { builder, type Extensions, type GraphQLContext, type Types } from './builder.ts'
import { behind, type Order, orderBy, reversed, toCursor } from './cursor.ts'
import { argsFromZod, parseArgs } from './inputs.ts'
import { addTo, LIMITS } from './limits.ts'
import { loadOne } from './loader.ts'
import { procedureExtensions } from './procedures.ts'
import { delegateOf, type Rows, readAll, selectRows } from './rows.ts'

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
    description: `One of ${what}`,
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

/** Default page sizes (contract-2.md section 1.9). */
export const ROOT_ROWS = 50
export const RELATION_ROWS = 20

/** Cost of a list on a row, because finding its rows takes longer than many values (see limits.ts). */
export const LIST_COST = 60

const pageArgs = (byDefault: number) => ({
  first: queryInt(1, MAX_ROWS)
    .optional()
    .describe(
      `Maximum number of rows from the start: ${byDefault} by default, ${MAX_ROWS} at most (${LIMITS.page} in a list of lists); fewer if they are long`,
    ),
  after: z.string().optional().describe('Only rows after this cursor: an `endCursor` of the same list'),
  last: queryInt(1, MAX_ROWS)
    .optional()
    .describe('Maximum number of rows from the end, or from `before` backwards, instead of `first`; in the same order'),
  before: z
    .string()
    .optional()
    .describe('Only rows before this cursor: a `startCursor` of the same list. Without `first` it implies `last`'),
})

type PageArgs = {
  first?: number | undefined
  after?: string | undefined
  last?: number | undefined
  before?: string | undefined
}

/** A page to read: at most `take` rows from the start of the range between its cursors, or `backwards` from its end. */
export type Page = { take: number; backwards: boolean; after: string | undefined; before: string | undefined }

/** Reads the arguments of a page. Throws a 400 for `first` together with `last`, which would contradict each other. */
export function pageOf({ first, after, last, before }: PageArgs, byDefault: number): Page {
  if (first !== undefined && last !== undefined)
    throw invalidField('last', 'no first beside it', 'Send either `first` or `last`.')
  const backwards = last !== undefined || (before !== undefined && first === undefined)
  return { take: first ?? last ?? byDefault, backwards, after, before }
}

/** Returns the order in which a page is read, and the filter for the range between its cursors. */
const readingOf = (order: Order, { backwards, after, before }: Page) => ({
  order: backwards ? reversed(order) : order,
  range: [behind(order, after), behind(reversed(order), before, { name: 'before' })],
})

/** Returns the arguments of a list: the filters of the REST list, and Relay's page arguments. */
export function listArgs<Shape extends z.ZodRawShape>(input: z.ZodObject<Shape>) {
  const { limit, cursor, count, ...filters } = input.shape
  return z.object({ ...(filters as Omit<Shape, 'limit' | 'cursor' | 'count'>), ...pageArgs(ROOT_ROWS) })
}

export const RelationArgs = z.object(pageArgs(RELATION_ROWS))

/** The rows of a page in the order of the list, and whether there are `more` in the direction of reading. */
export type Part<Row> = { rows: readonly Row[]; more: boolean }

/**
 * Removes the rows beyond the page. `found` is in the order of reading. Cuts long texts before it ends the page early
 * (contract-2.md section 1.20).
 */
export function partOf<Row extends object>(
  found: readonly Row[],
  { take, backwards }: Page,
  { texts }: Pick<Rows, 'texts'> = { texts: [] },
): Part<Row> {
  const whole = takeWithinBudget(found, take)
  const isShort = whole.length < Math.min(found.length, take)
  const cut = (row: Row) => cutTexts(row, texts as (keyof Row)[])
  const rows = isShort && texts.length ? takeWithinBudget(found.map(cut), take) : whole
  const more = rows.length < found.length
  return { rows: backwards ? rows.reverse() : rows, more }
}

/**
 * Reads a page, and cuts long texts if it would otherwise end early (contract-2.md section 1.20). `read` finds rows in
 * the order of reading, one more than the limit.
 */
async function readPart<Row extends object>(
  { order: listed, texts }: Rows<Row>,
  page: Page,
  read: (limit: number, from: object) => Promise<Row[]>,
): Promise<Part<Row>> {
  const { order, range } = readingOf(listed, page)
  const { rows, hasMore } = await readPage<Row, object>(
    page.take,
    { AND: range },
    {
      read,
      positionOf: (row) => ({ AND: [...range, behind(order, toCursor(order, row))] }),
      cut: (row) => cutTexts(row, texts as (keyof Row)[]),
    },
  )
  return { rows: page.backwards ? rows.reverse() : rows, more: hasMore }
}

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
    cursor !== undefined && ((info) => exists(order, behind(order, cursor, { inclusive: true }), info))
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

export const NOTHING = { rows: [], more: false }

/** Maximum number of lists per statement. SQLite compiles at most 500. */
const LISTS_AT_ONCE = 250

type Read = { ids: string[]; column: string; where: object; take: number; query: object }

/**
 * Reads the first rows of the lists, each in its order. A single list is read only as far as it fits on a page, plus one
 * row.
 */
export async function readLists<Row extends object>(
  { deps: { db } }: GraphQLContext,
  rows: Rows<Row>,
  { ids, column, where, take, query }: Read,
): Promise<Row[]> {
  const { order, key } = rows
  const ordered = { ...query, orderBy: orderBy(order) }
  if (ids.length === 1) {
    const page = withByteBudget({ where: { AND: [{ [column]: ids[0] }, where] }, take })
    return delegateOf(db, rows).findMany({ ...ordered, ...page })
  }
  const columns = [column, ...key]
  const select = Object.fromEntries(columns.map((name) => [name, true as const]))
  const found: Keys[] = []
  for (const keys of chunk(ids, LISTS_AT_ONCE)) {
    const call = { column, keys, where, orderBy: orderBy(order), take, select }
    found.push(...(await delegateOf(db, rows).findFirstOfEach(call)))
  }
  const lists = Map.groupBy(found, (row) => row[column])
  return readKeyed(db, rows, [...lists.values()], columns, ordered)
}

type Keys = Readonly<Record<string, unknown>>

/** Reads the rows of these lists by key, in the order of the query. */
export async function readKeyed<Row extends object>(
  db: Db,
  rows: Rows<Row>,
  lists: readonly (readonly Keys[])[],
  columns: readonly string[],
  query: object,
): Promise<Row[]> {
  const keyOf = (row: object) => columns.map((name) => (row as Keys)[name]).join(' ')
  const longest = Math.max(1, ...lists.map(({ length }) => length))
  const answer = { size: 0 }
  const read: Row[] = []
  for (const some of chunk(lists, Math.floor(MAX_IN / longest))) {
    const wanted = some.flat()
    if (!wanted.length) continue
    // With keys of several columns this matches too many rows.
    const where = columns.map((name) => [name, { in: [...new Set(wanted.map((row) => row[name]))] }] as const)
    const known = new Set(wanted.map(keyOf))
    const found = await readAll(db, rows, { ...query, where: Object.fromEntries(where) }, answer)
    read.push(...found.filter((row) => known.has(keyOf(row))))
  }
  return read
}
