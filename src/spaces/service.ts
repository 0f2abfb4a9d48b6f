import { LRUCache } from 'lru-cache'
import type { z } from 'zod'
import { reachable as reachableAgent } from '../agents/visibility.ts'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { columnsAre } from '../db/counting.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { badRequest, notFound } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newId } from '../lib/id.ts'
import { listPage } from '../lib/page.ts'
import { searchedIn } from '../lib/search.ts'
import { isOnLatest } from '../organizations/policy.ts'
import { permissionWarnings } from '../skills/schema.ts'
import { findVersions as findSkillVersions, type Newest, toAttachedAt } from '../skills/versions.ts'
import { addedBy, attach, checkAdded, detach, isNothing, removedBy } from './attachments.ts'
import type { CreateSpace, ListSpaces, Space, SpaceSkillId, UpdateSpace } from './schema.ts'
import { chatsFor, listedBy, mayChange, reachable } from './visibility.ts'

type SpaceRow = Prisma.SpaceGetPayload<object>

/** Returns the column with the texts of a space that searches look in. */
const textOf = ({ name, description }: { name: string; description?: string | null | undefined }) =>
  searchedIn(name, description)

const authorize = (actor: Actor, space: SpaceRow): Authorized<SpaceRow> => permit(space, mayChange(actor, space))

/** Includes attached objects that the caller can see. MCP servers are visible to all; some skills are not rows. */
const withRefs = (actor: Actor) =>
  ({
    agentRefs: { where: { agent: reachableAgent(actor) }, orderBy: [{ addedAt: 'asc' }, { agentId: 'asc' }] },
    skillRefs: { orderBy: [{ addedAt: 'asc' }, { skillId: 'asc' }] },
    mcpRefs: { orderBy: [{ addedAt: 'asc' }, { mcpId: 'asc' }] },
  }) satisfies Prisma.SpaceInclude

type FullRow = Prisma.SpaceGetPayload<{ include: { agentRefs: true; skillRefs: true; mcpRefs: true } }> & {
  truncated?: boolean
}

/** The long texts of a space, which long lists cut. */
export const LONG_TEXTS = ['description', 'instructions'] as const
type Found = {
  chatCount: number
  secretKeys: string[]
  skills: ReadonlyMap<string, Newest>
  /** Whether skills follow their newest versions. */
  isLatest: boolean
}
type Added = { enabled: boolean; addedAt: Date; addedBy: string }

const toRef = ({ enabled, addedAt, addedBy }: Added) => ({ enabled, addedAt: addedAt.toISOString(), addedBy })

const toSpace = (row: FullRow, { chatCount, secretKeys, skills, isLatest }: Found): z.input<typeof Space> => ({
  id: row.id,
  organizationId: row.organizationId,
  name: row.name,
  description: row.description,
  visibility: row.visibility,
  ownerId: row.ownerId,
  instructions: row.instructions,
  permissions: row.permissions as z.input<typeof Space>['permissions'],
  isDefault: row.isDefault,
  assignedAgents: row.agentRefs.flatMap(({ agentId, enabled }) => (enabled ? agentId : [])),
  skillIds: row.skillRefs.flatMap(({ skillId, enabled }) => (enabled && skills.has(skillId) ? skillId : [])),
  pluginIds: row.mcpRefs.flatMap(({ mcpId, enabled }) => (enabled ? mcpId : [])),
  agentRefs: row.agentRefs.map((ref) => ({ agentId: ref.agentId, ...toRef(ref) })),
  skillRefs: row.skillRefs.flatMap((ref) => {
    const newest = skills.get(ref.skillId)
    return newest ? { skillId: ref.skillId, ...toRef(ref), ...toAttachedAt(ref.version, newest, isLatest) } : []
  }),
  mcpRefs: row.mcpRefs.map((ref) => ({ mcpId: ref.mcpId, ...toRef(ref) })),
  secretKeys,
  chatCount,
  fileCount: row.fileCount,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
  ...(row.truncated && { truncated: true }),
})

/**
 * Returns the number of chats that {@link chatsFor} finds in each space, from totals kept by triggers per viewer (like
 * `Total`).
 */
async function chatCounts({ organizationId, userId }: Actor, db: Tx, ids: readonly string[]) {
  const of = columnsAre({ organizationId, spaceId: ids, userId: ['', userId] })
  const rows = await db.$queryRaw<{ spaceId: string; count: number | bigint }[]>(Prisma.sql`
    SELECT t."spaceId", sum(t."count") AS "count" FROM "ChatCount" t
    WHERE ${Prisma.join(of, ' AND ')} GROUP BY t."spaceId"`)
  return new Map(rows.map(({ spaceId, count }) => [spaceId, Number(count)]))
}

/** Returns the spaces of a page with their counts and references, in four statements. */
async function toSpaces(actor: Actor, db: Tx, rows: readonly FullRow[]) {
  const ids = rows.map(({ id }) => id)
  const skillIds = rows.flatMap(({ skillRefs }) => skillRefs.map(({ skillId }) => skillId))
  const { organizationId } = actor
  const [chats, secrets, skills] = await Promise.all([
    chatCounts(actor, db, ids),
    db.secret.findMany({
      where: { organizationId, scope: { in: ids } },
      select: { scope: true, name: true },
      orderBy: { name: 'asc' },
    }),
    findSkillVersions(actor, db, skillIds),
  ])
  const pins = rows.flatMap(({ skillRefs }) => skillRefs)
  const isLatest = await isOnLatest(db, organizationId, pins, skills)
  const keys = Map.groupBy(secrets, ({ scope }) => scope)
  return rows.map((row) =>
    toSpace(row, {
      chatCount: chats.get(row.id) ?? 0,
      secretKeys: keys.get(row.id)?.map(({ name }) => name) ?? [],
      skills,
      isLatest,
    }),
  )
}

/** Returns how many spaces {@link listedBy} finds. Counts rows if there is a search. */
export const countListed = (actor: Actor, db: Db, input: z.output<typeof ListSpaces>): Promise<number> =>
  input.search
    ? db.space.count({ where: listedBy(actor, input) })
    : totalOf(db, {
        organizationId: actor.organizationId,
        ...(isAdmin(actor) ? { list: 'spaces for admins' } : { list: 'spaces', userId: { in: ['', actor.userId] } }),
      })

/** GET /spaces, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListSpaces>) {
  const { rows, nextCursor } = await listPage<FullRow>(input, LONG_TEXTS, ({ where: after, ...page }) =>
    db.space.findMany({ where: { AND: [listedBy(actor, input), after ?? {}] }, include: withRefs(actor), ...page }),
  )
  const total = input.cursor !== undefined || nextCursor ? await countListed(actor, db, input) : rows.length
  return { spaces: await toSpaces(actor, db, rows), total, nextCursor }
}

/** Returns the spaces with these ids that the caller can reach. */
export async function findMany(actor: Actor, { db }: { db: Tx }, ids: readonly string[]) {
  const where = { id: { in: [...ids] }, ...reachable(actor) }
  return toSpaces(actor, db, await db.space.findMany({ where, include: withRefs(actor) }))
}

/** GET /spaces/{id}. */
export async function get(actor: Actor, deps: { db: Tx }, id: string) {
  const [space] = await findMany(actor, deps, [id])
  if (!space) throw notFound('Space')
  return { space }
}

/** Finds a space. Throws 404 if the caller cannot reach it. */
export async function find(actor: Actor, { db }: Pick<Deps, 'db'>, id: string): Promise<SpaceRow> {
  const row = await db.space.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Space')
  return row
}

/** Ids of default spaces by organization. They stay valid, because a default space is never deleted or private. */
const defaultSpaces = new LRUCache<string, string>({ max: 10_000 })

/** Returns the id of the named space, or of the default one. Throws 404 if the caller cannot reach it. */
export async function findOrDefault(
  actor: Actor,
  { db }: Pick<Deps, 'db'>,
  id: string | null | undefined,
): Promise<string> {
  const isDefault = id === null || id === undefined
  const known = isDefault && defaultSpaces.get(actor.organizationId)
  if (known) return known
  const wanted: Prisma.SpaceWhereInput = isDefault ? { isDefault } : { id }
  // At most one row matches. Without a limit, PostgreSQL keeps the statement prepared.
  const [space] = await db.space.findMany({ where: { ...wanted, ...reachable(actor) }, select: { id: true } })
  if (!space) throw notFound('Space')
  if (isDefault) defaultSpaces.set(actor.organizationId, space.id)
  return space.id
}

/** POST /spaces. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateSpace>) {
  const { name, description, visibility, instructions, permissions } = input
  const now = deps.clock.now()
  const { row, skills } = await deps.db.$transaction(async (tx) => {
    const { id } = await tx.space.create({
      data: {
        id: newId(),
        organizationId: actor.organizationId,
        name,
        description: description ?? null,
        ...textOf({ name, description }),
        visibility: visibility ?? 'organization',
        ownerId: actor.userId,
        instructions: instructions ?? null,
        permissions: permissions ?? [],
        createdAt: now,
        updatedAt: now,
      },
      select: { id: true },
    })
    const skills = await checkAdded(tx, actor, deps, input)
    await attach(tx, actor, id, addedBy(input), skills, now)
    await audit(tx, actor, 'space.create', id, now)
    return { row: await tx.space.findUniqueOrThrow({ where: { id }, include: withRefs(actor) }), skills }
  })
  const found = { chatCount: 0, secretKeys: [], skills, isLatest: false }
  return { id: row.id, name: row.name, space: toSpace(row, found), ...permissionWarnings(permissions) }
}

/** PATCH /spaces/{id}, by its owner or an admin. */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateSpace>) {
  const space = authorize(actor, await find(actor, deps, input.id))
  const added = addedBy(input)
  const removed = removedBy(input)
  const { name, description, visibility, instructions } = input
  const permissions = input.permissions === null ? [] : input.permissions
  if (visibility === 'private' && space.isDefault)
    throw badRequest('The default space cannot be private', { detail: 'Create another space for private work.' })
  const changes = omitUndefined({ name, description, visibility, instructions, permissions })
  if (hasChanges(space, changes) || !isNothing(added) || !isNothing(removed)) {
    const now = deps.clock.now()
    const data = { ...changes, updatedAt: now }
    await deps.db.$transaction(async (tx) => {
      await updateSpace(tx, actor, space, 'space.update', data)
      const skills = await checkAdded(tx, actor, deps, input)
      await detach(tx, space.id, removed)
      await attach(tx, actor, space.id, added, skills, now)
    })
  }
  return { ...(await get(actor, deps, space.id)), ...permissionWarnings(permissions) }
}

/**
 * POST /spaces/{id}/skills/{skillId}/update, by the owner of the space or an admin: adopts the newer version of a
 * skill. Throws 404 for a skill that is not attached or that the caller cannot see.
 */
export async function updateSkill(actor: Actor, deps: Deps, { id, skillId }: z.output<typeof SpaceSkillId>) {
  const space = authorize(actor, await find(actor, deps, id))
  const newest = (await findSkillVersions(actor, deps.db, [skillId])).get(skillId)
  if (!newest) throw notFound('Skill')
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    await updateSpace(tx, actor, space, 'space.update', { updatedAt: now })
    const data = { version: newest.version }
    const { count } = await tx.spaceSkill.updateMany({ where: { spaceId: space.id, skillId }, data })
    if (!count) throw notFound('Skill')
  })
  return get(actor, deps, id)
}

/** DELETE /spaces/{id}: archives it, which also hides its chats; executions stay. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const space = authorize(actor, await find(actor, deps, id))
  if (space.isDefault)
    throw badRequest('The default space cannot be deleted', {
      detail: 'Every organization has one. Delete its files instead.',
    })
  const now = deps.clock.now()
  await deps.db.$transaction((tx) =>
    updateSpace(tx, actor, space, 'space.archive', { archivedAt: now, updatedAt: now }),
  )
  return { message: 'Space deleted successfully' }
}

/** Changes a space. Throws 404 if it was archived meanwhile. */
async function updateSpace(
  tx: Tx,
  actor: Actor,
  { id }: Authorized<SpaceRow>,
  action: string,
  data: Prisma.SpaceUpdateManyMutationInput & { updatedAt: Date },
): Promise<void> {
  const [row] = await tx.space.updateManyAndReturn({ where: { id, archivedAt: null }, data })
  if (!row) throw notFound('Space')
  await keepText(tx, row)
  await audit(tx, actor, action, id, data.updatedAt)
}

/** Stores the searched text of a changed space. Its other column may have changed since the space was read. */
export async function keepText(tx: Tx, space: SpaceRow): Promise<void> {
  const text = textOf(space)
  if (hasChanges(space, text)) await tx.space.updateMany({ where: { id: space.id }, data: text })
}
