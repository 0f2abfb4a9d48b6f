import { setImmediate } from 'node:timers/promises'
import type { Actor } from '../../auth/actor.ts'
import { audit } from '../../auth/audit.ts'
import { toColumn } from '../../auth/scopes.ts'
import { type Db, Prisma, type Tx } from '../../db/client.ts'
import { badRequest, conflict, notFound, tooManyRequests } from '../../errors.ts'
import { type KeyClaim, take } from '../../idempotency.ts'
import type { Clock } from '../../lib/clock.ts'
import { newSortableId, newTimedId } from '../../lib/id.ts'
import { beginning } from '../../lib/text.ts'
import { chatStatus } from './chat-status.ts'
import { type ExecutionRow, META_SEQ } from './events.ts'
import { SEQ_BLOCK } from './journal.ts'
import type { CallRecord } from './steps.ts'

/** What a run needs to know of its agent, as it was when the run began. */
export type AgentRow = Pick<
  Prisma.AgentGetPayload<object>,
  | 'id'
  | 'organizationId'
  | 'version'
  | 'name'
  | 'role'
  | 'description'
  | 'systemPrompt'
  | 'model'
  | 'maxTurns'
  | 'skillIds'
  | 'mcpInstanceIds'
  | 'mcpTypes'
  | 'subagentIds'
  | 'allowedTools'
  | 'disallowedTools'
>

/** Where a run belongs: an existing session, a new session of an existing chat, or a new chat in a space. */
export type Conversation = { spaceId: string; chatId?: string; sessionId?: string }

/** A run that may be: who may not, or may not see, does not get here. */
export type Request = {
  actor: Actor
  agent: AgentRow
  message: string
  mediaIds: readonly string[]
  /** The caller's choice of a model. */
  model: string | null
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

export type ClaimDeps = {
  db: Db
  clock: Clock
  owner: string
  /** In milliseconds. */
  leaseDuration: number
  /** What stands at the end of a SELECT that locks its rows; and of one that leaves out those that somebody has locked. */
  rowLock: Prisma.Sql
  freeRowLock: Prisma.Sql
  /** How many runs of an organization may run, and wait. */
  limits: { running: number | undefined; pending: number | undefined }
  /**
   * What else changes when an execution ends, last in the same transaction: many runs may count in one row, which is
   * locked from then on.
   */
  settle: (tx: Tx, ended: ExecutionRow, now: Date) => Promise<void>
}

/** Somebody else has begun a run in the session since it was interrupted, or a session in the chat: look again. */
export class SessionTaken extends Error {
  override name = 'SessionTaken'
  readonly sessionId: string
  constructor(sessionId: string) {
    super()
    this.sessionId = sessionId
  }
}

/** How much of a run's waiting is counted at most (ms, 24 days): what the column holds. */
export const MAX_WAITED = 2 ** 31 - 1

/** How deep below its root an execution may lie. */
export const MAX_DEPTH = 5

/** How many executions a tree may have before no call starts another in it: what a call starts needs no room. */
export const MAX_TREE = 200

/** How many it may have at all: they are shown in one answer. */
const MAX_FAMILY = 1000

/** How much of a text is told where a list shows it. */
export const PREVIEW_LENGTH = 200
const TITLE_LENGTH = 80

const claimed = ({ owner, leaseDuration }: ClaimDeps, now: Date, attempt: number, seqReserved: number) => ({
  status: 'running' as const,
  attempt: attempt + 1,
  seqReserved: seqReserved + SEQ_BLOCK,
  leaseOwner: owner,
  leaseUntil: new Date(now.getTime() + leaseDuration),
})

// Locks are taken in one order, so that no two transactions wait for each other: the execution, those that its calls have
// started, its session, its chat, its organization, then what it was for (a task, a mission) and its day's usage. With a
// new chat PostgreSQL takes the lock of its counts, too: whoever changes what hides a mission takes that one first
// (`lockCounts`); and before a mission's row that of missions, if it may be completed by it, or active again
// (`lockMissionCounts`). Rows are made by `createMany`, which reads nothing back.

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
  request: Request,
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
 * Returns its row with the session and its number in the queue. Throws 404 for a deleted chat, 409 for `onBusy: reject`,
 * and SessionTaken.
 */
async function joinConversation(tx: Tx, request: Request, fresh: ExecutionRow, now: Date) {
  const { agent, conversation, onBusy } = request
  const { id, organizationId, chatId } = fresh
  const known =
    conversation.sessionId ??
    (conversation.chatId && (await latestSession(tx, { organizationId, chatId }, agent.id, now)))
  if (!conversation.chatId) await createChat(tx, request, fresh, now)
  const { free: isFree, queueSeq } = known ? await joinQueue(tx, known, onBusy, now) : { free: true, queueSeq: 1 }
  const row = known ? { ...fresh, sessionId: known, queueSeq } : fresh
  if (!known) await createSession(tx, fresh, now)
  else if (isFree) {
    await tx.session.update({ where: { id: known }, data: { activeExecutionId: id }, select: { id: true } })
  }
  if (conversation.chatId) await joinChat(tx, fresh, row.sessionId, now)
  return { row, isFree, isNew: !known }
}

/** What a run's chat and session have of it when they are made for it. */
const ownedBy = ({ organizationId, agentId, agentOrganizationId }: ExecutionRow, now: Date) => ({
  ...{ organizationId, agentId, agentOrganizationId },
  ...{ createdAt: now, updatedAt: now },
})

async function createChat(tx: Tx, { message, mission }: Request, row: ExecutionRow, now: Date): Promise<void> {
  const { chatId: id, spaceId, sessionId, userId: ownerId } = row
  const title = mission?.title ?? beginning(message.trim(), TITLE_LENGTH)
  const run = mission && { missionId: mission.id, runNumber: mission.runNumber }
  const data = { id, spaceId, sessionId, ownerId, title, status: 'working' as const }
  await tx.chat.createMany({ data: { ...data, ...run, ...ownedBy(row, now) } })
}

/** With its lock. */
async function createSession(tx: Tx, row: ExecutionRow, now: Date): Promise<void> {
  const { sessionId: id, chatId, userId, id: activeExecutionId } = row
  const data = { id, chatId, userId, activeExecutionId, lastQueueSeq: 1 }
  await tx.session.createMany({ data: { ...data, ...ownedBy(row, now) } })
}

/** Whether a run begins as soon as it is written, a session of its own in a chat of its own. */
const cannotBeRefused = ({ limits }: ClaimDeps, { conversation, key, parent, also }: Request): boolean =>
  !(conversation.chatId || conversation.sessionId || key || parent || also) && limits.running === undefined

/** The row of a run that has not begun, in a session of its own. */
function rowOf(request: Request, id: string, chatId: string, now: Date): ExecutionRow {
  const { actor, agent, message, conversation, parent } = request
  return {
    id,
    organizationId: actor.organizationId,
    agentId: agent.id,
    agentOrganizationId: agent.organizationId,
    agentVersion: agent.version,
    userId: actor.userId,
    scopes: toColumn(actor.scopes),
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
    model: null,
    result: null,
    error: null,
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

/** The row once this process has claimed it. */
const begun = (deps: ClaimDeps, row: ExecutionRow, since: Date): ExecutionRow => ({
  ...row,
  ...claimed(deps, since, row.attempt, row.seqReserved),
  startedAt: since,
})

/**
 * The session that a chat's next message belongs to, if there is one. Of two first messages the second goes on with the
 * session of the first: the chat's row is the lock. Nobody waits for a session while holding it: whoever ends a run has
 * the session, and waits for the chat.
 */
async function latestSession(
  tx: Tx,
  chat: Pick<ExecutionRow, 'organizationId' | 'chatId'>,
  agentId: string,
  now: Date,
): Promise<string | undefined> {
  const find = async () => {
    const orderBy = [{ createdAt: 'desc' as const }, { id: 'desc' as const }]
    return (await tx.session.findFirst({ where: { ...chat, agentId }, orderBy, select: { id: true } }))?.id
  }
  const found = await find()
  if (found) return found
  await tx.chat.update({ where: { id: chat.chatId }, data: { updatedAt: now }, select: { id: true } })
  const begun = await find()
  if (begun) throw new SessionTaken(begun)
  return undefined
}

/** A chat goes on with this session, unless it was deleted. One in which a run waits for an approval says so still. */
async function joinChat(tx: Tx, row: ExecutionRow, sessionId: string, now: Date): Promise<void> {
  const where = { id: row.chatId, archivedAt: null }
  const data = { status: 'working' as const, sessionId, closedAt: null, updatedAt: now }
  const usual = await tx.chat.updateMany({ where: { ...where, status: { not: 'needs_attention' } }, data })
  if (usual.count) return
  const status = await chatStatus(tx, row, 'working', now)
  const { count } = await tx.chat.updateMany({ where, data: { ...data, status } })
  if (!count) throw notFound('Chat')
}

/** Takes a number in the session's queue, which locks the session's row until the transaction ends. */
async function joinQueue(tx: Tx, id: string, onBusy: Request['onBusy'], now: Date) {
  const { activeExecutionId, lastQueueSeq } = await tx.session.update({
    where: { id },
    data: { lastQueueSeq: { increment: 1 }, updatedAt: now },
    select: { activeExecutionId: true, lastQueueSeq: true },
  })
  if (activeExecutionId && onBusy === 'reject') throw conflict('Session is busy')
  if (activeExecutionId && onBusy === 'interrupt') {
    const where = { sessionId: id, status: { in: ['pending' as const, 'running' as const] }, wantsCancel: false }
    if (await tx.execution.findFirst({ where, select: { id: true } })) throw new SessionTaken(id)
  }
  return { free: activeExecutionId === null, queueSeq: lastQueueSeq }
}

/** Whoever cancels a tree marks the parent before looking for children: this waits for the mark, or is found. */
async function holdParent(tx: Tx, parent: ExecutionRow, now: Date): Promise<void> {
  if (parent.depth >= MAX_DEPTH) {
    throw badRequest(`Invalid parentExecutionId. Must be less than ${MAX_DEPTH} levels deep`)
  }
  const { count } = await tx.execution.updateMany({
    where: { id: parent.id, wantsCancel: false, status: { not: 'cancelled' } },
    data: { updatedAt: now },
  })
  if (!count) throw conflict('Execution was cancelled')
  if ((await tx.execution.count({ where: belowRoot(parent) })) >= MAX_FAMILY - 1) {
    throw conflict(`A tree has at most ${MAX_FAMILY} executions`)
  }
}

/** Counts a run of the organization that begins, if it may have one more. Without a limit nobody counts. */
async function takeSlot(
  tx: Tx,
  { limits }: ClaimDeps,
  organizationId: string,
  beyond: boolean | undefined,
): Promise<boolean> {
  if (limits.running === undefined) return true
  const { count } = await tx.organization.updateMany({
    where: { id: organizationId, ...(!beyond && { running: { lt: limits.running } }) },
    data: { running: { increment: 1 } },
  })
  return count === 1
}

export async function giveSlotBack(tx: Tx, { limits }: ClaimDeps, organizationId: string): Promise<void> {
  if (limits.running === undefined) return
  await tx.organization.updateMany({
    where: { id: organizationId, running: { gt: 0 } },
    data: { running: { decrement: 1 } },
  })
}

/**
 * Counts what runs, where a limit was set since: the counters were not kept before. Other servers may be at it: a run
 * begins and ends with the lock of its organization's row, so that the second statement sees what the first waited for.
 */
export async function countRunning({ db, limits }: ClaimDeps): Promise<void> {
  if (limits.running === undefined) return
  await db.$transaction(async (tx) => {
    await tx.$executeRaw(Prisma.sql`UPDATE "Organization" SET "running" = "running"`)
    await tx.$executeRaw(Prisma.sql`
      UPDATE "Organization" SET "running" = (
        SELECT count(*) FROM "Execution" e WHERE e."organizationId" = "Organization"."id" AND e."status" = 'running')`)
  })
}

/** How many runs may be about to wait at once, on all servers: so close to the limit they are counted one by one. */
const ABOUT_TO_WAIT = 100

/**
 * Others may be about to wait, too, and are not seen yet. Who comes close to the limit waits for those of the organization
 * that have come as close: all others count without a lock, which would have an organization's runs accepted one by one.
 */
async function checkBacklog(tx: Tx, { limits, rowLock }: ClaimDeps, organizationId: string): Promise<void> {
  const { pending: limit } = limits
  if (limit === undefined) return
  const count = () => tx.execution.count({ where: { organizationId, status: 'pending', waitingFor: null } })
  let waiting = await count()
  if (waiting < limit && waiting >= limit - ABOUT_TO_WAIT) {
    await tx.$queryRaw(Prisma.sql`SELECT "id" FROM "Organization" WHERE "id" = ${organizationId} ${rowLock}`)
    waiting = await count()
  }
  if (waiting < limit) return
  throw tooManyRequests()
}

export async function writeMessage(
  tx: Tx,
  execution: ExecutionRow,
  role: 'user' | 'assistant',
  content: string,
  createdAt: Date,
  { interrupted = false, toolCalls = [] }: { interrupted?: boolean; toolCalls?: readonly CallRecord[] } = {},
): Promise<void> {
  const { organizationId, chatId, sessionId, id: executionId, queueSeq } = execution
  const position = queueSeq * 2 - (role === 'user' ? 1 : 0)
  const id = newSortableId(createdAt)
  const data = { id, organizationId, chatId, sessionId, executionId, position, role, content, createdAt }
  await tx.message.createMany({ data: { ...data, interrupted, toolCalls: toolCalls as Prisma.InputJsonArray } })
}

/**
 * Claims a pending run that holds its session's lock, to be run with this agent. Null when another process was first,
 * when it has ended, or when its organization has no room for it yet.
 */
export async function claimPending(
  deps: ClaimDeps,
  row: ExecutionRow,
  { version: agentVersion }: AgentRow,
): Promise<ExecutionRow | null> {
  const now = deps.clock.now()
  const claim = deps.db.$transaction(async (tx) => {
    const waited = row.waitingSince ? now.getTime() - row.waitingSince.getTime() : 0
    const [execution] = await tx.execution.updateManyAndReturn({
      where: { id: row.id, status: 'pending', attempt: row.attempt, waitingFor: null },
      data: {
        ...claimed(deps, now, row.attempt, row.seqReserved),
        agentVersion,
        startedAt: row.startedAt ?? now,
        waitingSince: null,
        waitedMs: Math.min(row.waitedMs + waited, MAX_WAITED),
        updatedAt: now,
      },
    })
    if (!execution) return null
    if (!(await takeSlot(tx, deps, row.organizationId, await isDelegated(tx, row)))) throw new NoRoom()
    if (row.attempt === 0) await writeMessage(tx, execution, 'user', execution.message, now)
    return execution
  })
  return claim.catch((error) => {
    if (error instanceof NoRoom) return null
    throw error
  })
}

/** The organization has no room for a run, whose claim is undone. */
class NoRoom extends Error {
  override name = 'NoRoom'
}

/** Whether a call of its parent waits for it. */
export async function isDelegated(tx: Db | Tx, { id, parentExecutionId }: ExecutionRow): Promise<boolean> {
  if (!parentExecutionId) return false
  const call = { executionId: parentExecutionId, childExecutionId: id }
  return (await tx.toolCall.findFirst({ where: call, select: { step: true } })) !== null
}

/**
 * Takes over a run whose process has died: the attempt as read is the condition. Null, too, while somebody has its row
 * locked: a process that hangs may have it for long, and others wait to be taken over.
 */
export async function takeOver(deps: ClaimDeps, row: ExecutionRow): Promise<ExecutionRow | null> {
  return deps.db.$transaction(async (tx) => {
    const free = await tx.$queryRaw<unknown[]>(Prisma.sql`
      SELECT "id" FROM "Execution" WHERE "id" = ${row.id} ${deps.freeRowLock}`)
    if (!free.length) return null
    const now = deps.clock.now()
    const [execution] = await tx.execution.updateManyAndReturn({
      where: { id: row.id, status: 'running', attempt: row.attempt, leaseUntil: row.leaseUntil },
      data: { ...claimed(deps, now, row.attempt, row.seqReserved), updatedAt: now },
    })
    return execution ?? null
  })
}

/** Whether a pending run holds its session's lock: what keeps it is room. */
const READY = Prisma.sql`
  FROM "Execution" e JOIN "Session" s ON s."id" = e."sessionId" AND s."activeExecutionId" = e."id"
  JOIN "Organization" o ON o."id" = e."organizationId"
  WHERE e."terminalSeq" IS NULL AND e."status" = 'pending' AND e."waitingFor" IS NULL`

/** Whether a call of its parent waits for it, as `isDelegated` says. */
const DELEGATED = Prisma.sql`EXISTS (SELECT 1 FROM "ToolCall" c
  WHERE c."executionId" = e."parentExecutionId" AND c."childExecutionId" = e."id")`

export const READY_AT_ONCE = 100

/**
 * Pending runs that only wait for room, the oldest first; of organizations that run as many as they may, only those
 * that another run waits for: that one holds a place, and would wait for ever.
 */
export const findReady = (db: Db, limit: number | undefined) =>
  db.$queryRaw<{ id: string; organizationId: string; delegated: boolean | number | bigint }[]>(Prisma.sql`
    SELECT e."id", e."organizationId", ${DELEGATED} AS "delegated" ${READY}
    ${limit === undefined ? Prisma.empty : Prisma.sql`AND (o."running" < ${limit} OR ${DELEGATED})`}
    ORDER BY "delegated" DESC, e."createdAt", e."id" LIMIT ${READY_AT_ONCE}`)

/** The organizations with pending runs that only wait for room. */
export async function findCrowded(db: Db): Promise<string[]> {
  const rows = await db.$queryRaw<{ organizationId: string }[]>(Prisma.sql`SELECT DISTINCT e."organizationId" ${READY}`)
  return rows.map(({ organizationId }) => organizationId)
}

/** What has to be known of a run in order to end it. */
const STANDING = {
  id: true,
  status: true,
  waitingFor: true,
  attempt: true,
  seqReserved: true,
  terminalSeq: true,
} as const
export type Standing = Pick<ExecutionRow, keyof typeof STANDING>

/** All of an execution's tree but the root, which alone has no parent: the index has only rows that have one. */
export const belowRoot = ({
  organizationId,
  rootExecutionId,
}: Pick<ExecutionRow, 'organizationId' | 'rootExecutionId'>) => ({
  organizationId,
  rootExecutionId,
  parentExecutionId: { not: null },
})

/** The descendants of an execution that have not ended, children before their own children. */
export async function findDescendants(db: Db | Tx, row: ExecutionRow) {
  const select = { ...STANDING, parentExecutionId: true }
  const tree = await db.execution.findMany({ where: belowRoot(row), orderBy: { depth: 'asc' }, select })
  const family = new Set([row.id])
  for (const { id, parentExecutionId } of tree) if (parentExecutionId && family.has(parentExecutionId)) family.add(id)
  return tree.filter(({ id, terminalSeq }) => id !== row.id && family.has(id) && terminalSeq === null)
}
