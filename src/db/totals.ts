import type { Settings } from '../settings.ts'
import { type Db, databaseFile, Prisma, type Tx } from './client.ts'

type Place = Pick<Settings, 'DATABASE_URL' | 'DATA_DIR'>

/**
 * The sum of kept totals: by default those of nobody in particular and of no value. Triggers keep them, in the
 * transaction that changes a row, whoever's it is; the migration `totals` says what each of them counts.
 */
export async function totalOf(db: Db, where: Prisma.TotalWhereInput): Promise<number> {
  const rows = await db.total.findMany({ where: { userId: '', value: '', ...where }, select: { count: true } })
  return rows.reduce((sum, { count }) => sum + count, 0)
}

/**
 * What a transaction begins with that changes who may see the chats of a mission. PostgreSQL's triggers wait for those who
 * write chats of the organization: with the mission's row locked, that may be for a run that wants this row next. On SQLite
 * nobody else writes meanwhile.
 */
export async function lockCounts(tx: Tx, settings: Place, organizationId: string): Promise<void> {
  if (databaseFile(settings)) return
  await tx.$executeRaw(Prisma.sql`SELECT "lockCounts"(${organizationId})`)
}

/**
 * What a transaction does before it completes or pauses missions, or makes them active again: `where` says which may be
 * among them. The trigger waits for whoever counts missions of their organization, and that one may want their rows.
 */
export async function lockMissionCounts(tx: Tx, settings: Place, where: Prisma.Sql): Promise<void> {
  if (databaseFile(settings)) return
  await tx.$executeRaw(Prisma.sql`SELECT "lockMissionTotals"("organizationId")
    FROM (SELECT DISTINCT "organizationId" FROM "Mission" WHERE ${where} ORDER BY 1) AS "organizations"`)
}
