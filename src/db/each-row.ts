import { chunk } from '../lib/chunk.ts'
import { MAX_IN } from './fast-path/index.ts'

type Row = { id: string }

/** Narrows a query to the next page. */
type Page = { where: object; orderBy: object[]; take: number }

/**
 * Yields rows in the order of a time column and the id, oldest first, a page at a time. `findPage` runs the query with
 * the given `where` beside its own; its rows have both columns.
 */
export async function* eachRow<Column extends string, Found extends Row & Record<Column, Date>>(
  column: Column,
  findPage: (page: Page) => Promise<Found[]>,
): AsyncGenerator<Found> {
  let where = {}
  for (;;) {
    const rows = await findPage({ where, orderBy: [{ [column]: 'asc' }, { id: 'asc' }], take: MAX_IN })
    yield* rows
    const last = rows.at(-1)
    if (!last || rows.length < MAX_IN) return
    const at: Date = last[column]
    where = { [column]: { gte: at }, OR: [{ [column]: { gt: at } }, { [column]: at, id: { gt: last.id } }] }
  }
}

/** Number of rows in one statement. Its text stays short enough to be prepared (postgresql/adapter.ts). */
const TOGETHER = 100

/**
 * Creates any number of rows with `createMany`. A full part is one statement on PostgreSQL. The rows of the last part go
 * alone, in the statement of a single row, because each length would be another statement to prepare.
 */
export async function createEach<Row>(
  createMany: (data: Row | Row[]) => Promise<unknown>,
  rows: readonly Row[],
): Promise<void> {
  for (const part of chunk(rows, TOGETHER)) {
    if (part.length === TOGETHER) await createMany(part)
    else for (const row of part) await createMany(row)
  }
}
