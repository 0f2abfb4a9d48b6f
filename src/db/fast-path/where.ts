import * as Prisma from '../../../prisma/generated/sqlite/internal/prismaNamespace.ts'
import { encode } from './dialect.ts'
import { type Column, isFilter, listOf, quote, type Relation, type Table, UNSUPPORTED, type Values } from './tables.ts'

/**
 * Returns the WHERE of a filter, empty if it has no condition, and adds its parameters to `args`. With `isRowByRow` the
 * database evaluates relations for each row, as it does within an OR.
 */
export function whereOf(table: Table, where: Values | undefined, args: unknown[], isRowByRow = false): string {
  const scope = { table, name: quote(table.name), depth: 0, isOptional: isRowByRow }
  const condition = where === undefined ? '' : allOf(scope, where, args)
  return condition && ` WHERE ${condition}`
}

/** Returns whether a filter requires a column to be NULL. */
export const requiresNull = (where: Values | undefined, name: string): boolean =>
  where?.[name] === null || [where?.AND ?? []].flat().some((part) => requiresNull(part as Values | undefined, name))

/** Context of a filter: the statement's own table or a related one, with its alias. */
type Scope = {
  table: Table
  name: string
  depth: number
  /** Within an OR or a NOT, where not every row must match. */
  isOptional?: boolean
}

/**
 * Returns all conditions of a filter, empty if it has none. Throws UNSUPPORTED for a filter that is not a plain object.
 */
function allOf(scope: Scope, where: unknown, args: unknown[]): string {
  if (!isFilter(where)) throw UNSUPPORTED
  const conditions: string[] = []
  for (const name in where) {
    const value = where[name]
    if (value === Prisma.skip) continue
    const condition = conditionOf(scope, name, value, args)
    if (condition) conditions.push(condition)
  }
  return conditions.join(' AND ')
}

function conditionOf(scope: Scope, name: string, value: unknown, args: unknown[]): string {
  const { table, depth } = scope
  const column = table.columns.get(name)
  if (column)
    return comparisonOf({ column, sql: depth ? `${scope.name}.${column.sql}` : column.sql, table }, value, args)
  if (name === 'AND') {
    return listOf(value)
      .map((part) => allOf(scope, part, args))
      .filter(Boolean)
      .join(' AND ')
  }
  if (name === 'NOT' && isFilter(value)) {
    const denied = allOf({ ...scope, isOptional: true }, value, args)
    if (!denied) throw UNSUPPORTED
    return `NOT (${denied})`
  }
  if (name === 'OR' && Array.isArray(value)) {
    if (!value.length) return '1=0'
    const parts = value.map((part) => allOf({ ...scope, isOptional: true }, part, args))
    if (parts.includes('')) throw UNSUPPORTED
    return `(${parts.map((part) => `(${part})`).join(' OR ')})`
  }
  if (!isFilter(value)) throw UNSUPPORTED
  const relation = table.relations.get(name)
  if (!relation) throw UNSUPPORTED
  return relatedOf(scope, relation, value, args)
}

function relatedOf(scope: Scope, relation: Relation, filter: Values, args: unknown[]): string {
  if (relation.number === 'many') {
    const [[quantifier, those] = [], ...more] = Object.entries(filter)
    if (more.length || !isFilter(those) || (quantifier !== 'some' && quantifier !== 'none')) throw UNSUPPORTED
    return (quantifier === 'none' ? 'NOT ' : '') + exists(scope, relation, those, args)
  }
  // An empty filter on a required relation always matches; one on an optional relation is left to Prisma.
  if (Object.keys(filter).length) return exists(scope, relation, filter, args)
  if (relation.number === 'maybe') throw UNSUPPORTED
  return ''
}

function exists(scope: Scope, { to, on }: Relation, filter: Values, args: unknown[]): string {
  const depth = scope.depth + 1
  const name = quote(`related${depth}`)
  const conditions = on.map(([own, theirs]) => `${name}.${quote(theirs)} = ${scope.name}.${quote(own)}`)
  const condition = allOf({ table: to, name, depth }, filter, args)
  if (condition) conditions.push(condition)
  const end = scope.isOptional ? to.dialect.rowByRow : ''
  return `EXISTS (SELECT 1 FROM ${quote(to.name)} AS ${name} WHERE ${conditions.join(' AND ')}${end})`
}

const EQUALITY = new Map([
  ['equals', '='],
  ['not', '<>'],
])
const ORDER = new Map([
  ['lt', '<'],
  ['lte', '<='],
  ['gt', '>'],
  ['gte', '>='],
])

/** Types whose values Prisma can compare in a filter. */
const ORDERED = new Set(['String', 'Int', 'BigInt', 'Float', 'DateTime'])

/** A column of a table, and its name within the statement. */
type Operand = { column: Column; sql: string; table: Table }

function comparisonOf(operand: Operand, value: unknown, args: unknown[]): string {
  const { type } = operand.column
  if (type === 'Json') throw UNSUPPORTED
  if (!isFilter(value)) return compare(operand, '=', value, args)
  const entries = Object.entries(value)
  if (!entries.length) throw UNSUPPORTED
  return entries
    .map(([name, other]) => {
      if (name === 'in' || name === 'notIn') return membership(operand, name, other, args)
      if (name === 'contains' && typeof other === 'string') return compare(operand, 'LIKE', `%${other}%`, args)
      const operator = EQUALITY.get(name) ?? (ORDERED.has(type) ? ORDER.get(name) : undefined)
      if (!operator || isFilter(other)) throw UNSUPPORTED
      return compare(operand, operator, other, args)
    })
    .join(' AND ')
}

function compare({ column, sql, table }: Operand, operator: string, value: unknown, args: unknown[]): string {
  const { type, isRequired } = column
  if (value === null) {
    if (isRequired) throw UNSUPPORTED
    if (operator === '=') return `${sql} IS NULL`
    if (operator === '<>') return `${sql} IS NOT NULL`
    throw UNSUPPORTED
  }
  return `${sql} ${operator} ${table.dialect.operand(args.push(encode(table, type, value)), type)}`
}

/** Maximum length of a list of values. Prisma splits longer ones, which takes long. */
export const MAX_IN = 1000

function membership({ column, sql, table }: Operand, is: 'in' | 'notIn', list: unknown, args: unknown[]): string {
  const { type } = column
  if (!Array.isArray(list) || list.length > MAX_IN || list.includes(null) || type === 'Boolean') throw UNSUPPORTED
  if (!list.length) return is === 'in' ? '1=0' : '1=1'
  const values = list.map((value) => encode(table, type, value))
  return `${sql} ${table.dialect[is](values, args, type)}`
}
