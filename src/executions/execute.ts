import type { z } from 'zod'
import { findCached } from '../agents/agent-cache.ts'
import { executable } from '../agents/visibility.ts'
import { type Actor, hasExpired, permit, requireScope } from '../auth/actor.ts'
import type { Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { cancelled, chatFailed, notFound, paused, unauthorized } from '../errors.ts'
import { checkAll as checkFiles } from '../files/service.ts'
import { findIdempotencyRecord, IdempotencyConflict } from '../idempotency.ts'
import { parseExact } from '../lib/exact-json.ts'
import { checkAll as checkMedia } from '../media/service.ts'
import type { Context } from '../trpc.ts'
import type { ErrorCode, StopReason } from '../wire.ts'
import type { ExecutionRow } from './engine/events/events.ts'
import type { AgentRow } from './engine/queue/claims.ts'
import type { Conversation, Overrides, Request } from './engine/queue/requests.ts'
import { warningsOf } from './engine/run/warnings.ts'
import { findConversation, findPlace } from './find-conversation.ts'
import type { Execute, Executed } from './schema.ts'
import { find } from './service.ts'

/** Context of a run request besides its input. */
export type ExecuteCall = Pick<Context, 'gone' | 'idempotency' | 'onAccepted' | 'authenticateAgain' | 'countRun'>

/** Options of a run beyond its message. */
export type ExecuteOptions = {
  /** The path that an Idempotency-Key belongs to. */
  path: string
  /** Request to compare an Idempotency-Key with, if it differs from the run's input. */
  request?: object
  taskId?: string
  /** The conversation, if it is known already. */
  conversation?: Conversation
  /** The agent, if it was found already. */
  agent?: AgentRow
  /** Texts, tools and settings of a client of another protocol. */
  client?: Overrides
  /** Attachments of a repeated message, unless the input names others. */
  attached?: { mediaIds: readonly string[]; files: readonly string[] }
  /** Further changes in the accepting transaction. An error rejects the run. */
  also?: (tx: Tx, executionId: string, now: Date) => Promise<void>
}

/**
 * POST /agents/{id}/execute: accepts the run and waits for its end unless it is streamed or in the background. Throws:
 * - 400 for a parent that is nested too deep,
 * - 403 for interrupting a run that the caller may not cancel, for a parent that is another user's run, and for a token
 *   without the scope of history that the model would read,
 * - 404 for an agent, space, chat, session or parent that the caller cannot use,
 * - 409 if the session is busy (`onBusy: reject`) or the run was cancelled,
 * - 422 for an Idempotency-Key of another request,
 * - 500 `Chat execution failed`.
 */
export async function executeAgent(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof Execute>,
  call: ExecuteCall,
  options?: ExecuteOptions,
): Promise<z.input<typeof Executed>> {
  const row = await accept(actor, deps, input, call, options)
  const { id: executionId, chatId, sessionId } = row
  const accepted = { executionId, chatId, sessionId }
  if (input.stream || input.background) return { ...accepted, status: row.status }
  const ended = await outcomeOf(actor, deps, row, call, input.onDisconnect)
  return {
    ...accepted,
    status: ended.status,
    result: ended.result ?? '',
    ...(ended.resultObject !== null && { resultObject: parseExact(ended.resultObject) }),
    warnings: warningsOf(ended),
    stopReason: ended.stopReason as StopReason | null,
  }
}

/** Accepts a run, and returns it. Throws the errors of {@link executeAgent} up to the acceptance. */
export async function accept(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof Execute>,
  call: Pick<ExecuteCall, 'idempotency' | 'onAccepted' | 'countRun'>,
  options?: ExecuteOptions,
): Promise<ExecutionRow> {
  // Together, they are one round trip to PostgreSQL.
  const finding = options?.conversation ? null : findPlace(actor, deps, input)
  const agent = options?.agent ?? (await findCached(deps, input.id, executable(actor)))
  if (!agent) throw notFound('Agent')
  const row = await acceptOnce(actor, deps, agent, input, call, { ...options, finding })
  call.onAccepted?.(row, actor)
  return row
}

/**
 * Waits for the end of an accepted run, and returns it as it is then, or when its caller has gone. Throws 409 for a
 * cancelled run, 500 for a failed one, and 401 or 403 if the caller's access ends.
 */
export async function outcomeOf(
  actor: Actor,
  deps: Deps,
  row: ExecutionRow,
  call: Pick<ExecuteCall, 'gone' | 'authenticateAgain'>,
  onDisconnect?: 'continue' | 'cancel' | null,
): Promise<ExecutionRow> {
  const ended = await waitForEnd(actor, deps, row, call)
  if (ended.terminalSeq === null && onDisconnect === 'cancel') await deps.engine.cancel(ended, actor)
  if (ended.status === 'cancelled') throw cancelled(row.id)
  if (ended.status === 'failed') throw failureOf(ended)
  return ended
}

/** Returns the 500 of a failed run with its error (contract-2.md section 1.2). */
const failureOf = ({ id: executionId, error, errorCode }: ExecutionRow) =>
  chatFailed({
    executionId,
    code: (errorCode as ErrorCode | null) ?? 'internal',
    ...(error !== null && { detail: error }),
  })

/** Made once: without a reason each `abort()` makes an error with a stack. */
const WAIT_OVER = new Error('The wait is over')

/**
 * Waits until the run has ended or the caller has disconnected. Throws 401 or 403 if the caller's access ends
 * meanwhile, so that a revoked token receives no result.
 */
async function waitForEnd(
  actor: Actor,
  deps: Deps,
  row: ExecutionRow,
  { gone, authenticateAgain }: Pick<ExecuteCall, 'gone' | 'authenticateAgain'>,
): Promise<ExecutionRow> {
  const left = gone()
  for (let caller = actor; ; ) {
    const access = new AbortController()
    const lost = deps.revocations.watch(caller, access)
    try {
      const found = await deps.engine.ended(row, left, lost)
      if (!lost.aborted) return found
    } finally {
      access.abort(WAIT_OVER)
    }
    if (!caller.tokenId && !caller.sessionId)
      throw unauthorized(hasExpired(caller, deps.clock.now()) ? 'Token expired' : 'Invalid or expired token')
    // A caller with a new role continues to wait.
    caller = await authenticateAgain()
  }
}

type Accepting = Partial<ExecuteOptions> & { finding: Promise<Conversation> | null }

/**
 * Returns the run of this request: a new one, which counts towards the rate limit of runs, or the one bound to its
 * Idempotency-Key, unless that has failed (contract.md section 1).
 */
async function acceptOnce(
  actor: Actor,
  deps: Deps,
  agent: AgentRow,
  input: z.output<typeof Execute>,
  { idempotency: header, countRun }: Pick<ExecuteCall, 'idempotency' | 'countRun'>,
  options: Accepting,
): Promise<ExecutionRow> {
  const { idempotencyKey, ...rest } = input
  const path = options.path ?? `/api/v1/agents/${agent.id}/execute`
  const key = header ?? (idempotencyKey ? { key: idempotencyKey, method: 'POST', path, replayed: false } : null)
  const request = await requestOf(actor, deps, agent, input, options)
  // Only a run in the background can wait for the end of a pause.
  if (deps.pause.isPaused() && !input.background) throw paused()
  if (!key) {
    await countRun?.(actor)
    return deps.engine.accept({ ...request, key: null })
  }
  for (let tries = 1; ; tries++) {
    const { record, claim } = await findIdempotencyRecord(actor, deps, { ...key, path }, options.request ?? rest)
    const bound = record?.executionId
      ? await deps.db.execution.findUniqueOrThrow({ where: { id: record.executionId } })
      : null
    if (bound && bound.status !== 'failed') {
      key.replayed = true
      return bound
    }
    if (tries === 1) await countRun?.(actor)
    try {
      return await deps.engine.accept({ ...request, key: claim })
    } catch (error) {
      if (!(error instanceof IdempotencyConflict)) throw error
    }
  }
}

/** Returns the request to accept, after it has checked the attachments, the conversation and the parent that it names. */
async function requestOf(
  actor: Actor,
  deps: Deps,
  agent: AgentRow,
  input: z.output<typeof Execute>,
  options: Accepting,
): Promise<Omit<Request, 'key'>> {
  const { parentExecutionId = null } = input
  const mediaIds = input.mediaIds ?? []
  const files = input.files ?? []
  if (mediaIds.length) requireScope(actor, 'media:read')
  await checkMedia(actor, deps, mediaIds)
  const conversation =
    options.conversation ?? (await options.finding) ?? (await findConversation(actor, deps, agent, input))
  if (files.length) {
    requireScope(actor, 'spaces:read')
    await checkFiles(deps, conversation.spaceId, files)
  }
  return {
    actor,
    agent,
    message: input.message,
    mediaIds: input.mediaIds ?? options.attached?.mediaIds ?? [],
    files: input.files ?? options.attached?.files ?? [],
    model: input.model ?? null,
    overrides: {
      ...(input.modelSettings && { modelSettings: input.modelSettings }),
      ...(input.fallbackModels && { fallbackModels: input.fallbackModels }),
      ...(input.output && { output: input.output }),
      ...options.client,
    },
    conversation,
    onBusy: input.onBusy ?? 'queue',
    parent: parentExecutionId === null ? null : await findParent(actor, deps, parentExecutionId),
    taskId: options.taskId ?? null,
    mission: null,
    also: options.also ?? null,
  }
}

/** Finds the parent of a new run. Only its own user may attach runs, because the size of a tree is limited. */
async function findParent(actor: Actor, deps: Deps, id: string): Promise<ExecutionRow> {
  const parent = await find(actor, deps, id)
  return permit(parent, parent.userId === actor.userId)
}
