import { z } from 'zod'
import { invalidField } from '../errors.ts'

/** How a list is ordered: by columns of which no two rows have the same values together. */
export type Order = readonly (readonly [column: string, direction: 'asc' | 'desc'])[]

export const NEWEST_FIRST: Order = [
  ['createdAt', 'desc'],
  ['id', 'desc'],
]

type Row = Readonly<Record<string, unknown>>

export const orderBy = (order: Order) => order.map(([column, direction]) => ({ [column]: direction }))

/** Where a row stands: its values in the columns of the order, a date as its time. */
export function toCursor(order: Order, row: object): string {
  const values = order.map(([column]) => (row as Row)[column])
  const plain = values.map((value) => (value instanceof Date ? { at: value.getTime() } : value))
  return Buffer.from(JSON.stringify(plain)).toString('base64url')
}

const Time = z.object({ at: z.int().min(0).max(8.64e15) }).transform(({ at }) => new Date(at))
const Values = z.array(z.union([Time, z.int32(), z.string().regex(/^[^\0]*$/)]))

/** Throws a 400 for what is no cursor of such a list. `name` is the argument that has it. */
export function fromCursor(order: Order, cursor: string, name: CursorArg = 'after'): (Date | number | string)[] {
  try {
    const values = Values.parse(JSON.parse(Buffer.from(cursor, 'base64url').toString()))
    const kinds = order.map(([column]) => (/(?:^at|At)$/.test(column) ? Date : KINDS[column]) ?? String)
    if (values.length === order.length && values.every((value, i) => Object(value) instanceof kinds[i]!)) return values
  } catch {}
  throw invalidCursor(name)
}

type CursorArg = 'after' | 'before'

export const invalidCursor = (name: CursorArg = 'after') =>
  invalidField(name, name === 'after' ? 'an endCursor of this list' : 'a startCursor of this list')

/** The same order from its other end. */
export const reversed = (order: Order): Order =>
  order.map(([column, direction]) => [column, direction === 'asc' ? 'desc' : 'asc'] as const)

const KINDS: Readonly<Record<string, NumberConstructor>> = { position: Number, version: Number, seq: Number }

type Behind = { name?: CursorArg; inclusive?: boolean }

/** Returns Prisma's filter for rows behind a cursor; with the cursor's own row if it is `inclusive`. */
export function behind(order: Order, cursor: string | undefined, { name, inclusive = false }: Behind = {}): object {
  if (cursor === undefined) return {}
  const values = fromCursor(order, cursor, name)
  const [[first, direction] = ['', 'asc'] as const] = order
  return {
    // Said once more, so that an index is entered where the page begins and not at its top.
    [first]: { [direction === 'asc' ? 'gte' : 'lte']: values[0] },
    OR: order.map(([column, direction], i) => ({
      ...Object.fromEntries(order.slice(0, i).map(([before], at) => [before, values[at]])),
      [column]: {
        [(direction === 'asc' ? 'gt' : 'lt') + (inclusive && i === order.length - 1 ? 'e' : '')]: values[i],
      },
    })),
  }
}
