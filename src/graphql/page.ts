import { z } from 'zod'
import { invalidField } from '../errors.ts'
import { queryInt } from '../lib/fields.ts'
import { cutTexts, MAX_ROWS, readPage, takeWithinBudget } from '../lib/page.ts'
import { afterCursor, type Order, reversed, toCursor } from './cursor.ts'
import { LIMITS } from './limits.ts'
import type { Rows } from './rows.ts'

/** Default page sizes (contract-2.md section 1.9). */
export const ROOT_ROWS = 50
export const RELATION_ROWS = 20

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

/** The page arguments of a list, in Relay's terms. */
export type PageArgs = {
  first?: number | undefined
  after?: string | undefined
  last?: number | undefined
  before?: string | undefined
}

/** A page to read: at most `take` rows from the start of the range between its cursors, or `backwards` from its end. */
export type Page = { take: number; backwards: boolean; after: string | undefined; before: string | undefined }

/** Reads the arguments of a page. Throws a 400 for `first` together with `last`, which would contradict each other. */
export function pageOf({ first, last, ...cursors }: PageArgs, byDefault: number): Page {
  // A loop over pages often begins with an empty cursor.
  const [after, before] = [cursors.after || undefined, cursors.before || undefined]
  if (first !== undefined && last !== undefined)
    throw invalidField('last', 'no first beside it', 'Send either `first` or `last`.')
  const backwards = last !== undefined || (before !== undefined && first === undefined)
  return { take: first ?? last ?? byDefault, backwards, after, before }
}

/** Returns the order in which a page is read, and the filter for the range between its cursors. */
export const readingOf = (order: Order, { backwards, after, before }: Page) => ({
  order: backwards ? reversed(order) : order,
  range: [afterCursor(order, after), afterCursor(reversed(order), before, { name: 'before' })],
})

const ROOT_PAGE = pageArgs(ROOT_ROWS)

/** Returns the arguments of a list: the filters of the REST list, and Relay's page arguments. */
export function listArgs<Shape extends z.ZodRawShape>(input: z.ZodObject<Shape>) {
  const { limit, cursor, count, ...filters } = input.shape
  return z.object({ ...(filters as Omit<Shape, 'limit' | 'cursor' | 'count'>), ...ROOT_PAGE })
}

/** The page arguments of a list on a row. */
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
export async function readPart<Row extends object>(
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
      positionOf: (row) => ({ AND: [...range, afterCursor(order, toCursor(order, row))] }),
      cut: (row) => cutTexts(row, texts as (keyof Row)[]),
    },
  )
  return { rows: page.backwards ? rows.reverse() : rows, more: hasMore }
}

/** A page without rows. */
export const NOTHING: Part<never> = { rows: [], more: false }
