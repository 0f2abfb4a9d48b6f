import type { Actor } from '../auth/actor.ts'
import { type AuditSource, audit, operator } from '../auth/audit.ts'
import { type Db, Prisma, type Role, type Tx } from '../db/client.ts'
import { lockMissionCounts } from '../db/totals.ts'
import { conflict } from '../errors.ts'
import { LIVE } from '../executions/engine/queue/cancel-marks.ts'
import { newId } from '../lib/id.ts'
import { searchedIn } from '../lib/search.ts'
import { end } from '../missions/endings.ts'
import type { Settings } from '../settings.ts'

/** Filters the caller's organization. */
export const reachable = ({ organizationId }: Actor): Prisma.OrganizationWhereInput => ({ id: organizationId })
/** Filters the members of the caller's organization. */
export const listedMembers = ({ organizationId }: Actor): Prisma.MembershipWhereInput => ({ organizationId })
/** Filters the users with a membership in the caller's organization. */
export const reachableUser = (actor: Actor): Prisma.UserWhereInput => ({ memberships: { some: listedMembers(actor) } })

/**
 * Converts a name into a path segment: at most 60 lower-case letters and digits of any script without accents, joined
 * by hyphens, in Unicode's NFC. Returns an empty text if the name contains none.
 */
export const toSlug = (name: string): string => {
  const words = name
    .normalize('NFKD')
    .replace(/\p{Mark}/gu, '')
    .toLowerCase()
    .normalize('NFC')
    .replace(/[^\p{Letter}\p{Number}]+/gu, '-')
  return /[^-].{0,59}/u.exec(words)?.[0].replace(/-$/, '') ?? ''
}

/** Finds out which of some users are service accounts: one statement at most. */
export async function findServices(db: Db | Tx, userIds: readonly string[]): Promise<Set<string>> {
  if (!userIds.length) return new Set()
  const where = { userId: { in: [...new Set(userIds)] } }
  const rows = await db.serviceAccount.findMany({ where, select: { userId: true } })
  return new Set(rows.map(({ userId }) => userId))
}

/** Finds by slug in any normalization, because Hangul slugs were once stored decomposed. */
const bySlug = (slug: string): Prisma.OrganizationWhereInput => ({
  slug: { in: [slug.normalize('NFC'), slug.normalize('NFD')] },
})

/**
 * Creates an organization without members. Its default space is created with its first member, who owns it (contract.md
 * section 3).
 */
export async function createOrganization(
  tx: Tx,
  input: { name: string; slug: string },
  at: Date,
  by: Omit<AuditSource, 'organizationId'> = operator(''),
) {
  const id = newId()
  const organization = await tx.organization.create({ data: { id, ...input, createdAt: at } })
  await audit(tx, { ...by, organizationId: id }, 'organization.create', id, at)
  return organization
}

/** First path segments of the server's own routes. A slug must differ from them, because it starts a path. */
const RESERVED: ReadonlySet<string> = new Set([
  ...['a2a', 'api', 'app', 'assets', 'graphql', 'healthz', 'mcp', 'metrics', 'openai', 'readyz', 'trpc'],
])

/** Returns whether the server answers the paths below a slug itself. */
export const isReserved = (slug: string): boolean => RESERVED.has(slug)

/** Lifetime of a former slug (ms). */
const FORMER_SLUG = 365 * 24 * 60 * 60 * 1000

/** Name of the space that each organization begins with (contract.md section 1). */
const DEFAULT_SPACE = 'General'

/** Finds the id of an organization by its slug, or by one that it had within a year. Returns null if there is none. */
export async function findBySlug(db: Db | Tx, slug: string, now: Date): Promise<string | null> {
  const found = await db.organization.findFirst({ where: bySlug(slug), select: { id: true } })
  if (found) return found.id
  const former = await db.formerSlug.findUnique({ where: { slug: slug.normalize('NFC') } })
  return former && former.endsAt > now ? former.organizationId : null
}

/** Reserves a slug that an organization gives up, and releases the one that it gets. */
export async function leaveSlug(tx: Tx, organizationId: string, from: string, to: string, at: Date): Promise<void> {
  const endsAt = new Date(at.getTime() + FORMER_SLUG)
  const slug = from.normalize('NFC')
  await tx.formerSlug.deleteMany({ where: { organizationId, slug: to } })
  await tx.formerSlug.upsert({
    where: { slug },
    create: { slug, organizationId, endsAt },
    update: { organizationId, endsAt },
  })
}

/**
 * Adds a member with a role, and creates the user if the e-mail is unknown. The first member owns the default space. A
 * former member needs new tokens. Throws 409 if the last owner would lose the role, and while missions or tasks of an
 * earlier membership remain to be changed.
 */
export async function addMember(
  tx: Tx,
  organizationId: string,
  email: string,
  role: Role,
  at: Date,
  by: AuditSource = operator(organizationId),
) {
  const name = email.split('@', 1)[0] ?? email
  const user = await tx.user.upsert({
    where: { email },
    create: { id: newId(), email, name, createdAt: at, updatedAt: at },
    update: {},
  })
  const membership = { organizationId, userId: user.id }
  if (role !== 'owner') await keepAnOwner(tx, membership)
  const { count } = await tx.membership.updateMany({ where: membership, data: { role } })
  if (!count) {
    if (await tx.ending.count({ where: { organizationId, kind: 'member', target: user.id } }))
      throw conflict(STILL_ENDING, { detail: LATER })
    // A new membership does not revive the tokens of an ended one.
    await tx.token.updateMany({ where: { ...membership, revokedAt: null }, data: { revokedAt: at } })
    await tx.membership.create({ data: { ...membership, role, createdAt: at }, select: { userId: true } })
  }
  if (!(await tx.space.findFirst({ where: { organizationId, isDefault: true }, select: { id: true } }))) {
    await tx.space.create({
      data: {
        id: newId(),
        organizationId,
        name: DEFAULT_SPACE,
        ...searchedIn(DEFAULT_SPACE),
        visibility: 'organization',
        ownerId: user.id,
        isDefault: true,
        createdAt: at,
        updatedAt: at,
      },
    })
  }
  await audit(tx, by, 'member.add', user.id, at, { role })
  return user
}

/**
 * Ends a membership (contract.md section 2). The user's runs in the organization are marked, and their servers cancel
 * them at the next heartbeat; open tasks are unassigned, missions pause. Returns the number of runs and tasks, or null
 * for a user who is not a member. Throws 409 for the last owner.
 */
export async function removeMember(
  tx: Tx,
  settings: Settings,
  organizationId: string,
  userId: string,
  at: Date,
  by: AuditSource = operator(organizationId),
) {
  const membership = { organizationId, userId }
  const live = { ...membership, ...LIVE }
  // Lock order of claims.ts: runs, mission counts, the organization.
  await tx.execution.updateMany({ where: live, data: { attempt: { increment: 0 } } })
  const isTheirs = Prisma.sql`"organizationId" = ${organizationId} AND "userId" = ${userId}`
  await lockMissionCounts(tx, settings, isTheirs)
  await keepAnOwner(tx, membership)
  const { count } = await tx.membership.deleteMany({ where: membership })
  if (count === 0) return null
  const runs = await tx.execution.updateMany({
    where: live,
    data: { wantsCancel: true, updatedAt: at },
  })
  const ending = { organizationId, kind: 'member' as const, target: userId }
  const { tasks } = await end(tx, { settings, by, now: at }, ending)
  await audit(tx, by, 'member.remove', userId, at)
  return { runs: runs.count, tasks }
}

const STILL_ENDING = 'The earlier membership of this user is still ending'
const LATER = 'Its missions are being paused and its tasks unassigned. Repeat this in a minute.'

/** Throws 409 if the member is the only owner. The organization's row lock serializes concurrent removals. */
export async function keepAnOwner(tx: Tx, { organizationId, userId }: { organizationId: string; userId: string }) {
  // Updating the key instead would make SQLite check all references to it.
  const asItIs = { running: { increment: 0 } }
  await tx.organization.update({ where: { id: organizationId }, data: asItIs, select: { id: true } })
  const own = await tx.membership.findUnique({
    where: { organizationId_userId: { organizationId, userId } },
    select: { role: true },
  })
  if (own?.role !== 'owner') return
  const owners = await tx.membership.findMany({ where: { organizationId, role: 'owner' }, select: { userId: true } })
  if (owners.length === 1) {
    throw conflict('An organization needs an owner', { detail: 'Make another member an owner first.' })
  }
}
