import type { JSONSchema7 } from '@ai-sdk/provider'
import type { Actor } from '../../../auth/actor.ts'
import { audit } from '../../../auth/audit.ts'
import { toColumn } from '../../../auth/scopes.ts'
import type { Prisma, Tx } from '../../../db/client.ts'
import { conflict, notFound, sessionBusy } from '../../../errors.ts'
import { type KeyClaim, takeClaim } from '../../../idempotency.ts'
import { newSortableId, newTimedId } from '../../../lib/id.ts'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Output } from '../../../lib/output.ts'
import { searchedIn } from '../../../lib/search.ts'
import { beginningWhole, toTitle } from '../../../lib/text.ts'
import type { Fields } from '../../../lib/unknown.ts'
import { type ExecutionRow, META_SEQ } from '../events/events.ts'
import { chatStatus } from './chat-status.ts'
import { type AgentRow, begun, type ClaimDeps, PREVIEW_LENGTH, writeMessage } from './claims.ts'
import { type GivenTurn, messagesOf, writeGiven } from './client-history.ts'
import { checkBacklog, takeSlot } from './concurrency.ts'
import { holdParent } from './tree.ts'

// The transaction that accepts a run. Lock order: see claims.ts.

/**
 * Place of a run: an existing session, a new session or branch of an existing chat, or a new chat in a space. `given`:
 * the history of a new session or branch, as its client has it.
 */
export type Conversation = {
  spaceId: string
  chatId?: string
  sessionId?: string
  branch?: Branch
  given?: readonly GivenTurn[]
}

/**
 * A session that replaces another one from a turn on (contract-2.md section 1.12). Its turns continue the numbering of
 * the other session, so that each position occurs once on the path from the first turn.
 */
export type Branch = {
  /** Id of the session that is branched. */
  of: string
  rootSessionId: string
  parentSessionId: string | null
  parentPosition: number | null
  /** Queue number of the branch's first run. */
  queueSeq: number
  wasPrivate: boolean
  /** Whether the branch does not become the active one before it is continued. */
  isAside?: boolean
}

/** Maximum number of sessions in a chat that has branches. */
const MAX_BRANCHES = 2_000

/** A run request whose permissions have been checked. */
export type Request = {
  actor: Actor
  agent: AgentRow
  message: string
  mediaIds: readonly string[]
  /** Paths of files of the space. */
  files?: readonly string[]
  /** Model chosen by the caller. */
  model: string | null
  /** Settings, fallback models and output chosen by the caller. */
  overrides: Overrides
  conversation: Conversation
  onBusy: 'queue' | 'reject' | 'interrupt'
  parent: ExecutionRow | null
  /** The Idempotency-Key of the request. */
  key: KeyClaim | null
  /** The task that the run works on. */
  taskId: string | null
  /** The mission that started the run. Its chat refers to it too. */
  mission: { id: string; title: string; runNumber: number } | null
  /** Set if a parent run waits for this one and holds a slot meanwhile. Such a run starts regardless of capacity. */
  delegated?: true
  /** Takes the locks that must precede all others in the accepting transaction. */
  first?: (tx: Tx) => Promise<void>
  /** Further changes in the accepting transaction. An error rejects the run. */
  also: ((tx: Tx, executionId: string, now: Date) => Promise<void>) | null
}

/** A request with a resolved model name (contract-2.md section 1.20). */
export type NamedRequest = Request & { modelName: string }

/**
 * Thrown if another request started a run in the session, or a session in the chat, since the interrupt. The caller
 * retries.
 */
export class SessionTaken extends Error {
  override name = 'SessionTaken'
  readonly sessionId: string
  constructor(sessionId: string) {
    super()
    this.sessionId = sessionId
  }
}

/** Choices of the caller, which override those of the agent (contract-2.md sections 2.2, 2.3 and 2.5). */
export type Overrides = {
  modelSettings?: ModelSettings
  fallbackModels?: string[]
  output?: Output
  /** Texts of the client that follow the agent's prompt (contract-2.md section 6). */
  instructions?: string
  /** Parts of the request that the client's protocol repeats. */
  echo?: Fields
  /** Function tools that the client calls itself. */
  clientTools?: ClientTool[]
  /** The one of these that the first step has to call. `modelSettings.toolChoice` is then `required`. */
  demandedTool?: string
}

/** A tool of a client (contract-2.md section 6.2). */
export type ClientTool = {
  name: string
  description: string
  parameters: JSONSchema7
  /** The format of the text that a custom tool takes. The text is the property `input` of a call. */
  format?: { type: string }
  /** The client's group of the tool, with which the name begins. */
  namespace?: string
  /** Whether the client offers it no longer. The run has earlier calls of it. */
  isFormer?: true
}

const TITLE_LENGTH = 80
const MISSION_TITLE_LENGTH = 200
/** Title of a chat whose first message has no visible text. */
const NO_TITLE = 'New chat'

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

/**
 * Adds a run to its session, and takes the session's lock if it is free. Creates the session and the chat if they are
 * new. Returns the row with its session and queue number. Throws 404 for a deleted chat, 409 for `onBusy: reject` and
 * for too many branches, and SessionTaken.
 */
async function joinConversation(tx: Tx, request: NamedRequest, fresh: ExecutionRow, now: Date) {
  const { agent, conversation, onBusy } = request
  const { id, organizationId, chatId } = fresh
  const { branch } = conversation
  const known =
    conversation.sessionId ??
    (!branch &&
      conversation.chatId &&
      (await latestSession(tx, { organizationId, chatId, wasPrivate: fresh.wasPrivate }, agent.id, now)))
  if (!conversation.chatId) await createChat(tx, request, fresh, now)
  if (branch) await checkBranch(tx, branch, fresh, onBusy)
  const joined = known ? await takeQueueNumber(tx, known, onBusy, now) : null
  const { free: isFree, queueSeq } = joined ?? { free: true, queueSeq: branch?.queueSeq ?? fresh.queueSeq }
  const row = { ...fresh, sessionId: known || fresh.sessionId, queueSeq }
  if (!known) await createSession(tx, row, now, conversation)
  else if (isFree) {
    await tx.session.update({ where: { id: known }, data: { activeExecutionId: id }, select: { id: true } })
  }
  const rootSessionId = branch?.rootSessionId ?? joined?.rootSessionId
  if (rootSessionId && !branch?.isAside) await activate(tx, rootSessionId, row.sessionId)
  if (conversation.chatId) await joinChat(tx, fresh, row.sessionId, now, branch && { isBranched: true })
  if (row.wasPrivate && conversation.chatId) await closeToOthers(tx, row)
  return { row, isFree }
}

/** Throws 409 for `onBusy: reject` while a run is active in the branched session, and for too many branches. */
async function checkBranch(
  tx: Tx,
  { of }: Branch,
  { organizationId, chatId }: ExecutionRow,
  onBusy: Request['onBusy'],
) {
  if (onBusy === 'reject') {
    const session = await tx.session.findUnique({ where: { id: of }, select: { activeExecutionId: true } })
    if (session?.activeExecutionId) throw sessionBusy()
  }
  if ((await tx.session.count({ where: { organizationId, chatId } })) >= MAX_BRANCHES) {
    const detail = `A chat can have at most ${MAX_BRANCHES} sessions and branches. Start a new chat.`
    throw conflict('Chat has too many branches', { detail })
  }
}

/** Makes the session the active branch. Sessions are locked before their root sessions. */
const activate = (tx: Tx, rootSessionId: string, sessionId: string) =>
  tx.session.updateMany({
    where: { id: rootSessionId, OR: [{ activeBranchId: null }, { activeBranchId: { not: sessionId } }] },
    data: { activeBranchId: sessionId },
  })

/** Columns that a new chat and a new session copy from their first run. */
const ownedBy = ({ organizationId, agentId, agentOrganizationId, wasPrivate }: ExecutionRow, now: Date) => ({
  organizationId,
  agentId,
  agentOrganizationId,
  wasPrivate,
  createdAt: now,
  updatedAt: now,
})

/** Returns the title of a chat that begins with a message. */
export const chatTitleOf = (message: string): string => toTitle(message, TITLE_LENGTH) ?? NO_TITLE

async function createChat(tx: Tx, request: NamedRequest, row: ExecutionRow, now: Date): Promise<void> {
  const { mission, conversation } = request
  // Agent clients begin with messages about their surroundings, which have no answer.
  const message = conversation.given?.find((turn) => turn.message && turn.answer)?.message ?? request.message
  const { chatId: id, spaceId, sessionId, userId: ownerId } = row
  const title = mission ? (toTitle(mission.title, MISSION_TITLE_LENGTH) ?? NO_TITLE) : chatTitleOf(message)
  const run = mission && { missionId: mission.id, runNumber: mission.runNumber }
  const data = { id, spaceId, sessionId, ownerId, title, ...searchedIn(title), status: 'working' as const }
  await tx.chat.createMany({ data: { ...data, ...run, ...ownedBy(row, now) } })
}

/** Creates the session with its lock taken by the run. */
async function createSession(
  tx: Tx,
  row: ExecutionRow,
  now: Date,
  { branch, given = [] }: Pick<Conversation, 'branch' | 'given'>,
): Promise<void> {
  const { sessionId: id, chatId, userId, id: activeExecutionId, queueSeq: lastQueueSeq } = row
  const messageCount = given.length ? given.flatMap(messagesOf).length : 0
  const data = { id, chatId, userId, activeExecutionId, lastQueueSeq, messageCount, ...ownedBy(row, now) }
  if (!branch) return void (await tx.session.createMany({ data }))
  const { rootSessionId, parentSessionId, parentPosition } = branch
  // A session that continues a private one contains its private messages.
  const wasPrivate = row.wasPrivate || branch.wasPrivate
  await tx.session.createMany({ data: { ...data, rootSessionId, parentSessionId, parentPosition, wasPrivate } })
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

/**
 * Returns the session that a chat's next message belongs to, if there is one. The chat's row lock makes the second of
 * two concurrent first messages join the first one's session. The chat's lock is never held while waiting for a
 * session, because ending a run locks the session before the chat.
 */
async function latestSession(
  tx: Tx,
  { wasPrivate, ...chat }: Pick<ExecutionRow, 'organizationId' | 'chatId' | 'wasPrivate'>,
  agentId: string,
  now: Date,
): Promise<string | undefined> {
  // Once the agent is shared, its private sessions belong to its owner, who must name them explicitly.
  const where = { ...chat, agentId, ...(!wasPrivate && { wasPrivate }) }
  const find = async () => {
    const orderBy = [{ createdAt: 'desc' as const }, { id: 'desc' as const }]
    return (await tx.session.findFirst({ where, orderBy, select: { id: true } }))?.id
  }
  const found = await find()
  if (found) return found
  await tx.chat.update({ where: { id: chat.chatId }, data: { updatedAt: now }, select: { id: true } })
  const begun = await find()
  if (begun) throw new SessionTaken(begun)
  return undefined
}

/**
 * Moves a chat on to this session unless the chat was deleted. Keeps the chat's status if a run in it waits for an
 * approval.
 */
async function joinChat(
  tx: Tx,
  row: ExecutionRow,
  sessionId: string,
  now: Date,
  also: { isBranched?: true } = {},
): Promise<void> {
  const where = { id: row.chatId, archivedAt: null }
  const data = { status: 'working' as const, sessionId, closedAt: null, updatedAt: now, ...also }
  const usual = await tx.chat.updateMany({ where: { ...where, status: { not: 'needs_attention' } }, data })
  if (usual.count) return
  const status = await chatStatus(tx, row, 'working', now)
  const { count } = await tx.chat.updateMany({ where, data: { ...data, status } })
  if (!count) throw notFound('Chat')
}

/**
 * Keeps messages of a private agent visible to its owner only, even after the agent is shared (contract-2.md section
 * 8.6).
 */
async function closeToOthers(tx: Tx, { chatId, sessionId, agentId }: ExecutionRow): Promise<void> {
  const data = { wasPrivate: true }
  await tx.session.updateMany({ where: { id: sessionId, wasPrivate: false }, data })
  await tx.chat.updateMany({ where: { id: chatId, agentId, wasPrivate: false }, data })
}

/** Takes a number in the session's queue. This locks the session's row until the transaction ends. */
async function takeQueueNumber(tx: Tx, id: string, onBusy: Request['onBusy'], now: Date) {
  const { activeExecutionId, lastQueueSeq, rootSessionId, activeBranchId } = await tx.session.update({
    where: { id },
    data: { lastQueueSeq: { increment: 1 }, updatedAt: now },
    select: { activeExecutionId: true, lastQueueSeq: true, rootSessionId: true, activeBranchId: true },
  })
  if (activeExecutionId && onBusy === 'reject') throw sessionBusy()
  if (activeExecutionId && onBusy === 'interrupt') {
    const where = { sessionId: id, status: { in: ['pending' as const, 'running' as const] }, wantsCancel: false }
    if (await tx.execution.findFirst({ where, select: { id: true } })) throw new SessionTaken(id)
  }
  // A session without branches has none to activate.
  const root = rootSessionId ?? (activeBranchId === null ? null : id)
  return { free: activeExecutionId === null, queueSeq: lastQueueSeq, rootSessionId: root }
}
