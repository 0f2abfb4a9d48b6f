import * as Prisma from '../../../prisma/generated/sqlite/internal/prismaNamespace.ts'
import { encode } from './dialect.ts'
import { NOTHING, writtenProjection } from './projection.ts'
import { knownArgs, type Projection, type Query, type Statement } from './statement.ts'
import {
  type Column,
  type Columns,
  columnOf,
  type Insert,
  isFilter,
  listOf,
  quote,
  type Table,
  UNSUPPORTED,
} from './tables.ts'
import { uniqueWhere } from './unique-key.ts'
import { whereOf } from './where.ts'

/** Compiles `create`. Omitted columns get their defaults. */
export function toInsert(table: Table, call: unknown): Query {
  const { data, select } = knownArgs(call, 'data', 'select')
  return insertOf(table, [data], writtenProjection(table, select))
}

/** Compiles `createMany` if all rows have the same columns. */
export function toInserts(table: Table, call: unknown): Query[] {
  const { data } = knownArgs(call, 'data')
  const rows = listOf(data)
  if (!table.dialect.insertsTogether) return rows.map((row) => insertOf(table, [row], NOTHING))
  return rows.length ? [{ ...insertOf(table, rows, NOTHING), certain: rows.length }] : []
}

/** Maximum number of parameters. Prisma splits larger statements. */
const MAX_PARAMETERS = 30_000

/** Compiles `upsert` if the created row has the key that is looked up. */
export function toUpsert(table: Table, call: unknown): Query {
  const { where, create, update, select } = knownArgs(call, 'where', 'create', 'update', 'select')
  const key = uniqueWhere(table, where)
  const names = Object.keys(key)
  if (!isFilter(create) || !isFilter(update) || Object.keys(where ?? {}).length > 1) throw UNSUPPORTED
  const isPlain = assignedColumns(update).every(
    (column) => columnOf(table, column).type === 'Json' || !isFilter(update[column]),
  )
  if (!isPlain || !names.every((column) => key[column] === create[column])) throw UNSUPPORTED
  return insertOf(table, [create], writtenProjection(table, select), (args) => {
    const [first = ''] = names
    const changes = assignedColumns(update).map((column) => changeOf(table, column, update[column], args))
    // Without a change, RETURNING would return no row.
    const change = changes.join(', ') || `${quote(first)} = excluded.${quote(first)}`
    return ` ON CONFLICT (${names.map(quote).join(', ')}) DO UPDATE SET ${change}`
  })
}

function insertOf(
  table: Table,
  rows: readonly unknown[],
  projection: Projection,
  onConflict: (args: unknown[]) => string = () => '',
): Query {
  const names = assignedColumns(rows[0])
  if (rows.length * names.length > MAX_PARAMETERS) throw UNSUPPORTED
  const { columns, sql, part } = insertInto(table, names)
  const args: unknown[] = []
  for (const row of rows) {
    if (!isFilter(row) || (row !== rows[0] && assignedColumns(row).length !== names.length)) throw UNSUPPORTED
    for (const column of columns) args.push(storedValue(table, column, row[column.name]))
  }
  const more = rows.slice(1).map((_, index) => `, ${tupleOf(table, names, index + 1)}`)
  const query = { sql: sql + more.join('') + onConflict(args) + returning(projection), args, table, projection }
  return projection === NOTHING && !more.length ? { ...query, part } : query
}

/** Returns the INSERT of one row. It is compiled once, because a table's rows are created with few column sets. */
function insertInto(table: Table, names: readonly string[]): Insert {
  const isAlike = ({ columns }: Insert) =>
    columns.length === names.length && columns.every(({ name }, index) => name === names[index])
  const known = table.inserts.find(isAlike)
  if (known) return known
  if (!table.needed.every((name) => names.includes(name))) throw UNSUPPORTED
  const into = `INSERT INTO ${quote(table.name)} (${names.map(quote).join(', ')}) VALUES `
  const part = { table: table.name, into, onConflict: '', sums: 0 }
  const insert = { columns: names.map((name) => columnOf(table, name)), sql: into + tupleOf(table, names, 0), part }
  table.inserts.push(insert)
  return insert
}

/** Returns the placeholders of a row by its index. */
const tupleOf = ({ dialect }: Table, names: readonly string[], row: number): string =>
  `(${names.map((_, index) => dialect.place(row * names.length + index + 1)).join(', ')})`

/** Compiles `update` and `updateManyAndReturn`, and `updateMany` if nothing is returned. */
export function toUpdate(table: Table, call: unknown, returns: boolean): Query {
  const { where, data, select, expectsOne } = knownArgs(call, 'where', 'data', 'select', 'expectsOne')
  const args: unknown[] = []
  if (!isFilter(data)) throw UNSUPPORTED
  const changes = assignedColumns(data).map((name) => changeOf(table, name, data[name], args))
  if (!changes.length) throw UNSUPPORTED
  const projection = returns ? writtenProjection(table, select) : NOTHING
  const sql = `UPDATE ${quote(table.name)} SET ${changes.join(', ')}${whereOf(table, where, args)}`
  if (expectsOne && !returns && table.dialect.expecting) {
    const part = { table: table.name, returning: `${sql} RETURNING 1`, rows: 1 }
    return { sql: table.dialect.expecting(part), args, table, projection, certain: 1, part }
  }
  return { sql: sql + returning(projection), args, table, projection }
}

/** Compiles `deleteMany`. */
export function toDelete(table: Table, call: unknown): Statement {
  const { where } = knownArgs(call, 'where')
  const args: unknown[] = []
  return { sql: `DELETE FROM ${quote(table.name)}${whereOf(table, where, args)}`, args }
}

const returning = ({ list }: Columns) => list && ` RETURNING ${list}`

function assignedColumns(values: unknown): string[] {
  if (!isFilter(values)) throw UNSUPPORTED
  return Object.keys(values).filter((name) => values[name] !== Prisma.skip)
}

/** Returns a value as a column stores it. Throws UNSUPPORTED for null in a non-nullable column. */
function storedValue(table: Table, { type, isRequired }: Column, value: unknown): unknown {
  if (value === null && isRequired) throw UNSUPPORTED
  return encode(table, type, value)
}

function changeOf(table: Table, name: string, value: unknown, args: unknown[]): string {
  const { dialect } = table
  const column = columnOf(table, name)
  const { sql, type } = column
  if (type === 'Json' || !isFilter(value)) {
    return `${sql} = ${dialect.place(args.push(storedValue(table, column, value)))}`
  }
  const [[step, by] = [], ...more] = Object.entries(value)
  if (more.length || (step !== 'increment' && step !== 'decrement')) throw UNSUPPORTED
  if (by === null || (type !== 'Int' && type !== 'BigInt')) throw UNSUPPORTED
  return `${sql} = ${sql} ${step === 'increment' ? '+' : '-'} ${dialect.place(args.push(encode(table, type, by)))}`
}
