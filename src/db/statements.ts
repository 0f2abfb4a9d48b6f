import { Prisma } from '../../prisma/generated/sqlite/client.ts'
import { encode } from './dialects.ts'
import { saysNull, whereOf } from './filters.ts'
import {
  type Columns,
  columnsOf,
  isFilter,
  quote,
  type Relation,
  type Table,
  typeOf,
  UNSUPPORTED,
  type Values,
} from './tables.ts'

export type Statement = {
  sql: string
  args: unknown[]
  /** Of an insert: how many rows it adds. */
  adds?: number
  /**
   * Of a query: how much its rows may say (bytes, of what is stored). It ends with the row that goes beyond, and one more,
   * by which whoever reads them knows that there are others.
   */
  room?: number
}

/** What a statement's rows are made of, to turn them into what Prisma would return. */
export type Query = Statement & { table: Table; choice: Choice }

/** What somebody wants to see of rows. */
type Choice = Columns & {
  /** Columns that they do not see: they tell which rows of other tables belong to a row. */
  hidden: readonly string[]
  nested: readonly Nested[]
}

/** Rows of another table that belong to a row, and what is wanted of them. */
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
  skip?: number
  /** {@link Statement.room}, which Prisma knows nothing of (lib/page.ts, `within`). */
  room?: number
}>

/** The arguments of a call, none of which is unknown here. */
function known(args: unknown, ...names: (keyof Args)[]): Args {
  const said = (args ?? {}) as Args
  for (const name of Object.keys(said)) if (!names.includes(name as keyof Args)) throw UNSUPPORTED
  return said
}

const CHOICE = ['select', 'omit', 'include'] as const
const SELECT = [...CHOICE, 'where', 'orderBy', 'take', 'skip', 'room'] as const

/** `findFirst`, `findUnique` and, without a limit of its own, `findMany`. */
export function toSelect(table: Table, call: unknown, limit?: number): Query {
  const { where, orderBy, take, skip, room, ...wanted } = known(call, ...SELECT)
  const choice = choiceOf(table, wanted)
  const args: unknown[] = []
  const order = orderOf(table, orderBy)
  if (limit !== undefined && take !== undefined) throw UNSUPPORTED
  const most = limit ?? take
  // Numbers of their own: SQLite prepares a statement anew for each limit that is a parameter.
  const end = most === undefined ? '' : ` LIMIT ${wholeNumber(most)}`
  const from = (range?: Values) => `SELECT ${choice.list} FROM ${quote(table.name)}${whereOf(table, range, args)}`
  const start = skip === undefined ? '' : ` OFFSET ${wholeNumber(most === undefined ? Number.NaN : skip)}`
  const query = (sql: string): Query =>
    room === undefined
      ? { sql, args, table, choice }
      : { sql: table.dialect.within(sql, table, choice, room), args, table, choice, room }
  if (!where || !order.text || !end || start) return query(from(where) + order.text + end + start)
  const ranges = order.names.every((name) => choice.names.includes(name)) ? rangesOf(table, where) : null
  const selects = (ranges ?? [where]).map(from)
  const sql = table.dialect.page({
    selects,
    order: order.text,
    indexOrder: indexOrder(table, where, order),
    limit: end,
  })
  return query(sql)
}

/**
 * The order of a page as indexes have it: those of what can be archived have `archivedAt` before the time
 * (prisma/schema.prisma). Of rows that are not archived it is the same order.
 */
function indexOrder(table: Table, where: Values, { names, text }: { names: readonly string[]; text: string }): string {
  if (names[0] !== 'createdAt' || !table.columns.has('archivedAt') || !saysNull(where, 'archivedAt')) return text
  return text.replace(/ ORDER BY ("createdAt" (ASC|DESC))/, ' ORDER BY "archivedAt" $2, $1')
}

/** More ranges are not worth it. */
const MAX_RANGES = 3

/**
 * A filter by several values of an enum as one for each of them. An index has the rows of each in the order of a page;
 * all of them it has in no order, and whoever reads them in order goes through everybody else's too. Null where a filter
 * says no such thing.
 */
function rangesOf(table: Table, where: Values): Values[] | null {
  for (const name in where) {
    const said = where[name]
    if (name === 'AND') {
      const parts = listOf(said) as Values[]
      for (const [index, part] of parts.entries()) {
        const ranges = isFilter(part) ? rangesOf(table, part) : null
        if (ranges) return ranges.map((range) => ({ ...where, AND: parts.with(index, range) }))
      }
    }
    const values = isFilter(said) && isEnum(table.columns.get(name)) && Object.keys(said).length === 1 ? said.in : null
    if (!Array.isArray(values) || values.length < 2 || values.length > MAX_RANGES) continue
    if (new Set(values).size === values.length) return values.map((value) => ({ ...where, [name]: value }))
  }
  return null
}

const SCALARS = new Set(['String', 'Int', 'BigInt', 'Float', 'Decimal', 'Boolean', 'DateTime', 'Json', 'Bytes'])
const isEnum = (type: string | undefined) => type !== undefined && !SCALARS.has(type)

/** The rows of a relation for all of the rows that have it: one statement, whose rows say which of those they belong to. */
export function toNested(parents: readonly Values[], { relation: { to, number, on }, call }: Nested): Query {
  const { where = {}, orderBy, ...wanted } = known(call, ...CHOICE, ...(number === 'many' ? MANY : []))
  const keys = on.map(([own, theirs]) => [theirs, { in: [...new Set(parents.map((row) => row[own]))] }])
  const choice = choiceOf(
    to,
    wanted,
    on.map(([, theirs]) => theirs),
  )
  const args: unknown[] = []
  const condition = whereOf(to, { AND: [Object.fromEntries(keys), where] }, args)
  return {
    sql: `SELECT ${choice.list} FROM ${quote(to.name)}${condition}${orderOf(to, orderBy).text}`,
    args,
    table: to,
    choice,
  }
}

const MANY = ['where', 'orderBy'] as const

/** A call that says which row it means: whoever names none would have all of them. */
export function keyed(call: unknown): unknown {
  const { where } = (call ?? {}) as Args
  if (!where || !Object.keys(where).length) throw UNSUPPORTED
  return call
}

/** Whom a `findUnique` looks for, as a row that is related to itself, and what tells others that ask alike. */
export type Sought = { key: Values; shape: string; nested: Nested }

/** Null where a call says more than a key. */
export function soughtBy(table: Table, call: unknown): Sought | null {
  const { where, ...rest } = (call ?? {}) as Args
  if (!where) return null
  const key = keyOf(where)
  const names = Object.keys(key)
  if (!names.every((name) => table.columns.has(name) && /string|number/.test(typeof key[name]))) return null
  const relation = { to: table, number: 'maybe', on: names.map((name) => [name, name] as const) } as const
  const shape = JSON.stringify([names, rest], (_, value) => (typeof value === 'bigint' ? `${value}n` : value))
  return { key, shape, nested: { name: 'found', relation, call: rest } }
}

/** The columns of a key, which has a name made of theirs where it has several. */
function keyOf(where: Values): Values {
  const [[name, value] = ['', null], ...more] = Object.entries(where)
  return !more.length && isFilter(value) && Object.keys(value).join('_') === name ? value : where
}

function wholeNumber(value: unknown): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw UNSUPPORTED
  return value as number
}

export function toCount(table: Table, call: unknown): Statement {
  const { where } = known(call, 'where')
  const args: unknown[] = []
  return { sql: `SELECT count(*) AS "count" FROM ${quote(table.name)}${whereOf(table, where, args)}`, args }
}

/** `groupBy` of columns, for how many rows there are of each. */
export function toGroups(table: Table, call: unknown): Query {
  const { by, where, _count } = known(call, 'by', 'where', '_count')
  if (!by?.length || _count !== true || !by.every((name) => table.columns.has(name))) throw UNSUPPORTED
  const columns = columnsOf(by)
  const args: unknown[] = []
  const from = `FROM ${quote(table.name)}${whereOf(table, where, args)} GROUP BY ${columns.list}`
  return { sql: `SELECT ${columns.list}, count(*) AS "_count" ${from}`, args, table, choice: chosen(columns) }
}

/** `create`. What is left out has the column's default. */
export function toInsert(table: Table, call: unknown): Query {
  const { data, select } = known(call, 'data', 'select')
  return insertOf(table, [data as Values], written(table, select))
}

/** `createMany`: of rows that all say the same columns. */
export function toInserts(table: Table, call: unknown): Query[] {
  const { data } = known(call, 'data')
  const rows = [data].flat() as Values[]
  if (!table.dialect.insertsTogether) return rows.map((row) => insertOf(table, [row], NONE))
  return rows.length ? [{ ...insertOf(table, rows, NONE), adds: rows.length }] : []
}

/** More parameters are Prisma's to cut up. */
const MAX_PARAMETERS = 30_000

/** `upsert`, where what is created is what is looked for. */
export function toUpsert(table: Table, call: unknown): Query {
  const { where = {}, create = {}, update = {}, select } = known(call, 'where', 'create', 'update', 'select')
  const key = keyOf(where)
  const names = Object.keys(key)
  const isOne = key !== where || names.length === 1
  const isUnique = isOne && names.every((column) => table.columns.has(column) && key[column] === create[column])
  const isPlain = saidOf(update).every((column) => typeOf(table, column) === 'Json' || !isFilter(update[column]))
  if (!isUnique || !isPlain) throw UNSUPPORTED
  return insertOf(table, [create], written(table, select), (args) => {
    const [first = ''] = names
    const changes = saidOf(update).map((column) => changeOf(table, column, update[column], args))
    // Nothing would return nothing.
    const change = changes.join(', ') || `${quote(first)} = excluded.${quote(first)}`
    return ` ON CONFLICT (${names.map(quote).join(', ')}) DO UPDATE SET ${change}`
  })
}

function insertOf(
  table: Table,
  rows: readonly Values[],
  choice: Choice,
  onConflict: (args: unknown[]) => string = () => '',
): Query {
  const { dialect } = table
  const names = saidOf(rows[0] as Values)
  if (rows.length * names.length > MAX_PARAMETERS) throw UNSUPPORTED
  const args: unknown[] = []
  for (const row of rows) {
    if (row !== rows[0] && saidOf(row).length !== names.length) throw UNSUPPORTED
    for (const name of names) args.push(encode(dialect, typeOf(table, name), row[name]))
  }
  return { sql: intoOf(table, names, rows.length) + onConflict(args) + returning(choice), args, table, choice }
}

/** Kept for one row: a table's rows are made in few ways, which say the same columns each time. */
function intoOf(table: Table, names: readonly string[], count: number): string {
  const key = names.join()
  const known = count === 1 && table.inserts.get(key)
  if (known) return known
  let number = 0
  const tuple = () => `(${names.map(() => table.dialect.place(++number)).join(', ')})`
  const tuples = Array.from({ length: count }, tuple).join(', ')
  const sql = `INSERT INTO ${quote(table.name)} (${names.map(quote).join(', ')}) VALUES ${tuples}`
  if (count === 1) table.inserts.set(key, sql)
  return sql
}

/** `update` and `updateManyAndReturn`, and `updateMany` where nothing is returned. */
export function toUpdate(table: Table, call: unknown, returns: boolean): Query {
  const { where, data, select } = known(call, 'where', 'data', 'select')
  const args: unknown[] = []
  const changes = saidOf(data as Values).map((name) => changeOf(table, name, (data as Values)[name], args))
  if (!changes.length) throw UNSUPPORTED
  const choice = returns ? written(table, select) : NONE
  const sql = `UPDATE ${quote(table.name)} SET ${changes.join(', ')}${whereOf(table, where, args)}`
  return { sql: sql + returning(choice), args, table, choice }
}

export function toDelete(table: Table, call: unknown): Statement {
  const { where } = known(call, 'where')
  const args: unknown[] = []
  return { sql: `DELETE FROM ${quote(table.name)}${whereOf(table, where, args)}`, args }
}

const returning = ({ list }: Columns) => list && ` RETURNING ${list}`

const saidOf = (values: Values): string[] => Object.keys(values).filter((name) => values[name] !== Prisma.skip)

const chosen = (columns: Columns): Choice => ({ ...columns, hidden: [], nested: [] })

/** Of a statement that returns nothing. */
const NONE = chosen(columnsOf([]))

/** What is wanted of the rows that a statement writes: none of what belongs to them. */
function written(table: Table, select: Values | undefined): Choice {
  const choice = choiceOf(table, select === undefined ? {} : { select })
  if (choice.nested.length) throw UNSUPPORTED
  return choice
}

/** `keys` are columns that are read in any case. */
function choiceOf(table: Table, { select, omit, include }: Args, keys: readonly string[] = []): Choice {
  if ((select && (omit || include)) || (omit && include)) throw UNSUPPORTED
  const nested: Nested[] = []
  const names: string[] = []
  const said = select ?? omit ?? include ?? {}
  for (const name in said) {
    const value = said[name]
    const relation = omit ? undefined : table.relations.get(name)
    if (!relation) {
      if (typeof value !== 'boolean' || include || !table.columns.has(name)) throw UNSUPPORTED
      if (value) names.push(name)
    } else if (value !== false) {
      if (value !== true && !isFilter(value)) throw UNSUPPORTED
      const each = { name, relation, call: value === true ? {} : value }
      // For nobody: what is beyond this shall be known before anything is read.
      toNested([], each)
      nested.push(each)
    }
  }
  if (!nested.length && !keys.length) {
    if (select && names.length) return chosen(columnsOf(names))
    if (!select && !names.length) return chosen(table.all)
  }
  const shown = select ? names : table.all.names.filter((name) => !names.includes(name))
  const read = [...keys, ...nested.flatMap(({ relation }) => relation.on.map(([own]) => own))]
  const hidden = [...new Set(read)].filter((name) => !shown.includes(name))
  if (!shown.length && !nested.length) throw UNSUPPORTED
  return { ...columnsOf([...shown, ...hidden]), hidden, nested }
}

const listOf = (said: unknown): readonly unknown[] => (Array.isArray(said) ? said : [said])

/** The columns of an order, and what SQL says of it: nothing where there is none. */
function orderOf(table: Table, orderBy: unknown): { names: readonly string[]; text: string } {
  const names: string[] = []
  const columns: string[] = []
  for (const term of orderBy === undefined ? [] : (listOf(orderBy) as Values[])) {
    for (const name in term) {
      const direction = term[name]
      if (!table.columns.has(name) || (direction !== 'asc' && direction !== 'desc')) throw UNSUPPORTED
      names.push(name)
      columns.push(`${quote(name)} ${direction === 'asc' ? 'ASC' : 'DESC'}`)
    }
  }
  return { names, text: columns.length ? ` ORDER BY ${columns.join(', ')}` : '' }
}

function changeOf(table: Table, name: string, value: unknown, args: unknown[]): string {
  const { dialect } = table
  const type = typeOf(table, name)
  const column = quote(name)
  if (type === 'Json' || !isFilter(value)) {
    return `${column} = ${dialect.place(args.push(encode(dialect, type, value)))}`
  }
  const [[step, by] = [], ...more] = Object.entries(value)
  if (more.length || (step !== 'increment' && step !== 'decrement')) throw UNSUPPORTED
  return `${column} = ${column} ${step === 'increment' ? '+' : '-'} ${dialect.place(args.push(encode(dialect, type, by)))}`
}
