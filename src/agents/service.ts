import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { lockRows, Prisma, rowLock, type Tx } from '../db/client.ts'
import type { Hidden } from '../db/counting.ts'
import { lockMissionCounts, totalOf } from '../db/totals.ts'
import { whereWithoutIndex } from '../db/without-index.ts'
import type { Deps } from '../deps.ts'
import { conflict, hasChanged, notFound, requireAll } from '../errors.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { newId, newSortableId } from '../lib/id.ts'
import { encodeCursor, pageQuery, toPage } from '../lib/page.ts'
import { typesOf } from '../mcps/service.ts'
import { isOnLatest } from '../organizations/policy.ts'
import {
  checkRequirements,
  findMany as findSkills,
  findVersions as findSkillVersions,
  type Newest,
  toAttachedAt,
} from '../skills/service.ts'
import {
  type CachedAgent,
  findCached,
  type Head,
  LIST_COLUMNS,
  loadAgents,
  pinsIn,
  strings,
  toAgent,
} from './agent-cache.ts'
import { checkPrompt, DEFAULTS, toColumns, type Values, valuesOf } from './columns.ts'
import {
  type AgentSkill,
  type CreateAgent,
  type ListAgents,
  type ListPublicAgents,
  type UpdateAgent,
  Visibility,
} from './schema.ts'
import { findRare, findTagged, type Listed, searchable } from './search.ts'
import { freeSlug } from './slugs.ts'

type AgentRow = Prisma.AgentGetPayload<object>

type Filter = Pick<z.output<typeof ListAgents>, 'owner' | 'visibility'>

type Visible = AgentRow['visibility']

const SHARED = ['organization', 'public'] as const

/** Returns the shared visibilities that match a filter. */
const sharedBy = ({ visibility }: Filter) => SHARED.filter((shared) => shared === (visibility ?? shared))

/** Filters the organization's list: shared agents; with `owner: 'me'` the caller's own agents of every visibility. */
export const listed = (actor: Actor, { owner, visibility }: Filter = {}) => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  ...(owner === 'me'
    ? { userId: actor.userId, ...(visibility && { visibility }) }
    : { visibility: { in: sharedBy({ visibility }) } }),
})

/** Filters access by id: all agents of the organization but other users' private ones. */
export const reachable = (actor: Actor): Prisma.AgentWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  OR: [{ visibility: { not: 'private' } }, { userId: actor.userId }],
})

/** Filters agents that the caller may run: the reachable ones, and public and unlisted ones of other organizations. */
export const executable = (actor: Actor): Prisma.AgentWhereInput => ({
  archivedAt: null,
  OR: [{ visibility: { in: ['public', 'unlisted'] } }, reachable(actor)],
})

/**
 * Filters rows of an agent (chats, executions), which follow its visibility: with a private agent they belong to its
 * owner. Rows for another organization's agent belong to the organization that ran it (contract.md section 2).
 */
export const notPrivate = (actor: Actor) => ({
  OR: [
    { agentOrganizationId: { not: actor.organizationId } },
    { agent: { OR: [{ visibility: { not: 'private' as const } }, { userId: actor.userId }] } },
  ],
})

/**
 * Filters executions, sessions and chats, in addition to {@link notPrivate}: rows written while an agent was private
 * stay visible to its owner only (contract-2.md section 8.6).
 */
export const notThenPrivate = ({ userId }: Actor) => ({ OR: [{ wasPrivate: false }, { agent: { userId } }] })

/** Describes the rows that {@link notThenPrivate} excludes. */
export const ofThenPrivate = ({ userId }: Actor, of: 'Execution' | 'Chat'): Hidden => ({
  of,
  where: Prisma.sql`h."wasPrivate" = ${true}
    AND (SELECT a."userId" FROM "Agent" a WHERE a."id" = h."agentId") <> ${userId}`,
  on: Prisma.sql`t."id" = h."id"`,
})

/** Describes the rows that {@link notPrivate} excludes: those of other users' private agents. */
export const ofPrivateAgents = ({ userId }: Actor): Hidden => ({
  of: 'Agent',
  where: Prisma.sql`h."visibility" = 'private' AND h."userId" <> ${userId}`,
  on: Prisma.sql`t."organizationId" = h."organizationId" AND t."agentId" = h."id"`,
})

/** Filters the cards of all organizations' agents: public ones in the list, unlisted ones also by id. */
export const publiclyVisible = (how: 'listed' | 'byId') => {
  const visibilities: Visible[] = how === 'listed' ? ['public'] : ['public', 'unlisted']
  return { archivedAt: null, visibility: { in: visibilities } }
}

/** Columns that determine an agent's name for other organizations. */
export const NAMED = { name: true, organizationId: true, visibility: true, archivedAt: true } as const

/** Returns an agent's name as seen by an organization: null once its own organization has withdrawn it. */
export function nameIn(organizationId: string, agent: Pick<AgentRow, keyof typeof NAMED>): string | null {
  const isOpen = agent.archivedAt === null && (agent.visibility === 'public' || agent.visibility === 'unlisted')
  return isOpen || agent.organizationId === organizationId ? agent.name : null
}

/** Checks that the caller may change an agent: its creator, and admins unless it is private (contract.md section 2). */
const authorize = <Row extends Pick<AgentRow, 'userId' | 'visibility'>>(actor: Actor, agent: Row): Authorized<Row> =>
  permit(agent, agent.userId === actor.userId || (isAdmin(actor) && agent.visibility !== 'private'))

/** Returns the ids that the caller can reach, in at most one statement. */
async function findIds(actor: Actor, db: Tx, ids: readonly string[]): Promise<Set<string>> {
  const where = { id: { in: [...new Set(ids)] }, ...reachable(actor) }
  const rows = ids.length ? await db.agent.findMany({ where, select: { id: true } }) : []
  return new Set(rows.map(({ id }) => id))
}

/** The id lists of an agent, with functions that find the reachable ids in at most one statement each. */
export const REFERENCES = { skillIds: findSkillVersions, mcpInstanceIds: typesOf, subagentIds: findIds }
const REFERRING = Object.keys(REFERENCES) as (keyof typeof REFERENCES)[]

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
  const lists = await Promise.all(
    REFERRING.map(async (field) => {
      const ids = agents.flatMap((agent) => agent[field])
      return { field, seen: await REFERENCES[field](actor, db, ids) }
    }),
  )
  const refs = await refsOf(actor, db, agents, lists[0]!.seen as ReadonlyMap<string, Newest>)
  return agents.map((agent, index) => {
    const cut = lists.filter(({ field, seen }) => !agent[field].every((id) => seen.has(id)))
    const left = cut.map(({ field, seen }) => [field, agent[field].filter((id) => seen.has(id))])
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
 * Returns the condition for agents that match a filter and a search. Rare tags and texts are resolved to ids first; the
 * remaining conditions must not choose the index, because SQLite would read all other agents.
 */
export async function matching(
  deps: Pick<Deps, 'db' | 'settings'>,
  where: Listed,
  { search, tag, category }: { search?: string | undefined; tag?: string | undefined; category?: string | undefined },
): Promise<Prisma.AgentWhereInput> {
  const list = where as Prisma.AgentWhereInput
  const wanted = [
    list,
    search ? { searchText: { contains: searchable(search) } } : {},
    tag === undefined ? {} : { tagRows: { some: { tag } } },
    category === undefined ? {} : { category },
  ]
  const named =
    (tag === undefined ? null : await findTagged(deps, tag, where)) ??
    (search ? await findRare(deps, search, where) : null)
  return named ? { id: { in: named }, ...whereWithoutIndex({ AND: wanted }) } : { AND: wanted }
}

/** Counts only if the rows do not determine the count. */
export async function pageOfAgents<Row extends Head>(
  where: Prisma.AgentWhereInput,
  input: z.output<typeof ListPublicAgents>,
  count: () => Promise<number>,
  read: (query: Omit<ReturnType<typeof pageQuery>, 'where'> & { where: Prisma.AgentWhereInput }) => Promise<Row[]>,
) {
  const { where: after, ...page } = pageQuery(input)
  const found = await read({ where: { AND: [where, after ?? {}] }, ...page })
  const { rows, nextCursor } = toPage(found, input)
  const total = after || nextCursor ? await count() : rows.length
  return { rows, nextCursor, total }
}

/** Returns the filter for the kept totals of shared agents, of those with a tag if one is given. */
export const totalsOf = (visibilities: readonly string[], tag: string | undefined): Prisma.TotalWhereInput =>
  tag === undefined
    ? { list: 'agents', value: { in: [...visibilities] } }
    : { list: 'tagged agents', value: { in: visibilities.map((visibility) => `${visibility} ${tag}`) } }

/** Returns the filter of `list`: its input on top of {@link listed}. */
export const listedBy = (actor: Actor, deps: Pick<Deps, 'db' | 'settings'>, input: z.output<typeof ListAgents>) =>
  matching(deps, listed(actor, input), input)

/**
 * Returns how many agents match `where`, the result of {@link listedBy}. Counts rows if the filters include a search, a
 * category, or a tag among the caller's own agents.
 */
export function countListed(
  { organizationId, userId }: Actor,
  { db }: Pick<Deps, 'db'>,
  input: z.output<typeof ListAgents>,
  where: Prisma.AgentWhereInput,
): Promise<number> {
  const { owner, visibility, tag, category, search } = input
  if (search || category !== undefined || (owner && tag !== undefined)) return db.agent.count({ where })
  if (!owner) return totalOf(db, { organizationId, ...totalsOf(sharedBy(input), tag) })
  return totalOf(db, { organizationId, list: 'agents', userId, value: visibility ?? { in: Visibility.options } })
}

/** GET /agents (contract.md section 2). */
export async function list(actor: Actor, deps: Deps, input: z.output<typeof ListAgents>) {
  const where = await listedBy(actor, deps, input)
  const { rows, nextCursor, total } = await pageOfAgents(
    where,
    input,
    () => countListed(actor, deps, input, where),
    // All heads fit in a page.
    ({ where, orderBy, take }) => deps.db.agent.findMany({ where, orderBy, take, select: LIST_COLUMNS }),
  )
  const { agents, count } = await loadAgents(deps, where, rows)
  const last = count < rows.length ? rows[count - 1] : undefined
  return {
    agents: await filterReferences(actor, deps, agents),
    nextCursor: last ? encodeCursor(last) : nextCursor,
    total,
  }
}

/** GET /agents/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  const known = await findCached(deps, id, reachable(actor))
  if (!known) throw notFound('Agent')
  const [agent] = await filterReferences(actor, deps, [known])
  return { agent: agent! }
}

export async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<AgentRow> {
  const row = await db.agent.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Agent')
  return row
}

/**
 * Finds the skills and MCP servers of an agent. Throws 400 for ids that the caller cannot reach (contract.md section
 * 3).
 */
async function findReferences(
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
async function checkReferences(
  actor: Actor,
  deps: Deps,
  values: Partial<Values>,
  has: Pick<Values, 'skillIds' | 'mcpInstanceIds'> = DEFAULTS,
): Promise<Map<string, number>> {
  const { mcps, skills } = await findReferences(actor, deps, values, has)
  const added = skills.filter(({ id }) => !has.skillIds.includes(id))
  checkRequirements(added, [...mcps.values()])
  return new Map(skills.map(({ id, version }) => [id, version]))
}

/** Pins skills to their current pins, and added skills to their newest versions (contract-2.md section 8.5). */
function pinned(
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

/** Records a change: the version, its tags as rows and the audit event. */
async function recordChange(tx: Tx, actor: Actor, action: string, row: AgentRow): Promise<void> {
  const { organizationId, id: agentId, version, visibility, updatedAt: createdAt } = row
  await tx.agentVersion.create({
    data: {
      organizationId,
      agentId,
      version,
      visibility,
      userId: actor.userId,
      createdAt,
      agent: toAgent(row) as Prisma.InputJsonObject,
    },
  })
  if (version > 1) await tx.agentTag.deleteMany({ where: { agentId } })
  const tags = strings(row.tags).map((tag) => ({ organizationId, agentId, tag }))
  if (tags.length) await tx.agentTag.createMany({ data: tags })
  await audit(tx, actor, action, agentId, createdAt)
}

/**
 * Makes the caller the owner of a former member's agents, including archived ones, and records a change of each.
 * Returns their number.
 */
export async function recordTakeOver(tx: Tx, actor: Actor, from: string, now: Date): Promise<number> {
  const where = { organizationId: actor.organizationId, userId: from }
  const data = { userId: actor.userId, version: { increment: 1 }, updatedAt: now }
  const changed = await tx.agent.updateManyAndReturn({ where, data })
  for (const row of changed) await recordChange(tx, actor, 'agent.take_over', row)
  return changed.length
}

/** Returns the values that a copy inherits, without subagents, skills and MCP servers that the copier cannot reach. */
const copyOf = async (actor: Actor, deps: Deps, id: string) => (await get(actor, deps, id)).agent

/** Returns the values of a new agent. Throws for references that the caller cannot reach. */
async function newValues(actor: Actor, deps: Deps, input: z.output<typeof CreateAgent>) {
  const { basedOnAgentId = null } = input
  const copied = basedOnAgentId === null ? null : await copyOf(actor, deps, basedOnAgentId)
  const { slug: _, ...base } = copied ? valuesOf(copied) : {}
  const inputValues = valuesOf(input)
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
  return created
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
  await change(
    actor,
    deps,
    input.id,
    'agent.update',
    (row) => {
      const before = valuesOf(row) as Values
      const after = { ...before, ...inputValues }
      if (isDeepStrictEqual(before, after)) return null
      return { ...toColumns(after), skillRefs: pinned(after.skillIds, pinsIn(row), newest) }
    },
    input.version,
  )
  return { message: 'Agent updated successfully' }
}

/**
 * POST /agents/{id}/skills/{skillId}/update: adopts the newer version of a skill, as a change of the agent. Throws 404
 * for a skill that is not attached or that the caller cannot see.
 */
export async function updateSkill(actor: Actor, deps: Deps, { id, skillId }: z.output<typeof AgentSkill>) {
  const version = (await findSkillVersions(actor, deps.db, [skillId])).get(skillId)?.version
  await change(actor, deps, id, 'agent.update', (row) => {
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
  await change(actor, deps, id, 'agent.archive', () => ({ archivedAt: deps.clock.now() }), version)
  return { message: 'Agent deleted successfully' }
}

/** Pauses the missions of an archived agent at once instead of when they are due. Active runs continue. */
async function pauseMissions(tx: Tx, { settings }: Deps, { organizationId, id, updatedAt }: AgentRow): Promise<void> {
  await lockMissionCounts(tx, settings, Prisma.sql`"agentId" = ${id}`)
  await tx.mission.updateMany({
    where: { agentOrganizationId: organizationId, agentId: id, status: { in: ['pending', 'running'] } },
    data: { status: 'paused', pauseReason: 'The agent was archived', nextRunAt: null, updatedAt },
  })
}

/** Reads, decides and writes. Each of several concurrent changes decides on the result of the one before it. */
async function change(
  actor: Actor,
  deps: Deps,
  id: string,
  action: string,
  decide: (row: Authorized<AgentRow>) => Prisma.AgentUpdateManyMutationInput | null,
  version?: number,
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
    if (changed.archivedAt) await pauseMissions(tx, deps, changed)
  }
  await deps.db.$transaction(writeChange).catch(refuseSlug)
}
