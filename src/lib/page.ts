import { setImmediate as nextTurn } from 'node:timers/promises'
import { z } from 'zod'
import { invalidCursor } from '../errors.ts'
import { queryInt } from './fields.ts'
import { beginning } from './text.ts'

export const MAX_ROWS = 1000

/** A loop over pages often begins with an empty cursor, and models send one for an optional text. */
const cursor = z.string().transform((given) => given || undefined)

/** The query fields of every list (contract.md section 1, "Lists"). */
export const pageInput = {
  limit: queryInt(1, MAX_ROWS).optional().describe('Maximum number of rows, 1000 by default; fewer if they are long'),
  cursor: cursor.optional().describe('`nextCursor` of the page before'),
}

/** Creates a query field that is `true` or `false`. In typed inputs (tRPC) it is a boolean. */
export const flag = (field: string) =>
  z
    .union([z.enum(['true', 'false']), z.boolean()], {
      error: `Invalid value for field: ${field}. Expected true or false`,
    })
    .transform((yes) => yes === true || yes === 'true')
    .optional() as unknown as z.ZodOptional<z.ZodType<boolean, boolean>>

/** Query field of unbounded lists, which are counted only on request (contract.md section 1, "Lists"). */
export const countInput = { count: flag('count').describe('`true`: count all matches, in `total`') }
export const total = z.int().optional().describe('Total number of rows, with `count=true`')

/** Cursor field of every list output. */
export const nextCursor = z.string().nullable().describe('Cursor of the next page; null at the end')

type Row = { id: string; createdAt: Date }

/** Encodes the parts of a position as a cursor. */
export const encodePosition = (...parts: readonly (string | number)[]): string =>
  Buffer.from(parts.join('.')).toString('base64url')

/** Decodes a cursor of {@link encodePosition}. The caller checks the result, because clients may send anything. */
export const decodePosition = (cursor: string): string => Buffer.from(cursor, 'base64url').toString()

/** Encodes the position of a row as a cursor. */
export const encodeCursor = ({ createdAt, id }: Row): string => encodePosition(createdAt.getTime(), id)

/** A time with more digits may be after the year 9999, which PostgreSQL does not read. */
const CURSOR = /^(\d{1,14})\.([\w-]+)$/

/** Returns whether a text is a cursor of {@link encodeCursor}. */
export const isCursor = (text: string): boolean => CURSOR.test(decodePosition(text))

/** Decodes the position that {@link encodeCursor} encoded. Throws 400 for anything else. */
export function decodeCursor(cursor: string): Row {
  const [, time, id] = CURSOR.exec(decodePosition(cursor)) ?? []
  if (!time || !id) throw invalidCursor()
  return { id, createdAt: new Date(Number(time)) }
}

/** Returns Prisma's arguments for one page, newest first by creation and id, plus one row to detect a next page. */
export function pageQuery(input: { limit?: number | undefined; cursor?: string | undefined }) {
  const after = input.cursor === undefined ? undefined : decodeCursor(input.cursor)
  return {
    ...(after && {
      where: {
        // Redundant condition that lets an index scan start at the page instead of at its top.
        createdAt: { lte: after.createdAt },
        OR: [{ createdAt: { lt: after.createdAt } }, { createdAt: after.createdAt, id: { lt: after.id } }],
      },
    }),
    orderBy: [{ createdAt: 'desc' as const }, { id: 'desc' as const }],
    ...withByteBudget({ take: (input.limit ?? MAX_ROWS) + 1 }),
  }
}

/** Removes the extra row of a page. */
export const toPage = <T extends Row>(found: readonly T[], { limit }: { limit?: number | undefined }) =>
  pageOf(found, limit, encodeCursor)

/** Returns a page of a list in another order. `nextCursor` is null at the end. */
export function pageOf<T>(found: readonly T[], limit: number | undefined, cursorOf: (row: T) => string) {
  const rows = takeWithinBudget(found, limit)
  const last = rows.length < found.length ? rows.at(-1) : undefined
  return { rows, nextCursor: last ? cursorOf(last) : null }
}

/** Maximum length of a long text in a list whose whole rows do not fit into one page (characters). */
const MAX_CUT = 4_000

/** Output field that marks a list row whose long texts were cut (contract-2.md section 1.20). */
export const truncated = z
  .boolean()
  .optional()
  .describe('Whether texts are cut at 4,000 characters, as in long lists. Get the row by its id for the whole texts')

type Cut<T> = T & { truncated?: boolean }

/**
 * Cuts the named texts of a row, and those inside named JSON columns, at 4,000 characters and marks it as truncated.
 * Returns the row itself if none is longer.
 */
export function cutTexts<T extends object>(row: T, names: readonly (keyof T)[]): Cut<T> {
  const cut: Partial<T> = {}
  for (const name of names) {
    const short = cutValue(row[name])
    if (short !== row[name]) cut[name] = short as T[keyof T]
  }
  return Object.keys(cut).length ? { ...row, ...cut, truncated: true } : row
}

function cutValue(value: unknown): unknown {
  if (typeof value === 'string') return value.length <= MAX_CUT ? value : beginning(value, MAX_CUT)
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) {
    const items = value.map(cutValue)
    return items.some((item, index) => item !== value[index]) ? items : value
  }
  const entries = Object.entries(value).map(([name, item]) => [name, item, cutValue(item)] as const)
  if (entries.every(([, item, short]) => short === item)) return value
  return Object.fromEntries(entries.map(([name, , short]) => [name, short]))
}

/** Configuration of {@link readPage}. */
type Reading<T, P> = {
  /** Reads one row more than the limit after the position, within the byte limit: see {@link withByteBudget}. */
  read: (limit: number, from: P) => Promise<readonly T[]>
  /** Returns the position of a row. */
  positionOf: (row: T) => P
  /** Shortens the long texts of a row. */
  cut: (row: T) => Cut<T>
}

/**
 * Reads the rows of a page. If they do not fit, long texts are cut, and the page ends early only if the rows are still
 * too long (contract-2.md section 1.20). Returns whether more rows follow.
 */
export async function readPage<T extends object, P>(
  limit: number,
  from: P,
  { read, positionOf, cut }: Reading<T, P>,
): Promise<{ rows: Cut<T>[]; hasMore: boolean }> {
  let found = await read(limit, from)
  const whole = takeWithinBudget(found, limit)
  if (whole.length === found.length || whole.length === limit)
    return { rows: whole, hasMore: whole.length < found.length }
  const rows: Cut<T>[] = []
  let bytes = 0
  for (let part = whole; ; part = takeWithinBudget(found, limit - rows.length)) {
    for (const row of part) {
      const short = cut(row)
      bytes += 1 + sizeOf(short, writtenOut)
      if (bytes > MAX_PAGE_BYTES && rows.length) return { rows, hasMore: true }
      rows.push(short)
    }
    if (part.length === found.length || rows.length === limit) return { rows, hasMore: part.length < found.length }
    await nextTurn()
    found = await read(limit - rows.length, positionOf(part.at(-1)!))
  }
}

/** Reads a page of a newest-first list with {@link readPage}. The named texts may be cut. */
export async function listPage<T extends Row>(
  input: { limit?: number | undefined; cursor?: string | undefined },
  texts: readonly (keyof T)[],
  read: (query: ReturnType<typeof pageQuery>) => Promise<readonly T[]>,
): Promise<{ rows: Cut<T>[]; nextCursor: string | null }> {
  const { rows, hasMore } = await readPage<T, string | undefined>(input.limit ?? MAX_ROWS, input.cursor, {
    read: (limit, cursor) => read(pageQuery({ limit, cursor })),
    positionOf: encodeCursor,
    cut: (row) => cutTexts(row, texts),
  })
  const last = hasMore ? rows.at(-1) : undefined
  return { rows, nextCursor: last ? encodeCursor(last) : null }
}

/** Maximum size of a page (bytes of JSON), because users determine the size of a row. */
export const MAX_PAGE_BYTES = 4_000_000

/**
 * Adds a byte limit to a query, which then returns the rows that {@link takeWithinBudget} keeps, and one more.
 * (`byteBudget` is not an argument of Prisma: see db/fast-path/statement.ts.)
 */
export const withByteBudget = <Query extends object>(query: Query, budget = MAX_PAGE_BYTES): Query =>
  Object.assign(query, { byteBudget: budget })

/** Returns as many of the first rows as are wanted and fit in one response, at least one. */
export function takeWithinBudget<T>(rows: readonly T[], limit = MAX_ROWS, budget = MAX_PAGE_BYTES): T[] {
  const wanted = rows.slice(0, limit)
  // Fast path: most rows are short, and measuring them exactly costs as much as serializing them.
  if (sizeOf(wanted) <= budget) return wanted
  let bytes = 0
  const end = wanted.findIndex((row, index) => {
    bytes += 1 + sizeOf(row, writtenOut)
    return bytes > budget && index > 0
  })
  return end === -1 ? wanted : wanted.slice(0, end)
}

/** Returns the maximum JSON size of a text (bytes): some characters are written as six. */
const atMost = (text: string): number => 6 * text.length + 2

/** Returns the size of a text in JSON. A text that is too long by itself need not be measured. */
const writtenOut = (text: string): number =>
  text.length > MAX_PAGE_BYTES ? text.length : Buffer.byteLength(JSON.stringify(text))

/** Returns an upper bound for the JSON size of a value (bytes). */
export function sizeOf(value: unknown, ofText: (text: string) => number = atMost): number {
  if (typeof value === 'string') return ofText(value)
  // PostgreSQL writes numbers in full that JSON writes with an exponent.
  if (typeof value === 'number') return Number.isSafeInteger(value) || !`${value}`.includes('e') ? 28 : 400
  if (typeof value !== 'object' || value === null || value instanceof Date) return 28
  // Byte arrays contain text here.
  if (ArrayBuffer.isView(value)) return ofText(new TextDecoder().decode(value))
  let size = 2
  if (Array.isArray(value)) for (const item of value) size += 1 + sizeOf(item, ofText)
  else for (const name in value) size += 2 + ofText(name) + sizeOf((value as Values)[name], ofText)
  return size
}

type Values = Readonly<Record<string, unknown>>

/** Returns whether a row comes after the cursor, for rows that are in no table. */
export function isBehind(row: Row, { cursor }: { cursor?: string | undefined }): boolean {
  if (cursor === undefined) return true
  const after = decodeCursor(cursor)
  const between = after.createdAt.getTime() - row.createdAt.getTime()
  return between > 0 || (between === 0 && row.id < after.id)
}
