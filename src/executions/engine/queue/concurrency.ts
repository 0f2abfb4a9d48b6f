import { type Db, Prisma, type Tx } from '../../../db/client.ts'
import { queueFull } from '../../../errors.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { ClaimDeps } from './claims.ts'

/**
 * Counts a started run of the organization. Returns false if the organization is at its limit. Without a limit nothing
 * is counted.
 */
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

/** Releases the slot that {@link takeSlot} counted. */
export async function giveSlotBack(tx: Tx, { limits }: ClaimDeps, organizationId: string): Promise<void> {
  if (limits.running === undefined) return
  await tx.organization.updateMany({
    where: { id: organizationId, running: { gt: 0 } },
    data: { running: { decrement: 1 } },
  })
}

/**
 * Recounts the running runs after a limit was set, because counters are not kept without one. Runs that start or end
 * meanwhile lock the row of their organization, so the second statement sees the runs that the first one waited for.
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

/**
 * Maximum number of runs that may be about to queue at once, over all servers. Closer to the limit than this, accepts
 * are counted one by one.
 */
const ABOUT_TO_WAIT = 100

/**
 * Throws 429 if the organization's backlog is full. Near the limit, accepts are serialized per organization by a row
 * lock so that concurrent requests cannot overshoot it. Far from the limit no lock is taken.
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
  throw queueFull()
}

/** Returns whether a call of the parent run waits for this run. */
export async function isDelegated(tx: Db | Tx, { id, parentExecutionId }: ExecutionRow): Promise<boolean> {
  if (!parentExecutionId) return false
  const call = { executionId: parentExecutionId, childExecutionId: id }
  return (await tx.toolCall.findFirst({ where: call, select: { step: true } })) !== null
}

/** A pending run that holds its session's lock and therefore waits only for capacity. */
const READY = Prisma.sql`
  FROM "Execution" e JOIN "Session" s ON s."id" = e."sessionId" AND s."activeExecutionId" = e."id"
  JOIN "Organization" o ON o."id" = e."organizationId"
  WHERE e."terminalSeq" IS NULL AND e."status" = 'pending' AND e."waitingFor" IS NULL`

/** Whether a call of the parent waits for the run, as in `isDelegated`. */
const DELEGATED = Prisma.sql`EXISTS (SELECT 1 FROM "ToolCall" c
  WHERE c."executionId" = e."parentExecutionId" AND c."childExecutionId" = e."id")`

/** Maximum number of ready runs read at a time. */
export const READY_AT_ONCE = 100

/**
 * Finds pending runs that wait only for capacity, oldest first. Organizations at their limit have only their delegates
 * returned: parents hold slots, so waiting would deadlock.
 */
export const findReady = (db: Db, limit: number | undefined) =>
  db.$queryRaw<{ id: string; organizationId: string; delegated: boolean | number | bigint }[]>(Prisma.sql`
    SELECT e."id", e."organizationId", ${DELEGATED} AS "delegated" ${READY}
    ${limit === undefined ? Prisma.empty : Prisma.sql`AND (o."running" < ${limit} OR ${DELEGATED})`}
    ORDER BY "delegated" DESC, e."createdAt", e."id" LIMIT ${READY_AT_ONCE}`)

/** Finds the organizations with pending runs that wait only for capacity. */
export async function findSaturatedOrganizations(db: Db): Promise<string[]> {
  const rows = await db.$queryRaw<{ organizationId: string }[]>(Prisma.sql`SELECT DISTINCT e."organizationId" ${READY}`)
  return rows.map(({ organizationId }) => organizationId)
}
