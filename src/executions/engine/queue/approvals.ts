import type { Prisma, Tx } from '../../../db/client.ts'
import { conflict } from '../../../errors.ts'
import { type ExecutionRow, type MessageData, storeLast } from '../events/events.ts'
import { SEQ_BLOCK } from '../events/run-stream.ts'
import type { Checkpoint } from '../run/checkpoint.ts'
import type { Ask } from '../run/run.ts'
import { digestOf } from '../run/tools.ts'
import { toColumn } from '../run/warnings.ts'
import { chatStatus } from './chat-status.ts'
import type { ClaimDeps } from './claims.ts'
import { giveSlotBack } from './concurrency.ts'
import type { FinalState } from './endings.ts'

export type ApprovalRow = Prisma.ApprovalGetPayload<object>

/** A tool call that a person must decide, with the id of its approval. */
export type ApprovalRequest = Ask & { id: string; step: number }

/** Partial result of a run that resumes later. */
export type PartialState = Pick<
  FinalState,
  'model' | 'modelsTried' | 'usage' | 'warnings' | 'events' | 'mayBeStored' | 'terminalSeq'
>

/** Returns the partial result with messages for subscribers appended. */
export function withMessages(partial: PartialState, messages: readonly MessageData[], at: Date): PartialState {
  const first = partial.terminalSeq
  const added = messages.map((data, index) => ({ seq: first + index, at, event: 'message' as const, data }))
  return { ...partial, events: [...partial.events, ...added], terminalSeq: first + added.length }
}

/**
 * Releases the lease of a run, fenced by the attempt. Returns false if another process took the run over or it is
 * marked for cancellation.
 */
export async function releaseRun(
  tx: Tx,
  row: ExecutionRow,
  waitingFor: ExecutionRow['waitingFor'],
  partial: PartialState,
  now: Date,
): Promise<boolean> {
  const { count } = await tx.execution.updateMany({
    where: { id: row.id, attempt: row.attempt, status: 'running', wantsCancel: false },
    data: {
      status: 'pending',
      waitingFor,
      waitingSince: now,
      leaseOwner: null,
      leaseUntil: null,
      ...partial.usage,
      model: partial.model,
      warnings: toColumn(partial.warnings),
      modelsTried: [...partial.modelsTried],
      // The next attempt numbers its events after these.
      seqReserved: partial.terminalSeq,
      updatedAt: now,
    },
  })
  if (count) await storeLast(tx, row.id, now, partial)
  return count > 0
}

/**
 * Suspends a run until its approvals are decided (contract.md section 4, "Time"). The run releases its lease and slot
 * and keeps its session. Fenced by the attempt: returns false if another process took the run over or it is marked for
 * cancellation.
 */
export async function suspend(
  deps: ClaimDeps & { approvalTimeout: number },
  row: ExecutionRow,
  asked: readonly ApprovalRequest[],
  final: FinalState,
): Promise<boolean> {
  const now = deps.clock.now()
  const { id: executionId, organizationId, chatId } = row
  const messages = asked.map(
    ({ id, call }): MessageData => ({ messageType: 'approval', approvalId: id, toolUseId: call.id, name: call.name }),
  )
  const partial = withMessages(final, messages, now)
  return deps.db.$transaction(async (tx) => {
    if (!(await releaseRun(tx, row, 'approval', partial, now))) return false
    const expiresAt = new Date(now.getTime() + deps.approvalTimeout)
    const before = await tx.approval.findMany({ where: { executionId }, select: { step: true, position: true } })
    await tx.approval.createMany({
      data: asked.map(({ id, step, call, tool: { server }, described }) => ({
        id,
        organizationId,
        executionId,
        chatId,
        step,
        position: call.position,
        round: before.filter((one) => one.step === step && one.position === call.position).length,
        toolUseId: call.id,
        tool: call.name,
        input: JSON.stringify(call.input),
        ...(server && { mcpId: server.id, mcpName: server.name, origin: server.origin }),
        description: described.description,
        inputSchema: JSON.stringify(described.inputSchema),
        digest: digestOf(described),
        status: 'pending' as const,
        createdAt: now,
        expiresAt,
      })),
    })
    await tx.chat.update({
      where: { id: chatId },
      data: { status: 'needs_attention', updatedAt: now },
      select: { id: true },
    })
    await giveSlotBack(tx, deps, organizationId)
    return true
  })
}

/**
 * Suspends a recovered run until there is capacity. The run releases its lease and slot, keeps its session, and
 * publishes where it will resume. Fenced like {@link suspend}.
 */
export async function waitForCapacity(
  deps: ClaimDeps,
  row: ExecutionRow,
  { usage, opening, warnings }: Checkpoint,
): Promise<boolean> {
  const now = deps.clock.now()
  const begun = {
    model: row.model,
    modelsTried: row.modelsTried as string[],
    usage,
    warnings,
    events: [],
    mayBeStored: false,
    terminalSeq: row.seqReserved - SEQ_BLOCK + 1,
  }
  const partial = withMessages(begun, opening, now)
  return deps.db.$transaction(async (tx) => {
    if (!(await releaseRun(tx, row, null, partial, now))) return false
    await giveSlotBack(tx, deps, row.organizationId)
    return true
  })
}

/** Decision of a user, or an expiry. An approval may replace the tool input (JSON text). */
export type CallDecision = {
  status: 'approved' | 'denied' | 'expired'
  reason: string | null
  decidedBy: string | null
  editedInput?: string
}

/**
 * Decides an approval. After the last open decision the run can be claimed again; its waiting time ends with the claim.
 * Throws 409 if the approval was already decided or the run no longer waits.
 */
export async function decide(tx: Tx, approval: ApprovalRow, decision: CallDecision, now: Date): Promise<ApprovalRow> {
  const { id, executionId } = approval
  // The run's row is the lock: the second of two concurrent decisions sees the first.
  await tx.execution.updateMany({ where: { id: executionId, waitingFor: 'approval' }, data: { updatedAt: now } })
  const [decided] = await tx.approval.updateManyAndReturn({
    where: { id, status: 'pending', ...(decision.status !== 'expired' && { expiresAt: { gt: now } }) },
    data: {
      ...decision,
      ...(decision.editedInput !== undefined && { editedBy: decision.decidedBy }),
      decidedAt: now,
    },
  })
  if (!decided)
    throw conflict('Approval was already decided', {
      detail: 'List the approvals: this one has the decision and the user who made it.',
    })
  if (await tx.approval.findFirst({ where: { executionId, status: 'pending' }, select: { id: true } })) return decided
  const where = { id: executionId, waitingFor: 'approval' as const }
  const { count } = await tx.execution.updateMany({ where, data: { waitingFor: null, updatedAt: now } })
  if (count) {
    const status = await chatStatus(tx, approval, 'working', now)
    await tx.chat.updateMany({ where: { id: approval.chatId }, data: { status } })
  }
  return decided
}
