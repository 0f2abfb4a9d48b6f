import { orderOf } from './order.ts'
import { PROJECTION, plainProjection, projectionOf } from './projection.ts'
import { knownArgs, type Query, type Statement } from './statement.ts'
import { columnsOf, isFilter, listOf, quote, type Table, UNSUPPORTED, type Values } from './tables.ts'
import { requiresNull, whereOf } from './where.ts'

const SELECT = [...PROJECTION, 'where', 'orderBy', 'take', 'skip', 'byteBudget'] as const

/** Compiles `findFirst`, `findUnique` and, without an extra limit, `findMany`. */
export function toSelect(table: Table, call: unknown, limit?: number): Query {
  const { where, orderBy, take, skip, byteBudget, ...wanted } = knownArgs(call, ...SELECT)
  const projection = projectionOf(table, wanted)
  const args: unknown[] = []
  const order = orderOf(table, orderBy)
  if (limit !== undefined && take !== undefined) throw UNSUPPORTED
  const most = limit ?? take
  // Limits are literals, because SQLite replans a statement for each parameterized limit.
  const end = most === undefined ? '' : ` LIMIT ${wholeNumber(most)}`
  const from = (range?: Values) => `SELECT ${projection.list} FROM ${quote(table.name)}${whereOf(table, range, args)}`
  const start = skip === undefined ? '' : ` OFFSET ${wholeNumber(most === undefined ? Number.NaN : skip)}`
  const query = (sql: string): Query =>
    byteBudget === undefined
      ? { sql, args, table, projection }
      : { sql: table.dialect.limitBytes(sql, table, projection, byteBudget), args, table, projection, byteBudget }
  if (!where || !order.text || !end || start) return query(from(where) + order.text + end + start)
  const ranges = order.names.every((name) => projection.names.includes(name)) ? rangesOf(table, where) : null
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
 * Returns the order of a page as its index has it: indexes of archivable tables have `archivedAt` before the time
 * (prisma/schema.prisma). For rows that are not archived the order is the same.
 */
function indexOrder(table: Table, where: Values, { names, text }: { names: readonly string[]; text: string }): string {
  if (names[0] !== 'createdAt' || !table.columns.has('archivedAt') || !requiresNull(where, 'archivedAt')) return text
  return text.replace(/ ORDER BY ("createdAt" (ASC|DESC))/, ' ORDER BY "archivedAt" $2, $1')
}

/** Maximum number of ranges worth splitting. */
const MAX_RANGES = 3

/**
 * Splits a filter by several enum values into one filter per value, or returns null. An index holds the rows of each
 * value in the order of a page; a scan over all values in that order would read other organizations' rows too.
 */
function rangesOf(table: Table, where: Values): Values[] | null {
  for (const name in where) {
    const condition = where[name]
    if (name === 'AND') {
      const parts = listOf(condition) as Values[]
      for (const [index, part] of parts.entries()) {
        const ranges = isFilter(part) ? rangesOf(table, part) : null
        if (ranges) return ranges.map((range) => ({ ...where, AND: parts.with(index, range) }))
      }
    }
    const values = isEnum(table.columns.get(name)?.type) ? valuesOf(condition) : null
    if (values) return values.map((value) => ({ ...where, [name]: value }))
  }
  return null
}

/** Returns the values of an `in` if they are few and different, otherwise null. */
function valuesOf(condition: unknown): readonly unknown[] | null {
  const values = isFilter(condition) && Object.keys(condition).length === 1 ? condition.in : null
  if (!Array.isArray(values) || values.length < 2 || values.length > MAX_RANGES) return null
  return new Set(values).size === values.length ? values : null
}

const SCALARS = new Set(['String', 'Int', 'BigInt', 'Float', 'Decimal', 'Boolean', 'DateTime', 'Json', 'Bytes'])
const isEnum = (type: string | undefined) => type !== undefined && !SCALARS.has(type)

/**
 * Compiles `findFirstOfEach`: the first rows of the lists of many `keys`, matched by `column`. The statement reads each
 * list from its index and at most `take` rows of it; Prisma would read all lists to their ends.
 */
export function toFirstOfEach(table: Table, call: unknown): Query {
  const { column = '', keys = [], where, orderBy, take, select } = knownArgs(call, ...OF_EACH)
  const projection = projectionOf(table, select === undefined ? {} : { select })
  const order = orderOf(table, orderBy)
  if (projection.nested.length || !keys.length || !order.text) throw UNSUPPORTED
  const args: unknown[] = []
  const lists = keys.map((key) => {
    const filter = { AND: [{ [column]: key }, where ?? {}] }
    const end = `${indexOrder(table, filter, order)} LIMIT ${wholeNumber(take)}`
    const list = `SELECT ${projection.list} FROM ${quote(table.name)}${whereOf(table, filter, args, true)}${end}`
    return `SELECT * FROM (${list}) AS "list"`
  })
  return { sql: lists.join(' UNION ALL '), args, table, projection }
}

const OF_EACH = ['column', 'keys', 'where', 'orderBy', 'take', 'select'] as const

function wholeNumber(value: unknown): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw UNSUPPORTED
  return value as number
}

/** Compiles `count`. */
export function toCount(table: Table, call: unknown): Statement {
  const { where } = knownArgs(call, 'where')
  const args: unknown[] = []
  return { sql: `SELECT count(*) AS "count" FROM ${quote(table.name)}${whereOf(table, where, args)}`, args }
}

/** Compiles `groupBy` of columns with row counts. */
export function toGroups(table: Table, call: unknown): Query {
  const { by, where, _count } = knownArgs(call, 'by', 'where', '_count')
  if (!Array.isArray(by) || !by.length || _count !== true) throw UNSUPPORTED
  if (!by.every((name) => table.columns.has(name)) || new Set(by).size < by.length) throw UNSUPPORTED
  const columns = columnsOf(by)
  const args: unknown[] = []
  const from = `FROM ${quote(table.name)}${whereOf(table, where, args)} GROUP BY ${columns.list}`
  return {
    sql: `SELECT ${columns.list}, count(*) AS "_count" ${from}`,
    args,
    table,
    projection: plainProjection(columns),
  }
}
