import type { Db } from '../db/client.ts'
import { MAX_IN } from '../db/fast-path/index.ts'
import { chunk } from '../lib/chunk.ts'
import { withByteBudget } from '../lib/page.ts'
import type { GraphQLContext } from './builder.ts'
import { orderBy } from './cursor.ts'
import { delegateOf, type Rows, readAll } from './rows.ts'

// Reads many lists with few statements.

/** Maximum number of lists per statement. SQLite compiles at most 500. */
const LISTS_AT_ONCE = 250

type Read = { ids: string[]; column: string; where: object; take: number; query: object }

/**
 * Reads the first rows of the lists, each in its order. A single list is read only as far as it fits on a page, plus
 * one row.
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
