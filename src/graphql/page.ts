import type { ObjectRef } from '@pothos/core'
import { z } from 'zod'
import { queryInt } from '../lib/fields.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { builder, type Types } from './builder.ts'

/** One page of a list, newest first. */
export type Page<Row> = {
  nodes: Row[]
  nextCursor: string | null
  /** Counts only when it is asked for, and the rows do not tell it. */
  total: () => Promise<number> | number
}

type Input = { limit?: number | undefined; cursor?: string | undefined }

type PageQuery<Where> = Omit<ReturnType<typeof pageQuery>, 'where'> & { where: { AND: Where[] } }

/** Reads the page of `input`, as the lists of every face are read (contract.md section 1). */
export async function readPage<Where extends object, Row extends { id: string; createdAt: Date }>(
  input: Input,
  where: Where,
  find: (query: PageQuery<Where>) => Promise<Row[]>,
  count: () => Promise<number>,
): Promise<Page<Row>> {
  const { where: after, ...query } = pageQuery(input)
  const found = await find({ ...query, where: { AND: [where, (after ?? {}) as Where] } })
  const { rows, nextCursor } = toPage(found, input)
  return { nodes: rows, nextCursor, total: after || nextCursor ? count : () => rows.length }
}

/** The object type of a page. */
export const pageType = <Row>(name: string, rows: ObjectRef<Types, Row>, description: string) =>
  builder.objectRef<Page<Row>>(name).implement({
    description,
    fields: (t) => ({
      nodes: t.field({
        type: [rows],
        description: 'The rows',
        // How many, the page itself says.
        extensions: { rows: 1 },
        resolve: ({ nodes }) => nodes as never,
      }),
      nextCursor: t.exposeString('nextCursor', { nullable: true, description: 'Where to go on; null at the end' }),
      total: t.int({ description: 'How many there are in all', resolve: ({ total }) => total() }),
    }),
  })

/** What a page's cursor is made of. */
export const CURSOR_COLUMNS = { id: true, createdAt: true } as const

export const newestFirst = [{ createdAt: 'desc' as const }, { id: 'desc' as const }]

const RELATION_ROWS = 20

/** The arguments of a list that hangs on a row. */
export const RelationArgs = z.object({
  limit: queryInt(1, 100).default(RELATION_ROWS).describe(`At most so many rows, ${RELATION_ROWS} unless told`),
})

/**
 * Such a list is a statement of its own, for one row at a time (see limits.ts). Prisma's `take` in a relation would read
 * all that there is, for all rows, and cut it in memory.
 */
export const RELATION = { rows: RELATION_ROWS, single: true } as const
