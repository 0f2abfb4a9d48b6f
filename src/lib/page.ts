import { z } from 'zod'
import { invalidField } from '../errors.ts'
import { queryInt } from './fields.ts'

export const MAX_ROWS = 1000

/** The query fields of every list (contract.md section 1, "Lists"). */
export const pageInput = {
  limit: queryInt(1, MAX_ROWS).optional().describe('At most so many rows, 1000 unless told'),
  cursor: z.string().optional().describe('`nextCursor` of the page before'),
}

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
    take: (input.limit ?? MAX_ROWS) + 1,
  }
}

/** Cuts the extra row off again. `nextCursor` is null at the end. */
export function toPage<T extends Row>(rows: T[], input: { limit?: number | undefined }) {
  const limit = input.limit ?? MAX_ROWS
  const last = rows.length > limit ? rows[limit - 1] : undefined
  return { rows: last ? rows.slice(0, limit) : rows, nextCursor: last ? encodeCursor(last) : null }
}

/** Whether a row stands behind the cursor: for rows that are in no table. */
export function isBehind(row: Row, { cursor }: { cursor?: string | undefined }): boolean {
  if (cursor === undefined) return true
  const after = decodeCursor(cursor)
  const between = after.createdAt.getTime() - row.createdAt.getTime()
  return between > 0 || (between === 0 && row.id < after.id)
}
