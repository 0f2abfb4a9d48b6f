import type { z } from 'zod'
import { type Actor, isAdmin, ownOrganization, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { type Db, lockRows, type Role, rowLock, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { forbidden, invalidField, lacksScopes, notFound } from '../errors.ts'
import { LIVE } from '../executions/engine/queue/cancel-marks.ts'
import { normalizeEmail } from '../lib/email.ts'
import { grantsToRevoke, revokeLater } from '../mcps/oauth/revocation.ts'
import type { MemberId, OrganizationId, OrganizationMember, UpdateMember } from './schema.ts'
import { findServices, keepAnOwner, listedMembers, removeMember } from './service.ts'

const COLUMNS = {
  userId: true,
  role: true,
  createdAt: true,
  user: { select: { name: true, email: true } },
} as const

type MemberRow = {
  userId: string
  role: Role
  createdAt: Date
  user: { name: string; email: string }
}

const toMember = (
  { userId, role, createdAt, user }: MemberRow,
  services: ReadonlySet<string>,
): z.input<typeof OrganizationMember> => ({
  userId,
  ...user,
  role,
  kind: services.has(userId) ? 'service' : 'user',
  joinedAt: createdAt.toISOString(),
})

/** GET /organizations/{id}/members: all members, in the order of joining. Throws 403 for another organization. */
export async function listMembers(actor: Actor, { db }: Deps, { id }: z.output<typeof OrganizationId>) {
  ownOrganization(actor, id)
  const rows = await db.membership.findMany({
    where: listedMembers(actor),
    select: COLUMNS,
    orderBy: [{ createdAt: 'asc' }, { userId: 'asc' }],
  })
  const services = await findServices(
    db,
    rows.map(({ userId }) => userId),
  )
  return { members: rows.map((row) => toMember(row, services)) }
}

async function find({ db }: { db: Tx }, organizationId: string, userId: string): Promise<MemberRow> {
  const where = { organizationId_userId: { organizationId, userId } }
  const row = await db.membership.findUnique({ where, select: COLUMNS })
  if (!row) throw notFound('Member')
  return row
}

const OWNERS_ONLY = { detail: 'Only an owner can change who is an owner.' }

/**
 * Throws 403 unless the caller may grant a role: owners are made by owners, and never beyond the rights of the token.
 */
export function checkGrant(actor: Actor, role: Role): void {
  permit(actor, isAdmin(actor))
  if (role === 'owner' && actor.role !== 'owner') throw forbidden(OWNERS_ONLY)
  if (role !== 'member' && !actor.scopes.includes('*')) throw lacksScopes(['*'])
}

/** Throws 403 like {@link checkGrant}, and for an organization that is not the caller's. */
export function checkGrantIn(actor: Actor, { id, role }: { id: string; role: Role }): void {
  ownOrganization(actor, id)
  checkGrant(actor, role)
}

/**
 * PATCH /organizations/{id}/members/{userId}: changes a role. Throws 403 for callers who are no admin, or no owner if
 * an owner is affected, 404 for users without a membership, 409 for the last owner.
 */
export async function updateMember(actor: Actor, deps: Deps, input: z.output<typeof UpdateMember>) {
  const organizationId = ownOrganization(actor, input.id)
  const userId = input.userId === 'me' ? actor.userId : input.userId
  const { role } = input
  checkGrant(actor, role)
  const now = deps.clock.now()
  const tokens = await deps.db.$transaction(async (tx) => {
    const membership = { organizationId, userId }
    await lockRows(tx, 'Organization', [organizationId], rowLock(deps.settings))
    const before = await find({ db: tx }, organizationId, userId)
    if (before.role === 'owner' && actor.role !== 'owner') throw forbidden(OWNERS_ONLY)
    if (before.role === role) return null
    if (role !== 'owner') await keepAnOwner(tx, membership)
    else if ((await findServices(tx, [userId])).size)
      throw invalidField('role', 'member or admin for a service account')
    await tx.membership.updateMany({ where: membership, data: { role } })
    await audit(tx, actor, 'member.update', userId, now, { role: { from: before.role, to: role } })
    return tokensOf(tx, organizationId, userId)
  })
  if (tokens) deps.bus.publish('token', [userId, ...tokens])
  const services = await findServices(deps.db, [userId])
  return { member: toMember(await find(deps, organizationId, userId), services) }
}

/** Lists the tokens with which a user still acts in an organization. */
export const tokensOf = async (tx: Tx, organizationId: string, userId: string): Promise<string[]> => {
  const tokens = await tx.token.findMany({ where: { organizationId, userId, revokedAt: null }, select: { id: true } })
  return tokens.map(({ id }) => id)
}

/**
 * DELETE /organizations/{id}/members/{userId}: ends a membership, also one's own. Its tokens, sessions and streams end,
 * runs are cancelled. Throws 403, 404 and 409 as {@link updateMember} does.
 */
export async function endMember(actor: Actor, deps: Deps, input: z.output<typeof MemberId>) {
  const organizationId = ownOrganization(actor, input.id)
  const userId = input.userId === 'me' ? actor.userId : input.userId
  const isOwn = userId === actor.userId
  if (!isOwn) permit(actor, isAdmin(actor))
  await endMembership(actor, deps, userId, async (tx) => {
    const member = await find({ db: tx }, organizationId, userId)
    if (!isOwn && member.role === 'owner' && actor.role !== 'owner') throw forbidden(OWNERS_ONLY)
  })
  return { message: isOwn ? 'You left the organization' : 'Member removed successfully' }
}

/**
 * Ends a membership in the caller's organization and notifies all servers: its tokens, sessions and streams end, its
 * runs are cancelled, its tokens for MCP servers are revoked. `before` runs first in the same transaction, and throws
 * if the caller may not do this.
 */
export async function endMembership(actor: Actor, deps: Deps, userId: string, before: (tx: Tx) => Promise<unknown>) {
  const { organizationId } = actor
  const ended = await deps.db.$transaction(async (tx) => {
    const tokens = await tokensOf(tx, organizationId, userId)
    await before(tx)
    const runs = await tx.execution.findMany({ where: { organizationId, userId, ...LIVE }, select: { id: true } })
    const grants = await grantsToRevoke(tx, deps, { organizationId, userId })
    const isEnded = await removeMember(tx, deps.settings, organizationId, userId, deps.clock.now(), actor)
    if (!isEnded) throw notFound('Member')
    return { tokens, runs: runs.map(({ id }) => id), grants }
  })
  deps.bus.publish('token', [userId, ...ended.tokens])
  if (ended.runs.length) deps.bus.publish('cancel', ended.runs)
  await revokeLater(deps, ended.grants)
}

/**
 * Finds a member by id, by e-mail, or as `me` (contract-2.md section 1.11). Returns null for a user outside the
 * organization.
 */
export async function findMember(actor: Actor, { db }: { db: Pick<Db, 'membership'> }, name: string) {
  const email = name.includes('@') ? normalizeEmail(name) : null
  const who = email === null ? { userId: name === 'me' ? actor.userId : name } : { user: { email } }
  const member = await db.membership.findFirst({
    where: { AND: [listedMembers(actor), who] },
    select: { userId: true },
  })
  return member?.userId ?? null
}
