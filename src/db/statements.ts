import { Prisma } from '../../prisma/generated/sqlite/client.ts'

/** A table, as far as calls on it can be turned into SQL here: its columns with their Prisma types. */
export type Table = { name: string; columns: ReadonlyMap<string, string>; all: Columns }

/** Columns by name, and as SQL lists them. */
type Columns = { names: readonly string[]; list: string }

export type Statement = { sql: string; args: unknown[] }

/** What a statement's rows are made of, to turn them into what Prisma would return. */
export type Query = Statement & { table: Table; selected: readonly string[] }

/** Thrown where a call says more than one table's SQL: relations, Json filters, patterns. Prisma knows how. */
export const BEYOND = Symbol('beyond one table')

type Values = Readonly<Record<string, unknown>>
type Args = Readonly<{
  where?: Values
  data?: unknown
  select?: Values
  orderBy?: unknown
  take?: number
  skip?: number
}>

const quote = (name: string) => `"${name}"`

const columnsOf = (names: readonly string[]): Columns => ({ names, list: names.map(quote).join(', ') })

const NONE = columnsOf([])

export function tableOf(name: string, columns: ReadonlyMap<string, string>): Table {
  return { name, columns, all: columnsOf([...columns.keys()]) }
}

/** The arguments of a call, none of which is unknown here. */
function known(args: unknown, ...names: (keyof Args)[]): Args {
  const said = (args ?? {}) as Args
  for (const name of Object.keys(said)) {
    const nothing = name === 'include' && !Object.keys((said as { include?: object }).include ?? {}).length
    if (!nothing && !names.includes(name as keyof Args)) throw BEYOND
  }
  return said
}

/** `findFirst`, `findUnique` and, without a limit of its own, `findMany`. */
export function toSelect(table: Table, call: unknown, limit?: number): Query {
  const { where, select, orderBy, take, skip } = known(call, 'where', 'select', 'orderBy', 'take', 'skip')
  const { names, list } = selectedOf(table, select)
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

function selectedOf(table: Table, select: Values | undefined): Columns {
  if (select === undefined) return table.all
  const names = Object.keys(select).filter((name) => select[name] !== false)
  for (const name of names) if (select[name] !== true || !table.columns.has(name)) throw BEYOND
  return columnsOf(names)
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
  const condition = where === undefined ? '' : allOf(table, where, args)
  return condition && ` WHERE ${condition}`
}

/** All that a filter says, empty where it says nothing. */
function allOf(table: Table, where: Values, args: unknown[]): string {
  const conditions: string[] = []
  for (const [name, value] of Object.entries(where)) {
    if (value === Prisma.skip) continue
    const condition = conditionOf(table, name, value, args)
    if (condition) conditions.push(condition)
  }
  return conditions.join(' AND ')
}

function conditionOf(table: Table, name: string, value: unknown, args: unknown[]): string {
  const type = table.columns.get(name)
  if (type !== undefined) return comparisonOf(quote(name), type, value, args)
  if (name === 'AND') {
    const parts = [value as Values | Values[]].flat().map((part) => allOf(table, part, args))
    return parts.filter(Boolean).join(' AND ')
  }
  if (name === 'OR' && Array.isArray(value) && value.length) {
    const parts = value.map((part: Values) => allOf(table, part, args))
    if (parts.includes('')) throw BEYOND
    return `(${parts.map((part) => `(${part})`).join(' OR ')})`
  }
  // The name of a key of several columns is made of theirs.
  const isKey = name.includes('_') && typeof value === 'object' && value !== null
  if (!isKey || Object.keys(value).join('_') !== name) throw BEYOND
  return allOf(table, value as Values, args)
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
