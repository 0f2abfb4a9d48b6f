import type { z } from 'zod'
import { executable, NAMED, nameIn, ofPrivateAgents } from '../agents/visibility.ts'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { columnsAre, countOf } from '../db/counting.ts'
import { padToPowerOfTwo } from '../db/fast-path/index.ts'
import type { Deps } from '../deps.ts'
import { conflict, notFound } from '../errors.ts'
import { LIVE } from '../executions/engine/queue/cancel-marks.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newSortableId } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { having, searchable, searchedIn } from '../lib/search.ts'
import { findOrDefault } from '../spaces/service.ts'
import { chatsFor, hiddenChats, inPrivateSpaces, inSpaces, visible } from '../spaces/visibility.ts'
import { countActive, hiddenSessions } from './branches.ts'
import type { Chat, CreateChat, ListChats, UpdateChat } from './schema.ts'

/** Filters access by id: the organization's chats whose space, agent and mission the caller may see. */
export const reachable = (actor: Actor): Prisma.ChatWhereInput => ({
  ...chatsFor(actor),
  space: { archivedAt: null, ...visible(actor) },
})

const listed = reachable

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
  const ofMissions = { true: { missionId: { not: null } }, false: { missionId: null } }
  const mission = input.mission === undefined ? {} : ofMissions[`${input.mission}`]
  return { AND: [listed(actor), filter, mission, having(input.search)] }
}

/** Returns how many chats {@link listedBy} finds. */
export function countListed(actor: Actor, db: Db, input: z.output<typeof ListChats>) {
  const { spaceId, agentId, status, mission, search } = input
  return countOf(db, {
    table: 'Chat',
    organizationId: actor.organizationId,
    given: [
      ...columnsAre({ archivedAt: null, spaceId, agentId, status }),
      ...(mission
        ? [Prisma.sql`t."missionId" IS NOT NULL`]
        : columnsAre({ missionId: mission === false ? null : undefined })),
      ...(search ? [Prisma.sql`t."searchText" LIKE ${`%${searchable(search)}%`}`] : []),
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
  const title = input.title ?? agent?.name ?? NEW_TITLE
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
        title,
        ...searchedIn(title),
        status: 'standby',
        createdAt: now,
        updatedAt: now,
      },
    })
    await audit(tx, actor, 'chat.create', id, now)
    return find(actor, { db: tx }, id)
  })
  deps.bus.publish('chat', [id])
  const { status } = row
  return { id, title, status, chat: toChat(row, { messageCount: 0, hides: false }) }
}

const authorize = (actor: Actor, chat: ChatRow): Authorized<ChatRow> =>
  permit(chat, chat.ownerId === actor.userId || isAdmin(actor))

/** PATCH /chats/{id}, by its owner or an admin. Closing does not stop an active run. */
export async function update(actor: Actor, deps: Deps, { id, title, closed }: z.output<typeof UpdateChat>) {
  const chat = authorize(actor, await find(actor, deps, id))
  const now = deps.clock.now()
  const closedAt = closed === undefined ? undefined : closed ? (chat.closedAt ?? now) : null
  const changes = omitUndefined({ title, ...(title !== undefined && searchedIn(title)), closedAt })
  if (hasChanges(chat, changes)) {
    await deps.db.$transaction(async (tx) => {
      if (!(await updateChat(tx, actor, chat, { action: 'chat.update', now, data: changes }))) throw notFound('Chat')
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
    const change = { action: 'chat.archive', now, data: { archivedAt: now }, condition: idle } as const
    if (await updateChat(tx, actor, chat, change)) return
    await find(actor, { db: tx }, id)
    throw conflict('Chat is busy', { detail: 'Wait until its runs have ended, or cancel them.' })
  })
  deps.bus.publish('chat', [id])
  return { message: 'Chat deleted successfully' }
}

/** A change of a chat, the action of its audit event, and the condition that the chat has to meet. */
type ChatChange = {
  action: `chat.${string}`
  now: Date
  data: Prisma.ChatUpdateManyMutationInput
  condition?: Prisma.ChatWhereInput
}

/** Changes a chat that meets the condition and is not archived. Returns whether it did. */
async function updateChat(
  tx: Tx,
  actor: Actor,
  { id }: Authorized<ChatRow>,
  { action, now, data, condition }: ChatChange,
): Promise<boolean> {
  const where = { id, archivedAt: null, ...condition }
  const { count } = await tx.chat.updateMany({ where, data: { ...data, updatedAt: now } })
  if (count) await audit(tx, actor, action, id, now)
  return count === 1
}
