import { type Db, Prisma } from './client.ts'
import { padded } from './dialects.ts'

/**
 * Rows `t` of the counted table that belong to rows `h` of another one of the organization. `on` names the columns of the
 * index that finds them, and no others: with `organizationId` alone beside, SQLite would read all of the organization's.
 */
export type Hidden = { of: string; where: Prisma.Sql; on: Prisma.Sql }

/** An organization's rows of a table that meet every condition of `given`, but for the hidden ones. */
export type Counted = {
  table: string
  organizationId: string
  given: readonly Prisma.Sql[]
  hidden: readonly Hidden[]
}

const name = (text: string): Prisma.Sql => Prisma.raw(`"${text}"`)

/** Conditions by column: one value, or one of a list; nothing for what is undefined. */
export const columnsAre = (values: Readonly<Record<string, unknown>>): Prisma.Sql[] =>
  Object.entries(values).flatMap(([column, value]) => {
    if (value === undefined) return []
    if (value === null) return Prisma.sql`${name(column)} IS NULL`
    if (!Array.isArray(value)) return Prisma.sql`${name(column)} = ${value}`
    return value.length ? Prisma.sql`${name(column)} IN (${Prisma.join(padded(value))})` : Prisma.sql`1 = 0`
  })

/**
 * Counts rows by the value of a column, and takes those off that somebody may not see: all of them are counted within an
 * index, and only the hidden ones, which are few, are looked at. To ask of each row whether it can be seen takes fifty
 * times as long. The joins are CROSS so that SQLite keeps to their order.
 */
export async function countBy(db: Db, column: string, { table, organizationId, given, hidden }: Counted) {
  const by = name(column)
  const those = Prisma.join([Prisma.sql`t."organizationId" = ${organizationId}`, ...given], ' AND ')
  const found = hidden.map(
    ({ of, where, on }) => Prisma.sql`
      SELECT t."id" AS "hiddenId" FROM ${name(of)} h CROSS JOIN ${name(table)} t
      WHERE h."organizationId" = ${organizationId} AND ${where} AND ${on}`,
  )
  const rows = await db.$queryRaw<{ key: string; count: number | bigint }[]>(Prisma.sql`
    SELECT "key", sum("n") AS "count" FROM (
      SELECT ${by} AS "key", count(*) AS "n" FROM ${name(table)} t WHERE ${those} GROUP BY ${by}
      UNION ALL
      SELECT ${by}, -count(*) FROM (${Prisma.join(found, ' UNION ')}) AS "found" CROSS JOIN ${name(table)} t
      WHERE t."id" = "hiddenId" AND ${those} GROUP BY ${by}
    ) AS "counts" GROUP BY "key"`)
  return new Map(rows.map(({ key, count }) => [key, Number(count)]))
}

/** Whether a row `t` of a table is hidden by those. */
export const isHiddenBy = (organizationId: string, { of, where, on }: Hidden): Prisma.Sql => Prisma.sql`EXISTS (
  SELECT 1 FROM ${name(of)} h WHERE h."organizationId" = ${organizationId} AND ${where} AND ${on})`

/** Counts rows. */
export async function countOf(db: Db, counted: Counted): Promise<number> {
  return (await countBy(db, 'organizationId', counted)).get(counted.organizationId) ?? 0
}
