import { isDeepStrictEqual } from 'node:util'
import type { Actor } from '../auth/actor.ts'
import type { Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { requireAll } from '../errors.ts'
import { typesOf } from '../mcps/rows.ts'
import { isOnLatest } from '../organizations/policy.ts'
import { findMany as findSkills } from '../skills/rows.ts'
import { checkRequirements } from '../skills/service.ts'
import { findVersions as findSkillVersions, type Newest, toAttachedAt } from '../skills/versions.ts'
import type { CachedAgent } from './agent-cache.ts'
import { DEFAULTS, type Values } from './columns.ts'
import { pinsIn, strings } from './rows.ts'
import { reachable } from './visibility.ts'

// The skills, MCP servers and subagents of agents.

/** Returns the ids that the caller can reach, in at most one statement. */
async function findIds(actor: Actor, db: Tx, ids: readonly string[]): Promise<Set<string>> {
  const where = { id: { in: [...new Set(ids)] }, ...reachable(actor) }
  const rows = ids.length ? await db.agent.findMany({ where, select: { id: true } }) : []
  return new Set(rows.map(({ id }) => id))
}

/** The id lists of an agent, with functions that find the reachable ids in at most one statement each. */
export const REFERENCES = { skillIds: findSkillVersions, mcpInstanceIds: typesOf, subagentIds: findIds }
export const REFERRING = Object.keys(REFERENCES) as (keyof typeof REFERENCES)[]

const hasReferences = (agent: CachedAgent): boolean => REFERRING.some((field) => agent[field].length > 0)

/**
 * Returns agents as the caller sees them: without deleted or unreachable skills, MCP servers and subagents. Runs no
 * statement for lists that are all empty.
 */
export async function filterReferences(
  actor: Actor,
  { db }: Pick<Deps, 'db'>,
  agents: CachedAgent[],
): Promise<CachedAgent[]> {
  if (!agents.some(hasReferences)) return agents
  const idsOf = (field: keyof typeof REFERENCES) => agents.flatMap((agent) => agent[field])
  const [skillIds, mcpInstanceIds, subagentIds] = await Promise.all([
    findSkillVersions(actor, db, idsOf('skillIds')),
    typesOf(actor, db, idsOf('mcpInstanceIds')),
    findIds(actor, db, idsOf('subagentIds')),
  ])
  const seen = { skillIds, mcpInstanceIds, subagentIds }
  const refs = await refsOf(actor, db, agents, skillIds)
  return agents.map((agent, index) => {
    const cut = REFERRING.filter((field) => !agent[field].every((id) => seen[field].has(id)))
    const left = cut.map((field) => [field, agent[field].filter((id) => seen[field].has(id))])
    const skillRefs = refs[index]!
    // An unchanged agent stays the same object, whose JSON is cached.
    const isSame = !cut.length && (!agent.skillIds.length || isDeepStrictEqual(skillRefs, agent.skillRefs))
    return isSame ? agent : { ...agent, ...Object.fromEntries(left), skillRefs }
  })
}

type Skilled = Pick<CachedAgent, 'skillIds'> & { skillRefs: readonly { skillId: string; version: number }[] }

/** Returns the versions of the visible skills attached to agents of the organization. */
async function refsOf(
  { organizationId }: Actor,
  db: Tx,
  agents: readonly Skilled[],
  seen: ReadonlyMap<string, Newest>,
): Promise<CachedAgent['skillRefs'][]> {
  const pins = agents.flatMap(({ skillRefs }) => skillRefs)
  const isLatest = await isOnLatest(db, organizationId, pins, seen)
  return agents.map(({ skillIds, skillRefs }) => {
    const pins = new Map(skillRefs.map(({ skillId, version }) => [skillId, version]))
    return skillIds.flatMap((skillId) => {
      const newest = seen.get(skillId)
      return newest ? { skillId, ...toAttachedAt(pins.get(skillId), newest, isLatest) } : []
    })
  })
}

/** Returns the skills of reachable agents with their versions, for GraphQL, which reads rows itself. */
export async function findSkillRefs(actor: Actor, { db }: Pick<Deps, 'db'>, ids: readonly string[]) {
  const where = { id: { in: [...ids] }, ...reachable(actor) }
  const rows = await db.agent.findMany({ where, select: { id: true, skillIds: true, skillRefs: true } })
  const agents = rows.map((row) => ({ skillIds: strings(row.skillIds), skillRefs: pinsIn(row) }))
  const seen = await findSkillVersions(
    actor,
    db,
    agents.flatMap(({ skillIds }) => skillIds),
  )
  const refs = await refsOf(actor, db, agents, seen)
  return rows.map(({ id }, index) => ({ id, skillRefs: refs[index]! }))
}

/**
 * Finds the skills and MCP servers of an agent. Throws 400 for ids that the caller cannot reach (contract.md section
 * 3).
 */
export async function findReferences(
  actor: Actor,
  { db }: Deps,
  values: Partial<Values>,
  has: Pick<Values, 'mcpInstanceIds'> = DEFAULTS,
) {
  const mcpIds = values.mcpInstanceIds ?? has.mcpInstanceIds
  const mcps = await typesOf(actor, db, mcpIds)
  if (values.mcpInstanceIds) requireAll('mcpInstanceIds', mcpIds, mcps)
  const { skillIds = [], subagentIds = [] } = values
  const skills = await findSkills(actor, db, skillIds)
  requireAll('skillIds', skillIds, new Set(skills.map(({ id }) => id)))
  const subagents = subagentIds.length ? await findIds(actor, db, subagentIds) : new Set<string>()
  requireAll('subagentIds', subagentIds, subagents)
  return { mcps, skills }
}

/**
 * Checks the references of an agent, and that the requirements of added skills are met. Returns the newest versions of
 * the skills.
 */
export async function checkReferences(
  actor: Actor,
  deps: Deps,
  values: Partial<Values>,
  has: Pick<Values, 'skillIds' | 'mcpInstanceIds'>,
): Promise<Map<string, number>> {
  const { mcps, skills } = await findReferences(actor, deps, values, has)
  const added = skills.filter(({ id }) => !has.skillIds.includes(id))
  checkRequirements(added, [...mcps.values()])
  return new Map(skills.map(({ id, version }) => [id, version]))
}

/** Pins skills to their current pins, and added skills to their newest versions (contract-2.md section 8.5). */
export function pinned(
  skillIds: readonly string[],
  has: ReturnType<typeof pinsIn>,
  newest: ReadonlyMap<string, number>,
): ReturnType<typeof pinsIn> {
  const pins = new Map(has.map(({ skillId, version }) => [skillId, version]))
  return skillIds.flatMap((skillId) => {
    const version = pins.get(skillId) ?? newest.get(skillId)
    return version === undefined ? [] : { skillId, version }
  })
}
