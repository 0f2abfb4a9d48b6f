import type { z } from 'zod'
import { notPrivate, notThenPrivate } from '../agents/visibility.ts'
import type { Actor } from '../auth/actor.ts'
import type { Db, Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { invalidCursor } from '../errors.ts'
import { isQuestion } from '../executions/engine/run/stored-history.ts'
import { readableOf } from '../executions/service.ts'
import { cutTexts, decodePosition, encodePosition, MAX_ROWS, readPage, withByteBudget } from '../lib/page.ts'
import type { StopReason } from '../wire.ts'
import { ofBranch, parentsOf } from './branches.ts'
import type { Attachment, ListMessages, Message, MessagesResponse, ToolCall } from './schema.ts'
import { find, reachable } from './service.ts'

/**
 * Filters the visible sessions of a chat, which may have several agents. Sessions of a private agent belong to its
 * owner (contract.md section 2).
 */
export const ownSessions = (actor: Actor): Prisma.SessionWhereInput => ({
  AND: [notPrivate(actor), notThenPrivate(actor)],
})

/** Filters the messages of a chat that the caller can reach: those of the visible sessions. */
export const listedMessages = (actor: Actor): Prisma.MessageWhereInput => ({
  organizationId: actor.organizationId,
  session: ownSessions(actor),
})

/** Filters messages by id: those of the visible sessions in a reachable chat. */
export const reachableMessages = (actor: Actor): Prisma.MessageWhereInput => ({
  ...listedMessages(actor),
  chat: reachable(actor),
})

const OLDEST_FIRST: Prisma.MessageOrderByWithRelationInput[] = [
  { createdAt: 'asc' },
  { position: 'asc' },
  { id: 'asc' },
]

type MessageRow = Omit<Prisma.MessageGetPayload<object>, 'replay'> & { truncated?: boolean }

/**
 * GET /chats/{id}/messages, oldest first: messages of the visible sessions, of the active branch unless another is
 * requested. Throws 404 for a branch that the caller cannot see.
 */
export async function listMessages(
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
        orderBy: OLDEST_FIRST,
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
 * Returns how the runs of messages (oldest first) ended, by the last message of each: its answer, or its question if it
 * has none. The error is left out unless the caller may read the run (contract-2.md sections 1.2 and 8.3).
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
    orderBy: OLDEST_FIRST,
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
  const [, time, place, id] = /^(\d{1,14})\.(\d{1,9})\.(\w+)$/.exec(decodePosition(cursor)) ?? []
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
 * lower case and capitalized, because the databases ignore the case of different letters.
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
