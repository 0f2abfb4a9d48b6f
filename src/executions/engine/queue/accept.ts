import { setImmediate } from 'node:timers/promises'
import type { Actor } from '../../../auth/actor.ts'
import { audit } from '../../../auth/audit.ts'
import { toColumn } from '../../../auth/scopes.ts'
import type { Prisma, Tx } from '../../../db/client.ts'
import { conflict, notFound } from '../../../errors.ts'
import { type KeyClaim, take } from '../../../idempotency.ts'
import { newSortableId, newTimedId } from '../../../lib/id.ts'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import { beginning, toTitle } from '../../../lib/text.ts'
import { type ExecutionRow, META_SEQ } from '../events/events.ts'
import { chatStatus } from './chat-status.ts'
import { type AgentRow, begun, type ClaimDeps, PREVIEW_LENGTH, writeMessage } from './claims.ts'
import { checkBacklog, takeSlot } from './concurrency.ts'
import { holdParent } from './tree.ts'

// The transaction that accepts a run. It takes its locks in the order that claims.ts tells.

/** Where a run belongs: an existing session, a new session or branch of an existing chat, or a new chat in a space. */
export type Conversation = { spaceId: string; chatId?: string; sessionId?: string; branch?: Branch }

/**
 * A session that is to take the place of another one from a turn on (contract-2.md section 1.12). Its turns have the
 * numbers that they would have in the other one, so that a position is there once on the way from the first turn.
 */
export type Branch = {
  /** The session that it is a branch of. */
  of: string
  rootSessionId: string
  parentSessionId: string | null
  parentPosition: number | null
  /** Of its first run. */
  queueSeq: number
  wasPrivate: boolean
}

/** The maximum number of sessions of a chat that has branches. */
const MAX_BRANCHES = 2_000

/** A run that may be: who may not, or may not see, does not get here. */
export type Request = {
  actor: Actor
  agent: AgentRow
  message: string
  mediaIds: readonly string[]
  /** The caller's choice of a model. */
  model: string | null
  /** The caller's choice of settings and fallback models. */
  overrides: Overrides
  conversation: Conversation
  onBusy: 'queue' | 'reject' | 'interrupt'
  parent: ExecutionRow | null
  /** The Idempotency-Key that is bound to it. */
  key: KeyClaim | null
  /** The task that it works on. */
  taskId: string | null
  /** The mission whose run it is; its chat says so too. */
  mission: { id: string; title: string; runNumber: number } | null
  /** A run waits for it, and holds a place meanwhile: it begins however many are on. */
  delegated?: true
  /** Takes locks that are to be had before all others, in the transaction that accepts it. */
  first?: (tx: Tx) => Promise<void>
  /** What else happens in the transaction that accepts it; throwing refuses the run. */
  also: ((tx: Tx, executionId: string, now: Date) => Promise<void>) | null
}

/** A request whose model is named (contract-2.md section 1.20). */
export type NamedRequest = Request & { modelName: string }

/** Somebody else has begun a run in the session since it was interrupted, or a session in the chat: look again. */
export class SessionTaken extends Error {
  override name = 'SessionTaken'
  readonly sessionId: string
  constructor(sessionId: string) {
    super()
    this.sessionId = sessionId
  }
}

/** The settings and fallback models of a run that beat those of its agent (contract-2.md sections 2.2 and 2.3). */
export type Overrides = { modelSettings?: ModelSettings; fallbackModels?: string[] }

const TITLE_LENGTH = 80
const MISSION_TITLE_LENGTH = 200
/** The title of a chat that begins with nothing visible. */
const NO_TITLE = 'New chat'

/**
 * The one transaction in which a run is accepted. Where its session is free it takes the session's lock, and is claimed
 * by this process if it `hasRoom`; otherwise it waits as `pending`, in the order of `queueSeq`.
 * `onBegun` is told of a run that begins a session, so that the model can be asked meanwhile: at once of one that nothing
 * here can refuse, of another when all that is left to do is to write it to the disk. It may be told twice, and of a run
 * that then is not accepted. One that goes on with a session could not read yet what was said before.
 * Throws 400 for a child that would lie too deep, 404 for a deleted chat, 409 for `onBusy: reject`, for a child of a
 * cancelled run and for one too many of a tree, 429 beyond the backlog, KeyTaken and SessionTaken.
 */
export async function accept(
  deps: ClaimDeps,
  request: NamedRequest,
  hasRoom: boolean,
  onBegun: (row: ExecutionRow) => void,
): Promise<ExecutionRow> {
  const { actor, key, parent } = request
  const now = deps.clock.now()
  const fresh = rowOf(request, newTimedId('exec', now), request.conversation.chatId ?? newSortableId(now), now)
  const { id } = fresh
  const launched = hasRoom && cannotBeRefused(deps, request) ? begun(deps, fresh, now) : null
  if (launched) {
    onBegun(launched)
    // Whoever else comes in this turn of the event loop asks a model, too, before anything is written.
    await setImmediate()
  }
  return deps.db.$transaction(async (tx) => {
    await request.first?.(tx)
    if (key) await take(tx, key, now, { executionId: id })
    if (parent) await holdParent(tx, parent, now)
    const { row, isFree, isNew } = await joinConversation(tx, request, fresh, now)
    const begins = isFree && hasRoom && (await takeSlot(tx, deps, actor.organizationId, request.delegated))
    if (!begins) await checkBacklog(tx, deps, actor.organizationId)
    // Whoever was before it in the session may have ended only while this waited for the lock.
    const execution = launched ?? (begins ? begun(deps, row, deps.clock.now()) : row)
    await tx.execution.createMany({ data: execution as Prisma.ExecutionCreateManyInput })
    if (begins) await writeMessage(tx, execution, 'user', execution.message, now)
    await request.also?.(tx, id, now)
    await audit(tx, actor, 'agent.execute', id, now)
    if (begins && isNew) onBegun(execution)
    return execution
  })
}

/**
 * Puts a run into its session, with the session's lock if that is free; makes session and chat where they are new.
 * Returns its row with the session and its number in the queue. Throws 404 for a deleted chat, 409 for `onBusy: reject` and
 * for one branch too many, and SessionTaken.
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
  const joined = known ? await joinQueue(tx, known, onBusy, now) : null
  const { free: isFree, queueSeq } = joined ?? { free: true, queueSeq: branch?.queueSeq ?? 1 }
  const row = { ...fresh, sessionId: known || fresh.sessionId, queueSeq }
  if (!known) await createSession(tx, row, now, branch)
  else if (isFree) {
    await tx.session.update({ where: { id: known }, data: { activeExecutionId: id }, select: { id: true } })
  }
  const rootSessionId = branch?.rootSessionId ?? joined?.rootSessionId
  if (rootSessionId) await activate(tx, rootSessionId, row.sessionId)
  if (conversation.chatId) await joinChat(tx, fresh, row.sessionId, now, branch && { isBranched: true })
  if (row.wasPrivate && conversation.chatId) await closeToOthers(tx, row)
  return { row, isFree, isNew: !known && !branch }
}

/** Throws 409 for `onBusy: reject` while a run is on in the session that is branched, and for one branch too many. */
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
    const detail = `A chat can have at most ${MAX_BRANCHES} sessions and branches. Begin a new chat.`
    throw conflict('Chat has too many branches', { detail })
  }
}

const sessionBusy = () => conflict('Session is busy', { code: 'session_busy' })

/** What was continued last is what goes on. Sessions are locked before their roots. */
const activate = (tx: Tx, rootSessionId: string, sessionId: string) =>
  tx.session.updateMany({
    where: { id: rootSessionId, OR: [{ activeBranchId: null }, { activeBranchId: { not: sessionId } }] },
    data: { activeBranchId: sessionId },
  })

/** What a run's chat and session have of it when they are made for it. */
const ownedBy = ({ organizationId, agentId, agentOrganizationId, wasPrivate }: ExecutionRow, now: Date) => ({
  ...{ organizationId, agentId, agentOrganizationId, wasPrivate },
  ...{ createdAt: now, updatedAt: now },
})

async function createChat(tx: Tx, { message, mission }: NamedRequest, row: ExecutionRow, now: Date): Promise<void> {
  const { chatId: id, spaceId, sessionId, userId: ownerId } = row
  const title = toTitle(mission?.title ?? message, mission ? MISSION_TITLE_LENGTH : TITLE_LENGTH) ?? NO_TITLE
  const run = mission && { missionId: mission.id, runNumber: mission.runNumber }
  const data = { id, spaceId, sessionId, ownerId, title, status: 'working' as const }
  await tx.chat.createMany({ data: { ...data, ...run, ...ownedBy(row, now) } })
}

/** With its lock. */
async function createSession(tx: Tx, row: ExecutionRow, now: Date, branch?: Branch): Promise<void> {
  const { sessionId: id, chatId, userId, id: activeExecutionId, queueSeq: lastQueueSeq } = row
  const data = { id, chatId, userId, activeExecutionId, lastQueueSeq, ...ownedBy(row, now) }
  if (!branch) return void (await tx.session.createMany({ data }))
  const { rootSessionId, parentSessionId, parentPosition } = branch
  // What was private in the session that it goes on with is known in it.
  const wasPrivate = row.wasPrivate || branch.wasPrivate
  await tx.session.createMany({ data: { ...data, rootSessionId, parentSessionId, parentPosition, wasPrivate } })
}

/** Whether a run begins as soon as it is written, a session of its own in a chat of its own. */
const cannotBeRefused = ({ limits }: ClaimDeps, { conversation, key, parent, also }: Request): boolean =>
  !(conversation.chatId || conversation.sessionId || key || parent || also) && limits.running === undefined

/** The row of a run that has not begun, in a session of its own. */
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
    preview: beginning(message, PREVIEW_LENGTH),
    modelOverride: request.model,
    overrides: request.overrides as Prisma.JsonObject,
    model: request.modelName,
    modelsTried: [],
    result: null,
    error: null,
    errorCode: null,
    stopReason: null,
    warnings: null,
    inputTokens: 0,
    outputTokens: 0,
    usageEstimated: false,
    queueSeq: 1,
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
 * The session that a chat's next message belongs to, if there is one. Of two first messages the second goes on with the
 * session of the first: the chat's row is the lock. Nobody waits for a session while holding it: whoever ends a run has
 * the session, and waits for the chat.
 */
async function latestSession(
  tx: Tx,
  { wasPrivate, ...chat }: Pick<ExecutionRow, 'organizationId' | 'chatId' | 'wasPrivate'>,
  agentId: string,
  now: Date,
): Promise<string | undefined> {
  // Once the agent is shared, its private sessions are its owner's, who names them.
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

/** A chat goes on with this session, unless it was deleted. One in which a run waits for an approval says so still. */
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

/** What a private agent says stays its owner's, also once others see the agent (contract-2.md section 8.6). */
async function closeToOthers(tx: Tx, { chatId, sessionId, agentId }: ExecutionRow): Promise<void> {
  const data = { wasPrivate: true }
  await tx.session.updateMany({ where: { id: sessionId, wasPrivate: false }, data })
  await tx.chat.updateMany({ where: { id: chatId, agentId, wasPrivate: false }, data })
}

/** Takes a number in the session's queue, which locks the session's row until the transaction ends. */
async function joinQueue(tx: Tx, id: string, onBusy: Request['onBusy'], now: Date) {
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
  // Of a session without branches there is nothing to activate.
  const root = rootSessionId ?? (activeBranchId === null ? null : id)
  return { free: activeExecutionId === null, queueSeq: lastQueueSeq, rootSessionId: root }
}
