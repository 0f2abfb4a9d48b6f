import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { isSessionId } from '../shared/runs.ts'

// A context is a session, under the name that the client gave to it or under its id.

type Named = Pick<Actor, 'organizationId' | 'userId'>

/** Returns the names that the client gave to sessions of an agent, by the ids of the sessions. */
export async function namesOf(
  { organizationId, userId }: Named,
  { db }: Pick<Deps, 'db'>,
  agent: Pick<CachedAgent, 'id'>,
  sessionIds: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const of = { organizationId, userId, agentId: agent.id, protocol: 'a2a', sessionId: { in: [...sessionIds] } }
  const found = await db.conversationName.findMany({ where: of, select: { sessionId: true, name: true } })
  return new Map(found.map(({ sessionId, name }) => [sessionId, name]))
}

/** Finds the session of a context. Returns null if the agent has none. */
export async function findSession(
  { organizationId, userId }: Named,
  { db }: Pick<Deps, 'db'>,
  agent: Pick<CachedAgent, 'id'>,
  contextId: string,
) {
  const select = { id: true, chatId: true } as const
  if (isSessionId(contextId)) {
    return db.session.findFirst({ where: { id: contextId, organizationId, agentId: agent.id }, select })
  }
  const key = { organizationId, userId, agentId: agent.id, protocol: 'a2a', name: contextId }
  const named = await db.conversationName.findUnique({
    where: { organizationId_userId_agentId_protocol_name: key },
    select: { sessionId: true },
  })
  return named && db.session.findFirst({ where: { id: named.sessionId, organizationId }, select })
}
