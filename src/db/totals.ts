import { type DatabaseSettings, type Db, databaseFile, Prisma, type Tx } from './client.ts'

/**
 * Returns the sum of kept totals. By default it reads totals without a user and a value. Triggers update them in the
 * transaction that changes a row; the migration `totals` defines them.
 */
export async function totalOf(db: Db, where: Prisma.TotalWhereInput): Promise<number> {
  const rows = await db.total.findMany({ where: { userId: '', value: '', ...where }, select: { count: true } })
  return rows.reduce((sum, { count }) => sum + count, 0)
}

/**
 * Takes the lock of the chat counts before a transaction changes the visibility of a mission's chats. PostgreSQL's
 * triggers wait for writers of the organization's chats; with the mission's row already locked, such a writer could
 * wait for this transaction. On SQLite there is one writer.
 */
export async function lockCounts(tx: Tx, settings: DatabaseSettings, organizationId: string): Promise<void> {
  if (databaseFile(settings)) return
  await tx.$executeRaw(Prisma.sql`SELECT "lockCounts"(${organizationId})`)
}

/**
 * Takes the lock of the mission counts before a transaction completes, pauses or reactivates missions; `where` selects
 * the ones concerned. The trigger waits for other transactions that count missions of the organization, and these may
 * wait for the missions' rows.
 */
export async function lockMissionCounts(tx: Tx, settings: DatabaseSettings, where: Prisma.Sql): Promise<void> {
  if (databaseFile(settings)) return
  await tx.$executeRaw(Prisma.sql`SELECT "lockMissionTotals"("organizationId")
    FROM (SELECT DISTINCT "organizationId" FROM "Mission" WHERE ${where} ORDER BY 1) AS "organizations"`)
}
