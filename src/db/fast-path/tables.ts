import type { Dialect } from './dialect.ts'
import type { InsertPart } from './statement.ts'

/** A table, as far as the fast path can compile calls on it. */
export type Table = {
  name: string
  columns: ReadonlyMap<string, Column>
  all: Columns
  /** Required columns without a default, which every insert must name. */
  needed: readonly string[]
  /** Columns of each unique key, by its name in a `where`: the column's own, or several joined by `_`. */
  keys: ReadonlyMap<string, readonly string[]>
  /** Values of each enum, by its name. */
  enums: Enums
  relations: ReadonlyMap<string, Relation>
  dialect: Dialect
  /** The INSERT statements that were compiled so far. */
  inserts: Insert[]
}

/** An INSERT of one row into some columns. */
export type Insert = { columns: readonly Column[]; sql: string; part: InsertPart }

/** A column: its name, the same in SQL, its Prisma type, and whether it is not nullable. */
export type Column = { name: string; sql: string; type: string; isRequired: boolean }

export type Enums = ReadonlyMap<string, ReadonlySet<string>>

/** Related rows in another table. */
export type Relation = {
  to: Table
  /** Cardinality of the relation. */
  number: 'many' | 'one' | 'maybe'
  /** Pairs of columns with equal values. */
  on: readonly (readonly [own: string, theirs: string])[]
}

/** Column names and the same as an SQL list. */
export type Columns = { names: readonly string[]; list: string }

/**
 * Thrown for every call that the fast path does not compile: Json filters, most patterns, sums, a page of each
 * relation, and every malformed call. Prisma then executes or rejects the call.
 */
export const UNSUPPORTED = Symbol('for Prisma')

/** Values of columns and relations in a call, by name. */
export type Values = Readonly<Record<string, unknown>>

const quoted = new Map<string, string>()

/** Quotes an SQL identifier. Results are cached because a schema has few names and every statement needs them. */
export function quote(name: string): string {
  const known = quoted.get(name)
  if (known !== undefined) return known
  const text = `"${name}"`
  quoted.set(name, text)
  return text
}

/** Returns columns with their list in SQL. */
export const columnsOf = (names: readonly string[]): Columns => ({ names, list: names.map(quote).join(', ') })

/** Returns a column. */
export function columnOf({ columns }: Table, name: string): Column {
  const column = columns.get(name)
  if (column === undefined) throw UNSUPPORTED
  return column
}

/** Returns a list for an argument that Prisma accepts as one value or a list. */
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value])

/** Returns whether a value is a plain object: no Date, list, Prisma.skip or instance of another class. */
export const isFilter = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
