import { audit } from '../../../auth/audit.ts'
import { Prisma, type Tx } from '../../../db/client.ts'
import { beginning } from '../../../lib/text.ts'
import type { ErrorCode, StopReason } from '../../../wire.ts'
import { type ExecutionEvent, type ExecutionRow, storeLast, textOf, type Warning } from '../events/events.ts'
import { type CallRecord, forgetSteps, loadSteps, recordsOf, replayOf } from '../run/steps.ts'
import { toColumn } from '../run/warnings.ts'
import { chatStatus } from './chat-status.ts'
import { type ClaimDeps, PREVIEW_LENGTH, writeMessage } from './claims.ts'
import { giveSlotBack } from './concurrency.ts'
import type { Standing } from './tree.ts'

// The transactions that end a run. They take their locks in the order that claims.ts tells.

export type Outcome =
  | { status: 'completed'; result: string; stopReason: StopReason }
  | { status: 'failed'; error: string; errorCode: ErrorCode; stopReason: StopReason }
  | { status: 'cancelled'; stopReason: 'cancelled' }

export const CANCELLED = { status: 'cancelled', stopReason: 'cancelled' } as const

/** What a run leaves beside its outcome. */
export type Remains = {
  /** The text of the last step, whole or as far as it came. */
  text: string
  /** What the history says of its tool calls. */
  toolCalls: readonly CallRecord[]
  model: string | null
  /** Models that were asked or skipped before it. */
  modelsTried: readonly string[]
  usage: { inputTokens: number; outputTokens: number; usageEstimated: boolean }
  warnings: readonly Warning[]
  /** The steps that later turns hand back to the model, see {@link replayOf}. */
  replay: string | null
  events: readonly Extract<ExecutionEvent, { event: 'message' }>[]
  /** They may be stored: a transaction failed, and it may have been only the word of it that got lost. */
  mayBeStored: boolean
  terminalSeq: number
  /** What is stored already lies in many small segments. */
  scattered: boolean
}

export type Ended = {
  execution: ExecutionRow
  /** The pending run that holds the session's lock now. */
  next: string | null
  /** What its calls had started, marked to be cancelled with it. */
  abandoned: readonly ExecutionRow[]
}

/**
 * The terminal write, fenced by the attempt: state, last events, answer, and the session's lock to the next in line.
 * Null when the run was taken away, or shall be cancelled and the outcome is another.
 */
export async function finish(
  deps: ClaimDeps,
  row: ExecutionRow,
  outcome: Outcome,
  remains: Remains,
): Promise<Ended | null> {
  const now = deps.clock.now()
  const completed = outcome.status === 'completed'
  const changes = {
    ...outcome,
    ...remains.usage,
    model: remains.model,
    warnings: toColumn(remains.warnings),
    modelsTried: [...remains.modelsTried],
    terminalSeq: remains.terminalSeq,
    completedAt: now,
    updatedAt: now,
    leaseOwner: null,
    leaseUntil: null,
  }
  const execution: ExecutionRow = { ...row, ...changes }
  return deps.db.$transaction(async (tx) => {
    const { count } = await tx.execution.updateMany({
      where: {
        id: row.id,
        attempt: row.attempt,
        status: 'running',
        ...(outcome.status !== 'cancelled' && { wantsCancel: false }),
      },
      data: changes,
    })
    if (!count) return null
    const abandoned = completed ? [] : await abandon(tx, row, now)
    await storeLast(tx, row.id, now, remains)
    const { text, toolCalls } = remains
    const answers = completed || text !== '' || toolCalls.length > 0
    if (answers)
      await writeMessage(tx, execution, 'assistant', text, now, {
        interrupted: !completed,
        toolCalls,
        replay: remains.replay,
      })
    // Of one that did not complete there may be steps although `toolCalls` is empty.
    if (!completed || toolCalls.length) await forgetSteps(tx, row.id)
    const next = await release(tx, deps, execution, now, { text, messages: answers ? 2 : 1 })
    await deps.lockSettled(tx, execution)
    await giveSlotBack(tx, deps, row.organizationId)
    await deps.settle(tx, execution, now)
    return { execution, next, abandoned }
  })
}

/** Whose word a cancel is: a user's, in an organization. */
export type Canceller = Pick<ExecutionRow, 'organizationId' | 'userId'>

const auditCancel = (tx: Tx, by: Canceller, id: string, now: Date) => audit(tx, by, 'execution.cancel', id, now)

/**
 * Marks the runs that the open calls of a run have started, as far as they have not ended: they go with one that did not
 * complete, whatever happens to this process. Returns those that nobody had marked.
 */
async function abandon(tx: Tx, row: ExecutionRow, now: Date, by: Canceller = row): Promise<ExecutionRow[]> {
  const open = { executionId: row.id, completedAt: null, childExecutionId: { not: null } }
  const calls = await tx.toolCall.findMany({ where: open, select: { childExecutionId: true } })
  if (!calls.length) return []
  return markRuns(tx, { id: { in: calls.flatMap(({ childExecutionId }) => childExecutionId ?? []) } }, by, now)
}

/** What else happens in the transaction that cancels a run. */
type Also = (tx: Tx, now: Date) => Promise<void>

/** What has not ended, in the words of an index that has no other runs. */
export const LIVE = {
  status: { in: ['pending', 'running'] },
  terminalSeq: null,
} satisfies Prisma.ExecutionWhereInput

/**
 * Marks those of some runs that have not ended: they have no other end then, whatever happens to whoever tells them.
 * Returns those that nobody had marked.
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
  for (const { id } of marked) await auditCancel(tx, by, id, now)
  return marked
}

/** Marks a run that is on, for whoever runs it: then it has no other end. False for one that is not on. */
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

/**
 * Ends a run that has not begun, or waits for an approval. Null when it has begun or ended meanwhile. `by`: who cancels
 * it, where nobody has marked it before.
 */
export async function finishPending(
  deps: ClaimDeps,
  row: Standing,
  outcome: Exclude<Outcome, { status: 'completed' }>,
  by?: Canceller,
  also?: Also,
): Promise<Ended | null> {
  const now = deps.clock.now()
  return deps.db.$transaction(async (tx) => {
    const [execution] = await tx.execution.updateManyAndReturn({
      where: { id: row.id, status: 'pending', attempt: row.attempt },
      data: { ...outcome, waitingFor: null, terminalSeq: row.seqReserved + 1, completedAt: now, updatedAt: now },
    })
    if (!execution) return null
    if (by && !execution.wantsCancel) await auditCancel(tx, by, row.id, now)
    await also?.(tx, now)
    const begun = row.attempt > 0
    const steps = begun ? await loadSteps(tx, row.id) : []
    const abandoned = begun ? await abandon(tx, execution, now, by) : []
    const text = textOf(steps.at(-1)?.parts ?? [])
    const answers = steps.length > 0
    if (answers) {
      const open = { executionId: row.id, status: 'pending' as const }
      await tx.approval.updateMany({ where: open, data: { status: 'expired', decidedAt: now } })
      const replay = replayOf(steps, [], execution.model)
      const toolCalls = recordsOf(steps)
      await writeMessage(tx, execution, 'assistant', text, now, { interrupted: true, toolCalls, replay })
      await forgetSteps(tx, row.id)
    }
    const next = await release(tx, deps, execution, now, { text, messages: Number(begun) + Number(answers) })
    await deps.lockSettled(tx, execution)
    await deps.settle(tx, execution, now)
    return { execution, next, abandoned }
  })
}

const CHAT_STATUS = { completed: 'done', failed: 'error', cancelled: 'standby' } as const

/**
 * Hands the session's lock to the oldest pending run, or frees it, and adds the run's `messages` and last `text` to its
 * session and chat. Does nothing for a run that does not hold the lock: it has left no messages.
 */
async function release(
  tx: Tx,
  deps: ClaimDeps,
  ended: ExecutionRow,
  now: Date,
  { text, messages }: { text: string; messages: number },
): Promise<string | null> {
  const { sessionId: id, id: activeExecutionId, queueSeq: lastQueueSeq } = ended
  const left = { messageCount: { increment: messages }, updatedAt: now }
  // Whoever queues takes a number under the lock of the row: no later number, nobody waits.
  const { count } = await tx.session.updateMany({
    where: { id, activeExecutionId, lastQueueSeq },
    data: { ...left, activeExecutionId: null },
  })
  const next = count ? null : await findNext(tx, deps, ended)
  if (next === undefined) return null
  if (!count) {
    await tx.session.update({ where: { id }, data: { ...left, activeExecutionId: next }, select: { id: true } })
  }
  const where = { id: ended.chatId }
  const data = {
    status: next ? ('working' as const) : CHAT_STATUS[ended.status as keyof typeof CHAT_STATUS],
    ...(text && { lastMessage: beginning(text, PREVIEW_LENGTH) }),
    updatedAt: now,
  }
  // Most chats have one session. This sees others as they were before it waited for the chat's row; if a run has begun in
  // one of them meanwhile, that one is the chat's now.
  const others = { none: { id: { not: id }, activeExecutionId: { not: null } } }
  const alone = await tx.chat.updateMany({ where: { ...where, sessionId: id, sessions: others }, data })
  if (!alone.count) {
    const status = await chatStatus(tx, ended, data.status, now)
    await tx.chat.updateMany({ where, data: { ...data, status } })
  }
  return next
}

/**
 * Who waits for the lock that a run has, null where nobody does any more. Undefined where the run has no lock: which can
 * be told only with the session's row locked, since somebody may be handing it the lock just now.
 */
async function findNext(tx: Tx, { rowLock }: ClaimDeps, { id, sessionId }: ExecutionRow) {
  const [session] = await tx.$queryRaw<{ activeExecutionId: string | null }[]>(Prisma.sql`
    SELECT "activeExecutionId" FROM "Session" WHERE "id" = ${sessionId} ${rowLock}`)
  if (session?.activeExecutionId !== id) return undefined
  const where = { sessionId, status: 'pending' as const }
  return (await tx.execution.findFirst({ where, orderBy: { queueSeq: 'asc' }, select: { id: true } }))?.id ?? null
}
