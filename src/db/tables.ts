import type { Dialect } from './dialects.ts'

/** A table, as far as calls on it can be turned into SQL here. */
export type Table = {
  name: string
  /** With their Prisma types. */
  columns: ReadonlyMap<string, string>
  all: Columns
  relations: ReadonlyMap<string, Relation>
  dialect: Dialect
  /** What inserts a row, by the columns that it says. */
  inserts: Map<string, string>
}

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

/** Thrown where a call says more than is made into SQL here: Json filters, most patterns, sums, a page of each relation. */
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

/** A table whose relations are still to be told. */
export const tableOf = (name: string, columns: ReadonlyMap<string, string>, dialect: Dialect) => ({
  name,
  columns,
  all: columnsOf([...columns.keys()]),
  relations: new Map<string, Relation>(),
  dialect,
  inserts: new Map<string, string>(),
})

/** The Prisma type of a column. */
export function typeOf({ columns }: Table, name: string): string {
  const type = columns.get(name)
  if (type === undefined) throw UNSUPPORTED
  return type
}

/** Whether a value is an object of what is said about something, and no Date, list or other thing of its own. */
export const isFilter = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
