import { orderOf } from './order.ts'
import { PROJECTION, plainProjection, projectionOf } from './projection.ts'
import { knownArgs, type Query, type Statement } from './statement.ts'
import { columnsOf, isFilter, listOf, quote, type Table, UNSUPPORTED, type Values } from './tables.ts'
import { saysNull, whereOf } from './where.ts'

const SELECT = [...PROJECTION, 'where', 'orderBy', 'take', 'skip', 'room'] as const

/** `findFirst`, `findUnique` and, without a limit of its own, `findMany`. */
export function toSelect(table: Table, call: unknown, limit?: number): Query {
  const { where, orderBy, take, skip, room, ...wanted } = knownArgs(call, ...SELECT)
  const projection = projectionOf(table, wanted)
  const args: unknown[] = []
  const order = orderOf(table, orderBy)
  if (limit !== undefined && take !== undefined) throw UNSUPPORTED
  const most = limit ?? take
  // Numbers of their own: SQLite prepares a statement anew for each limit that is a parameter.
  const end = most === undefined ? '' : ` LIMIT ${wholeNumber(most)}`
  const from = (range?: Values) => `SELECT ${projection.list} FROM ${quote(table.name)}${whereOf(table, range, args)}`
  const start = skip === undefined ? '' : ` OFFSET ${wholeNumber(most === undefined ? Number.NaN : skip)}`
  const query = (sql: string): Query =>
    room === undefined
      ? { sql, args, table, projection }
      : { sql: table.dialect.within(sql, table, projection, room), args, table, projection, room }
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

/**
 * `findFirstOfEach`: the first rows of the lists of many `keys`, whose `column` has one of them. The statement reads each
 * list from its index, and no further than `take`; Prisma would read all lists to their ends.
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

export function toCount(table: Table, call: unknown): Statement {
  const { where } = knownArgs(call, 'where')
  const args: unknown[] = []
  return { sql: `SELECT count(*) AS "count" FROM ${quote(table.name)}${whereOf(table, where, args)}`, args }
}

/** `groupBy` of columns, for how many rows there are of each. */
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
