import { setImmediate as nextTurn } from 'node:timers/promises'
import { Prisma, type Tx } from '../../../db/client.ts'
import { expectsOne } from '../../../db/fast-path/index.ts'
import { isUnexpectedCount } from '../../../lib/database-errors.ts'
import { beginningWhole } from '../../../lib/text.ts'
import type { ErrorCode, StopReason } from '../../../wire.ts'
import { type ExecutionEvent, type ExecutionRow, storeLast, textOf, type Warning } from '../events/events.ts'
import { type CallRecord, forgetSteps, loadSteps, reasoningOf, recordsOf, replayOf } from '../run/steps.ts'
import { toColumn } from '../run/warnings.ts'
import { type Also, abandon, auditCancel, type Canceller } from './cancel-marks.ts'
import { chatStatus } from './chat-status.ts'
import { type ClaimDeps, PREVIEW_LENGTH, writeMessage } from './claims.ts'
import { giveSlotBack } from './concurrency.ts'
import type { RunRef } from './tree.ts'

// The transactions that end a run. Lock order: see claims.ts.

export type Outcome =
  | {
      status: 'completed'
      result: string
      /** JSON text of the parsed result of a run with an output schema. */
      resultObject?: string
      stopReason: StopReason
    }
  | { status: 'failed'; error: string; errorCode: ErrorCode; stopReason: StopReason }
  | { status: 'cancelled'; stopReason: 'cancelled' }

export const CANCELLED = { status: 'cancelled', stopReason: 'cancelled' } as const

/** Final state of a run beside its outcome. */
export type FinalState = {
  /** Text of the last step, possibly incomplete. */
  text: string
  /** Tool calls as recorded in the history. */
  toolCalls: readonly CallRecord[]
  model: string | null
  /** Models that were tried or skipped before `model`. */
  modelsTried: readonly string[]
  usage: { inputTokens: number; outputTokens: number; usageEstimated: boolean }
  warnings: readonly Warning[]
  /** Steps that later turns replay to the model, see {@link replayOf}. */
  replay: string | null
  /** Reasoning for people, see {@link reasoningOf}. */
  reasoning: string | null
  events: readonly Extract<ExecutionEvent, { event: 'message' }>[]
  /** Whether the events may already be stored, because a transaction failed after it may have committed. */
  mayBeStored: boolean
  terminalSeq: number
  /** Whether the stored events consist of many small segments. */
  scattered: boolean
}

export type Ended = {
  execution: ExecutionRow
  /** The pending run that now holds the session's lock. */
  next: string | null
  /** Delegates of its open calls, marked for cancellation. */
  abandoned: readonly ExecutionRow[]
  /** Ids of the approvals that cannot be decided any more. */
  expired?: readonly string[]
}

/** Maximum length of a text that is written without yielding to other requests afterwards (characters). */
const MAX_WITHOUT_TURN = 256 * 1024

/**
 * Writes the final state, fenced by the attempt: status, last events, answer, and the session's lock for the next run.
 * Returns null if another process took the run over, or if the run is marked for cancellation and `outcome` differs.
 */
export async function finish(
  deps: ClaimDeps,
  row: ExecutionRow,
  outcome: Outcome,
  final: FinalState,
): Promise<Ended | null> {
  const now = deps.clock.now()
  const completed = outcome.status === 'completed'
  const changes = {
    ...outcome,
    ...final.usage,
    model: final.model,
    warnings: toColumn(final.warnings),
    modelsTried: [...final.modelsTried],
    terminalSeq: final.terminalSeq,
    completedAt: now,
    updatedAt: now,
    leaseOwner: null,
    leaseUntil: null,
  }
  const execution: ExecutionRow = { ...row, ...changes }
  const write = (expecting: Expecting) =>
    deps.db.$transaction(async (tx) => {
      const { count } = await tx.execution.updateMany(
        expecting({
          where: {
            id: row.id,
            attempt: row.attempt,
            status: 'running' as const,
            ...(outcome.status !== 'cancelled' && { wantsCancel: false }),
          },
          data: changes,
        }),
      )
      if (!count) return null
      // Each write of megabytes blocks the event loop: other requests get a turn between two of them.
      const isLong = final.text.length > MAX_WITHOUT_TURN
      if (isLong) await nextTurn()
      const abandoned = completed ? [] : await abandon(tx, row, now)
      const messages = await storeAnswer(tx, execution, final, now)
      if (isLong) await nextTurn()
      // A run that did not complete may have stored steps although `toolCalls` is empty.
      if (!completed || final.toolCalls.length) await forgetSteps(tx, row.id)
      const next = await release(tx, deps, execution, now, { text: final.text, messages }, expecting)
      for (const hooks of deps.runHooks) await hooks.lockForRunEnded?.(tx, deps, execution)
      await giveSlotBack(tx, deps, row.organizationId)
      for (const hooks of deps.runHooks) await hooks.onRunEnded(tx, execution, now)
      return { execution, next, abandoned }
    })
  // Usually nothing waits behind a run that completed, and its chat has one session.
  if (!completed) return write(asItIs)
  return write(expectsOne).catch((error) => {
    if (isUnexpectedCount(error)) return write(asItIs)
    throw error
  })
}

/** Writes the last events and the answer, if there is one. Returns the number of messages of the run. */
async function storeAnswer(tx: Tx, execution: ExecutionRow, final: FinalState, now: Date): Promise<1 | 2> {
  await storeLast(tx, execution.id, now, final)
  const { text, toolCalls, replay, reasoning } = final
  const interrupted = execution.status !== 'completed'
  if (interrupted && text === '' && !toolCalls.length) return 1
  await writeMessage(tx, execution, 'assistant', text, now, { interrupted, toolCalls, replay, reasoning })
  return 2
}

/** Marks updates whose result is expected, or leaves them as they are. */
type Expecting = <Call extends object>(call: Call) => Call

const asItIs: Expecting = (call) => call

/**
 * Ends a run that has not started or waits for an approval. Returns null if it started or ended meanwhile. `by` is
 * audited as the canceller unless the run was marked before.
 */
export async function finishPending(
  deps: ClaimDeps,
  row: RunRef,
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
    // Its chat has the question with the reason. Behind another run it would stand before that run's answer, so that
    // run writes it (release).
    const isRefused =
      !begun && outcome.status === 'failed' && (await lockSession(tx, deps, execution)).holder === row.id
    if (isRefused) await writeMessage(tx, execution, 'user', execution.message, now)
    const abandoned = begun ? await abandon(tx, execution, now, by) : []
    const { text, hasAnswer, expired } = begun ? await writePartialAnswer(tx, execution, now) : NO_ANSWER
    const messages = Number(begun || isRefused) + Number(hasAnswer)
    const next = await release(tx, deps, execution, now, { text, messages })
    for (const hooks of deps.runHooks) await hooks.lockForRunEnded?.(tx, deps, execution)
    for (const hooks of deps.runHooks) await hooks.onRunEnded(tx, execution, now)
    return { execution, next, abandoned, expired }
  })
}

/** Texts and approvals that a run has left before it waited. */
type PartialAnswer = { text: string; hasAnswer: boolean; expired: readonly string[] }

const NO_ANSWER: PartialAnswer = { text: '', hasAnswer: false, expired: [] }

/** Writes the steps of a run that waited as its answer, and lets its approvals expire. */
async function writePartialAnswer(tx: Tx, execution: ExecutionRow, now: Date): Promise<PartialAnswer> {
  const { id: executionId, model } = execution
  const steps = await loadSteps(tx, executionId)
  if (!steps.length) return NO_ANSWER
  const closed = await tx.approval.updateManyAndReturn({
    where: { executionId, status: 'pending' },
    data: { status: 'expired', decidedAt: now },
    select: { id: true },
  })
  const text = textOf(steps.at(-1)?.parts ?? [])
  await writeMessage(tx, execution, 'assistant', text, now, {
    interrupted: true,
    toolCalls: recordsOf(steps),
    replay: replayOf(steps, [], model),
    reasoning: reasoningOf(steps, []),
  })
  await forgetSteps(tx, executionId)
  return { text, hasAnswer: true, expired: closed.map(({ id }) => id) }
}

const CHAT_STATUS = { completed: 'done', failed: 'error', cancelled: 'standby' } as const

/**
 * Passes the session's lock to the oldest pending run, or frees it, and adds the run's `messages` and last `text` to
 * its session and chat. Writes the questions of runs that failed while they waited for it. Does nothing for a run that
 * does not hold the lock: it has left no messages.
 */
async function release(
  tx: Tx,
  deps: ClaimDeps,
  ended: ExecutionRow,
  now: Date,
  { text, messages }: { text: string; messages: number },
  expecting: Expecting = asItIs,
): Promise<string | null> {
  const { sessionId: id, id: activeExecutionId, queueSeq: lastQueueSeq } = ended
  const left = (more = 0) => ({ messageCount: { increment: messages + more }, updatedAt: now })
  // A run that queues takes its number under the row's lock, so an unchanged number means that no run waits.
  const { count } = await tx.session.updateMany(
    expecting({
      where: { id, activeExecutionId, lastQueueSeq },
      data: { ...left(), activeExecutionId: null },
    }),
  )
  const waiting = count ? NO_OTHERS : await findWaiting(tx, deps, ended)
  if (!waiting) return null
  const { next, refused } = waiting
  if (!count) {
    for (const row of refused) await writeMessage(tx, row, 'user', row.message, now)
    const data = { ...left(refused.length), activeExecutionId: next }
    await tx.session.update({ where: { id }, data, select: { id: true } })
  }
  const where = { id: ended.chatId }
  const data = {
    status: next ? ('working' as const) : CHAT_STATUS[ended.status as keyof typeof CHAT_STATUS],
    ...(text && { lastMessage: beginningWhole(text, PREVIEW_LENGTH) }),
    updatedAt: now,
  }
  // Most chats have one session. The subquery sees other sessions as they were before this statement waited for the
  // chat's row. If a run has started in one of them meanwhile, the chat belongs to that run.
  const others = { none: { id: { not: id }, activeExecutionId: { not: null } } }
  const withSession = await tx.chat.updateMany(
    expecting({ where: { ...where, sessionId: id, sessions: others }, data }),
  )
  if (!withSession.count) {
    const status = await chatStatus(tx, ended, data.status, now)
    await tx.chat.updateMany({ where, data: { ...data, status } })
  }
  return next
}

/** Runs that wait for a session: the next one, and those before it that failed while they waited. */
type Waiting = { next: string | null; refused: readonly ExecutionRow[] }

const NO_OTHERS: Waiting = { next: null, refused: [] }

/**
 * Finds the runs behind a run. Returns null if it does not hold the session's lock. The session's row is locked first,
 * because another transaction may be passing the lock to this run.
 */
async function findWaiting(
  tx: Tx,
  deps: ClaimDeps,
  { id, sessionId, queueSeq }: ExecutionRow,
): Promise<Waiting | null> {
  const { holder, lastQueueSeq } = await lockSession(tx, deps, { sessionId })
  if (holder !== id) return null
  const pending = { sessionId, status: 'pending' as const }
  const select = { id: true, queueSeq: true } as const
  const orderBy = { queueSeq: 'asc' as const }
  const next = await tx.execution.findFirst({ where: pending, orderBy, select })
  const end = next?.queueSeq ?? lastQueueSeq + 1
  const between = { sessionId, queueSeq: { gt: queueSeq, lt: end }, status: 'failed' as const }
  const refused = end > queueSeq + 1 ? await tx.execution.findMany({ where: between, orderBy }) : []
  return { next: next?.id ?? null, refused }
}

/** Locks a session's row. Returns the run that holds the session's lock, if any, and the latest queue number. */
async function lockSession(tx: Tx, { rowLock }: ClaimDeps, { sessionId }: Pick<ExecutionRow, 'sessionId'>) {
  const [session] = await tx.$queryRaw<
    { activeExecutionId: string | null; lastQueueSeq: number | bigint }[]
  >(Prisma.sql`
    SELECT "activeExecutionId", "lastQueueSeq" FROM "Session" WHERE "id" = ${sessionId} ${rowLock}`)
  return { holder: session?.activeExecutionId, lastQueueSeq: Number(session?.lastQueueSeq) }
}
