import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit, auditEach } from '../auth/audit.ts'
import { lockRows, type Prisma, rowLock, type Tx } from '../db/client.ts'
import { createEach } from '../db/each-row.ts'
import type { Deps } from '../deps.ts'
import { conflict, hasChanged, notFound } from '../errors.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { newId, newSortableId } from '../lib/id.ts'
import { searchedIn } from '../lib/search.ts'
import { end } from '../missions/endings.ts'
import { permissionWarnings } from '../skills/schema.ts'
import { findVersions as findSkillVersions } from '../skills/versions.ts'
import { findCached } from './agent-cache.ts'
import { checkPrompt, DEFAULTS, toColumns, type Values, valuesOf } from './columns.ts'
import { checkReferences, filterReferences, findReferences, pinned, REFERRING } from './references.ts'
import { type AgentRow, find, pinsIn, strings, toAgent } from './rows.ts'
import type { AgentSkill, CreateAgent, UpdateAgent } from './schema.ts'
import { freeSlug } from './slugs.ts'
import { toVersion } from './versions.ts'
import { reachable } from './visibility.ts'

/** Checks that the caller may change an agent: its creator, and admins unless it is private (contract.md section 2). */
const authorize = <Row extends Pick<AgentRow, 'userId' | 'visibility'>>(actor: Actor, agent: Row): Authorized<Row> =>
  permit(agent, agent.userId === actor.userId || (isAdmin(actor) && agent.visibility !== 'private'))

/** GET /agents/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  const known = await findCached(deps, id, reachable(actor))
  if (!known) throw notFound('Agent')
  const [agent] = await filterReferences(actor, deps, [known])
  return { agent: agent! }
}

/** Records a change: the version, its tags as rows and the audit event. */
async function recordChange(tx: Tx, actor: Actor, action: string, row: AgentRow): Promise<void> {
  const { organizationId, id: agentId, version, updatedAt } = row
  await tx.agentVersion.createMany({ data: toVersion(actor, row) })
  if (version > 1) await tx.agentTag.deleteMany({ where: { agentId } })
  const tags = strings(row.tags).map((tag) => ({ organizationId, agentId, tag }))
  if (tags.length) await tx.agentTag.createMany({ data: tags })
  await audit(tx, actor, action, agentId, updatedAt)
}

/** Makes the caller the owner of a former member's agents, including archived ones, and records a change of each. */
export async function recordTakeOver(tx: Tx, actor: Actor, ids: string[], now: Date): Promise<void> {
  const data = { userId: actor.userId, version: { increment: 1 }, updatedAt: now }
  const changed = await tx.agent.updateManyAndReturn({ where: { id: { in: ids } }, data })
  await createEach(
    (data) => tx.agentVersion.createMany({ data }),
    changed.map((row) => toVersion(actor, row)),
  )
  await auditEach(tx, actor, 'agent.take_over', ids, now)
}

/** Returns the values that a copy inherits, without subagents, skills and MCP servers that the copier cannot reach. */
const copyOf = async (actor: Actor, deps: Deps, id: string) => (await get(actor, deps, id)).agent

/** Returns the values of a new agent. Throws for references that the caller cannot reach. */
async function newValues(actor: Actor, deps: Deps, input: z.output<typeof CreateAgent>) {
  const { basedOnAgentId = null } = input
  const copied = basedOnAgentId === null ? null : await copyOf(actor, deps, basedOnAgentId)
  const { slug: _, ...base } = copied ? valuesOf(copied) : {}
  // A copy of a private agent stays private, whether its visibility is null or absent.
  const inputValues = valuesOf({ ...input, visibility: input.visibility ?? undefined })
  const values: Values = { ...DEFAULTS, ...base, ...inputValues }
  checkPrompt(values)
  const newest = await checkReferences(actor, deps, inputValues, { ...DEFAULTS, ...base })
  return { ...toColumns(values), skillRefs: pinned(values.skillIds, copied?.skillRefs ?? [], newest) }
}

/**
 * Finds the references of a new agent. Throws 404 for the agent that it copies and 400 for all others if the caller
 * cannot reach them.
 */
export async function findNamed(actor: Actor, deps: Deps, input: z.output<typeof CreateAgent>): Promise<void> {
  const { basedOnAgentId = null } = input
  if (basedOnAgentId !== null) await copyOf(actor, deps, basedOnAgentId)
  await findReferences(actor, deps, valuesOf(input))
}

/** Throws 409 for a slug that another unarchived agent of the organization has. */
function refuseSlug(error: unknown): never {
  throw isUniqueViolation(error)
    ? conflict('Agent slug already exists', { detail: 'Choose another slug, or leave it out.' })
    : error
}

/** POST /agents: creates the agent, its first version and a chat with it in the organization's default space. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateAgent>) {
  const { clock } = deps
  const values = await newValues(actor, deps, input)
  const { organizationId, organizationSlug, userId } = actor
  const now = clock.now()
  const [agentId, chatId] = [newId(), newSortableId(now)]
  const insert = async (tx: Tx) => {
    const slug = values.slug ?? (await freeSlug(tx, deps, { id: agentId, organizationId, name: values.name }))
    const space = await tx.space.findFirstOrThrow({ where: { organizationId, isDefault: true }, select: { id: true } })
    const row = await tx.agent.create({
      data: { id: agentId, organizationId, userId, ...values, slug, version: 1, createdAt: now, updatedAt: now },
    })
    await tx.chat.create({
      data: {
        id: chatId,
        organizationId,
        spaceId: space.id,
        agentId,
        agentOrganizationId: organizationId,
        ownerId: userId,
        title: row.name,
        ...searchedIn(row.name),
        wasPrivate: row.visibility === 'private',
        status: 'standby',
        createdAt: now,
        updatedAt: now,
      },
    })
    await recordChange(tx, actor, 'agent.create', row)
    const chatUrl = `/${organizationSlug}/spaces/${space.id}/chats/${chatId}`
    return { id: row.id, name: row.name, slug, status: 'active' as const, chatUrl, agent: toAgent(row) }
  }
  const created = await deps.db.$transaction(insert).catch(refuseSlug)
  deps.bus.publish('chat', [chatId])
  return { ...created, ...permissionWarnings(input.permissions) }
}

/** PATCH /agents/{id}. An empty change creates no version. */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateAgent>) {
  if (input.archived) return remove(actor, deps, input.id, input.version)
  const inputValues = valuesOf(input)
  checkPrompt(inputValues)
  let newest: ReadonlyMap<string, number> = new Map()
  if (REFERRING.some((field) => inputValues[field]?.length)) {
    const { agent } = await get(actor, deps, input.id)
    // Check permission before looking up references, so that they do not leak.
    newest = await checkReferences(actor, deps, inputValues, authorize(actor, agent))
  }
  await change(actor, deps, input, 'agent.update', (row) => {
    const before = valuesOf(row) as Values
    const after = { ...before, ...inputValues }
    if (isDeepStrictEqual(before, after)) return null
    return { ...toColumns(after), skillRefs: pinned(after.skillIds, pinsIn(row), newest) }
  })
  return { message: 'Agent updated successfully', ...permissionWarnings(input.permissions) }
}

/**
 * POST /agents/{id}/skills/{skillId}/update: adopts the newer version of a skill, as a change of the agent. Throws 404
 * for a skill that is not attached or that the caller cannot see.
 */
export async function updateSkill(actor: Actor, deps: Deps, { id, skillId }: z.output<typeof AgentSkill>) {
  const version = (await findSkillVersions(actor, deps.db, [skillId])).get(skillId)?.version
  await change(actor, deps, { id }, 'agent.update', (row) => {
    if (version === undefined || !strings(row.skillIds).includes(skillId)) throw notFound('Skill')
    const others = pinsIn(row).filter((pin) => pin.skillId !== skillId)
    const newest = new Map([[skillId, version]])
    const isNewest = pinsIn(row).some((pin) => pin.skillId === skillId && pin.version === version)
    return isNewest ? null : { skillRefs: pinned(strings(row.skillIds), others, newest) }
  })
  return get(actor, deps, id)
}

/** DELETE /agents/{id}: archives it; its executions stay (service.md, "Agent lifecycle"). */
export async function remove(actor: Actor, deps: Deps, id: string, version?: number) {
  await change(actor, deps, { id, version }, 'agent.archive', () => ({ archivedAt: deps.clock.now() }))
  return { message: 'Agent deleted successfully' }
}

/**
 * Reads, decides and writes. Each of several concurrent changes decides on the result of the one before it. Throws 412
 * for an agent of another version than the given one.
 */
async function change(
  actor: Actor,
  deps: Deps,
  { id, version }: { id: string; version?: number | undefined },
  action: string,
  decide: (row: Authorized<AgentRow>) => Prisma.AgentUpdateManyMutationInput | null,
): Promise<void> {
  const decideOn = (row: AgentRow) => {
    const authorized = authorize(actor, row)
    if (version !== undefined && row.version !== version) throw hasChanged()
    return decide(authorized)
  }
  // An empty change takes no lock.
  if (!decideOn(await find(actor, deps, id))) return
  const writeChange = async (tx: Tx) => {
    await lockRows(tx, 'Agent', [id], rowLock(deps.settings))
    const row = await find(actor, { db: tx }, id)
    const data = decideOn(row)
    if (!data) return
    const slug = data.slug === null && (await freeSlug(tx, deps, row))
    const news = { ...data, ...(slug && { slug }), version: row.version + 1, updatedAt: deps.clock.now() }
    const changed = await tx.agent.update({ where: { id }, data: news })
    await recordChange(tx, actor, action, changed)
    if (changed.archivedAt) {
      const { organizationId, updatedAt: now } = changed
      // Pauses its missions at once instead of when they are due. Active runs continue.
      await end(tx, { settings: deps.settings, by: actor, now }, { organizationId, kind: 'agent', target: id })
    }
  }
  await deps.db.$transaction(writeChange).catch(refuseSlug)
}
