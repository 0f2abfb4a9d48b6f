import type { Dialect } from './dialect.ts'

/** A table, as far as calls on it can be turned into SQL here. */
export type Table = {
  name: string
  /** With their Prisma types. */
  columns: ReadonlyMap<string, string>
  all: Columns
  /** Columns that cannot be null. */
  required: ReadonlySet<string>
  /** Required columns without a default: an insert names each of them. */
  needed: readonly string[]
  /** The columns of each unique key, by its name in a `where`: the column's own, or several joined by `_`. */
  keys: ReadonlyMap<string, readonly string[]>
  /** The values of each enum, by its name. */
  enums: Enums
  relations: ReadonlyMap<string, Relation>
  dialect: Dialect
  /** What inserts a row, by the columns that it says. */
  inserts: Map<string, string>
}

export type Enums = ReadonlyMap<string, ReadonlySet<string>>

/** Rows of a table that belong to a row of another one. */
export type Relation = {
  to: Table
  /** Many, one, or maybe none. */
  number: 'many' | 'one' | 'maybe'
  /** Which columns are the same: the own one, the other's. */
  on: readonly (readonly [own: string, theirs: string])[]
}

/** Columns by name, and as SQL lists them. */
export type Columns = { names: readonly string[]; list: string }

/**
 * Thrown for every call that the fast path does not turn into SQL: Json filters, most patterns, sums, a page of each
 * relation, and all that is malformed. Prisma then answers the call, or says what is wrong with it.
 */
export const UNSUPPORTED = Symbol('for Prisma')

/** What a call says of columns and relations, by their names. */
export type Values = Readonly<Record<string, unknown>>

const quoted = new Map<string, string>()

/** A name as SQL has it. Of those of a schema there are few, and each is needed in every statement. */
export function quote(name: string): string {
  const known = quoted.get(name)
  if (known !== undefined) return known
  const text = `"${name}"`
  quoted.set(name, text)
  return text
}

export const columnsOf = (names: readonly string[]): Columns => ({ names, list: names.map(quote).join(', ') })

/** The Prisma type of a column. */
export function typeOf({ columns }: Table, name: string): string {
  const type = columns.get(name)
  if (type === undefined) throw UNSUPPORTED
  return type
}

/** Returns the parts of what Prisma takes as one or as a list. */
export const listOf = (said: unknown): readonly unknown[] => (Array.isArray(said) ? said : [said])

/** Returns whether a value is a plain object: no Date, list, Prisma.skip or instance of another class. */
export const isFilter = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
