import type { Prisma } from '../../../prisma/generated/sqlite/client.ts'
import { type Columns, isFilter, quote, type Table, UNSUPPORTED } from './tables.ts'

/** What is different in the SQL, and in the values, of the two databases. */
export type Dialect = {
  /** Where a parameter stands, by its position among them from 1. */
  place: (position: number) => string
  /** The same where a column of a Prisma type is compared with it. */
  operand: (position: number, type: string) => string
  /** After a column: that it has one of some values, or none of them. */
  in: (values: readonly unknown[], args: unknown[], type: string) => string
  notIn: (values: readonly unknown[], args: unknown[], type: string) => string
  /** Behind a subquery in a condition that not every row has to meet: it is asked row by row. */
  rowByRow: string
  /** The statement for the first rows of an order. */
  page: (page: Page) => string
  /** The same query with `room` for what its rows say (statements.ts), as far as the statement has to say so. */
  within: (query: string, table: Table, columns: Columns, room: number) => string
  /** Whether many rows are inserted by one statement. */
  insertsTogether: boolean
  rawText: (query: Prisma.Sql) => string
  date: (value: Date) => unknown
  boolean: (value: boolean) => unknown
  toDate: (stored: unknown) => Date
}

/** A page of a table, or of some parts of it together. */
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
  // A parameter that SQLite does not look at when it plans: for those it does, it plans anew at each run.
  operand: (_, type) => {
    if (type === 'Bytes') return '?'
    return NUMBERS.has(type) ? 'CAST(? AS INTEGER)' : 'CAST(? AS TEXT)'
  },
  in: (values, args, type) => `IN (${operandsOf(values, args, type)})`,
  notIn: (values, args, type) => `NOT IN (${operandsOf(values, args, type)})`,
  rowByRow: '',
  page: ({ selects, order, limit }) => selects.join(' UNION ALL ') + order + limit,
  // Its rows are read one by one, and no further than wanted (sqlite-connection.ts).
  within: (query) => query,
  // One statement for all rows would be another for each number of them.
  insertsTogether: false,
  rawText: ({ sql }) => sql,
  date: (value) => value.getTime(),
  boolean: (value) => (value ? 1 : 0),
  toDate: (stored) => new Date(Number(stored)),
}

const operandsOf = (values: readonly unknown[], args: unknown[], type: string): string =>
  padded(values)
    .map((value) => SQLITE.operand(args.push(value), type))
    .join(', ')

/** How much a column says, at the least: PostgreSQL writes JSON with blanks between its parts. */
const SIZES: Readonly<Record<string, (column: string) => string>> = {
  String: (column) => `coalesce(octet_length(${column}), 0)`,
  Bytes: (column) => `coalesce(octet_length(${column}), 0)`,
  Json: (column) => `coalesce(octet_length(${column}::text) / 2, 0)`,
}

/** PostgreSQL takes the type of a parameter from where it stands. */
export const POSTGRESQL: Dialect = {
  place: (position) => `$${position}`,
  operand: (position) => `$${position}`,
  // Not even of one value has an index the rows in the order of a page, if it is in a list.
  in: (values, args) => (values.length === 1 ? `= $${args.push(values[0])}` : `= ANY($${args.push(values)})`),
  notIn: (values, args) => `<> ALL($${args.push(values)})`,
  // Otherwise it may read all of the other table first, for the few rows of a page.
  rowByRow: ' OFFSET 0',
  // It does not see that rows in which a column is NULL are in one order by it, nor that a page needs few of each part.
  page({ selects: [select = '', ...more], order, indexOrder, limit }) {
    if (!more.length) return select + indexOrder + limit
    return [select, ...more].map((part) => `(${part}${indexOrder}${limit})`).join(' UNION ALL ') + order + limit
  },
  // All rows of an answer are sent at once: what is to be left out it must leave out itself. It knows how long a text is
  // without reading it.
  within(query, table, { names, list }, room) {
    const sizes = names.flatMap((name) => SIZES[table.columns.get(name) ?? '']?.(quote(name)) ?? [])
    if (!sizes.length) return query
    const before = `sum(${sizes.join(' + ')}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING)`
    const sized = `SELECT *, ${before} AS "before" FROM (${query}) AS "found"`
    return `SELECT ${list} FROM (${sized}) AS "sized" WHERE coalesce("before", 0) <= ${room}`
  },
  insertsTogether: true,
  rawText: ({ text }) => text,
  date: (value) => value,
  boolean: (value) => value,
  toDate: (stored) => new Date(stored as string),
}

/**
 * A list with its last element repeated until its length is a power of two: lists of any length then make a few
 * statements, which are kept prepared, and not as many as there are lengths.
 */
export function padded<T>(list: readonly T[]): readonly T[] {
  const length = 2 ** Math.ceil(Math.log2(list.length))
  if (length === list.length) return list
  return Array.from({ length }, (_, index) => list[Math.min(index, list.length - 1)] as T)
}

/** Returns a value as a column of a type stores it. Every other value is for Prisma to refuse. */
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

/** Returns whether JSON.stringify writes a value as Prisma does: Prisma refuses undefined, and has its own bigint and bytes. */
function isJson(value: unknown): boolean {
  if (value === undefined || typeof value === 'bigint') return false
  if (typeof value !== 'object' || value === null) return true
  if (Array.isArray(value)) return value.every(isJson)
  if (ArrayBuffer.isView(value)) return false
  for (const name in value) if (!isJson((value as Record<string, unknown>)[name])) return false
  return true
}

/** A row as the column types say that Prisma would return it; of the row's own object. */
export function decode({ columns, dialect }: Table, selected: readonly string[], row: Record<string, unknown>): object {
  for (const name of selected) {
    const value = row[name]
    if (value === null) continue
    switch (columns.get(name)) {
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
