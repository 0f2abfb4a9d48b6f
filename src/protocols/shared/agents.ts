import { type CachedAgent, findCached } from '../../agents/agent-cache.ts'
import { executable, listed } from '../../agents/visibility.ts'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { badRequest, notFound } from '../../errors.ts'
import { findBySlug } from '../../organizations/service.ts'

/**
 * Finds the agent that a client of another protocol names (contract-2.md section 6.2). The name is an id, or
 * `<organization slug>/<agent slug>`, or a name that only one agent of the organization has, or else a slug of the
 * organization. Throws 404 for an agent that the caller cannot run, and 400 for a name of several. `listedBy`: where the
 * client finds the names.
 */
export async function findAgent(
  actor: Actor,
  deps: Deps,
  wanted: string,
  listedBy = 'GET /openai/v1/models and GET /api/v1/agents list them.',
): Promise<CachedAgent> {
  const known = await findCached(deps, wanted, executable(actor))
  if (known) return known
  const id = wanted.includes('/') ? await findBySlugs(actor, deps, wanted) : await findByName(actor, deps, wanted)
  const agent = id && (await findCached(deps, id, executable(actor)))
  if (!agent) throw notFound('Agent', `${HOW_TO_NAME} ${listedBy}`)
  return agent
}

const HOW_TO_NAME =
  'Name an agent that you can run by its id, as <organization slug>/<agent slug>, or by a name that only one agent has.'

async function findBySlugs(actor: Actor, { db, clock }: Deps, wanted: string): Promise<string | null> {
  const [organization = '', slug = ''] = wanted.split('/', 2)
  const organizationId =
    organization === actor.organizationSlug
      ? actor.organizationId
      : await findBySlug(db, organization.toLowerCase(), clock.now())
  if (!organizationId) return null
  const where = { AND: [{ organizationId, slug }, executable(actor)] }
  return (await db.agent.findFirst({ where, select: { id: true } }))?.id ?? null
}

async function findByName(actor: Actor, deps: Deps, name: string): Promise<string | null> {
  const mine = listed(actor, { owner: 'me' })
  const found = await deps.db.agent.findMany({
    where: { AND: [{ name }, { OR: [listed(actor), mine] }] },
    select: { id: true },
    take: 2,
  })
  if (found.length > 1) {
    const detail = 'Name the agent by its id, or as <organization slug>/<agent slug>: several agents have this name.'
    throw badRequest('Several agents have this name', { detail })
  }
  return found[0]?.id ?? findBySlugs(actor, deps, `${actor.organizationSlug}/${name}`)
}
