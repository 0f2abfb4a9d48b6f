import { audit } from '../../../auth/audit.ts'
import { toColumn } from '../../../auth/scopes.ts'
import type { Prisma } from '../../../db/client.ts'
import { takeClaim } from '../../../idempotency.ts'
import { newSortableId, newTimedId } from '../../../lib/id.ts'
import { beginningWhole } from '../../../lib/text.ts'
import { type ExecutionRow, META_SEQ } from '../events/events.ts'
import { begun, type ClaimDeps, PREVIEW_LENGTH, writeMessage } from './claims.ts'
import { writeGiven } from './client-history.ts'
import { checkBacklog, takeSlot } from './concurrency.ts'
import { joinConversation } from './join-conversation.ts'
import type { NamedRequest } from './requests.ts'
import { holdParent } from './tree.ts'

// The transaction that accepts a run. Lock order: see claims.ts.

/**
 * Accepts a run in one transaction. If its session is free, the run takes the session's lock, and this process claims
 * it if it `hasCapacity`. Otherwise the run waits as `pending`, in the order of `queueSeq`.
 *
 * Throws an IdempotencyConflict, a SessionTaken, and:
 * - 400 for a child that is nested too deep,
 * - 404 for a deleted chat,
 * - 409 for `onBusy: reject`, for a child of a cancelled run and for a full tree,
 * - 429 beyond the backlog.
 */
export async function accept(deps: ClaimDeps, request: NamedRequest, hasCapacity: boolean): Promise<ExecutionRow> {
  const { actor, key, parent } = request
  const now = deps.clock.now()
  const fresh = rowOf(request, newTimedId('exec', now), request.conversation.chatId ?? newSortableId(now), now)
  const { id } = fresh
  return deps.db.$transaction(async (tx) => {
    await request.first?.(tx)
    if (key) await takeClaim(tx, key, now, { executionId: id })
    if (parent) await holdParent(tx, parent, now)
    const { row, isFree } = await joinConversation(tx, request, fresh, now)
    const begins = isFree && hasCapacity && (await takeSlot(tx, deps, actor.organizationId, request.delegated))
    if (!begins) await checkBacklog(tx, deps, actor.organizationId)
    // The previous run of the session may have ended while this transaction waited for the lock.
    const execution = begins ? begun(deps, row, deps.clock.now()) : row
    await tx.execution.createMany({ data: execution as Prisma.ExecutionCreateManyInput })
    const { given } = request.conversation
    if (given?.length) await writeGiven(tx, execution, given, now)
    if (begins) await writeMessage(tx, execution, 'user', execution.message, now)
    await request.also?.(tx, id, now)
    await audit(tx, actor, 'agent.execute', id, now)
    return execution
  })
}

/** Returns the row of a run that has not started, with a new session. */
function rowOf(request: NamedRequest, id: string, chatId: string, now: Date): ExecutionRow {
  const { actor, agent, message, conversation, parent } = request
  return {
    id,
    organizationId: actor.organizationId,
    agentId: agent.id,
    agentOrganizationId: agent.organizationId,
    agentVersion: agent.version,
    userId: actor.userId,
    wasPrivate: agent.visibility === 'private',
    scopes: toColumn(actor.scopes),
    tokenId: actor.tokenId || null,
    chatId,
    sessionId: newSortableId(now),
    spaceId: conversation.spaceId,
    taskId: request.taskId,
    missionId: request.mission?.id ?? null,
    parentExecutionId: parent?.id ?? null,
    rootExecutionId: parent?.rootExecutionId ?? id,
    depth: parent ? parent.depth + 1 : 0,
    status: 'pending',
    waitingFor: null,
    message,
    mediaIds: [...request.mediaIds],
    files: [...(request.files ?? [])],
    preview: beginningWhole(message, PREVIEW_LENGTH),
    modelOverride: request.model,
    overrides: request.overrides as Prisma.JsonObject,
    model: request.modelName,
    modelsTried: [],
    result: null,
    resultObject: null,
    error: null,
    errorCode: null,
    stopReason: null,
    warnings: null,
    inputTokens: 0,
    outputTokens: 0,
    usageEstimated: false,
    queueSeq: (conversation.given?.length ?? 0) + 1,
    attempt: 0,
    leaseOwner: null,
    leaseUntil: null,
    wantsCancel: false,
    seqReserved: META_SEQ,
    terminalSeq: null,
    createdAt: now,
    startedAt: null,
    waitingSince: null,
    waitedMs: 0,
    completedAt: null,
    updatedAt: now,
  }
}
