import { type Db, Prisma } from './client.ts'
import { padToPowerOfTwo } from './fast-path/index.ts'
import { withoutIndex } from './without-index.ts'

/**
 * Rows `t` of the counted table that belong to rows `h` of another one of the organization. `on` names exactly the
 * columns of the index that finds them.
 */
export type Hidden = { of: string; where: Prisma.Sql; on: Prisma.Sql }

/** An organization's rows of a table that meet every condition of `given`, except the hidden ones. */
export type Counted = {
  table: string
  organizationId: string
  given: readonly Prisma.Sql[]
  hidden: readonly Hidden[]
}

const name = (text: string): Prisma.Sql => Prisma.raw(`"${text}"`)

/** Returns conditions on `t` by column: one value, or one of a list. Undefined values are ignored. */
export const columnsAre = (values: Readonly<Record<string, unknown>>): Prisma.Sql[] =>
  Object.entries(values).flatMap(([column, value]) => {
    if (value === undefined) return []
    if (value === null) return Prisma.sql`t.${name(column)} IS NULL`
    if (!Array.isArray(value)) return Prisma.sql`t.${name(column)} = ${value}`
    return value.length ? Prisma.sql`t.${name(column)} IN (${Prisma.join(padToPowerOfTwo(value))})` : Prisma.sql`1 = 0`
  })

/** Returns the condition that a row `t` of a table is hidden. */
export const isHiddenBy = (organizationId: string, hidden: Hidden): Prisma.Sql =>
  Prisma.sql`EXISTS (SELECT 1 FROM ${name(hidden.of)} h WHERE ${hiddenRows(organizationId, hidden)})`

const hiddenRows = (organizationId: string, { where, on }: Hidden): Prisma.Sql =>
  Prisma.sql`h."organizationId" = ${organizationId} AND ${where} AND ${on}`

/** Counts rows without the hidden ones. */
export async function countOf(db: Db, counted: Counted): Promise<number> {
  const { table } = counted
  const all = Prisma.sql`SELECT count(*) AS "n" FROM ${name(table)} t WHERE ${conditionOf(counted)}`
  const parts = Prisma.join([all, ...takenOff(counted)], ' UNION ALL ')
  const [found] = await db.$queryRaw<{ count: number | bigint }[]>(Prisma.sql`
    SELECT sum("n") AS "count" FROM (${parts}) AS "counts"`)
  return Number(found?.count)
}

const conditionOf = ({ organizationId, given }: Counted): Prisma.Sql =>
  Prisma.join([Prisma.sql`t."organizationId" = ${organizationId}`, ...given], ' AND ')

/**
 * Returns the counts of hidden rows to subtract. Visible rows are counted as all rows of an index minus the few hidden
 * ones, each counted once, for its first reason. Checking visibility per row takes fifty times as long. The joins are
 * CROSS to fix SQLite's join order. The conditions on hidden rows are written so that no index is used for them,
 * because it would read all other rows.
 */
function takenOff(counted: Counted): Prisma.Sql[] {
  const { table, organizationId, hidden } = counted
  return hidden.map((each, index) => {
    const rows = Prisma.sql`${name(each.of)} h CROSS JOIN ${name(table)} t WHERE ${hiddenRows(organizationId, each)}`
    const before = hidden.slice(0, index).map((other) => Prisma.sql`NOT (${isHiddenBy(organizationId, other)})`)
    const conditions = [withoutIndex(conditionOf(counted)), ...before]
    return Prisma.sql`SELECT -count(*) FROM ${rows} AND ${Prisma.join(conditions, ' AND ')}`
  })
}
