import { LRUCache } from 'lru-cache'
import type { z } from 'zod'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { constant, toJson } from '../lib/constant.ts'
import type { ModelSettings } from '../lib/model-settings.ts'
import { cutTexts, ROOM } from '../lib/page.ts'
import { inParts } from '../lib/parts.ts'
import { Agent } from './schema.ts'
import { slugOf } from './slugs.ts'

// What agents say is long, and asked for again and again: what was read once is kept by the version it had, which every
// change raises. So it is never wrong, and nobody need tell anybody that it has changed.

type AgentRow = Prisma.AgentGetPayload<object>

/** A list of texts that is stored as JSON. */
export const strings = (value: unknown) => value as string[]

/** The versions at which the skills of an agent are attached. */
export const pinsIn = ({ skillRefs }: { skillRefs: unknown }) => skillRefs as { skillId: string; version: number }[]

/** An agent as the API shows it. */
export const toAgent = (row: AgentRow): z.output<typeof Agent> => ({
  id: row.id,
  name: row.name,
  slug: row.slug ?? slugOf(row.name),
  role: row.role,
  systemPrompt: row.systemPrompt,
  visibility: row.visibility,
  organizationId: row.organizationId,
  userId: row.userId,
  model: row.model,
  description: row.description,
  tags: strings(row.tags),
  category: row.category,
  image: row.image,
  color: row.color,
  initialGreeting: row.initialGreeting,
  skillIds: strings(row.skillIds),
  // What others have made of the skills since is told to whoever looks (`asSeenBy`).
  skillRefs: pinsIn(row).map(({ skillId, version }) => ({ skillId, version, latestVersion: version, foreign: false })),
  mcpInstanceIds: strings(row.mcpInstanceIds),
  mcpTypes: strings(row.mcpTypes),
  subagentIds: strings(row.subagentIds),
  allowedTools: strings(row.allowedTools),
  disallowedTools: strings(row.disallowedTools),
  advanced_tools: strings(row.advanced_tools),
  permissions: row.permissions as KnownAgent['permissions'],
  maxTurns: row.maxTurns,
  modelSettings: row.modelSettings as ModelSettings,
  fallbackModels: strings(row.fallbackModels),
  contextWindow: row.contextWindow,
  requireTools: row.requireTools,
  version: row.version,
  archived: row.archivedAt !== null,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

/** An agent as it was at one version. */
export type KnownAgent = Readonly<z.output<typeof Agent>>

/** Reads an agent from a version's column. A version of an older release has no value for the newest fields. */
export function fromVersion(stored: unknown): KnownAgent {
  const agent = stored as KnownAgent
  return { ...NEWEST, ...agent, slug: agent.slug ?? slugOf(agent.name) }
}
const NEWEST = {
  advanced_tools: [] as string[],
  permissions: [] as KnownAgent['permissions'],
  skillRefs: [] as KnownAgent['skillRefs'],
  modelSettings: {},
  fallbackModels: [] as string[],
  contextWindow: null,
  requireTools: false,
}

/** Agents by id, each as it was at some version: as long as it has that version, that is what it is. */
export type KnownAgents = LRUCache<string, KnownAgent>

/** In characters, of what agents say and of their JSON. */
const MAX_KNOWN = 8_000_000
/** What an agent costs that says nothing. */
const LEAST = 1_000

export const createKnownAgents = (): KnownAgents =>
  new LRUCache({ maxSize: MAX_KNOWN, sizeCalculation: (agent) => LEAST + 2 * toJson(agent).length })

function remember({ knownAgents }: Deps, row: AgentRow): KnownAgent {
  const agent = constant(Agent, toAgent(row))
  knownAgents.set(row.id, agent)
  return agent
}

/** What tells where an agent stands in a list, and whether what is known of it is still true. */
export const HEAD = { id: true, version: true, createdAt: true } as const
export type Head = Pick<AgentRow, keyof typeof HEAD>

/** So many are read at once: each may be as long as all of its fields allow. */
const AT_ONCE = 100

/** The long texts of an agent, which long lists cut. */
export const LONG_TEXTS = ['systemPrompt', 'initialGreeting'] as const

/** Shortens an agent's long texts and marks it as truncated, unless it has none. */
export const shortened = (agent: KnownAgent): KnownAgent => cutTexts(agent, LONG_TEXTS)

const bytesOf = (agent: KnownAgent): number => Buffer.byteLength(toJson(agent))

/**
 * Reads the agents of the first heads that still meet `where`, as many as fit into one answer, and says how many heads
 * they are. If whole agents do not all fit, their long texts are cut at 4,000 characters (contract-2.md section 1.20).
 */
export async function whole(deps: Deps, where: Prisma.AgentWhereInput, heads: readonly Head[]) {
  let agents: KnownAgent[] = []
  let isCut = false
  let [shown, said] = [0, 0]
  for (const part of inParts(heads, AT_ONCE)) {
    const found = await findWhole(deps, where, part)
    for (const { id } of part) {
      const full = found.get(id)
      if (full) {
        let agent = isCut ? shortened(full) : full
        said += bytesOf(agent)
        if (said > ROOM && !isCut) {
          isCut = true
          agents = agents.map(shortened)
          agent = shortened(full)
          said = [...agents, agent].reduce((sum, one) => sum + bytesOf(one), 0)
        }
        if (said > ROOM && agents.length) return { agents, shown }
        agents.push(agent)
      }
      shown++
    }
  }
  return { agents, shown }
}

/** Agents by id: only those are read that nobody has asked for since they changed. */
async function findWhole(deps: Deps, where: Prisma.AgentWhereInput, heads: readonly Head[]) {
  const agents = new Map<string, KnownAgent | undefined>()
  for (const { id, version } of heads) {
    const known = deps.knownAgents.get(id)
    agents.set(id, known?.version === version ? known : undefined)
  }
  const missing = heads.flatMap(({ id }) => (agents.get(id) ? [] : id))
  if (missing.length) {
    const rows = await deps.db.agent.findMany({ where: { AND: [where, { id: { in: missing } }] } })
    for (const row of rows) agents.set(row.id, remember(deps, row))
  }
  return agents
}

/** One by id that meets `where`, null if it does not. Of a known one only its version is read. */
export async function findKnown(deps: Deps, id: string, where: Prisma.AgentWhereInput): Promise<KnownAgent | null> {
  const known = deps.knownAgents.get(id)
  if (known) {
    const head = await deps.db.agent.findFirst({ where: { id, ...where }, select: { version: true } })
    if (!head) return null
    if (head.version === known.version) return known
  }
  const row = await deps.db.agent.findFirst({ where: { id, ...where } })
  return row && remember(deps, row)
}
