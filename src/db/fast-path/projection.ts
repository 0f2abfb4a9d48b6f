import { orderOf } from './order.ts'
import { type Args, knownArgs, type Nested, type Projection, type Query } from './statement.ts'
import { type Columns, columnsOf, isFilter, quote, type Table, UNSUPPORTED, type Values } from './tables.ts'
import { whereOf } from './where.ts'

export const PROJECTION = ['select', 'omit', 'include'] as const

/** Returns the projection of some columns alone. */
export const plainProjection = (columns: Columns): Projection => ({ ...columns, hidden: [], nested: [] })

/** The projection of a statement that returns nothing. */
export const NOTHING = plainProjection(columnsOf([]))

/** Returns the projection of the rows that a statement writes, which has no related rows. */
export function writtenProjection(table: Table, select: Values | undefined): Projection {
  const projection = projectionOf(table, select === undefined ? {} : { select })
  if (projection.nested.length) throw UNSUPPORTED
  return projection
}

/**
 * Returns the columns and relations that a call selects, omits or includes. `keys` are columns that are read in any
 * case.
 */
export function projectionOf(table: Table, args: Args, keys: readonly string[] = []): Projection {
  const { select } = args
  const { names, nested } = namedIn(table, args)
  if (!nested.length && !keys.length) {
    if (select && names.length) return plainProjection(columnsOf(names))
    if (!select && !names.length) return plainProjection(table.all)
  }
  const selected = select ? names : table.all.names.filter((name) => !names.includes(name))
  const read = [...keys, ...nested.flatMap(({ relation }) => relation.on.map(([own]) => own))]
  const hidden = [...new Set(read)].filter((name) => !selected.includes(name))
  if (!selected.length && !nested.length) throw UNSUPPORTED
  return { ...columnsOf([...selected, ...hidden]), hidden, nested }
}

/** Returns the columns and the relations that a call names in the only projection that it may have. */
function namedIn(table: Table, { select, omit, include }: Args): { names: string[]; nested: Nested[] } {
  if ((select && (omit || include)) || (omit && include)) throw UNSUPPORTED
  if (select === null || omit === null || include === null) throw UNSUPPORTED
  const nested: Nested[] = []
  const names: string[] = []
  const selection = select ?? omit ?? include ?? {}
  for (const name in selection) {
    const value = selection[name]
    const relation = omit ? undefined : table.relations.get(name)
    if (relation) {
      if (value !== false) nested.push(nestedOf(name, relation, value))
      continue
    }
    if (typeof value !== 'boolean' || include || !table.columns.has(name)) throw UNSUPPORTED
    if (value) names.push(name)
  }
  return { names, nested }
}

/** Returns a relation that a projection names, with the call for its rows. */
function nestedOf(name: string, relation: Nested['relation'], value: unknown): Nested {
  if (value !== true && !isFilter(value)) throw UNSUPPORTED
  const nested = { name, relation, call: value === true ? {} : value }
  // Compiled with no rows to find out whether it is supported before anything is read.
  toNested([], nested)
  return nested
}

/** Returns the query for the rows related to any of `parents`, including the columns that relate them. */
export function toNested(parents: readonly Values[], { relation: { to, number, on }, call }: Nested): Query {
  const { where = {}, orderBy, ...wanted } = knownArgs(call, ...PROJECTION, ...(number === 'many' ? MANY : []))
  const keys = on.map(([own, theirs]) => [theirs, { in: [...new Set(parents.map((row) => row[own]))] }])
  const projection = projectionOf(
    to,
    wanted,
    on.map(([, theirs]) => theirs),
  )
  const args: unknown[] = []
  const condition = whereOf(to, { AND: [Object.fromEntries(keys), where] }, args)
  return {
    sql: `SELECT ${projection.list} FROM ${quote(to.name)}${condition}${orderOf(to, orderBy).text}`,
    args,
    table: to,
    projection,
  }
}

const MANY = ['where', 'orderBy'] as const
