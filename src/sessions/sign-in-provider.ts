import { audit, requestOf } from '../auth/audit.ts'
import { findUser, linkUser } from '../auth/identity.ts'
import { auditUser } from '../auth/sessions.ts'
import { type ProviderIdentity, SignInProblem } from '../auth/sign-in-provider.ts'
import { lockRows, rowLock, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { newId } from '../lib/id.ts'
import { tokenDigest } from '../lib/token.ts'
import { findInvitationsOf, type InvitationRow } from '../organizations/invitations.ts'
import { tokensOf } from '../organizations/members.ts'
import { addMember, findBySlug } from '../organizations/service.ts'
import type { Context } from '../trpc.ts'
import { join, take } from './accept.ts'
import { start } from './service.ts'

type SignInContext = Pick<Context, 'deps' | 'client' | 'requestId' | 'cookie' | 'setCookie'>

/**
 * Signs in a person whom the identity provider has signed in (contract-2.md section 3.3). The first time it links the
 * subject to the user with its verified e-mail address, or makes a user for an invited address and for one of
 * OIDC_ALLOWED_DOMAINS. Throws {@link SignInProblem}.
 */
export async function signInByProvider(context: SignInContext, identity: ProviderIdentity): Promise<void> {
  const { deps } = context
  const userId = (await findUser(deps.db, identity)) ?? (await welcome(context, identity))
  await setRole(context, identity, userId)
  await start(context, 'oidc', () => userId)
}

/** Links a new subject to its user, or creates one. */
async function welcome(context: SignInContext, identity: ProviderIdentity): Promise<string> {
  const { deps } = context
  const { db, log, sessionKey } = deps
  const { email } = identity
  if (!email) throw new SignInProblem('unverified', 'the provider gives no verified e-mail address')
  const user = await db.user.findUnique({ where: { email }, select: { id: true } })
  if (!user) return createUser(context, { ...identity, email })
  const userId = await linkUser(deps, identity)
  if (userId !== user.id) {
    await db.$transaction((tx) =>
      auditUser(tx, { userId: user.id, request: requestOf(context) }, 'session.fail', user.id, deps.clock.now()),
    )
    log.info({ email: tokenDigest(sessionKey, email) }, 'the address belongs to a user with another identity')
    throw new SignInProblem('other_identity', 'the user is linked to another subject of the provider')
  }
  const organizationId = isAllowed(deps, email) ? await findHome(deps) : null
  if (organizationId)
    await db.$transaction((tx) => joinAgain(tx, context, { ...identity, email }, organizationId, userId))
  return userId
}

type Verified = ProviderIdentity & { email: string }

const isAllowed = ({ settings }: Deps, email: string): boolean =>
  settings.OIDC_ALLOWED_DOMAINS.includes(email.slice(email.lastIndexOf('@') + 1))

/** Finds the organization that sign-ins join: OIDC_ORGANIZATION, or the first one. */
async function findHome({ db, clock, log, settings }: Deps): Promise<string | null> {
  const { OIDC_ORGANIZATION: slug } = settings
  if (slug === undefined) {
    const first = await db.organization.findFirst({
      select: { id: true },
      orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
    })
    return first?.id ?? null
  }
  const id = await findBySlug(db, slug, clock.now())
  if (!id) log.error({ slug }, 'there is no organization with the slug of OIDC_ORGANIZATION: correct the setting')
  return id
}

/** Adds a user of an allowed domain, unless an admin has removed the user before. */
async function joinAgain(tx: Tx, context: SignInContext, identity: Verified, organizationId: string, userId: string) {
  const membership = await tx.membership.count({ where: { organizationId, userId } })
  const removals = await tx.auditEvent.count({ where: { organizationId, action: 'member.remove', target: userId } })
  if (!membership && !removals) await joinHome(tx, context, identity, organizationId, userId)
}

const joinHome = (
  tx: Tx,
  { deps, ...request }: SignInContext,
  { email, role }: Verified,
  organizationId: string,
  userId: string,
) =>
  addMember(tx, organizationId, email, role ?? 'member', deps.clock.now(), {
    organizationId,
    userId,
    request: requestOf(request),
  })

/** Creates a user who was invited, or whose domain is allowed. */
async function createUser(context: SignInContext, identity: Verified): Promise<string> {
  const { deps } = context
  const { db, clock, log, sessionKey } = deps
  const { issuer, subject, email } = identity
  const now = clock.now()
  const invitations: InvitationRow[] = await findInvitationsOf(db, email, now)
  const home = isAllowed(deps, email) ? await findHome(deps) : null
  if (!invitations.length && !home) {
    log.info({ email: tokenDigest(sessionKey, email) }, 'sign-in with an unknown e-mail address')
    throw new SignInProblem('unknown', 'the address has no invitation, and its domain is not allowed')
  }
  const userId = newId()
  const name = identity.name ?? email.split('@', 1)[0] ?? email
  try {
    await db.$transaction(async (tx) => {
      const times = { createdAt: now, updatedAt: now }
      await tx.user.create({ data: { id: userId, email, name, ...times }, select: { id: true } })
      await tx.userIdentity.create({ data: { issuer, subject, userId, createdAt: now } })
      for (const invitation of invitations) {
        await take(tx, invitation)
        await join(tx, context, invitation, userId)
      }
      if (home && !invitations.some(({ organizationId }) => organizationId === home)) {
        await joinHome(tx, context, identity, home, userId)
      }
      await auditUser(tx, { userId, request: requestOf(context) }, 'user.link', userId, now)
    })
    return userId
  } catch (error) {
    if (!isUniqueViolation(error)) throw error
    // Another request has created the user meanwhile.
    return (await findUser(db, identity)) ?? welcome(context, identity)
  }
}

/** Sets the role by OIDC_ROLE_CLAIM in OIDC_ORGANIZATION. It never makes a user an owner, and never changes owners. */
async function setRole(context: SignInContext, { role }: ProviderIdentity, userId: string): Promise<void> {
  if (role === null) return
  const { deps } = context
  const { db, bus, clock, settings } = deps
  const organizationId = await findHome(deps)
  if (!organizationId) return
  const membership = { organizationId, userId }
  const where = { organizationId_userId: membership }
  const before = await db.membership.findUnique({ where, select: { role: true } })
  if (!before || before.role === 'owner' || before.role === role) return
  const tokens = await db.$transaction(async (tx) => {
    await lockRows(tx, 'Organization', [organizationId], rowLock(settings))
    const now = await tx.membership.findUnique({ where, select: { role: true } })
    if (!now || now.role === 'owner' || now.role === role) return null
    await tx.membership.updateMany({ where: membership, data: { role } })
    const cause = { ...membership, request: requestOf(context) }
    await audit(tx, cause, 'member.update', userId, clock.now(), { role: { from: now.role, to: role } })
    return tokensOf(tx, organizationId, userId)
  })
  if (tokens) bus.publish('token', [userId, ...tokens])
}
