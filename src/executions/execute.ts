import type { z } from 'zod'
import { findCached } from '../agents/agent-cache.ts'
import { fromVersion } from '../agents/rows.ts'
import { executable } from '../agents/visibility.ts'
import { type Actor, actorOf, hasExpired, permit, requireScope } from '../auth/actor.ts'
import { covers } from '../auth/scopes.ts'
import { ownSessions } from '../chats/messages.ts'
import { reachable as reachableChat } from '../chats/service.ts'
import type { Db, Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { cancelled, chatFailed, notFound, paused, unauthorized } from '../errors.ts'
import { checkAll as checkFiles } from '../files/service.ts'
import { findIdempotencyRecord, IdempotencyConflict } from '../idempotency.ts'
import { parseExact } from '../lib/exact-json.ts'
import { checkAll as checkMedia } from '../media/service.ts'
import { findOrDefault } from '../spaces/service.ts'
import { reachable as reachableSpace } from '../spaces/visibility.ts'
import type { Context } from '../trpc.ts'
import type { ErrorCode, StopReason } from '../wire.ts'
import type { ExecutionRow } from './engine/events/events.ts'
import type { Conversation, Overrides, Request } from './engine/queue/accept.ts'
import type { AgentRow } from './engine/queue/claims.ts'
import { warningsOf } from './engine/run/warnings.ts'
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

/**
 * Throws 403 for a token without `chats:read` that continues a session with messages of others, because the model reads
 * them and answers the caller. Sessions with only the caller's own messages, and their branches, are allowed.
 */
export async function checkHistory(
  actor: Actor,
  { db }: Deps,
  chatId: string,
  session: InBranches | null,
): Promise<void> {
  if (covers(actor.scopes, 'chats:read')) return
  const { organizationId, userId } = actor
  const root = session && rootOf(session)
  const ofSession = root ? { session: { OR: [{ id: root }, { rootSessionId: root }] } } : { sessionId: session?.id }
  const ofOthers = session
    ? await db.execution.findFirst({
        where: { organizationId, chatId, userId: { not: userId }, ...ofSession } as Prisma.ExecutionWhereInput,
        select: { id: true },
      })
    : await db.chat.findFirst({ where: { id: chatId, ownerId: { not: userId } }, select: { id: true } })
  if (ofOthers) requireScope(actor, 'chats:read')
}

/** Columns that determine whether a session has branches, or is one. */
export type InBranches = { id: string; rootSessionId: string | null; activeBranchId: string | null }

/** Returns the root session of all branches, or null for a session without branches. */
const rootOf = ({ id, rootSessionId, activeBranchId }: InBranches): string | null =>
  rootSessionId ?? (activeBranchId === null ? null : id)

/** Columns of a session for {@link activeOf}, and its place. */
const PLACE = {
  id: true,
  agentId: true,
  rootSessionId: true,
  activeBranchId: true,
  chat: { select: { id: true, spaceId: true } },
} as const

/** Returns the session itself, or its active branch. */
async function activeOf(actor: Actor, { db }: Deps, session: Prisma.SessionGetPayload<{ select: typeof PLACE }>) {
  const root = rootOf(session)
  if (!root) return session
  const of = root === session.id ? session : await db.session.findUnique({ where: { id: root }, select: PLACE })
  const id = of?.activeBranchId ?? root
  if (id === session.id) return session
  return (await db.session.findFirst({ where: { id, ...ownSessions(actor) }, select: PLACE })) ?? session
}

/** Finds the chat's active session, or the named one, if the caller may see it; of this agent, if one is named. */
export async function findSession(
  actor: Actor,
  deps: Deps,
  { agentId = null, sessionId = null, chatId = null }: { [Name in 'agentId' | 'sessionId' | 'chatId']?: string | null },
) {
  const found = await deps.db.session.findFirst({
    where: {
      ...(agentId !== null && { agentId }),
      ...(sessionId !== null && { id: sessionId }),
      ...(chatId !== null && { chatId }),
      chat: reachableChat(actor),
      ...ownSessions(actor),
    },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    select: PLACE,
  })
  return found && sessionId === null ? activeOf(actor, deps, found) : found
}

/** Finds the place of a new chat. Returns null for a run in an existing one. The promise may be abandoned. */
function findPlace(
  actor: Actor,
  deps: Deps,
  { spaceId = null, chatId = null, sessionId = null }: z.output<typeof Execute>,
): Promise<Conversation> | null {
  if (chatId !== null || sessionId !== null) return null
  const found = findOrDefault(actor, deps, spaceId).then((id) => ({ spaceId: id }))
  found.catch(() => {})
  return found
}

/**
 * Finds the existing conversation of a run. An empty id is unknown; ignoring it would put the run where others can read
 * it.
 */
async function findConversation(
  actor: Actor,
  deps: Deps,
  agent: AgentRow,
  { spaceId = null, chatId = null, sessionId = null }: z.output<typeof Execute>,
): Promise<Conversation> {
  const { db } = deps
  const session = await findSession(actor, deps, { agentId: agent.id, sessionId, chatId })
  const chatBy = (id: string) =>
    db.chat.findFirst({ where: { AND: [{ id }, reachableChat(actor)] }, select: { id: true, spaceId: true } })
  const chat = session?.chat ?? (chatId === null ? null : await chatBy(chatId))
  if (!session && sessionId !== null) throw notFound(chatId === null || chat ? 'Session' : 'Chat')
  if (!chat) throw notFound('Chat')
  if (spaceId !== null && spaceId !== chat.spaceId) throw notFound('Space')
  await checkHistory(actor, deps, chat.id, session)
  return { spaceId: chat.spaceId, chatId: chat.id, ...(session && { sessionId: session.id }) }
}

/**
 * Returns the agent of a run that is about to start or resume, if its user is still a member and may still run it;
 * otherwise the reason for the failure. A run starts with the agent's current version and resumes with that of its
 * start.
 */
export async function agentFor(db: Db, row: ExecutionRow): Promise<AgentRow | string> {
  const actor = await actorOf(db, row)
  const now = actor && (await db.agent.findFirst({ where: { AND: [{ id: row.agentId }, executable(actor)] } }))
  if (!now) return notFound('Agent').message
  const where = { id: row.spaceId, ...reachableSpace(actor) }
  if (!(await db.space.findFirst({ where, select: { id: true } }))) return notFound('Space').message
  const agent = row.attempt === 0 || row.agentVersion === now.version ? now : await agentThen(db, row)
  if (!row.missionId) return agent
  const mission = await db.mission.findUnique({ where: { id: row.missionId }, select: { maxTurns: true } })
  return { ...agent, maxTurns: mission?.maxTurns ?? agent.maxTurns }
}

/** Returns an agent at the version of a run. */
async function agentThen(db: Db, { agentId, agentVersion: version }: ExecutionRow): Promise<AgentRow> {
  const { agent } = await db.agentVersion.findUniqueOrThrow({ where: { agentId_version: { agentId, version } } })
  return fromVersion(agent)
}
