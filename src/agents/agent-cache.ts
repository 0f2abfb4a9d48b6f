import { LRUCache } from 'lru-cache'
import type { z } from 'zod'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { chunk } from '../lib/chunk.ts'
import { MAX_PAGE_BYTES } from '../lib/page.ts'
import { preserialize, toJson } from '../lib/preserialize.ts'
import { type AgentRow, shortened, toAgent } from './rows.ts'
import { Agent } from './schema.ts'

// Caches whole agents, which are long and read often, by id and version. Every change increases the version, so entries
// are never stale and need no invalidation.

/** An agent at one version. */
export type CachedAgent = Readonly<z.output<typeof Agent>>

/** Agents by id, each at some version. An entry is valid while the agent has that version. */
export type AgentCache = LRUCache<string, CachedAgent>

/** Maximum size of the cache (characters of agents and their JSON). */
const MAX_SIZE = 8_000_000
/** Base size of an agent (characters). */
const LEAST = 1_000

/** Creates an empty cache. */
export const createAgentCache = (): AgentCache =>
  new LRUCache({ maxSize: MAX_SIZE, sizeCalculation: (agent) => LEAST + 2 * toJson(agent).length })

function remember({ agentCache }: Deps, row: AgentRow): CachedAgent {
  const agent = preserialize(Agent, toAgent(row))
  agentCache.set(row.id, agent)
  return agent
}

/** Columns that determine an agent's position in a list and the validity of its cache entry. */
export const LIST_COLUMNS = { id: true, version: true, createdAt: true } as const
export type Head = Pick<AgentRow, keyof typeof LIST_COLUMNS>

/** Maximum number of agents read at once, because each may be as long as all of its fields allow. */
const AT_ONCE = 100

const bytesOf = (agent: CachedAgent): number => Buffer.byteLength(toJson(agent))

/**
 * Reads the agents of the first heads that still match `where`, as many as fit in one response. Also returns the number
 * of these heads. If whole agents do not all fit, cuts their long texts at 4,000 characters (contract-2.md section
 * 1.20).
 */
export async function loadAgents(deps: Deps, where: Prisma.AgentWhereInput, heads: readonly Head[]) {
  let agents: CachedAgent[] = []
  let isCut = false
  let [count, bytes] = [0, 0]
  for (const part of chunk(heads, AT_ONCE)) {
    const found = await findWhole(deps, where, part)
    for (const { id } of part) {
      const full = found.get(id)
      if (full) {
        let agent = isCut ? shortened(full) : full
        bytes += bytesOf(agent)
        if (bytes > MAX_PAGE_BYTES && !isCut) {
          isCut = true
          agents = agents.map(shortened)
          agent = shortened(full)
          bytes = [...agents, agent].reduce((sum, one) => sum + bytesOf(one), 0)
        }
        if (bytes > MAX_PAGE_BYTES && agents.length) return { agents, count }
        agents.push(agent)
      }
      count++
    }
  }
  return { agents, count }
}

/** Returns agents by id. Reads only those that are not cached at their current version. */
async function findWhole(deps: Deps, where: Prisma.AgentWhereInput, heads: readonly Head[]) {
  const agents = new Map<string, CachedAgent | undefined>()
  for (const { id, version } of heads) {
    const known = deps.agentCache.get(id)
    agents.set(id, known?.version === version ? known : undefined)
  }
  const missing = heads.flatMap(({ id }) => (agents.get(id) ? [] : id))
  if (missing.length) {
    const rows = await deps.db.agent.findMany({ where: { AND: [where, { id: { in: missing } }] } })
    for (const row of rows) agents.set(row.id, remember(deps, row))
  }
  return agents
}

/** Finds an agent by id if it matches `where`, otherwise returns null. For a cached agent it reads only the version. */
export async function findCached(deps: Deps, id: string, where: Prisma.AgentWhereInput): Promise<CachedAgent | null> {
  const known = deps.agentCache.get(id)
  if (known) {
    const head = await deps.db.agent.findFirst({ where: { id, ...where }, select: { version: true } })
    if (!head) return null
    if (head.version === known.version) return known
  }
  const row = await deps.db.agent.findFirst({ where: { id, ...where } })
  return row && remember(deps, row)
}
