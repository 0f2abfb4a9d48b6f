import { setImmediate } from 'node:timers/promises'
import { Prisma } from '../../../db/client.ts'
import { LIFETIME } from '../../../idempotency.ts'
import { timedIdsSince } from '../../../lib/id.ts'
import type { MaintenanceDeps } from './maintenance.ts'

type RetentionDeps = Pick<MaintenanceDeps, 'settings' | 'db' | 'clock' | 'log'>

/** Maximum number of rows that one statement removes. */
const BATCH = 500
/** Maximum share of all events that one pass removes. No more events than this are counted. */
const SHARE = 0.1
const MAX_COUNTED_EVENTS = 500_000
/** Maximum number of audit events that one pass removes. */
const MAX_AUDIT_EVENTS = 20_000
const DAY = 24 * 60 * 60 * 1000

/**
 * Removes expired events, idempotency records, audit events, browser sessions and links in small batches; executions
 * stay.
 */
export async function removeOld(deps: RetentionDeps): Promise<void> {
  const { settings, db } = deps
  const now = deps.clock.now().getTime()
  await removeEvents(deps, new Date(now - settings.EVENT_RETENTION_DAYS * DAY))
  await removeIdempotencyRecords(deps, new Date(now - LIFETIME))
  await removeAudit(deps, new Date(now - settings.AUDIT_RETENTION_DAYS * DAY))
  const past = { lt: new Date(now) }
  await db.invitation.deleteMany({ where: { expiresAt: past } })
  await db.formerSlug.deleteMany({ where: { endsAt: past } })
  await db.rateWindow.deleteMany({ where: { endsAt: past } })
  await db.browserSession.deleteMany({ where: { expiresAt: past } })
  await db.oneTimeLink.deleteMany({ where: { expiresAt: past } })
  await db.mcpSignIn.deleteMany({ where: { expiresAt: past } })
  await db.signInLimit.deleteMany({ where: { expiresAt: past } })
}

/** Removes events before a date, which belong to the runs with the smallest ids. */
async function removeEvents(deps: RetentionDeps, before: Date): Promise<void> {
  const old = Prisma.sql`"executionId" < ${timedIdsSince('exec', before)} AND "at" < ${before}`
  await inBatches(await countRemovable(deps, old, before), (limit) =>
    deps.db.$executeRaw(Prisma.sql`
      DELETE FROM "ExecutionEvent" WHERE ("executionId", "firstSeq") IN (
        SELECT "executionId", "firstSeq" FROM "ExecutionEvent"
        WHERE ${old} ORDER BY "executionId", "firstSeq" LIMIT ${limit})`),
  )
}

/**
 * Returns how many old events one pass may remove: a share of all, so that a wrong clock does not cost the history.
 * Logs a warning if there are more.
 */
async function countRemovable({ db, log }: RetentionDeps, old: Prisma.Sql, before: Date): Promise<number> {
  const count = async (which: Prisma.Sql, limit: number) => {
    const [row] = await db.$queryRaw<{ count: number | bigint }[]>(Prisma.sql`
      SELECT count(*) AS "count" FROM (SELECT 1 FROM "ExecutionEvent" WHERE ${which} LIMIT ${limit}) AS "found"`)
    return Number(row?.count ?? 0)
  }
  if (!(await count(old, 1))) return 0
  const most = Math.ceil((await count(Prisma.sql`1 = 1`, MAX_COUNTED_EVENTS)) * SHARE)
  const found = await count(old, most + 1)
  if (found > most)
    log.warn(
      { removed: most, olderThan: before },
      'more than a tenth of all events is older than EVENT_RETENTION_DAYS: check the clock; the rest is removed later',
    )
  return Math.min(found, most)
}

const removeIdempotencyRecords = ({ db }: RetentionDeps, before: Date): Promise<void> =>
  inBatches(Number.POSITIVE_INFINITY, (limit) =>
    db.$executeRaw(Prisma.sql`
      DELETE FROM "IdempotencyRecord" WHERE "id" IN (
        SELECT "id" FROM "IdempotencyRecord" WHERE "createdAt" < ${before} LIMIT ${limit})`),
  )

/** Removes a bounded number of audit events before a date, and the addresses of tokens that were last used before it. */
async function removeAudit({ db }: RetentionDeps, before: Date): Promise<void> {
  // The join lets each organization's part of the key be entered at its oldest event.
  await inBatches(MAX_AUDIT_EVENTS, (limit) =>
    db.$executeRaw(Prisma.sql`
      DELETE FROM "AuditEvent" WHERE ("organizationId", "at", "id") IN (
        SELECT a."organizationId", a."at", a."id" FROM "Organization" o
        JOIN "AuditEvent" a ON a."organizationId" = o."id" AND a."at" < ${before} LIMIT ${limit})`),
  )
  await db.tokenAddress.deleteMany({ where: { seenAt: { lt: before } } })
}

/** Yields between two batches, because SQLite answers synchronously and would block the event loop. */
async function inBatches(most: number, remove: (limit: number) => Promise<number>): Promise<void> {
  for (let left = most; left > 0; left -= BATCH) {
    const limit = Math.min(left, BATCH)
    if ((await remove(limit)) < limit) return
    await setImmediate()
  }
}
