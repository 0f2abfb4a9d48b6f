import { Prisma } from '../../prisma/generated/sqlite/client.ts'
import { type Dialect, encode } from './dialects.ts'
import { isFilter, quote, type Relation, type Table, UNSUPPORTED, type Values } from './tables.ts'

/** The WHERE of a filter, and its parameters put to the others; nothing where it says nothing. */
export function whereOf(table: Table, where: Values | undefined, args: unknown[]): string {
  const condition = where === undefined ? '' : allOf({ table, name: quote(table.name), depth: 0 }, where, args)
  return condition && ` WHERE ${condition}`
}

/** Whether a filter says of every row it finds that a column is NULL. */
export const saysNull = (where: Values | undefined, name: string): boolean =>
  where?.[name] === null || [where?.AND ?? []].flat().some((part) => saysNull(part as Values | undefined, name))

/** What a filter speaks of: the statement's own table, or one at some depth of relations, by the name it has there. */
type Scope = {
  table: Table
  name: string
  depth: number
  /** Within an OR or a NOT: not every row has to meet what is said. */
  isOptional?: boolean
}

/** All that a filter says, empty where it says nothing. */
function allOf(scope: Scope, where: Values, args: unknown[]): string {
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
  const type = table.columns.get(name)
  if (type !== undefined) {
    const column = depth ? `${scope.name}.${quote(name)}` : quote(name)
    return comparisonOf({ name: column, type, dialect: table.dialect }, value, args)
  }
  if (name === 'AND') {
    const parts = Array.isArray(value) ? (value as Values[]) : [value as Values]
    return parts
      .map((part) => allOf(scope, part, args))
      .filter(Boolean)
      .join(' AND ')
  }
  if (name === 'NOT' && isFilter(value)) {
    const denied = allOf({ ...scope, isOptional: true }, value, args)
    if (!denied) throw UNSUPPORTED
    return `NOT (${denied})`
  }
  if (name === 'OR' && Array.isArray(value) && value.length) {
    const parts = value.map((part: Values) => allOf({ ...scope, isOptional: true }, part, args))
    if (parts.includes('')) throw UNSUPPORTED
    return `(${parts.map((part) => `(${part})`).join(' OR ')})`
  }
  if (!isFilter(value)) throw UNSUPPORTED
  const relation = table.relations.get(name)
  if (relation) return relatedOf(scope, relation, value, args)
  // The name of a key of several columns is made of theirs.
  if (!name.includes('_') || Object.keys(value).join('_') !== name) throw UNSUPPORTED
  return allOf(scope, value, args)
}

function relatedOf(scope: Scope, relation: Relation, filter: Values, args: unknown[]): string {
  if (relation.number === 'many') {
    const [[quantifier, those] = [], ...more] = Object.entries(filter)
    if (more.length || !isFilter(those) || (quantifier !== 'some' && quantifier !== 'none')) throw UNSUPPORTED
    return (quantifier === 'none' ? 'NOT ' : '') + exists(scope, relation, those, args)
  }
  // A relation that is always there meets an empty filter; one that may be missing is left to Prisma.
  if (Object.keys(filter).length) return exists(scope, relation, filter, args)
  if (relation.number === 'maybe') throw UNSUPPORTED
  return ''
}

function exists(scope: Scope, { to, on }: Relation, filter: Values, args: unknown[]): string {
  const depth = scope.depth + 1
  const name = quote(`related${depth}`)
  const conditions = on.map(([own, theirs]) => `${name}.${quote(theirs)} = ${scope.name}.${quote(own)}`)
  const said = allOf({ table: to, name, depth }, filter, args)
  if (said) conditions.push(said)
  const end = scope.isOptional ? to.dialect.rowByRow : ''
  return `EXISTS (SELECT 1 FROM ${quote(to.name)} AS ${name} WHERE ${conditions.join(' AND ')}${end})`
}

const OPERATORS: Readonly<Record<string, string>> = { equals: '=', not: '<>', lt: '<', lte: '<=', gt: '>', gte: '>=' }

/** A column as SQL names it here, with its Prisma type. */
type Column = { name: string; type: string; dialect: Dialect }

function comparisonOf(column: Column, value: unknown, args: unknown[]): string {
  if (column.type === 'Json') throw UNSUPPORTED
  if (!isFilter(value)) return compare(column, '=', value, args)
  return Object.entries(value)
    .map(([name, operand]) => {
      if (name === 'in' || name === 'notIn') return membership(column, name, operand, args)
      if (name === 'contains' && typeof operand === 'string') return compare(column, 'LIKE', `%${operand}%`, args)
      const operator = OPERATORS[name]
      if (!operator || isFilter(operand)) throw UNSUPPORTED
      return compare(column, operator, operand, args)
    })
    .join(' AND ')
}

function compare({ name, type, dialect }: Column, operator: string, value: unknown, args: unknown[]): string {
  if (value === null) {
    if (operator === '=') return `${name} IS NULL`
    if (operator === '<>') return `${name} IS NOT NULL`
    throw UNSUPPORTED
  }
  return `${name} ${operator} ${dialect.operand(args.push(encode(dialect, type, value)), type)}`
}

/** More than so many are Prisma's to cut up, which takes long. */
export const MAX_IN = 1000

function membership({ name, type, dialect }: Column, is: 'in' | 'notIn', list: unknown, args: unknown[]): string {
  if (!Array.isArray(list) || list.length > MAX_IN || list.includes(null)) throw UNSUPPORTED
  if (!list.length) return is === 'in' ? '1=0' : '1=1'
  const values = list.map((value) => encode(dialect, type, value))
  return `${name} ${dialect[is](values, args, type)}`
}
