import type { Tx } from '../../../db/client.ts'
import { conflict, notFound, sessionBusy } from '../../../errors.ts'
import { searchedIn } from '../../../lib/search.ts'
import { toTitle } from '../../../lib/text.ts'
import type { ExecutionRow } from '../events/events.ts'
import { chatStatus } from './chat-status.ts'
import { messagesOf } from './client-history.ts'
import type { Branch, Conversation, NamedRequest, Request } from './requests.ts'

// The part of the accepting transaction that finds or creates the chat and the session of a run.

/** Maximum number of sessions in a chat that has branches. */
const MAX_BRANCHES = 2_000

/** Maximum length of the title of a chat, and of a chat of a mission (characters). */
const TITLE_LENGTH = 80
const MISSION_TITLE_LENGTH = 200
/** Title of a chat whose first message has no visible text. */
const NO_TITLE = 'New chat'

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

/**
 * Adds a run to its session, and takes the session's lock if it is free. Creates the session and the chat if they are
 * new. Returns the row with its session and queue number. Throws 404 for a deleted chat, 409 for `onBusy: reject` and
 * for too many branches, and SessionTaken.
 */
export async function joinConversation(tx: Tx, request: NamedRequest, fresh: ExecutionRow, now: Date) {
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
