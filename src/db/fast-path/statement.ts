import { type Columns, isFilter, type Relation, type Table, UNSUPPORTED, type Values } from './tables.ts'

export type Statement = {
  sql: string
  args: unknown[]
  /**
   * Number of rows that the statement adds, changes or locks: it fails otherwise, so a transaction need not await it.
   */
  certain?: number
  /** How a certain statement becomes a part of another one. */
  part?: Part
  /**
   * Maximum size of a query's rows (bytes, as stored). The result includes the first row beyond it and one more, which
   * shows the reader that there are others.
   */
  byteBudget?: number
}

/**
 * A part of a statement that writes to several tables (db/postgresql/combine.ts). An insert of one row is given by the
 * beginning and the end of its text. Any other text returns as many rows as it has to change or lock.
 */
export type Part = InsertPart | { table: string; returning: string; rows: number; isLock?: true }

/**
 * `sums`: number of columns at the end whose values are added to those of a row with the same key, see {@link addsTo}.
 */
export type InsertPart = { table: string; into: string; onConflict: string; sums: number }

/** A statement with the shape of its rows, to decode them into Prisma's values. */
export type Query = Statement & { table: Table; projection: Projection }

/** Columns and relations that a query returns. */
export type Projection = Columns & {
  /** Columns that are read to find related rows, and left out of the result. */
  hidden: readonly string[]
  nested: readonly Nested[]
}

/** Related rows of another table, and the arguments of their part of a call. */
export type Nested = { name: string; relation: Relation; call: Args }

export type Args = Readonly<{
  where?: Values
  data?: unknown
  create?: Values
  update?: Values
  select?: Values
  omit?: Values
  include?: Values
  by?: readonly string[]
  _count?: unknown
  orderBy?: unknown
  take?: number
  /** The column of `findFirstOfEach`, and its values. */
  column?: string
  keys?: readonly string[]
  skip?: number
  /** {@link Statement.byteBudget}, which Prisma does not support (lib/page.ts). */
  byteBudget?: number
  /** See {@link expectsOne}. Prisma does not support it. */
  expectsOne?: boolean
}>

/**
 * Marks an `updateMany` of a unique row that almost always matches. On PostgreSQL, in a transaction, it is not awaited:
 * it returns the count 1, and if it has matched no row, the transaction fails with {@link isUnexpectedCount}. The
 * caller then repeats the transaction with unmarked calls. On SQLite it returns the count as ever.
 *
 * Its conditions on other rows may see them as they were before the transaction, whose statements may become one.
 */
export const expectsOne = <Call extends object>(call: Call): Call => Object.assign(call, { expectsOne: true })

/** Returns the arguments of a call. Throws UNSUPPORTED for an unknown or undefined argument. */
export function knownArgs(args: unknown, ...names: (keyof Args)[]): Args {
  if (args === undefined) return {}
  if (!isFilter(args)) throw UNSUPPORTED
  for (const name in args) {
    if (!names.includes(name as keyof Args)) throw UNSUPPORTED
    if (args[name] === undefined && name !== 'byteBudget') throw UNSUPPORTED
  }
  return args as Args
}
