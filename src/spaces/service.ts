import type { z } from 'zod'
import { notPrivate, reachable as reachableAgent } from '../agents/service.ts'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Db, Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, notFound } from '../errors.ts'
import { newId } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import type { CreateSpace, ListSpaces, Space, UpdateSpace } from './schema.ts'

type SpaceRow = Prisma.SpaceGetPayload<object>

/** Spaces whose content the caller may see: a private one is for its owner and for admins (contract.md section 2). */
export const visible = (actor: Actor): Prisma.SpaceWhereInput =>
  isAdmin(actor) ? {} : { OR: [{ visibility: { not: 'private' } }, { ownerId: actor.userId }] }

/** By id: what is visible in the organization and not archived. */
export const reachable = (actor: Actor): Prisma.SpaceWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  ...visible(actor),
})

export const listed = reachable

/** The organization's chats that the caller may see wherever they can see the space: those of their agent and mission. */
export const chatsFor = (actor: Actor): Prisma.ChatWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  AND: [
    { OR: [{ agentId: null }, notPrivate(actor)] },
    {
      OR: [{ missionId: null }, { mission: { visibility: { not: 'private' } } }, { mission: { userId: actor.userId } }],
    },
  ],
})

const authorize = (actor: Actor, space: SpaceRow): Authorized<SpaceRow> =>
  permit(space, space.ownerId === actor.userId || isAdmin(actor))

/** With the attached agents that the caller can see. */
const withAgents = (actor: Actor) =>
  ({
    agentRefs: { where: { agent: reachableAgent(actor) }, orderBy: [{ addedAt: 'asc' }, { agentId: 'asc' }] },
  }) satisfies Prisma.SpaceInclude

type FullRow = Prisma.SpaceGetPayload<{ include: { agentRefs: true } }>
type Counted = { chatCount: number; secretKeys: string[] }

const toSpace = (row: FullRow, { chatCount, secretKeys }: Counted): z.input<typeof Space> => ({
  id: row.id,
  organizationId: row.organizationId,
  name: row.name,
  description: row.description,
  visibility: row.visibility,
  ownerId: row.ownerId,
  instructions: row.instructions,
  isDefault: row.isDefault,
  assignedAgents: row.agentRefs.flatMap(({ agentId, enabled }) => (enabled ? agentId : [])),
  skillIds: [],
  pluginIds: [],
  agentRefs: row.agentRefs.map(({ agentId, enabled, addedAt, addedBy }) => ({
    agentId,
    enabled,
    addedAt: addedAt.toISOString(),
    addedBy,
  })),
  skillRefs: [],
  mcpRefs: [],
  secretKeys,
  chatCount,
  fileCount: row.fileCount,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

/** The spaces of a page, with what is counted and named beside their rows: two statements, however many they are. */
async function toSpaces(actor: Actor, db: Db, rows: readonly FullRow[]) {
  const ids = rows.map(({ id }) => id)
  const [counts, secrets] = await Promise.all([
    db.chat.groupBy({ by: ['spaceId'], where: { ...chatsFor(actor), spaceId: { in: ids } }, _count: true }),
    db.secret.findMany({
      where: { organizationId: actor.organizationId, scope: { in: ids } },
      select: { scope: true, name: true },
      orderBy: { name: 'asc' },
    }),
  ])
  const chats = new Map(counts.map(({ spaceId, _count }) => [spaceId, _count]))
  const keys = Map.groupBy(secrets, ({ scope }) => scope)
  return rows.map((row) =>
    toSpace(row, {
      chatCount: chats.get(row.id) ?? 0,
      secretKeys: keys.get(row.id)?.map(({ name }) => name) ?? [],
    }),
  )
}

/** GET /spaces, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListSpaces>) {
  const where = listed(actor)
  const { where: after, ...page } = pageQuery(input)
  const found = await db.space.findMany({
    where: { AND: [where, after ?? {}] },
    include: withAgents(actor),
    ...page,
  })
  const { rows, nextCursor } = toPage(found, input)
  const total = after || nextCursor ? await db.space.count({ where }) : rows.length
  return { spaces: await toSpaces(actor, db, rows), total, nextCursor }
}

/** GET /spaces/{id}. */
export async function get(actor: Actor, { db }: Deps, id: string) {
  const rows = await db.space.findMany({
    where: { id, ...reachable(actor) },
    include: withAgents(actor),
  })
  const [space] = await toSpaces(actor, db, rows)
  if (!space) throw notFound('Space')
  return { space }
}

/** The space that is named, or the default one. 404 when the caller cannot reach it. */
export async function find(actor: Actor, { db }: Pick<Deps, 'db'>, id: string | null | undefined): Promise<SpaceRow> {
  const wanted: Prisma.SpaceWhereInput = id ? { id } : { isDefault: true }
  const row = await db.space.findFirst({ where: { ...wanted, ...reachable(actor) } })
  if (!row) throw notFound('Space')
  return row
}

const union = (...lists: (readonly string[] | null | undefined)[]) => [...new Set(lists.flatMap((ids) => ids ?? []))]

type Attached = Partial<
  Pick<z.output<typeof CreateSpace>, 'addAgents' | 'addCharacters' | 'assignedAgents' | 'addSkills' | 'addMcps'>
>

/** The agents to attach: ones that the caller can reach in the organization. There are no skills and MCP servers yet. */
async function findAdded(actor: Actor, { db }: Deps, input: Attached): Promise<string[]> {
  if (input.addSkills?.length) throw badRequest('Invalid addSkills')
  if (input.addMcps?.length) throw badRequest('Invalid addMcps')
  const ids = union(input.addAgents, input.addCharacters, input.assignedAgents)
  if (!ids.length) return ids
  const found = await db.agent.count({ where: { id: { in: ids }, ...reachableAgent(actor) } })
  if (found !== ids.length) throw badRequest('Invalid addAgents')
  return ids
}

/** Attaches agents to a space whose row the transaction has written: until it ends nobody else attaches any. */
async function attach(tx: Tx, actor: Actor, spaceId: string, ids: string[], now: Date): Promise<void> {
  if (!ids.length) return
  const there = await tx.spaceAgent.findMany({ where: { spaceId, agentId: { in: ids } }, select: { agentId: true } })
  const known = new Set(there.map(({ agentId }) => agentId))
  const { organizationId, userId: addedBy } = actor
  const data = ids.flatMap((agentId) =>
    known.has(agentId) ? [] : { organizationId, spaceId, agentId, addedAt: now, addedBy },
  )
  if (data.length) await tx.spaceAgent.createMany({ data })
}

/** POST /spaces. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateSpace>) {
  const { name, description, visibility, instructions } = input
  const added = await findAdded(actor, deps, input)
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    const { id } = await tx.space.create({
      data: {
        id: newId(),
        organizationId: actor.organizationId,
        name,
        description: description ?? null,
        visibility: visibility ?? 'organization',
        ownerId: actor.userId,
        instructions: instructions ?? null,
        createdAt: now,
        updatedAt: now,
      },
      select: { id: true },
    })
    await attach(tx, actor, id, added, now)
    await audit(tx, actor, 'space.create', id, now)
    return tx.space.findUniqueOrThrow({ where: { id }, include: withAgents(actor) })
  })
  return { id: row.id, name: row.name, space: toSpace(row, { chatCount: 0, secretKeys: [] }) }
}

/** PATCH /spaces/{id}, by its owner or an admin. */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateSpace>) {
  const space = authorize(actor, await find(actor, deps, input.id))
  const added = await findAdded(actor, deps, input)
  const removed = union(input.removeAgents, input.removeCharacters)
  const { name, description, visibility, instructions } = input
  if (visibility === 'private' && space.isDefault) throw badRequest('The default space cannot be private')
  const said = Object.entries({ name, description, visibility, instructions }).filter(
    ([, value]) => value !== undefined,
  )
  if (said.length || added.length || removed.length) {
    const now = deps.clock.now()
    const data = { ...Object.fromEntries(said), updatedAt: now }
    await deps.db.$transaction(async (tx) => {
      await write(tx, actor, space, 'space.update', data)
      await tx.spaceAgent.deleteMany({ where: { spaceId: space.id, agentId: { in: removed } } })
      await attach(tx, actor, space.id, added, now)
    })
  }
  return get(actor, deps, space.id)
}

/** DELETE /spaces/{id}: archives it, and its chats are out of reach with it; executions stay. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const space = authorize(actor, await find(actor, deps, id))
  if (space.isDefault) throw badRequest('The default space cannot be deleted')
  const now = deps.clock.now()
  await deps.db.$transaction((tx) => write(tx, actor, space, 'space.archive', { archivedAt: now, updatedAt: now }))
  return { message: 'Space deleted successfully' }
}

/** Changes a space, unless it has been archived meanwhile: 404. */
async function write(
  tx: Tx,
  actor: Actor,
  { id }: Authorized<SpaceRow>,
  action: string,
  data: Prisma.SpaceUpdateManyMutationInput & { updatedAt: Date },
): Promise<void> {
  const { count } = await tx.space.updateMany({ where: { id, archivedAt: null }, data })
  if (!count) throw notFound('Space')
  await audit(tx, actor, action, id, data.updatedAt)
}
