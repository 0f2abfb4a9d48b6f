import { decode } from './dialect.ts'
import { toNested } from './projection.ts'
import type { Nested, Query, Statement } from './statement.ts'
import { isFilter, UNSUPPORTED, type Values } from './tables.ts'

/** Executes statements without Prisma. */
export type Runner = {
  /** Returns rows with stored values; numbers as BigInt if `exact`. */
  rows: (statement: Statement, exact: boolean) => Promise<Record<string, unknown>[]>
  /**
   * Returns rows with values of the declared column types. Returns null without executing the statement if it writes.
   */
  typedRows: (statement: Statement) => Promise<object[] | null>
  /** Returns the number of changed rows. */
  changes: (statement: Statement) => Promise<number>
}

export type Row = Record<string, unknown>

/** Reads the rows of a query and their related rows, with one statement per relation. */
export async function read(runner: Runner, query: Query): Promise<Row[]> {
  const rows = await readAll(runner, query)
  hide(rows, query.projection.hidden)
  return rows
}

/** Reads the row of each key, or null, with one statement for all keys. */
export async function readEach(runner: Runner, nested: Nested, keys: readonly Values[]): Promise<unknown[]> {
  const rows = keys.map((key): Row => ({ ...key }))
  await attach(runner, rows, nested)
  return rows.map((row) => row[nested.name])
}

async function readAll(runner: Runner, query: Query): Promise<Row[]> {
  const { table, projection } = query
  const exact = projection.names.some((name) => table.columns.get(name)?.type === 'BigInt')
  const found = await runner.rows(query, exact)
  for (const row of found) decode(table, projection.names, row)
  if (projection.nested.length) await Promise.all(projection.nested.map((nested) => attach(runner, found, nested)))
  return found
}

function hide(rows: readonly Row[], names: readonly string[]): void {
  for (const name of names) for (const row of rows) delete row[name]
}

/** Attaches related rows. A missing row of a required relation means that the data changed between the statements. */
async function attach(runner: Runner, rows: readonly Row[], nested: Nested): Promise<void> {
  const { name, relation } = nested
  const { number, on } = relation
  const keyOf = (row: Row, columns: readonly string[]) => columns.map((column) => row[column]).join('\0')
  const own = on.map(([column]) => column)
  const theirs = on.map(([, column]) => column)
  const having = rows.filter((row) => own.every((column) => row[column] !== null))
  const query = toNested(having, nested)
  const found = having.length ? await readAll(runner, query) : []
  const known = Map.groupBy(found, (row) => keyOf(row, theirs))
  hide(found, query.projection.hidden)
  const given = new Set<Row>()
  for (const row of rows) {
    const belonging = known.get(keyOf(row, own)) ?? []
    if (number === 'one' && !belonging.length) throw UNSUPPORTED
    const [first = null] = belonging
    row[name] = number === 'many' ? belonging : first && given.has(first) ? copyOf(first) : first
    if (first) given.add(first)
  }
}

/** Copies a row that belongs to several parents, as Prisma does, because callers may rely on object identity. */
function copyOf<T>(value: T): T {
  if (Array.isArray(value)) return value.map(copyOf) as T
  if (!isFilter(value)) return value
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, copyOf(part)])) as T
}
