import { Prisma } from '../../prisma/generated/sqlite/client.ts'
import { encode } from './dialects.ts'
import { whereOf } from './filters.ts'
import { BEYOND, type Columns, columnsOf, isFilter, NONE, quote, type Table, typeOf, type Values } from './tables.ts'

export type Statement = { sql: string; args: unknown[] }

/** What a statement's rows are made of, to turn them into what Prisma would return. */
export type Query = Statement & { table: Table; selected: readonly string[] }

type Args = Readonly<{
  where?: Values
  data?: unknown
  select?: Values
  omit?: Values
  orderBy?: unknown
  take?: number
  skip?: number
}>

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
  return insertOf(table, [data as Values], selectedOf(table, select))
}

/** `createMany`: of rows that all say the same columns. */
export function toInserts(table: Table, call: unknown): Query[] {
  const { data } = known(call, 'data')
  const rows = [data].flat() as Values[]
  if (!table.dialect.insertsTogether) return rows.map((row) => insertOf(table, [row], NONE))
  return rows.length ? [insertOf(table, rows, NONE)] : []
}

/** More parameters are Prisma's to cut up. */
const MAX_PARAMETERS = 30_000

function insertOf(table: Table, rows: readonly Values[], selected: Columns): Query {
  const { dialect } = table
  const names = saidOf(rows[0] as Values)
  if (rows.length * names.length > MAX_PARAMETERS) throw BEYOND
  const args: unknown[] = []
  const tuples = rows.map((row) => {
    if (saidOf(row).length !== names.length) throw BEYOND
    const places = names.map((name) => dialect.place(args.push(encode(dialect, typeOf(table, name), row[name]))))
    return `(${places.join(', ')})`
  })
  const sql = `INSERT INTO ${quote(table.name)} (${names.map(quote).join(', ')}) VALUES ${tuples.join(', ')}`
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

function changeOf(table: Table, name: string, value: unknown, args: unknown[]): string {
  const { dialect } = table
  const type = typeOf(table, name)
  const column = quote(name)
  if (type === 'Json' || !isFilter(value)) {
    return `${column} = ${dialect.place(args.push(encode(dialect, type, value)))}`
  }
  const [[step, by] = [], ...more] = Object.entries(value)
  if (more.length || (step !== 'increment' && step !== 'decrement')) throw BEYOND
  return `${column} = ${column} ${step === 'increment' ? '+' : '-'} ${dialect.place(args.push(encode(dialect, type, by)))}`
}
