import { decide, find } from '../../approvals/service.ts'
import { type Actor, requireScope } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { AppError, badRequest } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { find as findRun } from '../../executions/service.ts'
import type { RunFrom } from './client-tools.ts'
import { readParts } from './run-parts.ts'

/** A person's decision about a call, as their client sends it. `input` replaces the arguments of an approved call. */
export type Decision = {
  approvalId: string
  isApproved: boolean
  reason?: string | undefined
  input?: Record<string, unknown> | undefined
}

/**
 * Decides approvals of one run for the caller. Returns the run as it is then, and the number of the event after which
 * it continues. An approval that was decided before stays as it is. Throws 404 for an approval that the caller cannot
 * reach, 403 without the scope `approvals:write`, and 400 for approvals of several runs.
 */
export async function decideAll(actor: Actor, deps: Deps, decisions: readonly Decision[]): Promise<RunFrom> {
  requireScope(actor, 'approvals:write')
  const found = await Promise.all(decisions.map(({ approvalId }) => find(actor, deps, approvalId)))
  const executionId = found[0]?.executionId
  if (!executionId || found.some((approval) => approval.executionId !== executionId)) {
    throw badRequest('The decisions belong to several runs', { detail: 'Send the decisions of one run together.' })
  }
  const before = await findRun(actor, deps, executionId)
  // Read before the run continues: its next event comes after this one.
  const after =
    before.waitingFor === 'approval' ? before.seqReserved - 1 : await numberOf(deps, before, decisions[0]!.approvalId)
  for (const { approvalId: id, isApproved, reason, input } of decisions) {
    try {
      await decide(actor, deps, { id, reason, input }, isApproved ? 'approved' : 'denied', null)
    } catch (error) {
      if (!(error instanceof AppError && error.status === 409)) throw error
    }
  }
  return { row: await findRun(actor, deps, executionId), after }
}

/** Returns the number of the event with which a run asked for a decision. */
async function numberOf(deps: Deps, row: ExecutionRow, approvalId: string): Promise<number> {
  for await (const part of readParts(deps, row)) {
    if (part.type === 'approval' && part.approvalId === approvalId) return part.seq
  }
  return 0
}

/** Returns whether a run waits for a decision now. */
export const isWaitingForApproval = async ({ db }: Pick<Deps, 'db'>, { id }: Pick<ExecutionRow, 'id'>) =>
  (await db.execution.findUnique({ where: { id }, select: { waitingFor: true } }))?.waitingFor === 'approval'
