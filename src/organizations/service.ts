import type { Actor } from '../auth/actor.ts'
import { audit, operator } from '../auth/audit.ts'
import { Prisma, type Role, type Tx } from '../db/client.ts'
import { lockMissionCounts } from '../db/totals.ts'
import { conflict } from '../errors.ts'
import { LIVE } from '../executions/engine/queue/endings.ts'
import { newId } from '../lib/id.ts'
import type { Settings } from '../settings.ts'

/** Members see their organization, and each other. */
export const reachable = ({ organizationId }: Actor): Prisma.OrganizationWhereInput => ({ id: organizationId })
export const listedMembers = ({ organizationId }: Actor): Prisma.MembershipWhereInput => ({ organizationId })
export const reachableUser = (actor: Actor): Prisma.UserWhereInput => ({ memberships: { some: listedMembers(actor) } })

/**
 * A name as a part of a path: at most 60 lower-case letters and digits of any script without their accents, joined by
 * hyphens, in Unicode's NFC: what people type. Empty when the name has none.
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

/** Finds by slug, however that is composed: those of Hangul were once stored decomposed. */
export const bySlug = (slug: string): Prisma.OrganizationWhereInput => ({
  slug: { in: [slug.normalize('NFC'), slug.normalize('NFD')] },
})

/** An organization without members. Its default space comes with the first one, who owns it (contract.md section 3). */
export async function createOrganization(tx: Tx, input: { name: string; slug: string }, at: Date) {
  const id = newId()
  const organization = await tx.organization.create({ data: { id, ...input, createdAt: at } })
  await audit(tx, operator(id), 'organization.create', id, at)
  return organization
}

/**
 * Makes the user if there is none with that e-mail, and gives them the role. The first member owns the default space. A former
 * member who is added again needs new tokens.
 * 409 when it would take the role from the last owner.
 */
export async function addMember(tx: Tx, organizationId: string, email: string, role: Role, at: Date) {
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
    // Those of a membership that has ended do not come back to life with a new one.
    await tx.token.updateMany({ where: { ...membership, revokedAt: null }, data: { revokedAt: at } })
    await tx.membership.create({ data: { ...membership, role, createdAt: at }, select: { userId: true } })
  }
  if (!(await tx.space.findFirst({ where: { organizationId, isDefault: true }, select: { id: true } }))) {
    await tx.space.create({
      data: {
        id: newId(),
        organizationId,
        name: 'General',
        visibility: 'organization',
        ownerId: user.id,
        isDefault: true,
        createdAt: at,
        updatedAt: at,
      },
    })
  }
  await audit(tx, operator(organizationId), 'member.add', user.id, at)
  return user
}

/**
 * Ends a membership (contract.md section 2). The user's runs in the organization are marked, and their servers cancel
 * them at the next heartbeat; open tasks become nobody's, missions pause. Returns how many runs and tasks that were, or
 * null for somebody who is no member. 409 for the last owner.
 */
export async function removeMember(tx: Tx, settings: Settings, organizationId: string, userId: string, at: Date) {
  const membership = { organizationId, userId }
  const live = { ...membership, ...LIVE }
  // Locks are taken in the order that claims.ts tells: its runs, the counts of missions, the organization.
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
  const tasks = await tx.task.updateMany({
    where: { organizationId, assignedTo: userId, status: { in: ['pending', 'in_progress'] } },
    data: { assignedTo: null, updatedAt: at },
  })
  await tx.mission.updateMany({
    where: { ...membership, status: { not: 'completed' } },
    data: { status: 'paused', pauseReason: 'The owner is no longer a member', nextRunAt: null, updatedAt: at },
  })
  await audit(tx, operator(organizationId), 'member.remove', userId, at)
  return { runs: runs.count, tasks: tasks.count }
}

/** Throws 409 when the member is the only owner. Two owners cannot go at once: the organization's row is the lock. */
async function keepAnOwner(tx: Tx, { organizationId, userId }: { organizationId: string; userId: string }) {
  // Not its key: SQLite would look for whatever refers to it.
  const asItIs = { running: { increment: 0 } }
  await tx.organization.update({ where: { id: organizationId }, data: asItIs, select: { id: true } })
  const owners = await tx.membership.findMany({ where: { organizationId, role: 'owner' }, select: { userId: true } })
  if (owners.length === 1 && owners[0]?.userId === userId) throw conflict('An organization keeps at least one owner')
}
