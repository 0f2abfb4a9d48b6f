import type { Prisma } from '../../../prisma/generated/sqlite/client.ts'
import { type Column, type Columns, isFilter, type Table, UNSUPPORTED } from './tables.ts'

/** Differences between the two databases in SQL and values. */
export type Dialect = {
  /** Returns the placeholder of a parameter by its position, from 1. */
  place: (position: number) => string
  /** Returns the placeholder for a comparison with a column of a Prisma type. */
  operand: (position: number, type: string) => string
  /** Returns the condition that a column has one of some values, or none of them. */
  in: (values: readonly unknown[], args: unknown[], type: string) => string
  notIn: (values: readonly unknown[], args: unknown[], type: string) => string
  /** Suffix of a subquery in an optional condition, which makes the database evaluate it row by row. */
  rowByRow: string
  /** Returns the statement for the first rows of an order. */
  page: (page: Page) => string
  /** Limits a query to `byteBudget` bytes of rows (statement.ts), if the statement itself must do that. */
  limitBytes: (query: string, table: Table, columns: Columns, byteBudget: number) => string
  /** Whether one statement inserts several rows. */
  insertsTogether: boolean
  /** Returns a statement that fails unless its text returns a number of rows, if changes need not be awaited. */
  expecting?: (expected: { returning: string; rows: number }) => string
  rawText: (query: Prisma.Sql) => string
  date: (value: Date) => unknown
  boolean: (value: boolean) => unknown
  toDate: (stored: unknown) => Date
}

/** A page of a table, or of several ranges of it together. */
export type Page = {
  selects: readonly string[]
  order: string
  /** The same order, as indexes have it. */
  indexOrder: string
  limit: string
}

const NUMBERS = new Set(['Int', 'BigInt', 'DateTime', 'Boolean'])

export const SQLITE: Dialect = {
  place: () => '?',
  // Casts parameters so that SQLite ignores their values when planning; otherwise it replans at each execution.
  operand: (_, type) => {
    if (type === 'Bytes') return '?'
    return NUMBERS.has(type) ? 'CAST(? AS INTEGER)' : 'CAST(? AS TEXT)'
  },
  in: (values, args, type) => `IN (${operandsOf(values, args, type)})`,
  notIn: (values, args, type) => `NOT IN (${operandsOf(values, args, type)})`,
  rowByRow: '',
  page: ({ selects, order, limit }) => selects.join(' UNION ALL ') + order + limit,
  // Rows are read one by one and only as far as needed (sqlite/connection.ts).
  limitBytes: (query) => query,
  // One statement for all rows would need a separate statement for each row count.
  insertsTogether: false,
  rawText: ({ sql }) => sql,
  date: (value) => value.getTime(),
  boolean: (value) => (value ? 1 : 0),
  toDate: (stored) => new Date(Number(stored)),
}

const operandsOf = (values: readonly unknown[], args: unknown[], type: string): string =>
  padToPowerOfTwo(values)
    .map((value) => SQLITE.operand(args.push(value), type))
    .join(', ')

/** SQL for the minimum JSON size of a column. PostgreSQL writes JSON with blanks between its parts. */
const SIZES: Readonly<Record<string, (column: string) => string>> = {
  String: (column) => `coalesce(octet_length(${column}), 0)`,
  Bytes: (column) => `coalesce(octet_length(${column}), 0)`,
  Json: (column) => `coalesce(octet_length(${column}::text) / 2, 0)`,
}
const sizeOf = (column?: Column) => (column && SIZES[column.type]?.(column.sql)) ?? []

/**
 * Returns a query of PostgreSQL that fails unless a table expression has a number of rows ({@link isUnexpectedCount}).
 * It divides by zero, the only error of an expression that needs no function of our own.
 */
export const failUnlessRows = (rows: number, from: string): string =>
  `SELECT 1 / (count(*) = ${rows})::int FROM ${from}`

/** PostgreSQL infers parameter types from their context. */
export const POSTGRESQL: Dialect = {
  place: (position) => `$${position}`,
  operand: (position) => `$${position}`,
  // For a list, even of one value, an index does not return the rows in page order.
  in: (values, args) => (values.length === 1 ? `= $${args.push(values[0])}` : `= ANY($${args.push(values)})`),
  notIn: (values, args) => `<> ALL($${args.push(values)})`,
  // Otherwise PostgreSQL may read the whole other table first for the few rows of a page.
  rowByRow: ' OFFSET 0',
  // PostgreSQL does not recognize that a NULL column preserves the order, nor that a page needs few rows of each range.
  page({ selects: [select = '', ...more], order, indexOrder, limit }) {
    if (!more.length) return select + indexOrder + limit
    return [select, ...more].map((part) => `(${part}${indexOrder}${limit})`).join(' UNION ALL ') + order + limit
  },
  // PostgreSQL sends all rows of an answer at once, so the statement itself must limit them. It knows the length of a
  // text without reading it.
  limitBytes(query, table, { names, list }, byteBudget) {
    const sizes = names.flatMap((name) => sizeOf(table.columns.get(name)))
    if (!sizes.length) return query
    const before = `sum(${sizes.join(' + ')}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)`
    const sized = `SELECT *, ${before} AS "before" FROM (${query}) AS "found"`
    return `SELECT ${list} FROM (${sized}) AS "sized" WHERE coalesce("before", 0) <= ${byteBudget}`
  },
  insertsTogether: true,
  expecting: ({ returning, rows }) => `WITH "found" AS (${returning}) ${failUnlessRows(rows, '"found"')}`,
  rawText: ({ text }) => text,
  date: (value) => value,
  boolean: (value) => value,
  toDate: (stored) => new Date(stored as string),
}

/**
 * Pads a list to a power of two by repeating its last element, so that lists of any length share few prepared
 * statements.
 */
export function padToPowerOfTwo<T>(list: readonly T[]): readonly T[] {
  const length = 2 ** Math.ceil(Math.log2(list.length))
  if (length === list.length) return list
  return Array.from({ length }, (_, index) => list[Math.min(index, list.length - 1)] as T)
}

/** Encodes a value for a column type. Throws UNSUPPORTED for any other value. */
export function encode({ dialect, enums }: Table, type: string, value: unknown): unknown {
  if (value === null) return null
  switch (type) {
    case 'DateTime':
      if (value instanceof Date && !Number.isNaN(value.getTime())) return dialect.date(value)
      throw UNSUPPORTED
    case 'Boolean':
      if (typeof value === 'boolean') return dialect.boolean(value)
      throw UNSUPPORTED
    case 'Int':
      if (Number.isSafeInteger(value)) return value
      throw UNSUPPORTED
    case 'BigInt':
      if (typeof value === 'bigint' || Number.isSafeInteger(value)) return value
      throw UNSUPPORTED
    case 'Bytes':
      if (value instanceof Uint8Array) return value
      throw UNSUPPORTED
    case 'Json':
      if ((isFilter(value) || Array.isArray(value)) && isJson(value)) return JSON.stringify(value)
      throw UNSUPPORTED
    case 'String':
      if (typeof value === 'string') return value
      throw UNSUPPORTED
    default:
      if (enums.get(type)?.has(value as string)) return value
      throw UNSUPPORTED
  }
}

/**
 * Returns whether JSON.stringify writes a value as Prisma does. Prisma rejects undefined and has its own encoding of
 * bigint and bytes.
 */
function isJson(value: unknown): boolean {
  if (value === undefined || typeof value === 'bigint') return false
  if (typeof value !== 'object' || value === null) return true
  if (Array.isArray(value)) return value.every(isJson)
  if (ArrayBuffer.isView(value)) return false
  for (const name in value) if (!isJson((value as Record<string, unknown>)[name])) return false
  return true
}

/** Decodes a row in place into the values that Prisma would return. */
export function decode({ columns, dialect }: Table, selected: readonly string[], row: Record<string, unknown>): object {
  for (const name of selected) {
    const value = row[name]
    if (value === null) continue
    switch (columns.get(name)?.type) {
      case 'DateTime':
        row[name] = dialect.toDate(value)
        break
      case 'Boolean':
        row[name] = Boolean(value)
        break
      case 'Int':
        if (typeof value === 'bigint') row[name] = Number(value)
        break
      case 'BigInt':
        row[name] = BigInt(value as number)
        break
      case 'Bytes':
        row[name] = new Uint8Array(value as Buffer)
        break
      case 'Json':
        row[name] = JSON.parse(value as string)
    }
  }
  return row
}
