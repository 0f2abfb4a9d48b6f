import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, forbidden, notFound } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { newId } from '../lib/id.ts'
import { toDisplayName } from './core.ts'
import { coreSkills, find, type SkillOutput, type SkillRow, searchColumns, toSkill } from './rows.ts'
import { type CreateSkill, toolWarnings, type UpdateSkill } from './schema.ts'
import { recordVersion } from './versions.ts'

/**
 * Checks that the caller may change a skill: its owner and admins may, within the organization (contract.md section 2).
 */
const authorize = (actor: Actor, skill: SkillRow): Authorized<SkillRow> =>
  permit(skill, skill.organizationId === actor.organizationId && (skill.ownerId === actor.userId || isAdmin(actor)))

/** GET /skills/{id}. The prompt of a public skill is visible to everyone, because the skill is there to be used. */
export async function get(actor: Actor, { db }: Deps, id: string) {
  return { skill: coreSkills.get(id) ?? toSkill(actor, await find(actor, db, id)) }
}

const NEEDS_SERVERS = 'Attach MCP servers of these types too, or leave the skill out.'

const NAME_TAKEN = 'Choose another name, or change the skill that has this one.'

/**
 * Throws 400 if a skill requires MCP servers of missing types (contract.md section 7, "Skills"). Called when a skill is
 * attached.
 */
export function checkRequirements(skills: readonly SkillOutput[], mcpTypes: readonly string[]): void {
  for (const { name, requiredMCPs } of skills) {
    const missing = requiredMCPs.filter((type) => !mcpTypes.includes(type))
    if (missing.length)
      throw badRequest(`Skill ${name} requires the MCP servers: ${missing.join(', ')}`, { detail: NEEDS_SERVERS })
  }
}

/** Converts a violation of the unique name into a 409. */
async function unlessTaken<T>(write: Promise<T>): Promise<T> {
  try {
    return await write
  } catch (error) {
    throw isUniqueViolation(error) ? conflict('Skill name already exists', { detail: NAME_TAKEN }) : error
  }
}

/** POST /skills. Throws 409 if the organization has a skill of that name, even a private one. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateSkill>) {
  const { name, displayName, description, prompt, category, builtInTools, requiredMCPs, visibility } = input
  const { organizationId, userId: ownerId } = actor
  const now = deps.clock.now()
  const named = { name, displayName: displayName?.trim() ? displayName : toDisplayName(name), description }
  const row = await deps.db.$transaction(async (tx) => {
    const data = {
      id: newId(),
      organizationId,
      ownerId,
      ...named,
      ...searchColumns(named),
      prompt,
      category: category ?? 'other',
      builtInTools: builtInTools ?? [],
      requiredMCPs: requiredMCPs ?? [],
      visibility: visibility ?? 'organization',
      version: 1,
      createdAt: now,
      updatedAt: now,
    }
    const created = await unlessTaken(tx.skill.create({ data }))
    await recordVersion(tx, actor, created)
    await audit(tx, actor, 'skill.create', created.id, now)
    return created
  })
  deps.bus.publish('skill', [organizationId])
  return { id: row.id, name: row.name, skill: toSkill(actor, row), ...toolWarnings(builtInTools) }
}

/**
 * Finds a skill that the caller may change. Throws 403 for skills that are only visible: built-in ones and other
 * users'.
 */
async function findWritable(actor: Actor, { db }: Deps, id: string): Promise<Authorized<SkillRow>> {
  if (coreSkills.has(id)) throw forbidden()
  return authorize(actor, await find(actor, db, id))
}

/**
 * PATCH /skills/{id}. An empty change creates no version. Attachments keep their version until they are updated, or
 * follow at once under the policy `attachments: latest`.
 */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateSkill>) {
  const skill = await findWritable(actor, deps, input.id)
  const { name, description, prompt, visibility } = input
  const displayName = input.displayName === null ? toDisplayName(name ?? skill.name) : input.displayName
  const category = input.category === null ? 'other' : input.category
  const builtInTools = input.builtInTools === null ? [] : input.builtInTools
  const requiredMCPs = input.requiredMCPs === null ? [] : input.requiredMCPs
  const changes = omitUndefined({
    name,
    displayName,
    description,
    prompt,
    category,
    visibility,
    builtInTools,
    requiredMCPs,
  })
  const warnings = toolWarnings(builtInTools)
  if (!hasChanges(skill, changes)) return { skill: toSkill(actor, skill), ...warnings }
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    const data = { ...changes, version: { increment: 1 }, updatedAt: now }
    const [changed] = await unlessTaken(tx.skill.updateManyAndReturn({ where: { id: skill.id }, data }))
    if (!changed) throw notFound('Skill')
    const text = searchColumns(changed)
    if (hasChanges(changed, text)) await tx.skill.updateMany({ where: { id: skill.id }, data: text })
    await recordVersion(tx, actor, changed)
    await audit(tx, actor, 'skill.update', skill.id, now)
    return changed
  })
  deps.bus.publish('skill', [skill.organizationId])
  return { skill: toSkill(actor, row), ...warnings }
}

/** DELETE /skills/{id}. Removes it from agents, spaces and later runs. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const skill = await findWritable(actor, deps, id)
  await deps.db.$transaction(async (tx) => {
    const { organizationId } = skill
    const { count } = await tx.skill.deleteMany({ where: { id } })
    if (!count) throw notFound('Skill')
    // Locked against new attachments; other references to it find nothing from now on.
    await tx.spaceSkill.deleteMany({ where: { organizationId, skillId: id } })
    await audit(tx, actor, 'skill.delete', id, deps.clock.now())
  })
  deps.bus.publish('skill', [skill.organizationId])
  return { message: 'Skill deleted successfully' }
}
