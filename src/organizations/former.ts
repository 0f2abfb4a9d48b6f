import type { z } from 'zod'
import { recordTakeOver } from '../agents/service.ts'
import { type Actor, holdCredential, holdMembership, ownOrganization, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { toColumn } from '../auth/scopes.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { lockCounts } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { AppError, conflict, forbidden } from '../errors.ts'
import type { UnderWay } from '../idempotency.ts'
import { finishEndings } from '../missions/endings.ts'
import { type FormerMember, type FormerMemberId, KINDS, type OrganizationId } from './schema.ts'

type Kind = (typeof KINDS)[number]

type OwnedTable = {
  table: string
  owner: string
  name: string
  archives: boolean
  /** Further columns that change with the owner. */
  also: (actor: Actor, now: Date) => Prisma.Sql[]
}
const none = () => []
const updated = (_: Actor, now: Date) => [Prisma.sql`"updatedAt" = ${now}`]
const rescoped = (actor: Actor, now: Date) => [
  ...updated(actor, now),
  Prisma.sql`"scopes" = ${toColumn(actor.scopes)}`,
  Prisma.sql`"tokenId" = ${actor.tokenId || null}`,
]

/** Tables of owned objects by kind: the table, its owner and name columns, and whether it has an archive. */
const TABLES: Record<Kind, OwnedTable> = {
  agents: { table: 'Agent', owner: 'userId', name: 'name', archives: true, also: none },
  chats: { table: 'Chat', owner: 'ownerId', name: 'title', archives: true, also: none },
  mcps: { table: 'McpServer', owner: 'ownerId', name: 'name', archives: false, also: updated },
  media: { table: 'Media', owner: 'userId', name: 'name', archives: false, also: none },
  missions: { table: 'Mission', owner: 'userId', name: 'title', archives: true, also: rescoped },
  skills: { table: 'Skill', owner: 'ownerId', name: 'name', archives: false, also: updated },
  spaces: { table: 'Space', owner: 'ownerId', name: 'name', archives: true, also: updated },
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

/** Throws 409 for a member. */
async function refuseMember(db: Db | Tx, organizationId: string, userId: string): Promise<void> {
  const isMember = await db.membership.count({ where: { organizationId, userId } })
  if (isMember) throw conflict('The user is a member of the organization', { detail: 'Remove the member first.' })
}

/** Throws 404 for a user without any relation to the organization, and 409 for a member. */
async function checkFormer(db: Db | Tx, organizationId: string, userId: string): Promise<void> {
  await refuseMember(db, organizationId, userId)
  const [owns] = await db.$queryRaw<unknown[]>(Prisma.sql`
    SELECT 1 FROM (${thingsIn(organizationId)}) t WHERE t."userId" = ${userId} LIMIT 1`)
  if (!owns) throw new AppError(404, 'Not found', { detail: 'No former member with this id owns resources here.' })
}

/** Maximum number of objects of a kind that one transaction hands over. An agent takes longest, up to 6 ms under load. */
const PART = 250

/**
 * POST /organizations/{id}/former-members/{userId}/take-over: makes the caller the owner of all objects of a former
 * member, to use, change or delete them. Missions are paused first, stay so, and run within the caller's scopes.
 * Credentials stay bound to their addresses. Many objects take several transactions: if one fails, the former member
 * still owns the rest, and another call takes it over. Each renews the lease of the request, and the last one stores the
 * response. Throws 409 for a member.
 */
export async function takeOver(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof FormerMemberId>,
  { keep, renew }: Pick<UnderWay, 'keep' | 'renew'>,
) {
  const organizationId = ownedOrganization(actor, input.id)
  const { userId: from } = input
  const now = deps.clock.now()
  await checkFormer(deps.db, organizationId, from)
  await finishEndings(deps, { organizationId, kind: 'member', target: from })
  let taken: Counts | null = null
  for (;;) {
    const before: Counts | null = taken
    const { counts, answer } = await deps.db.$transaction(async (tx) => {
      const part = await takePart(tx, actor, deps, from, now)
      if (!before) await audit(tx, actor, 'member.take_over', from, now)
      const counts: Counts = new Map(part.map(({ kind, count }) => [kind, (before?.get(kind) ?? 0) + count]))
      const isLast = part.every(({ count }) => count < PART)
      const answer = { taken: KINDS.flatMap((kind) => toCount(kind, counts.get(kind))) }
      if (isLast) return { counts, answer: await keep(tx, answer) }
      await renew(tx)
      return { counts, answer: null }
    })
    if (answer) return answer
    taken = counts
  }
}

type Counts = ReadonlyMap<Kind, number>

/**
 * Hands over at most {@link PART} objects of each kind. Returns how many. Throws 401 or 403 if the caller's access has
 * ended since the request began.
 */
async function takePart(tx: Tx, actor: Actor, { settings }: Deps, from: string, now: Date) {
  const { organizationId, userId } = actor
  await holdCredential(tx, settings, actor)
  await lockCounts(tx, settings, organizationId)
  // Behind the mission counts, which the end of a membership locks first.
  if (!(await holdMembership(tx, settings, actor))) throw forbidden()
  await refuseMember(tx, organizationId, from)
  const moved: { kind: Kind; count: number }[] = []
  for (const kind of KINDS) {
    const { table, owner, also } = TABLES[kind]
    const found = await tx.$queryRaw<{ id: string }[]>(Prisma.sql`
      SELECT "id" FROM ${column(table)} WHERE "organizationId" = ${organizationId} AND ${column(owner)} = ${from}
      LIMIT ${Prisma.raw(String(PART))}`)
    const ids = found.map(({ id }) => id)
    if (ids.length && kind === 'agents') await recordTakeOver(tx, actor, ids, now)
    else if (ids.length)
      await tx.$executeRaw(Prisma.sql`
        UPDATE ${column(table)} SET ${Prisma.join([Prisma.sql`${column(owner)} = ${userId}`, ...also(actor, now)])}
        WHERE "id" IN (${Prisma.join(ids)}) AND ${column(owner)} = ${from}`)
    moved.push({ kind, count: ids.length })
  }
  return moved
}
