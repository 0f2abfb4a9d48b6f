import { Prisma } from '../../prisma/generated/sqlite/client.ts'

/** A table, as far as calls on it can be turned into SQL here. */
export type Table = {
  name: string
  /** With their Prisma types. */
  columns: ReadonlyMap<string, string>
  all: Columns
  relations: ReadonlyMap<string, Relation>
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
type Columns = { names: readonly string[]; list: string }

export type Statement = { sql: string; args: unknown[] }

/** What a statement's rows are made of, to turn them into what Prisma would return. */
export type Query = Statement & { table: Table; selected: readonly string[] }

/** Thrown where a call says more than is made into SQL here: rows of several tables, Json filters, patterns. */
export const BEYOND = Symbol('for Prisma')

type Values = Readonly<Record<string, unknown>>
type Args = Readonly<{
  where?: Values
  data?: unknown
  select?: Values
  omit?: Values
  orderBy?: unknown
  take?: number
  skip?: number
}>

const quote = (name: string) => `"${name}"`

const columnsOf = (names: readonly string[]): Columns => ({ names, list: names.map(quote).join(', ') })

const NONE = columnsOf([])

/** A table whose relations are still to be told. */
export const tableOf = (name: string, columns: ReadonlyMap<string, string>) => ({
  name,
  columns,
  all: columnsOf([...columns.keys()]),
  relations: new Map<string, Relation>(),
})

/** The arguments of a call, none of which is unknown here. */
function known(args: unknown, ...names: (keyof Args)[]): Args {
  const said = (args ?? {}) as Args
  for (const name of Object.keys(said)) {
    const nothing = name === 'include' && !Object.keys((said as { include?: object }).include ?? {}).length
    if (!nothing && !names.includes(name as keyof Args)) throw BEYOND
  }
  return said
}

const SELECT = ['where', 'select', 'omit', 'orderBy', 'take', 'skip'] as const

/** `findFirst`, `findUnique` and, without a limit of its own, `findMany`. */
export function toSelect(table: Table, call: unknown, limit?: number): Query {
  const { where, select, omit, orderBy, take, skip } = known(call, ...SELECT)
  const { names, list } = selectedOf(table, select, omit)
  const args: unknown[] = []
  let sql = `SELECT ${list} FROM ${quote(table.name)}${whereOf(table, where, args)}`
  sql += orderOf(table, orderBy)
  if (limit !== undefined && take !== undefined) throw BEYOND
  const most = limit ?? take
  // Numbers of their own: SQLite prepares a statement anew for each limit that is a parameter.
  if (most !== undefined) sql += ` LIMIT ${wholeNumber(most)}`
  if (skip !== undefined) sql += ` OFFSET ${wholeNumber(most === undefined ? Number.NaN : skip)}`
  return { sql, args, table, selected: names }
}

function wholeNumber(value: unknown): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw BEYOND
  return value as number
}

export function toCount(table: Table, call: unknown): Statement {
  const { where } = known(call, 'where')
  const args: unknown[] = []
  return { sql: `SELECT count(*) AS "count" FROM ${quote(table.name)}${whereOf(table, where, args)}`, args }
}

/** `create`. What is left out has the column's default. */
export function toInsert(table: Table, call: unknown): Query {
  const { data, select } = known(call, 'data', 'select')
  return insertOf(table, data as Values, selectedOf(table, select))
}

/** `createMany`: a statement for each row, mostly with one text. One for all would be another for each number of rows. */
export function toInserts(table: Table, call: unknown): Query[] {
  const { data } = known(call, 'data')
  return [data].flat().map((row) => insertOf(table, row as Values, NONE))
}

function insertOf(table: Table, row: Values, selected: Columns): Query {
  const names = saidOf(row)
  const args = names.map((name) => encode(typeOf(table, name), row[name]))
  const places = names.map(() => '?').join(', ')
  const sql = `INSERT INTO ${quote(table.name)} (${names.map(quote).join(', ')}) VALUES (${places})`
  return { sql: sql + returning(selected), args, table, selected: selected.names }
}

/** `update` and `updateManyAndReturn`, and `updateMany` where nothing is returned. */
export function toUpdate(table: Table, call: unknown, returns: boolean): Query {
  const { where, data, select } = known(call, 'where', 'data', 'select')
  const args: unknown[] = []
  const changes = saidOf(data as Values).map((name) => changeOf(table, name, (data as Values)[name], args))
  if (!changes.length) throw BEYOND
  const selected = returns ? selectedOf(table, select) : NONE
  const sql = `UPDATE ${quote(table.name)} SET ${changes.join(', ')}${whereOf(table, where, args)}`
  return { sql: sql + returning(selected), args, table, selected: selected.names }
}

export function toDelete(table: Table, call: unknown): Statement {
  const { where } = known(call, 'where')
  const args: unknown[] = []
  return { sql: `DELETE FROM ${quote(table.name)}${whereOf(table, where, args)}`, args }
}

const returning = ({ list }: Columns) => list && ` RETURNING ${list}`

const saidOf = (values: Values): string[] => Object.keys(values).filter((name) => values[name] !== Prisma.skip)

function typeOf({ columns }: Table, name: string): string {
  const type = columns.get(name)
  if (type === undefined) throw BEYOND
  return type
}

function selectedOf(table: Table, select: Values | undefined, omit: Values | undefined = undefined): Columns {
  if (select === undefined && omit === undefined) return table.all
  const names = Object.entries(select ?? omit ?? {}).flatMap(([name, said]) => {
    if (typeof said !== 'boolean' || !table.columns.has(name)) throw BEYOND
    return said ? name : []
  })
  return columnsOf(select ? names : table.all.names.filter((name) => !names.includes(name)))
}

function orderOf(table: Table, orderBy: unknown): string {
  if (orderBy === undefined) return ''
  const terms = [orderBy].flat().flatMap((term) => Object.entries(term as Values))
  const columns = terms.map(([name, direction]) => {
    if (!table.columns.has(name) || (direction !== 'asc' && direction !== 'desc')) throw BEYOND
    return `${quote(name)} ${direction === 'asc' ? 'ASC' : 'DESC'}`
  })
  return columns.length ? ` ORDER BY ${columns.join(', ')}` : ''
}

function whereOf(table: Table, where: Values | undefined, args: unknown[]): string {
  const condition = where === undefined ? '' : allOf({ table, name: quote(table.name), depth: 0 }, where, args)
  return condition && ` WHERE ${condition}`
}

/** What a filter speaks of: the statement's own table, or one at some depth of relations, by the name it has there. */
type Scope = { table: Table; name: string; depth: number }

/** All that a filter says, empty where it says nothing. */
function allOf(scope: Scope, where: Values, args: unknown[]): string {
  const conditions: string[] = []
  for (const [name, value] of Object.entries(where)) {
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
    return comparisonOf(column, type, value, args)
  }
  if (name === 'AND') {
    const parts = [value as Values | Values[]].flat().map((part) => allOf(scope, part, args))
    return parts.filter(Boolean).join(' AND ')
  }
  if (name === 'OR' && Array.isArray(value) && value.length) {
    const parts = value.map((part: Values) => allOf(scope, part, args))
    if (parts.includes('')) throw BEYOND
    return `(${parts.map((part) => `(${part})`).join(' OR ')})`
  }
  if (!isFilter(value)) throw BEYOND
  const relation = table.relations.get(name)
  if (relation) return relatedOf(scope, relation, value, args)
  // The name of a key of several columns is made of theirs.
  if (!name.includes('_') || Object.keys(value).join('_') !== name) throw BEYOND
  return allOf(scope, value, args)
}

function relatedOf(scope: Scope, relation: Relation, filter: Values, args: unknown[]): string {
  if (relation.number === 'many') {
    const [[quantifier, those] = [], ...more] = Object.entries(filter)
    if (more.length || !isFilter(those) || (quantifier !== 'some' && quantifier !== 'none')) throw BEYOND
    return (quantifier === 'none' ? 'NOT ' : '') + exists(scope, relation, those, args)
  }
  // The one there always is meets a filter that says nothing; of one there may not be, Prisma knows.
  if (Object.keys(filter).length) return exists(scope, relation, filter, args)
  if (relation.number === 'maybe') throw BEYOND
  return ''
}

function exists(scope: Scope, { to, on }: Relation, filter: Values, args: unknown[]): string {
  const depth = scope.depth + 1
  const name = quote(`related${depth}`)
  const conditions = on.map(([own, theirs]) => `${name}.${quote(theirs)} = ${scope.name}.${quote(own)}`)
  const said = allOf({ table: to, name, depth }, filter, args)
  if (said) conditions.push(said)
  return `EXISTS (SELECT 1 FROM ${quote(to.name)} AS ${name} WHERE ${conditions.join(' AND ')})`
}

const OPERATORS: Readonly<Record<string, string>> = { equals: '=', not: '<>', lt: '<', lte: '<=', gt: '>', gte: '>=' }

function comparisonOf(column: string, type: string, value: unknown, args: unknown[]): string {
  if (type === 'Json') throw BEYOND
  if (!isFilter(value)) return compare(column, '=', type, value, args)
  return Object.entries(value)
    .map(([name, operand]) => {
      if (name === 'in' || name === 'notIn') return membership(column, name, type, operand, args)
      const operator = OPERATORS[name]
      if (!operator || isFilter(operand)) throw BEYOND
      return compare(column, operator, type, operand, args)
    })
    .join(' AND ')
}

const isFilter = (value: unknown): value is Values =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

function compare(column: string, operator: string, type: string, value: unknown, args: unknown[]): string {
  if (value === null) {
    if (operator === '=') return `${column} IS NULL`
    if (operator === '<>') return `${column} IS NOT NULL`
    throw BEYOND
  }
  return `${column} ${operator} ${operandOf(type, value, args)}`
}

/** A parameter that SQLite does not look at when it plans: for those it does, it plans anew at each run. */
function operandOf(type: string, value: unknown, args: unknown[]): string {
  args.push(encode(type, value))
  if (type === 'Bytes') return '?'
  return NUMBERS.has(type) ? 'CAST(? AS INTEGER)' : 'CAST(? AS TEXT)'
}

const NUMBERS = new Set(['Int', 'BigInt', 'DateTime', 'Boolean'])

/** More than so many are Prisma's to cut up. */
const MAX_IN = 1000

function membership(column: string, name: 'in' | 'notIn', type: string, list: unknown, args: unknown[]): string {
  if (!Array.isArray(list) || list.length > MAX_IN || list.includes(null)) throw BEYOND
  if (!list.length) return name === 'in' ? '1=0' : '1=1'
  const operands = padded(list).map((value) => operandOf(type, value, args))
  return `${column} ${name === 'in' ? 'IN' : 'NOT IN'} (${operands.join(', ')})`
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

function changeOf(table: Table, name: string, value: unknown, args: unknown[]): string {
  const type = typeOf(table, name)
  const column = quote(name)
  if (type === 'Json' || !isFilter(value)) {
    args.push(encode(type, value))
    return `${column} = ?`
  }
  const [[step, by] = [], ...more] = Object.entries(value)
  if (more.length || (step !== 'increment' && step !== 'decrement')) throw BEYOND
  args.push(encode(type, by))
  return `${column} = ${column} ${step === 'increment' ? '+' : '-'} ?`
}

/** A value as the column stores it (db/sqlite-connection.ts); Prisma says what is wrong with any other. */
function encode(type: string, value: unknown): unknown {
  if (value === null) return null
  switch (type) {
    case 'DateTime':
      if (value instanceof Date && !Number.isNaN(value.getTime())) return value.getTime()
      throw BEYOND
    case 'Boolean':
      if (typeof value === 'boolean') return value ? 1 : 0
      throw BEYOND
    case 'Int':
      if (Number.isSafeInteger(value)) return value
      throw BEYOND
    case 'BigInt':
      if (typeof value === 'bigint' || Number.isSafeInteger(value)) return value
      throw BEYOND
    case 'Bytes':
      if (value instanceof Uint8Array) return value
      throw BEYOND
    case 'Json':
      if (isFilter(value) || Array.isArray(value)) return JSON.stringify(value)
      throw BEYOND
    default:
      if (typeof value === 'string') return value
      throw BEYOND
  }
}

/** A row as the column types say that Prisma would return it; of the row's own object. */
export function decode({ columns }: Table, selected: readonly string[], row: Record<string, unknown>): object {
  for (const name of selected) {
    const value = row[name]
    if (value === null) continue
    switch (columns.get(name)) {
      case 'DateTime':
        row[name] = new Date(Number(value))
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
