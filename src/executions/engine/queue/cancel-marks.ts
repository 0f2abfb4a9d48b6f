import { audit, auditEach } from '../../../auth/audit.ts'
import type { Prisma, Tx } from '../../../db/client.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { ClaimDeps } from './claims.ts'

// Marks runs for cancellation, so that cancelled is the only way they can end.

/** User, in an organization, on whose behalf a run is cancelled. */
export type Canceller = Pick<ExecutionRow, 'organizationId' | 'userId'>

/** Audits the cancellation of a run. */
export const auditCancel = (tx: Tx, by: Canceller, id: string, now: Date) => audit(tx, by, CANCEL, id, now)

const CANCEL = 'execution.cancel'

/**
 * Marks the unfinished delegates of a run's open calls for cancellation, so that they end with it even if this process
 * dies. Returns the newly marked ones.
 */
export async function abandon(tx: Tx, row: ExecutionRow, now: Date, by: Canceller = row): Promise<ExecutionRow[]> {
  const open = { executionId: row.id, completedAt: null, childExecutionId: { not: null } }
  const calls = await tx.toolCall.findMany({ where: open, select: { childExecutionId: true } })
  if (!calls.length) return []
  return markRuns(tx, { id: { in: calls.flatMap(({ childExecutionId }) => childExecutionId ?? []) } }, by, now)
}

/** Further changes in the transaction that cancels a run. */
export type Also = (tx: Tx, now: Date) => Promise<void>

/** Runs that have not ended. The condition matches that of a partial index. */
export const LIVE = {
  status: { in: ['pending', 'running'] },
  terminalSeq: null,
} satisfies Prisma.ExecutionWhereInput

/**
 * Marks the given runs for cancellation unless they have ended, so that cancelled is the only way they can end. Returns
 * the newly marked ones.
 */
export async function markRuns(
  tx: Tx,
  where: Prisma.ExecutionWhereInput,
  by: Canceller,
  now: Date,
): Promise<ExecutionRow[]> {
  const marked = await tx.execution.updateManyAndReturn({
    where: { ...where, ...LIVE, wantsCancel: false },
    data: { wantsCancel: true, updatedAt: now },
  })
  const ids = marked.map(({ id }) => id)
  await auditEach(tx, by, CANCEL, ids, now)
  return marked
}

/**
 * Marks a running run for cancellation, so that its process can only end it as cancelled. Returns false if it is not
 * running.
 */
export async function markCancelled(
  { db, clock }: ClaimDeps,
  id: string,
  by: Canceller,
  also?: Also,
): Promise<boolean> {
  const now = clock.now()
  const marked = { id, status: 'running', wantsCancel: true } as const
  return db.$transaction(async (tx) => {
    const { count } = await tx.execution.updateMany({
      where: { ...marked, wantsCancel: false },
      data: { wantsCancel: true, updatedAt: now },
    })
    if (count) await auditCancel(tx, by, id, now)
    if (!count && !(await tx.execution.count({ where: marked }))) return false
    await also?.(tx, now)
    return true
  })
}
