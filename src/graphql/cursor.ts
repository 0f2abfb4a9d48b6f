import { z } from 'zod'
import { invalidCursor as refuseCursor } from '../errors.ts'
import { decodePosition, encodePosition } from '../lib/page.ts'

/** Order of a list: columns whose combined values are unique. */
export type Order = readonly (readonly [column: string, direction: 'asc' | 'desc'])[]

export const NEWEST_FIRST: Order = [
  ['createdAt', 'desc'],
  ['id', 'desc'],
]

type Row = Readonly<Record<string, unknown>>

/** Returns an order as Prisma's `orderBy`. */
export const orderBy = (order: Order) => order.map(([column, direction]) => ({ [column]: direction }))

/** Encodes the position of a row: its values in the columns of the order, dates as milliseconds. */
export function toCursor(order: Order, row: object): string {
  const values = order.map(([column]) => (row as Row)[column])
  const plain = values.map((value) => (value instanceof Date ? { at: value.getTime() } : value))
  return encodePosition(JSON.stringify(plain))
}

/** PostgreSQL reads no time after the year 9999. */
const Time = z.object({ at: z.int().min(0).max(99_999_999_999_999) }).transform(({ at }) => new Date(at))
const Values = z.array(z.union([Time, z.int32(), z.string().regex(/^[^\0]*$/)]))

/** Decodes a cursor. Throws a 400 if it does not belong to such a list. `name` is the argument that contains it. */
export function fromCursor(order: Order, cursor: string, name: CursorArg = 'after'): (Date | number | string)[] {
  try {
    const values = Values.parse(JSON.parse(decodePosition(cursor)))
    const kinds = order.map(([column]) => (/(?:^at|At)$/.test(column) ? Date : KINDS[column]) ?? String)
    if (values.length === order.length && values.every((value, i) => Object(value) instanceof kinds[i]!)) return values
  } catch {}
  throw invalidCursor(name)
}

type CursorArg = 'after' | 'before'

/** Returns the error for a cursor that does not belong to a list. */
export const invalidCursor = (name: CursorArg = 'after') =>
  refuseCursor(name, name === 'after' ? 'an endCursor' : 'a startCursor')

/** Returns the reverse order. */
export const reversed = (order: Order): Order =>
  order.map(([column, direction]) => [column, direction === 'asc' ? 'desc' : 'asc'] as const)

const KINDS: Readonly<Record<string, NumberConstructor>> = { position: Number, version: Number, seq: Number }

type Options = { name?: CursorArg; inclusive?: boolean }

/** Returns Prisma's filter for rows after a cursor, including the cursor's own row if `inclusive`. */
export function afterCursor(
  order: Order,
  cursor: string | undefined,
  { name, inclusive = false }: Options = {},
): object {
  if (cursor === undefined) return {}
  const values = fromCursor(order, cursor, name)
  const [[first, direction] = ['', 'asc'] as const] = order
  return {
    // Redundant condition that lets an index scan start at the page instead of at its top.
    [first]: { [direction === 'asc' ? 'gte' : 'lte']: values[0] },
    OR: order.map(([column, direction], i) => ({
      ...Object.fromEntries(order.slice(0, i).map(([before], at) => [before, values[at]])),
      [column]: {
        [(direction === 'asc' ? 'gt' : 'lt') + (inclusive && i === order.length - 1 ? 'e' : '')]: values[i],
      },
    })),
  }
}
