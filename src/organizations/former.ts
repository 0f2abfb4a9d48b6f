import type { z } from 'zod'
import { recordTakeOver } from '../agents/service.ts'
import { type Actor, ownOrganization, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { toColumn } from '../auth/scopes.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { lockCounts } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { AppError, conflict } from '../errors.ts'
import { type FormerMember, type FormerMemberId, KINDS, type OrganizationId } from './schema.ts'

type Kind = (typeof KINDS)[number]

/** Tables of owned objects by kind: the table, its owner and name columns, and whether it has an archive. */
const TABLES: Record<Kind, { table: string; owner: string; name: string; archives: boolean }> = {
  agents: { table: 'Agent', owner: 'userId', name: 'name', archives: true },
  chats: { table: 'Chat', owner: 'ownerId', name: 'title', archives: true },
  mcps: { table: 'McpServer', owner: 'ownerId', name: 'name', archives: false },
  media: { table: 'Media', owner: 'userId', name: 'name', archives: false },
  missions: { table: 'Mission', owner: 'userId', name: 'title', archives: true },
  skills: { table: 'Skill', owner: 'ownerId', name: 'name', archives: false },
  spaces: { table: 'Space', owner: 'ownerId', name: 'name', archives: true },
}

const column = (name: string) => Prisma.raw(`"${name}"`)

/** Selects all objects of some kinds in an organization: owner, kind, id, name and time. */
const thingsIn = (organizationId: string) =>
  Prisma.join(
    KINDS.map((kind) => {
      const { table, owner, name, archives } = TABLES[kind]
      const live = archives ? Prisma.sql`AND "archivedAt" IS NULL` : Prisma.empty
      return Prisma.sql`SELECT ${column(owner)} AS "userId", '${Prisma.raw(kind)}' AS "kind", "id", ${column(name)} AS "name",
        "createdAt" FROM ${column(table)} WHERE "organizationId" = ${organizationId} ${live}`
    }),
    ' UNION ALL ',
  )

/** Returns the id of the caller's own organization. Throws 403 unless the caller is its owner. */
export const ownedOrganization = (actor: Actor, id: string): string =>
  permit(ownOrganization(actor, id), actor.role === 'owner')

/** GET /organizations/{id}/former-members: former members who still own objects. Owners only. */
export async function listFormer(actor: Actor, { db }: Deps, { id }: z.output<typeof OrganizationId>) {
  const organizationId = ownedOrganization(actor, id)
  const rows = await db.$queryRaw<{ userId: string; kind: Kind; count: number | bigint }[]>(Prisma.sql`
    SELECT t."userId", t."kind", count(*) AS "count" FROM (${thingsIn(organizationId)}) t
    WHERE NOT EXISTS (
      SELECT 1 FROM "Membership" m WHERE m."organizationId" = ${organizationId} AND m."userId" = t."userId")
    GROUP BY t."userId", t."kind"`)
  const byUser = Map.groupBy(rows, ({ userId }) => userId)
  const where = { id: { in: [...byUser.keys()] } }
  const users = await db.user.findMany({ where, select: { id: true, name: true, email: true }, orderBy: { id: 'asc' } })
  return {
    members: users.map(({ id: userId, name, email }): z.input<typeof FormerMember> => {
      const counts = new Map(byUser.get(userId)?.map(({ kind, count }) => [kind, Number(count)]))
      return { userId, name, email, things: KINDS.flatMap((kind) => toCount(kind, counts.get(kind))) }
    }),
  }
}

const toCount = (kind: Kind, count: number | undefined) => (count ? [{ kind, count }] : [])

/** Maximum number of a former member's objects that are listed. */
const MAX_THINGS = 1000

/**
 * GET /organizations/{id}/former-members/{userId}: the objects of a former member, newest first, including private
 * ones.
 */
export async function listThings(actor: Actor, { db }: Deps, input: z.output<typeof FormerMemberId>) {
  const organizationId = ownedOrganization(actor, input.id)
  await checkFormer(db, organizationId, input.userId)
  type Row = { kind: Kind; id: string; name: string; createdAt: string | number | Date }
  const rows = await db.$queryRaw<Row[]>(Prisma.sql`
    SELECT t."kind", t."id", t."name", t."createdAt" FROM (${thingsIn(organizationId)}) t
    WHERE t."userId" = ${input.userId}
    ORDER BY t."createdAt" DESC, t."id" DESC LIMIT ${Prisma.raw(String(MAX_THINGS))}`)
  return { things: rows.map((row) => ({ ...row, createdAt: new Date(row.createdAt).toISOString() })) }
}

/** Throws 404 for a user without any relation to the organization, and 409 for a member. */
async function checkFormer(db: Db | Tx, organizationId: string, userId: string): Promise<void> {
  const isMember = await db.membership.count({ where: { organizationId, userId } })
  if (isMember) throw conflict('The user is a member of the organization', { detail: 'Remove the member first.' })
  const [owns] = await db.$queryRaw<unknown[]>(Prisma.sql`
    SELECT 1 FROM (${thingsIn(organizationId)}) t WHERE t."userId" = ${userId} LIMIT 1`)
  if (!owns) throw new AppError(404, 'Not found', { detail: 'No former member with this id owns resources here.' })
}

/**
 * POST /organizations/{id}/former-members/{userId}/take-over: makes the caller the owner of all objects of a former
 * member, to use, change or delete them. Missions stay paused and run within the caller's scopes. Credentials stay
 * bound to their addresses. Throws 409 for a member.
 */
export async function takeOver(actor: Actor, deps: Deps, input: z.output<typeof FormerMemberId>) {
  const organizationId = ownedOrganization(actor, input.id)
  const { userId: from } = input
  const now = deps.clock.now()
  const owner = { organizationId, ownerId: from }
  const user = { organizationId, userId: from }
  const { userId } = actor
  const counts = await deps.db.$transaction(async (tx): Promise<Record<Kind, number>> => {
    await lockCounts(tx, deps.settings, organizationId)
    await checkFormer(tx, organizationId, from)
    const agents = await recordTakeOver(tx, actor, from, now)
    const moved = async (done: Promise<{ count: number }>) => (await done).count
    const ownerId = userId
    const result = {
      agents,
      chats: await moved(tx.chat.updateMany({ where: owner, data: { ownerId } })),
      mcps: await moved(tx.mcpServer.updateMany({ where: owner, data: { ownerId, updatedAt: now } })),
      media: await moved(tx.media.updateMany({ where: user, data: { userId } })),
      missions: await moved(
        tx.mission.updateMany({ where: user, data: { userId, scopes: toColumn(actor.scopes), updatedAt: now } }),
      ),
      skills: await moved(tx.skill.updateMany({ where: owner, data: { ownerId, updatedAt: now } })),
      spaces: await moved(tx.space.updateMany({ where: owner, data: { ownerId, updatedAt: now } })),
    }
    await audit(tx, actor, 'member.take_over', from, now)
    return result
  })
  return { taken: KINDS.flatMap((kind) => toCount(kind, counts[kind])) }
}
