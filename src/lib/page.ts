import { z } from 'zod'
import { invalidField } from '../errors.ts'
import { queryInt } from './fields.ts'

export const MAX_ROWS = 1000

/** The query fields of every list (contract.md section 1, "Lists"). */
export const pageInput = {
  limit: queryInt(1, MAX_ROWS).optional().describe('How many rows at most, 1000 by default; fewer if they are long'),
  cursor: z.string().optional().describe('`nextCursor` of the page before'),
}

/** A query field that can only say yes in a query string. Where inputs are typed (tRPC) it is a boolean as well. */
export const onlyTrue = (field: string) =>
  z
    .union([z.literal('true'), z.boolean()], { error: `Invalid value for field: ${field}. Expected true` })
    .transform((yes) => yes === true || yes === 'true')
    .optional()

/** Of the lists that grow without end, which are counted for those alone who ask (contract.md section 1, "Lists"). */
export const countInput = { count: onlyTrue('count') }
export const total = z.int().optional().describe('With count=true')

/** What every list says of its end. */
export const nextCursor = z.string().nullable().describe('Where the list goes on; null at its end')

type Row = { id: string; createdAt: Date }

/** Where a row stands in such a list. */
export const encodeCursor = (row: Row) => Buffer.from(`${row.createdAt.getTime()}.${row.id}`).toString('base64url')

const CURSOR = /^(\d{1,15})\.([\w-]+)$/

const plain = (cursor: string): string => Buffer.from(cursor, 'base64url').toString()

export const isCursor = (text: string): boolean => CURSOR.test(plain(text))

function decodeCursor(cursor: string): Row {
  const [, time, id] = CURSOR.exec(plain(cursor)) ?? []
  if (!time || !id) throw invalidField('cursor', 'a nextCursor of this list')
  return { id, createdAt: new Date(Number(time)) }
}

/** Prisma's arguments for one page, newest first by creation and id, and one row more to see whether it goes on. */
export function pageQuery(input: { limit?: number | undefined; cursor?: string | undefined }) {
  const after = input.cursor === undefined ? undefined : decodeCursor(input.cursor)
  return {
    ...(after && {
      where: {
        // Said once more, so that an index is entered where the page begins and not at its top.
        createdAt: { lte: after.createdAt },
        OR: [{ createdAt: { lt: after.createdAt } }, { createdAt: after.createdAt, id: { lt: after.id } }],
      },
    }),
    orderBy: [{ createdAt: 'desc' as const }, { id: 'desc' as const }],
    ...withRoom({ take: (input.limit ?? MAX_ROWS) + 1 }),
  }
}

/** Cuts off again what is no part of the page. */
export const toPage = <T extends Row>(found: readonly T[], { limit }: { limit?: number | undefined }) =>
  pageOf(found, limit, encodeCursor)

/** The same of a list that is in another order. `nextCursor` is null at the end. */
export function pageOf<T>(found: readonly T[], limit: number | undefined, cursorOf: (row: T) => string) {
  const rows = fitting(found, limit)
  const last = rows.length < found.length ? rows.at(-1) : undefined
  return { rows, nextCursor: last ? cursorOf(last) : null }
}

/** How long the rows of a page are together (bytes of JSON): each may be as long as somebody has made it. */
export const ROOM = 4_000_000

/**
 * Tells a query how much its rows may hold: it then finds as many as {@link fitting} keeps, and one. (`room` is no argument
 * of Prisma's: see db/fast-path/statement.ts.)
 */
export const withRoom = <Query extends object>(query: Query, room = ROOM): Query => Object.assign(query, { room })

/** The first of some rows: as many as are wanted and have room in one answer, one at least. */
export function fitting<T>(rows: readonly T[], limit = MAX_ROWS, room = ROOM): T[] {
  const wanted = rows.slice(0, limit)
  // Most are short: to see that costs little, to see how long they are as much as to write them.
  if (sizeOf(wanted) <= room) return wanted
  let said = 0
  const end = wanted.findIndex((row, index) => {
    said += 1 + sizeOf(row, writtenOut)
    return said > room && index > 0
  })
  return end === -1 ? wanted : wanted.slice(0, end)
}

/** How long a text can become in JSON (bytes): there are characters that are written as six. */
const atMost = (text: string): number => 6 * text.length + 2

const writtenOut = (text: string): number => Buffer.byteLength(JSON.stringify(text))

/** How long the JSON of a value is at most (bytes). */
export function sizeOf(value: unknown, ofText: (text: string) => number = atMost): number {
  if (typeof value === 'string') return ofText(value)
  // PostgreSQL writes out in full what JSON writes with an exponent.
  if (typeof value === 'number') return Number.isSafeInteger(value) || !`${value}`.includes('e') ? 28 : 400
  if (typeof value !== 'object' || value === null || value instanceof Date) return 28
  // Bytes are told as the text that they are.
  if (ArrayBuffer.isView(value)) return ofText(new TextDecoder().decode(value))
  let size = 2
  if (Array.isArray(value)) for (const item of value) size += 1 + sizeOf(item, ofText)
  else for (const name in value) size += 2 + ofText(name) + sizeOf((value as Values)[name], ofText)
  return size
}

type Values = Readonly<Record<string, unknown>>

/** Whether a row stands behind the cursor: for rows that are in no table. */
export function isBehind(row: Row, { cursor }: { cursor?: string | undefined }): boolean {
  if (cursor === undefined) return true
  const after = decodeCursor(cursor)
  const between = after.createdAt.getTime() - row.createdAt.getTime()
  return between > 0 || (between === 0 && row.id < after.id)
}
