import type { z } from 'zod'
import { type Actor, requireScope } from '../auth/actor.ts'
import { covers } from '../auth/scopes.ts'
import { ownSessions } from '../chats/messages.ts'
import { reachable as reachableChat } from '../chats/service.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { findOrDefault } from '../spaces/service.ts'
import type { AgentRow } from './engine/queue/claims.ts'
import type { Conversation } from './engine/queue/requests.ts'
import type { Execute } from './schema.ts'

// The place of a run that a caller asks for: its space, chat and session.

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
export function findPlace(
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
export async function findConversation(
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
