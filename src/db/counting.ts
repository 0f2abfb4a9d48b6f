import { type Db, Prisma } from './client.ts'
import { padded } from './dialects.ts'

/**
 * Rows `t` of the counted table that belong to rows `h` of another one of the organization, or those of which `where`
 * says so itself. `on` names the columns of the index that finds them, and no others.
 */
export type Hidden = { of: string; where: Prisma.Sql; on: Prisma.Sql } | { of: null; where: Prisma.Sql }

/** An organization's rows of a table that meet every condition of `given`, but for the hidden ones. */
export type Counted = {
  table: string
  organizationId: string
  given: readonly Prisma.Sql[]
  hidden: readonly Hidden[]
}

const name = (text: string): Prisma.Sql => Prisma.raw(`"${text}"`)

/** Conditions on `t` by column: one value, or one of a list; nothing for what is undefined. */
export const columnsAre = (values: Readonly<Record<string, unknown>>): Prisma.Sql[] =>
  Object.entries(values).flatMap(([column, value]) => {
    if (value === undefined) return []
    if (value === null) return Prisma.sql`t.${name(column)} IS NULL`
    if (!Array.isArray(value)) return Prisma.sql`t.${name(column)} = ${value}`
    return value.length ? Prisma.sql`t.${name(column)} IN (${Prisma.join(padded(value))})` : Prisma.sql`1 = 0`
  })

/** Whether a row `t` of a table is hidden by those. */
export const isHiddenBy = (organizationId: string, hidden: Hidden): Prisma.Sql =>
  hidden.of === null
    ? hidden.where
    : Prisma.sql`EXISTS (SELECT 1 FROM ${name(hidden.of)} h WHERE ${hiddenRows(organizationId, hidden)})`

const hiddenRows = (organizationId: string, { where, on }: Extract<Hidden, { of: string }>): Prisma.Sql =>
  Prisma.sql`h."organizationId" = ${organizationId} AND ${where} AND ${on}`

/** Counts rows, without those that somebody may not see. */
export async function countOf(db: Db, counted: Counted): Promise<number> {
  return (
    (await count(db, 'organizationId', counted, takenOff(counted, 'organizationId'))).get(counted.organizationId) ?? 0
  )
}

/** So many rows are asked one by one whether they are hidden. */
const FEW = 2_000

/** The same by the value of a column: of what belongs to the rows of a page, which is little, mostly. */
export async function countBy(db: Db, column: string, counted: Counted): Promise<Map<string, number>> {
  const [found] = await db.$queryRaw<{ count: number | bigint }[]>(Prisma.sql`
    SELECT count(*) AS "count" FROM (SELECT 1 ${rowsOf(counted)} LIMIT ${FEW + 1}) AS "some"`)
  if (Number(found?.count) > FEW) return count(db, column, counted, takenOff(counted, column))
  const { organizationId, given, hidden } = counted
  const shown = hidden.map((each) => Prisma.sql`NOT (${isHiddenBy(organizationId, each)})`)
  return count(db, column, { ...counted, given: [...given, ...shown] }, [])
}

const rowsOf = (counted: Counted): Prisma.Sql => Prisma.sql`FROM ${name(counted.table)} t WHERE ${conditionOf(counted)}`

const conditionOf = ({ organizationId, given }: Counted): Prisma.Sql =>
  Prisma.join([Prisma.sql`t."organizationId" = ${organizationId}`, ...given], ' AND ')

async function count(db: Db, column: string, counted: Counted, taken: readonly Prisma.Sql[]) {
  const by = Prisma.sql`t.${name(column)}`
  const rows = await db.$queryRaw<{ key: string; count: number | bigint }[]>(Prisma.sql`
    SELECT "key", sum("n") AS "count" FROM (
      SELECT ${by} AS "key", count(*) AS "n" ${rowsOf(counted)} GROUP BY ${by} ${joined(taken)}
    ) AS "counts" GROUP BY "key"`)
  return new Map(rows.map(({ key, count }) => [key, Number(count)]))
}

const joined = (parts: readonly Prisma.Sql[]): Prisma.Sql =>
  parts.length ? Prisma.join([...parts], ' ') : Prisma.empty

/**
 * Of many rows all are counted within an index, and those that are hidden, which are few, taken off, each once: where it
 * is hidden for the first reason. To ask of each whether it can be seen takes fifty times as long. The joins are CROSS so
 * that SQLite keeps to their order, and of hidden rows the conditions are said in a way for which it uses no index: it
 * would read all others.
 */
function takenOff(counted: Counted, column: string): Prisma.Sql[] {
  const { table, organizationId, hidden } = counted
  const by = Prisma.sql`t.${name(column)}`
  return hidden.map((each, index) => {
    const from =
      each.of === null
        ? Prisma.sql`${name(table)} t WHERE t."organizationId" = ${organizationId} AND ${each.where}`
        : Prisma.sql`${name(each.of)} h CROSS JOIN ${name(table)} t WHERE ${hiddenRows(organizationId, each)}`
    const before = hidden.slice(0, index).map((other) => Prisma.sql`AND NOT (${isHiddenBy(organizationId, other)})`)
    return Prisma.sql`UNION ALL SELECT ${by}, -count(*) FROM ${from} AND NOT (NOT (${conditionOf(counted)}))
      ${joined(before)} GROUP BY ${by}`
  })
}
