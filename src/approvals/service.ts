import type { z } from 'zod'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { type ApprovalRow, decide as decideCall } from '../executions/engine/waits.ts'
import { reachable as reachableExecution } from '../executions/service.ts'
import { type KeyClaim, store, take } from '../idempotency.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import type { Approval, Decide, ListApprovals } from './schema.ts'

/** Those of the executions that the caller can reach (contract.md section 2). */
export const reachable = (actor: Actor): Prisma.ApprovalWhereInput => ({
  organizationId: actor.organizationId,
  execution: reachableExecution(actor),
})

const listed = reachable

const toApproval = (row: ApprovalRow): z.input<typeof Approval> => ({
  id: row.id,
  executionId: row.executionId,
  chatId: row.chatId,
  toolUseId: row.toolUseId,
  tool: row.tool,
  input: JSON.parse(row.input),
  status: row.status,
  ...(row.reason !== null && { reason: row.reason }),
  createdAt: row.createdAt.toISOString(),
  expiresAt: row.expiresAt.toISOString(),
  ...(row.decidedBy !== null && { decidedBy: row.decidedBy }),
  ...(row.decidedAt && { decidedAt: row.decidedAt.toISOString() }),
})

/** What `list` lists: the filters of its input on top of {@link listed}. */
export function listedBy(actor: Actor, input: z.output<typeof ListApprovals>): Prisma.ApprovalWhereInput {
  const { status, executionId } = input
  return { AND: [listed(actor), status ? { status } : {}, executionId === undefined ? {} : { executionId }] }
}

/** GET /approvals, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListApprovals>) {
  const { where: after, ...page } = pageQuery(input)
  const found = await db.approval.findMany({ where: { AND: [listedBy(actor, input), after ?? {}] }, ...page })
  const { rows, nextCursor } = toPage(found, input)
  return { approvals: rows.map(toApproval), nextCursor }
}

/** The approval and whose run waits for it, if the caller may see it. */
export async function find(actor: Actor, { db }: Deps, id: string) {
  const row = await db.approval.findFirst({
    where: { AND: [{ id }, reachable(actor)] },
    include: { execution: { select: { id: true, organizationId: true, userId: true } } },
  })
  if (!row) throw notFound('Approval')
  return row
}

/**
 * POST /approvals/{id}/approve and /deny: by whoever started the run, or an admin, as with cancelling it. 409 when it
 * was decided already, or has expired. With the last decision the run goes on. The answer is stored with the
 * Idempotency-Key, if there is one.
 */
export async function decide(
  actor: Actor,
  deps: Deps,
  { id, reason }: z.output<typeof Decide>,
  status: 'approved' | 'denied',
  key: KeyClaim | null,
) {
  const { execution, ...found } = await find(actor, deps, id)
  const approval = permit(found, execution.userId === actor.userId || isAdmin(actor))
  const now = deps.clock.now()
  const answer = await deps.db.$transaction(async (tx) => {
    if (key) await take(tx, key, now)
    const decided = await decideCall(tx, approval, { status, reason: reason ?? null, decidedBy: actor.userId }, now)
    await audit(tx, actor, status === 'approved' ? 'approval.approve' : 'approval.deny', id, now)
    const shown = { approval: toApproval(decided) }
    if (key) await store(tx, key, shown)
    return shown
  })
  deps.bus.publish('chat', [approval.chatId])
  deps.engine.goOn(execution)
  return answer
}
