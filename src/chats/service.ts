import type { z } from 'zod'
import { executable, NAMED, nameIn, notPrivate, notThenPrivate, ofPrivateAgents } from '../agents/visibility.ts'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { columnsAre, countOf } from '../db/counting.ts'
import { padToPowerOfTwo } from '../db/fast-path/index.ts'
import type { Deps } from '../deps.ts'
import { conflict, invalidCursor, notFound } from '../errors.ts'
import { LIVE } from '../executions/engine/queue/endings.ts'
import { isQuestion } from '../executions/engine/run/stored-history.ts'
import { readableOf } from '../executions/service.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newSortableId } from '../lib/id.ts'
import {
  cutTexts,
  decodePosition,
  encodePosition,
  MAX_ROWS,
  pageQuery,
  readPage,
  toPage,
  withByteBudget,
} from '../lib/page.ts'
import { chatsFor, findOrDefault, hiddenChats, inPrivateSpaces, inSpaces, visible } from '../spaces/service.ts'
import type { StopReason } from '../wire.ts'
import { countActive, hiddenSessions, ofBranch, parentsOf } from './branches.ts'
import type {
  Attachment,
  Chat,
  CreateChat,
  ListChats,
  ListMessages,
  Message,
  MessagesResponse,
  ToolCall,
  UpdateChat,
} from './schema.ts'

/** Filters access by id: the organization's chats whose space, agent and mission the caller may see. */
export const reachable = (actor: Actor): Prisma.ChatWhereInput => ({
  ...chatsFor(actor),
  space: { archivedAt: null, ...visible(actor) },
})

const listed = reachable

/**
 * Filters the visible sessions of a chat, which may have several agents. Sessions of a private agent belong to its
 * owner (contract.md section 2).
 */
export const ownSessions = (actor: Actor): Prisma.SessionWhereInput => ({
  AND: [notPrivate(actor), notThenPrivate(actor)],
})

/** Filters messages: those of the visible sessions in a reachable chat. */
export const listedMessages = (actor: Actor): Prisma.MessageWhereInput => ({
  organizationId: actor.organizationId,
  session: ownSessions(actor),
})

/** Filters messages by id: those of the visible sessions in a reachable chat. */
export const reachableMessages = (actor: Actor): Prisma.MessageWhereInput => ({
  ...listedMessages(actor),
  chat: reachable(actor),
})

const withNames = { agent: { select: NAMED }, mission: { select: { title: true } } } as const

type ChatRow = Prisma.ChatGetPayload<{ include: typeof withNames }>

type Counted = { messageCount: number; hides: boolean }

const toChat = (row: ChatRow, { messageCount, hides }: Counted): z.input<typeof Chat> => ({
  id: row.id,
  organizationId: row.organizationId,
  spaceId: row.spaceId,
  agentId: row.agentId,
  agentName: row.agent && nameIn(row.organizationId, row.agent),
  ownerId: row.ownerId,
  title: row.title,
  ...(row.subtitle !== null && { subtitle: row.subtitle }),
  status: row.status,
  ...(row.lastMessage !== null && !hides && { lastMessage: row.lastMessage }),
  ...(row.sessionId !== null && !hides && { sessionId: row.sessionId }),
  messageCount,
  ...(row.mission && { missionTitle: row.mission.title }),
  ...(row.runNumber !== null && { runNumber: row.runNumber }),
  closed: row.closedAt !== null,
  closedAt: row.closedAt?.toISOString() ?? null,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

/**
 * Returns the chats of a page with their message counts, in one statement plus one for chats with branches, where only
 * the active ones count. A session stores the number of messages of its ended runs; a started run adds its question.
 */
async function toChats(actor: Actor, db: Db, rows: readonly ChatRow[]) {
  const { organizationId } = actor
  if (!rows.length) return []
  const sessions = await db.$queryRaw<{ chatId: string; isHidden: unknown; messages: number | bigint }[]>(Prisma.sql`
    SELECT "chatId", "isHidden", sum("messages") AS "messages" FROM (
      SELECT t."chatId", ${hiddenSessions(actor, ofPrivateAgents(actor))} AS "isHidden", t."messageCount" + (
          SELECT count(*) FROM "Execution" e WHERE e."id" = t."activeExecutionId" AND e."attempt" > 0) AS "messages"
      FROM "Session" t WHERE t."organizationId" = ${organizationId}
        AND t."chatId" IN (${Prisma.join(padToPowerOfTwo(rows.map(({ id }) => id)))})
    ) AS "sessions" GROUP BY "chatId", "isHidden"`)
  const branched = rows.flatMap(({ id, isBranched }) => (isBranched ? id : []))
  const active = await countActive(db, organizationId, branched, hiddenSessions(actor, ofPrivateAgents(actor)))
  const byChat = Map.groupBy(sessions, ({ chatId }) => chatId)
  return rows.map((row) => {
    const own = byChat.get(row.id) ?? []
    const visible = own.find(({ isHidden }) => !isHidden)
    const messageCount = row.isBranched ? (active.get(row.id) ?? 0) : Number(visible?.messages ?? 0)
    return toChat(row, { messageCount, hides: own.some(({ isHidden }) => isHidden) })
  })
}

/** Returns the filter of `list`: its input on top of {@link listed}. */
export function listedBy(actor: Actor, input: z.output<typeof ListChats>): Prisma.ChatWhereInput {
  const { spaceId, agentId, status } = input
  const given = Object.entries({ spaceId, agentId, status }).filter(([, value]) => value !== undefined)
  const filter: Prisma.ChatWhereInput = Object.fromEntries(given)
  return { AND: [listed(actor), filter, input.mission ? { missionId: { not: null } } : {}] }
}

/** Returns how many chats {@link listedBy} finds. */
export function countListed(actor: Actor, db: Db, { spaceId, agentId, status, mission }: z.output<typeof ListChats>) {
  return countOf(db, {
    table: 'Chat',
    organizationId: actor.organizationId,
    given: [
      ...columnsAre({ archivedAt: null, spaceId, agentId, status }),
      ...(mission ? [Prisma.sql`t."missionId" IS NOT NULL`] : []),
    ],
    hidden: [...hiddenChats(actor), inSpaces(Prisma.sql`h."archivedAt" IS NOT NULL`), ...inPrivateSpaces(actor)],
  })
}

/** GET /chats, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListChats>) {
  const where = listedBy(actor, input)
  const { where: after, ...page } = pageQuery(input)
  const found = await db.chat.findMany({ where: { AND: [where, after ?? {}] }, include: withNames, ...page })
  const { rows, nextCursor } = toPage(found, input)
  const total = input.count && { total: await countListed(actor, db, input) }
  return { chats: await toChats(actor, db, rows), nextCursor, ...total }
}

/** Finds a chat. Throws 404 if the caller cannot reach it. */
export async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<ChatRow> {
  const row = await db.chat.findFirst({ where: { AND: [{ id }, reachable(actor)] }, include: withNames })
  if (!row) throw notFound('Chat')
  return row
}

/** Returns the chats with these ids that the caller can reach. */
export async function findMany(actor: Actor, { db }: Deps, ids: readonly string[]) {
  const where = { AND: [{ id: { in: [...ids] } }, reachable(actor)] }
  return toChats(actor, db, await db.chat.findMany({ where, include: withNames }))
}

/** GET /chats/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  const [chat] = await findMany(actor, deps, [id])
  if (!chat) throw notFound('Chat')
  return { chat }
}

/** Finds the space and the agent of a new chat. Throws 404 if the caller cannot reach or run them. */
export async function findPlace(actor: Actor, deps: Deps, input: z.output<typeof CreateChat>) {
  const { agentId = null } = input
  const spaceId = await findOrDefault(actor, deps, input.spaceId)
  if (agentId === null) return { spaceId, agent: null }
  const agent = await deps.db.agent.findFirst({
    where: { AND: [{ id: agentId }, executable(actor)] },
    select: { id: true, organizationId: true, name: true, visibility: true },
  })
  if (!agent) throw notFound('Agent')
  return { spaceId, agent }
}

const NEW_TITLE = 'New chat'

/** POST /chats. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateChat>) {
  const { spaceId, agent } = await findPlace(actor, deps, input)
  const now = deps.clock.now()
  const id = newSortableId(now)
  const row = await deps.db.$transaction(async (tx) => {
    await tx.chat.createMany({
      data: {
        id,
        organizationId: actor.organizationId,
        spaceId,
        agentId: agent?.id ?? null,
        agentOrganizationId: agent?.organizationId ?? null,
        wasPrivate: agent?.visibility === 'private',
        ownerId: actor.userId,
        title: input.title ?? agent?.name ?? NEW_TITLE,
        status: 'standby',
        createdAt: now,
        updatedAt: now,
      },
    })
    await audit(tx, actor, 'chat.create', id, now)
    return find(actor, { db: tx }, id)
  })
  deps.bus.publish('chat', [id])
  const { title, status } = row
  return { id, title, status, chat: toChat(row, { messageCount: 0, hides: false }) }
}

const authorize = (actor: Actor, chat: ChatRow): Authorized<ChatRow> =>
  permit(chat, chat.ownerId === actor.userId || isAdmin(actor))

/** PATCH /chats/{id}, by its owner or an admin. Closing does not stop an active run. */
export async function update(actor: Actor, deps: Deps, { id, title, closed }: z.output<typeof UpdateChat>) {
  const chat = authorize(actor, await find(actor, deps, id))
  const now = deps.clock.now()
  const closedAt = closed === undefined ? undefined : closed ? (chat.closedAt ?? now) : null
  const changes = omitUndefined({ title, closedAt })
  if (hasChanges(chat, changes)) {
    await deps.db.$transaction(async (tx) => {
      if (!(await updateChat(tx, actor, chat, 'chat.update', now, changes))) throw notFound('Chat')
    })
    deps.bus.publish('chat', [id])
  }
  return get(actor, deps, id)
}

/** DELETE /chats/{id}, by its owner or an admin: archives it; its executions stay. Throws 409 while a run is active. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const chat = authorize(actor, await find(actor, deps, id))
  const now = deps.clock.now()
  // The status is a column of the row itself, which a concurrently accepted run locks.
  const idle: Prisma.ChatWhereInput = {
    status: { not: 'working' },
    executions: { none: LIVE },
  }
  await deps.db.$transaction(async (tx) => {
    if (await updateChat(tx, actor, chat, 'chat.archive', now, { archivedAt: now }, idle)) return
    await find(actor, { db: tx }, id)
    throw conflict('Chat is busy', { detail: 'Wait until its runs have ended, or cancel them.' })
  })
  deps.bus.publish('chat', [id])
  return { message: 'Chat deleted successfully' }
}

/** Changes a chat that meets the condition and is not archived. Returns whether it did. */
async function updateChat(
  tx: Tx,
  actor: Actor,
  { id }: Authorized<ChatRow>,
  action: string,
  now: Date,
  data: Prisma.ChatUpdateManyMutationInput,
  condition: Prisma.ChatWhereInput = {},
): Promise<boolean> {
  const where = { id, archivedAt: null, ...condition }
  const { count } = await tx.chat.updateMany({ where, data: { ...data, updatedAt: now } })
  if (count) await audit(tx, actor, action, id, now)
  return count === 1
}

type MessageRow = Omit<Prisma.MessageGetPayload<object>, 'replay'> & { truncated?: boolean }

/**
 * GET /chats/{id}/messages, oldest first: messages of the visible sessions, of the active branch unless another is
 * requested. Throws 404 for a branch that the caller cannot see.
 */
export async function messages(
  actor: Actor,
  deps: Deps,
  { id, branch, limit = MAX_ROWS, cursor }: z.output<typeof ListMessages>,
): Promise<z.input<typeof MessagesResponse>> {
  const after = cursor === undefined ? {} : afterCursor(cursor)
  const { id: chatId, title, status, isBranched } = await find(actor, deps, id)
  const active =
    branch === undefined && !isBranched ? {} : await ofBranch(deps.db, actor, ownSessions(actor), [id], branch)
  const { rows, hasMore } = await readPage<MessageRow, Prisma.MessageWhereInput>(limit, after, {
    read: (most, behind) =>
      deps.db.message.findMany({
        where: { AND: [{ chatId }, listedMessages(actor), active, behind] },
        orderBy: [{ createdAt: 'asc' }, { position: 'asc' }, { id: 'asc' }],
        omit: { replay: true },
        ...withByteBudget({ take: most + 1 }),
      }),
    positionOf: (row) => afterCursor(encodeCursor(row)),
    cut: (row) => cutTexts(row, ['content', 'reasoning', 'summary']),
  })
  const nextCursor = hasMore ? encodeCursor(rows.at(-1)!) : null
  const runs = await runsOf(deps.db, rows)
  const [ends, parents, attachments] = await Promise.all([
    endsOf(actor, deps.db, rows, runs),
    parentsIn(deps.db, rows),
    attachmentsOf(actor, deps.db, rows, runs),
  ])
  return {
    chatId,
    title,
    status,
    messages: rows.map((row) => ({
      id: row.id,
      parentId: parents.get(row.id) ?? null,
      branch: row.sessionId,
      role: row.role,
      content: row.content,
      toolCalls: row.toolCalls as z.input<typeof ToolCall>[],
      ...(row.reasoning !== null && { reasoning: row.reasoning }),
      ...(row.summary !== null && { summary: row.summary }),
      attachments: attachments.get(row.id) ?? [],
      executionId: row.executionId,
      userId: runs.get(row.executionId)!.userId,
      interrupted: row.interrupted,
      createdAt: row.createdAt.toISOString(),
      ...(row.truncated && { truncated: true }),
      ...ends.get(row.id),
    })),
    nextCursor,
  }
}

/** Returns the parents of a page of messages. Most precede them on the page, or they are the first of all. */
async function parentsIn(db: Db, rows: readonly MessageRow[]): Promise<ReadonlyMap<string, string>> {
  const last = new Map<string, string>()
  const parents = new Map<string, string>()
  const others: string[] = []
  for (const { id, sessionId, position } of rows) {
    const before = last.get(sessionId)
    if (before) parents.set(id, before)
    else if (position > 1) others.push(id)
    last.set(sessionId, id)
  }
  return new Map([...parents, ...(await parentsOf(db, others))])
}

/** Returns the parents of messages that the caller can reach. */
export async function findParents({ db }: Deps, ids: readonly string[]) {
  const parents = await parentsOf(db, ids)
  return ids.map((id) => ({ id, parentId: parents.get(id) ?? null }))
}

type End = Pick<z.input<typeof Message>, 'stopReason' | 'code' | 'detail'>

type Ending = Pick<MessageRow, 'id' | 'executionId' | 'sessionId' | 'position' | 'role'>

const RUN = {
  id: true,
  userId: true,
  status: true,
  stopReason: true,
  error: true,
  errorCode: true,
  queueSeq: true,
  mediaIds: true,
} as const
type Run = Prisma.ExecutionGetPayload<{ select: typeof RUN }>
type Runs = ReadonlyMap<string, Run>

/** Returns the runs of messages by id. */
async function runsOf(db: Db, rows: readonly Pick<MessageRow, 'executionId'>[]): Promise<Runs> {
  if (!rows.length) return new Map()
  const ids = [...new Set(rows.map(({ executionId }) => executionId))]
  const runs = await db.execution.findMany({ where: { id: { in: ids } }, select: RUN })
  return new Map(runs.map((run) => [run.id, run]))
}

type AttachmentsById = ReadonlyMap<string, z.input<typeof Attachment>[]>

/** Returns the files of questions by message. Without any there is no query. */
async function attachmentsOf(
  { organizationId }: Actor,
  db: Db,
  rows: readonly Pick<MessageRow, 'id' | 'executionId' | 'position'>[],
  runs: Runs,
): Promise<AttachmentsById> {
  const attached = rows.flatMap(({ id, executionId, position }) => {
    const run = runs.get(executionId)
    const isOfRun = run && isQuestion({ position, queueSeq: run.queueSeq })
    const mediaIds = isOfRun ? (run.mediaIds as string[]) : []
    return mediaIds.length ? [{ id, mediaIds }] : []
  })
  if (!attached.length) return new Map()
  const files = await db.media.findMany({
    where: { organizationId, id: { in: [...new Set(attached.flatMap(({ mediaIds }) => mediaIds))] } },
    select: { id: true, name: true, mimeType: true, size: true },
  })
  const byId = new Map(files.map((file) => [file.id, file]))
  return new Map(attached.map(({ id, mediaIds }) => [id, mediaIds.flatMap((mediaId) => byId.get(mediaId) ?? [])]))
}

/** Returns the attachments of reachable messages: see {@link attachmentsOf}. */
export async function findAttachments(actor: Actor, { db }: Deps, ids: readonly string[]) {
  const select = { id: true, executionId: true, position: true } as const
  const rows = await db.message.findMany({ where: { id: { in: [...ids] } }, select })
  const found = await attachmentsOf(actor, db, rows, await runsOf(db, rows))
  return rows.map(({ id }) => ({ id, attachments: found.get(id) ?? [] }))
}

/**
 * Returns how the runs of messages ended, by the last message of each run: its answer, or its question if it has none.
 * The error is left out unless the caller may read the run (contract-2.md sections 1.2 and 8.3).
 */
async function endsOf(actor: Actor, db: Db, rows: readonly Ending[], found: Runs): Promise<ReadonlyMap<string, End>> {
  const last = new Map(rows.map(({ executionId, id }) => [executionId, id]))
  const unanswered = rows.filter(({ id, role, executionId }) => role === 'user' && last.get(executionId) === id)
  for (const executionId of await answeredOf(db, unanswered)) last.delete(executionId)
  if (!last.size) return new Map()
  const runs = [...found.values()].filter(({ id }) => last.has(id))
  const failed = runs.flatMap(({ id, status }) => (status === 'failed' ? id : []))
  const readable = await readableOf(actor, db, failed)
  return new Map(
    runs.map(({ id, error, errorCode, stopReason }): [string, End] => {
      const why = readable.has(id) && { code: errorCode ?? 'internal', ...(error !== null && { detail: error }) }
      return [last.get(id)!, { stopReason: stopReason as StopReason | null, ...why }]
    }),
  )
}

/** Returns the runs of these questions that have an answer. */
async function answeredOf(db: Db, questions: readonly Ending[]): Promise<string[]> {
  if (!questions.length) return []
  const found = await db.message.findMany({
    where: {
      sessionId: { in: [...new Set(questions.map(({ sessionId }) => sessionId))] },
      position: { in: [...new Set(questions.map(({ position }) => position + 1))] },
    },
    select: { executionId: true },
  })
  return found.map(({ executionId }) => executionId)
}

/** Returns whose runs reachable messages belong to, and how these ended: see {@link endsOf}. */
export async function findRuns(actor: Actor, { db }: Deps, ids: readonly string[]) {
  const rows = await db.message.findMany({
    where: { id: { in: [...ids] } },
    select: { id: true, executionId: true, sessionId: true, position: true, role: true },
  })
  const runs = await runsOf(db, rows)
  const ends = await endsOf(actor, db, rows, runs)
  return rows.map(({ id, executionId }) => ({
    id,
    userId: runs.get(executionId)!.userId,
    stopReason: null,
    code: null,
    detail: null,
    ...ends.get(id),
  }))
}

const encodeCursor = ({ createdAt, position, id }: MessageRow) => encodePosition(createdAt.getTime(), position, id)

function afterCursor(cursor: string): Prisma.MessageWhereInput {
  const [, time, place, id] = /^(\d{1,15})\.(\d{1,9})\.(\w+)$/.exec(decodePosition(cursor)) ?? []
  if (!time || !place || !id) throw invalidCursor()
  const [createdAt, position] = [new Date(Number(time)), Number(place)]
  return {
    OR: [
      { createdAt: { gt: createdAt } },
      { createdAt, position: { gt: position } },
      { createdAt, position, id: { gt: id } },
    ],
  }
}

/** Number of latest chats whose messages are searched, and length of an excerpt around a match (characters). */
const SEARCHED_CHATS = 500
const EXCERPT = 400

/**
 * Searches the messages of the latest chats that the caller may see, newest first. The text is found as it is given, in
 * lower case and capitalized, because the databases differ in what else they ignore case of.
 */
export async function searchMessages(actor: Actor, { db }: Deps, { query, limit }: { query: string; limit: number }) {
  const chats = await db.chat.findMany({
    where: reachable(actor),
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    select: { id: true, title: true },
    take: SEARCHED_CHATS,
  })
  if (!chats.length) return []
  const lower = query.toLowerCase()
  const forms = [...new Set([query, lower, lower.charAt(0).toUpperCase() + lower.slice(1)])]
  const found = await db.message.findMany({
    where: {
      AND: [
        { chatId: { in: chats.map(({ id }) => id) } },
        listedMessages(actor),
        { OR: forms.map((contains) => ({ content: { contains } })) },
      ],
    },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    select: { id: true, chatId: true, role: true, content: true, createdAt: true },
    take: limit,
  })
  const titles = new Map(chats.map(({ id, title }) => [id, title]))
  return found.map(({ content, createdAt, ...row }) => {
    const at = Math.max(0, content.toLowerCase().indexOf(lower) - EXCERPT / 2)
    const text = content.slice(at, at + EXCERPT).toWellFormed()
    return { ...row, chatTitle: titles.get(row.chatId) ?? '', text, createdAt: createdAt.toISOString() }
  })
}
