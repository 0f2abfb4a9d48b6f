import type { z } from 'zod'
import { reachable as reachableAgent } from '../agents/visibility.ts'
import type { Actor } from '../auth/actor.ts'
import { keyLock, lockRows, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { requireAll } from '../errors.ts'
import { typesOf } from '../mcps/rows.ts'
import { findMany as findSkills } from '../skills/rows.ts'
import { checkRequirements } from '../skills/service.ts'
import type { Newest } from '../skills/versions.ts'
import type { CreateSpace, UpdateSpace } from './schema.ts'

/** Ids of the objects attached to a space. */
export type Attachments = { agents: string[]; skills: string[]; mcps: string[] }

type Changes = Partial<Omit<z.output<typeof CreateSpace> & z.output<typeof UpdateSpace>, 'name' | 'visibility'>>

const union = (...lists: (readonly string[] | null | undefined)[]) => [...new Set(lists.flatMap((ids) => ids ?? []))]

/** Returns whether nothing is attached. */
export const isNothing = ({ agents, skills, mcps }: Attachments) => !agents.length && !skills.length && !mcps.length

/** Returns the objects to detach, which need not be attached. */
export const removedBy = (changes: Changes): Attachments => ({
  agents: union(changes.removeAgents, changes.removeCharacters),
  skills: union(changes.removeSkills),
  mcps: union(changes.removeMcps),
})

/** Fields that name objects to attach. */
const ADDED_AGENTS = ['addAgents', 'addCharacters', 'assignedAgents'] as const
const ADDED_SKILLS = ['addSkills', 'skillIds'] as const
const ADDED_MCPS = ['addMcps', 'pluginIds'] as const

/** Returns the objects to attach. */
export const addedBy = (changes: Changes): Attachments => ({
  agents: union(...ADDED_AGENTS.map((field) => changes[field])),
  skills: union(...ADDED_SKILLS.map((field) => changes[field])),
  mcps: union(...ADDED_MCPS.map((field) => changes[field])),
})

/** Finds the skills to attach and the types of the MCP servers. Throws 400 for objects that the caller cannot reach. */
export async function findAdded(actor: Actor, db: Tx, changes: Changes) {
  const { agents, skills: ids, mcps } = addedBy(changes)
  const where = { id: { in: agents }, ...reachableAgent(actor) }
  const found = new Set(
    agents.length ? (await db.agent.findMany({ where, select: { id: true } })).map(({ id }) => id) : [],
  )
  for (const field of ADDED_AGENTS) requireAll(field, changes[field] ?? [], found)
  const types = await typesOf(actor, db, mcps)
  for (const field of ADDED_MCPS) requireAll(field, changes[field] ?? [], types)
  const skills = await findSkills(actor, db, ids)
  const skillIds = new Set(skills.map(({ id }) => id))
  for (const field of ADDED_SKILLS) requireAll(field, changes[field] ?? [], skillIds)
  return { skills, types: [...types.values()] }
}

/**
 * Checks and locks the objects to attach, in the attaching transaction. Also throws 400 for a skill that requires MCP
 * server types that the space will not have (contract.md sections 6 and 7). Returns the skills with the versions to
 * attach.
 */
export async function checkAdded(
  tx: Tx,
  actor: Actor,
  { settings }: Pick<Deps, 'settings'>,
  changes: Changes,
): Promise<Map<string, Newest>> {
  const added = addedBy(changes)
  // Agents are archived, never deleted, so their rows need no lock.
  if (added.mcps.length) await lockRows(tx, 'McpServer', added.mcps, keyLock(settings))
  if (added.skills.length) await lockRows(tx, 'Skill', added.skills, keyLock(settings))
  const { skills, types } = await findAdded(actor, tx, changes)
  const kept = skills.some(({ requiredMCPs }) => requiredMCPs.length) ? await typesIn(tx, changes) : []
  checkRequirements(skills, [...types, ...kept])
  return new Map(skills.map(({ id, version, source }) => [id, { version, foreign: source === 'marketplace' }]))
}

/** Returns the types of the space's MCP servers that are not being removed. */
async function typesIn(tx: Tx, { id, removeMcps }: Changes): Promise<string[]> {
  if (id === undefined) return []
  const rows = await tx.spaceMcp.findMany({
    where: { spaceId: id, mcpId: { notIn: removeMcps ?? [] } },
    select: { mcp: { select: { mcpType: true } } },
  })
  return rows.map(({ mcp }) => mcp.mcpType)
}

/**
 * Detaches objects, in a transaction that has written the space's row and thereby serializes attaching and detaching.
 */
export async function detach(tx: Tx, spaceId: string, { agents, skills, mcps }: Attachments): Promise<void> {
  if (agents.length) await tx.spaceAgent.deleteMany({ where: { spaceId, agentId: { in: agents } } })
  if (skills.length) await tx.spaceSkill.deleteMany({ where: { spaceId, skillId: { in: skills } } })
  if (mcps.length) await tx.spaceMcp.deleteMany({ where: { spaceId, mcpId: { in: mcps } } })
}

/** Attaches objects, in such a transaction. Existing attachments are unchanged. */
export async function attach(
  tx: Tx,
  actor: Actor,
  spaceId: string,
  added: Attachments,
  versions: ReadonlyMap<string, Newest>,
  now: Date,
): Promise<void> {
  const common = { organizationId: actor.organizationId, spaceId, addedAt: now, addedBy: actor.userId }
  const { agents, skills, mcps } = added
  if (agents.length) {
    const there = await tx.spaceAgent.findMany({ where: { spaceId, agentId: { in: agents } } })
    const data = without(agents, there, 'agentId').map((agentId) => ({ ...common, agentId }))
    if (data.length) await tx.spaceAgent.createMany({ data })
  }
  if (skills.length) {
    const there = await tx.spaceSkill.findMany({ where: { spaceId, skillId: { in: skills } } })
    const data = without(skills, there, 'skillId').map((skillId) => ({
      ...common,
      skillId,
      version: versions.get(skillId)?.version ?? null,
    }))
    if (data.length) await tx.spaceSkill.createMany({ data })
  }
  if (mcps.length) {
    const there = await tx.spaceMcp.findMany({ where: { spaceId, mcpId: { in: mcps } } })
    const data = without(mcps, there, 'mcpId').map((mcpId) => ({ ...common, mcpId }))
    if (data.length) await tx.spaceMcp.createMany({ data })
  }
}

const without = <Key extends string>(ids: string[], rows: readonly Record<Key, string>[], key: Key): string[] =>
  ids.filter((id) => !rows.some((row) => row[key] === id))
