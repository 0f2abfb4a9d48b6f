import type { z } from 'zod'
import * as agents from '../agents/service.ts'
import type { Actor } from '../auth/actor.ts'
import { ownSessions } from '../chats/messages.ts'
import { reachable as reachableChat } from '../chats/service.ts'
import type { Deps } from '../deps.ts'
import { AppError, notFound } from '../errors.ts'
import { type ExecuteCall, executeAgent } from './execute.ts'
import type { ExecuteAny } from './schema.ts'

const PATH = '/api/v1/execute'

/**
 * POST /execute (contract-2.md section 1.15): runs the agent that the input names, else that of the continued session
 * or chat, else the newest one that the caller created, else the caller's `Assistant`. Throws like {@link
 * executeAgent}.
 */
export async function startAny(actor: Actor, deps: Deps, input: z.output<typeof ExecuteAny>, call: ExecuteCall) {
  const { agentId, characterId, ...rest } = input
  const id =
    agentId ??
    characterId ??
    (await findContinued(actor, deps, input)) ??
    (await findOwn(actor, deps)) ??
    (await createAssistant(actor, deps))
  const { idempotencyKey: _, ...request } = input
  return executeAgent(actor, deps, { ...rest, id }, call, { path: PATH, request })
}

/**
 * Returns the agent of the latest session that an input continues, or of its chat; null without one. Throws 404 for a
 * session or a chat that the caller cannot reach.
 */
async function findContinued(
  actor: Actor,
  { db }: Deps,
  { chatId = null, sessionId = null }: z.output<typeof ExecuteAny>,
): Promise<string | null> {
  if (chatId === null && sessionId === null) return null
  const session = await db.session.findFirst({
    where: {
      ...(sessionId !== null && { id: sessionId }),
      ...(chatId !== null && { chatId }),
      chat: reachableChat(actor),
      ...ownSessions(actor),
    },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    select: { agentId: true },
  })
  if (session) return session.agentId
  if (sessionId !== null || chatId === null) throw notFound('Session')
  const chat = await db.chat.findFirst({
    where: { AND: [{ id: chatId }, reachableChat(actor)] },
    select: { agentId: true },
  })
  if (!chat) throw notFound('Chat')
  return chat.agentId
}

/** Returns the newest agent that the caller created in the organization, or null. */
async function findOwn({ organizationId, userId }: Actor, { db }: Deps): Promise<string | null> {
  const agent = await db.agent.findFirst({
    where: { organizationId, userId, archivedAt: null },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    select: { id: true },
  })
  return agent?.id ?? null
}

/** Creates the caller's private agent `Assistant`. Its slug makes concurrent requests create only one. */
async function createAssistant(actor: Actor, deps: Deps): Promise<string> {
  const slug = `assistant-${actor.userId.toLowerCase().replace(/[^a-z0-9]/g, '-')}`.slice(0, 64)
  const systemPrompt = 'You are a helpful assistant.'
  try {
    return (await agents.create(actor, deps, { name: 'Assistant', slug, systemPrompt, visibility: 'private' })).id
  } catch (error) {
    const isThere = error instanceof AppError && error.status === 409
    const id = isThere && (await findOwn(actor, deps))
    if (!id) throw error
    return id
  }
}
