import type { z } from 'zod'
import * as agents from '../agents/service.ts'
import type { Actor } from '../auth/actor.ts'
import type { Deps } from '../deps.ts'
import { AppError } from '../errors.ts'
import type { ExecuteAny } from './schema.ts'
import { type Call, start } from './start.ts'

const PATH = '/api/v1/execute'

/**
 * POST /execute (contract-2.md section 1.15): runs the agent that the input names, else the newest one that the caller
 * created, else the caller's `Assistant`. Throws as {@link start} does.
 */
export async function startAny(actor: Actor, deps: Deps, input: z.output<typeof ExecuteAny>, call: Call) {
  const { agentId, characterId, ...rest } = input
  const id = agentId ?? characterId ?? (await findOwn(actor, deps)) ?? (await createAssistant(actor, deps))
  const { idempotencyKey: _, ...said } = input
  return start(actor, deps, { ...rest, id }, call, { path: PATH, said })
}

/** Returns the newest agent that the caller created in the organization; null if there is none. */
async function findOwn({ organizationId, userId }: Actor, { db }: Deps): Promise<string | null> {
  const agent = await db.agent.findFirst({
    where: { organizationId, userId, archivedAt: null },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    select: { id: true },
  })
  return agent?.id ?? null
}

/** Creates the caller's private agent `Assistant`. Of several requests side by side one does, by the agent's slug. */
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
