import type { Args, Nested } from './statement.ts'
import { isFilter, type Table, UNSUPPORTED, type Values } from './tables.ts'

/**
 * Returns a call whose `where` names a unique key, with the key's columns as conditions. Leaves any other call to
 * Prisma.
 */
export function requireWhere(table: Table, call: unknown): unknown {
  if (!isFilter(call)) throw UNSUPPORTED
  const where = uniqueWhere(table, call.where)
  return where === call.where ? call : { ...call, where }
}

/** Returns the conditions of a `where` that has the value of a declared unique key. */
export function uniqueWhere(table: Table, where: unknown): Values {
  if (!isFilter(where)) throw UNSUPPORTED
  let hasKey = false
  let conditions = where
  for (const name in where) {
    const columns = table.keys.get(name)
    const value = where[name]
    if (!columns) continue
    if (table.columns.has(name)) {
      hasKey ||= isScalar(value)
      continue
    }
    if (!isFilter(value) || Object.keys(value).length !== columns.length) throw UNSUPPORTED
    if (!columns.every((column) => isScalar(value[column]) && !Object.hasOwn(conditions, column))) throw UNSUPPORTED
    const { [name]: _, ...others } = conditions
    conditions = { ...others, ...value }
    hasKey = true
  }
  if (!hasKey) throw UNSUPPORTED
  return conditions
}

const isScalar = (value: unknown): boolean =>
  typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint' || value instanceof Date

/**
 * Key of a `findUnique`, expressed as a relation of the row to itself, and a text that is equal for calls of the same
 * shape.
 */
export type UniqueKey = { key: Values; shape: string; nested: Nested }

/** Returns null unless a call has a unique key and no other condition. */
export function uniqueKeyOf(table: Table, call: unknown): UniqueKey | null {
  if (!isFilter(call)) return null
  const { where, ...rest } = call as Args
  let key: Values
  try {
    key = uniqueWhere(table, where)
  } catch {
    return null
  }
  const names = Object.keys(key)
  if (!names.every((name) => table.columns.has(name) && /string|number/.test(typeof key[name]))) return null
  const relation = { to: table, number: 'maybe', on: names.map((name) => [name, name] as const) } as const
  const shape = JSON.stringify([names, rest], (_, value) => (typeof value === 'bigint' ? `${value}n` : value))
  return { key, shape, nested: { name: 'found', relation, call: rest } }
}
