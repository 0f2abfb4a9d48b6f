import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { followChanges, type Looked } from '../bus/follow-changes.ts'
import { eachRow } from '../db/each-row.ts'
import { MAX_IN } from '../db/fast-path/index.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { reachable as reachableExecution } from '../executions/service.ts'
import { chunk } from '../lib/chunk.ts'
import type { Approval, FollowApprovals } from './schema.ts'
import { findMany, listedBy } from './service.ts'

/** An event of GET /approvals/events. */
export type ApprovalChange = { event: 'changed'; data: { approval: z.output<typeof Approval> } }

/** How late an approval may expire if no server ran meanwhile (ms). */
const DAY = 24 * 60 * 60 * 1000

/**
 * GET /approvals/events (contract-2.md section 1.19): follows the approvals that the caller can see. Yields those that
 * are created, decided or expired from now on, of one run if `executionId` names it. Ends with the signal. Throws 404
 * for a run that the caller cannot reach.
 */
export async function follow(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof FollowApprovals>,
  streamTo: (actor: Actor) => AbortSignal,
): Promise<AsyncGenerator<ApprovalChange>> {
  const { db, settings } = deps
  const { executionId } = input
  if (executionId !== undefined) {
    const where = { AND: [{ id: executionId }, reachableExecution(actor)] }
    if (!(await db.execution.count({ where }))) throw notFound('Execution')
  }
  const listed = listedBy(actor, input)

  async function* find(looked: Looked): AsyncGenerator<{ id: string }> {
    const select = { id: true, createdAt: true }
    if (looked.ids) {
      for (const ids of chunk(looked.ids, MAX_IN)) {
        yield* await db.approval.findMany({ where: { AND: [{ id: { in: ids } }, listed] }, select })
      }
      return
    }
    const since = { gte: looked.since }
    // An older one has been decided, or has expired.
    const oldest = new Date(looked.since.getTime() - settings.APPROVAL_TIMEOUT - DAY)
    const changed = { createdAt: { gte: oldest }, OR: [{ createdAt: since }, { decidedAt: since }] }
    yield* eachRow('createdAt', ({ where: after, ...page }) =>
      db.approval.findMany({ where: { AND: [changed, listed, after] }, select, ...page }),
    )
  }

  async function read({ id }: { id: string }): Promise<ApprovalChange | null> {
    const [approval] = await findMany(actor, deps, [id])
    return approval ? { event: 'changed', data: { approval } } : null
  }

  return followChanges(deps, 'approval', streamTo(actor), find, read)
}
