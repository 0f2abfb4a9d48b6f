import { listed } from '../../agents/visibility.ts'
import type { Actor } from '../../auth/actor.ts'
import { sendJson } from '../../http/body.ts'
import { MAX_ROWS } from '../../lib/page.ts'
import type { Context } from '../../trpc.ts'
import { findAgent } from '../shared/agents.ts'
import type { OpenAIRequest } from './door.ts'

type AgentHead = { id: string; slug: string | null; name: string; description: string | null; createdAt: Date | string }

const toModel = (slug: string, agent: AgentHead) => ({
  // As people pick it in a list.
  id: agent.slug ? `${slug}/${agent.slug}` : agent.id,
  object: 'model',
  created: Math.floor(new Date(agent.createdAt).getTime() / 1000),
  owned_by: slug,
  name: agent.name,
  ...(agent.description && { description: agent.description }),
})

/** GET /openai/v1/models: the agents that the caller can run, newest first. */
export async function listModels({ context, actor, res }: OpenAIRequest): Promise<void> {
  const agents = await context.deps.db.agent.findMany({
    where: { OR: [listed(actor), listed(actor, { owner: 'me' })] },
    select: { id: true, slug: true, name: true, description: true, createdAt: true },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    take: MAX_ROWS,
  })
  sendJson(res, 200, { object: 'list', data: agents.map((agent) => toModel(actor.organizationSlug, agent)) })
}

/** GET /openai/v1/models/{model}. Throws 404 for an agent that the caller cannot run. */
export async function getModel({ context, actor, res, id }: OpenAIRequest): Promise<void> {
  const agent = await findAgent(actor, context.deps, id)
  sendJson(res, 200, toModel(await slugOf(actor, context, agent.organizationId), agent))
}

async function slugOf(actor: Actor, { deps }: Context, id: string): Promise<string> {
  if (id === actor.organizationId) return actor.organizationSlug
  return (await deps.db.organization.findUniqueOrThrow({ where: { id }, select: { slug: true } })).slug
}
