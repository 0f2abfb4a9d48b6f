import { type Db, Prisma, type Tx } from '../../../db/client.ts'
import { tooManyRequests } from '../../../errors.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { ClaimDeps } from './claims.ts'

// How many runs of an organization may be on, and wait.

/** Counts a run of the organization that begins, if it may have one more. Without a limit nobody counts. */
export async function takeSlot(
  tx: Tx,
  { limits }: ClaimDeps,
  organizationId: string,
  beyond: boolean | undefined,
): Promise<boolean> {
  if (limits.running === undefined) return true
  const { count } = await tx.organization.updateMany({
    where: { id: organizationId, ...(!beyond && { running: { lt: limits.running } }) },
    data: { running: { increment: 1 } },
  })
  return count === 1
}

/** A run that {@link takeSlot} has counted is on no more. */
export async function giveSlotBack(tx: Tx, { limits }: ClaimDeps, organizationId: string): Promise<void> {
  if (limits.running === undefined) return
  await tx.organization.updateMany({
    where: { id: organizationId, running: { gt: 0 } },
    data: { running: { decrement: 1 } },
  })
}

/**
 * Counts what runs, where a limit was set since: the counters were not kept before. Other servers may be at it: a run
 * begins and ends with the lock of its organization's row, so that the second statement sees what the first waited for.
 */
export async function countRunning({ db, limits }: ClaimDeps): Promise<void> {
  if (limits.running === undefined) return
  await db.$transaction(async (tx) => {
    await tx.$executeRaw(Prisma.sql`UPDATE "Organization" SET "running" = "running"`)
    await tx.$executeRaw(Prisma.sql`
      UPDATE "Organization" SET "running" = (
        SELECT count(*) FROM "Execution" e WHERE e."organizationId" = "Organization"."id" AND e."status" = 'running')`)
  })
}

/** How many runs may be about to wait at once, on all servers: so close to the limit they are counted one by one. */
const ABOUT_TO_WAIT = 100

/**
 * Others may be about to wait, too, and are not seen yet. Who comes close to the limit waits for those of the organization
 * that have come as close: all others count without a lock, which would have an organization's runs accepted one by one.
 */
export async function checkBacklog(tx: Tx, { limits, rowLock }: ClaimDeps, organizationId: string): Promise<void> {
  const { pending: limit } = limits
  if (limit === undefined) return
  const count = () => tx.execution.count({ where: { organizationId, status: 'pending', waitingFor: null } })
  let waiting = await count()
  if (waiting < limit && waiting >= limit - ABOUT_TO_WAIT) {
    await tx.$queryRaw(Prisma.sql`SELECT "id" FROM "Organization" WHERE "id" = ${organizationId} ${rowLock}`)
    waiting = await count()
  }
  if (waiting < limit) return
  throw tooManyRequests('queue_full')
}

/** Whether a call of its parent waits for it. */
export async function isDelegated(tx: Db | Tx, { id, parentExecutionId }: ExecutionRow): Promise<boolean> {
  if (!parentExecutionId) return false
  const call = { executionId: parentExecutionId, childExecutionId: id }
  return (await tx.toolCall.findFirst({ where: call, select: { step: true } })) !== null
}

/** Whether a pending run holds its session's lock: what keeps it is room. */
const READY = Prisma.sql`
  FROM "Execution" e JOIN "Session" s ON s."id" = e."sessionId" AND s."activeExecutionId" = e."id"
  JOIN "Organization" o ON o."id" = e."organizationId"
  WHERE e."terminalSeq" IS NULL AND e."status" = 'pending' AND e."waitingFor" IS NULL`

/** Whether a call of its parent waits for it, as `isDelegated` says. */
const DELEGATED = Prisma.sql`EXISTS (SELECT 1 FROM "ToolCall" c
  WHERE c."executionId" = e."parentExecutionId" AND c."childExecutionId" = e."id")`

/** How many of them are read at a time. */
export const READY_AT_ONCE = 100

/**
 * Pending runs that only wait for room, the oldest first; of organizations that run as many as they may, only those
 * that another run waits for: that one holds a place, and would wait for ever.
 */
export const findReady = (db: Db, limit: number | undefined) =>
  db.$queryRaw<{ id: string; organizationId: string; delegated: boolean | number | bigint }[]>(Prisma.sql`
    SELECT e."id", e."organizationId", ${DELEGATED} AS "delegated" ${READY}
    ${limit === undefined ? Prisma.empty : Prisma.sql`AND (o."running" < ${limit} OR ${DELEGATED})`}
    ORDER BY "delegated" DESC, e."createdAt", e."id" LIMIT ${READY_AT_ONCE}`)

/** The organizations with pending runs that only wait for room. */
export async function findCrowded(db: Db): Promise<string[]> {
  const rows = await db.$queryRaw<{ organizationId: string }[]>(Prisma.sql`SELECT DISTINCT e."organizationId" ${READY}`)
  return rows.map(({ organizationId }) => organizationId)
}
