import type { Db, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { type AppError, forbidden, notFound, unauthorized } from '../errors.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { type Actor, actorOf } from './actor.ts'
import { audit } from './audit.ts'
import type { IdToken } from './id-tokens.ts'
import { endSessions } from './sessions.ts'

/**
 * The authenticated caller: a user with a personal access token, which determines the organization, or with an ID
 * token, for which the request determines it.
 */
export type Identity = { actor: Actor } | IdTokenUser
export type IdTokenUser = { userId: string; expiresAt: Date }

/** The organization that a request with an ID token is for: that of a space, or a named one. */
export type OrganizationRef = { spaceId: string } | { orgId: string }

/** Returns the possible ID token of an `Authorization` header. Personal access tokens contain no dot. */
export function idTokenOf(header: string | undefined): string | undefined {
  const token = /^Bearer ([\x21-\x7e]+)$/i.exec(header ?? '')?.[1]
  return token?.includes('.') ? token : undefined
}

/** Finds the user of an ID token. Throws the 401s of contract.md section 1, with `invalid` for an unknown token. */
export async function userOfIdToken(
  deps: Pick<Deps, 'db' | 'clock' | 'idTokens' | 'bus'>,
  token: string,
  invalid = 'Invalid or expired token',
): Promise<IdTokenUser> {
  const refuse = (error: AppError): never => {
    throw error.status === 401 && error.code === 'unauthorized' ? unauthorized(invalid) : error
  }
  const claims = await deps.idTokens?.verify(token).catch(refuse)
  const userId = claims && (await findOrLinkUser(deps, claims))
  if (!userId) throw unauthorized(invalid)
  return { userId, expiresAt: claims.expiresAt }
}

/**
 * Finds the user of an identity, or links it to the user with its verified e-mail address. Returns null without either.
 */
const findOrLinkUser = async (deps: LinkDeps, claims: Subject): Promise<string | null> =>
  (await findUser(deps.db, claims)) ?? (await linkUser(deps, claims))

type LinkDeps = Pick<Deps, 'db' | 'clock' | 'bus'>
/** A person at an issuer, with the e-mail address that the issuer has verified, if any. */
export type Subject = Pick<IdToken, 'issuer' | 'subject' | 'email'>

/** Finds the user that a subject is linked to. */
export async function findUser(db: Db, { issuer, subject }: Subject): Promise<string | null> {
  const where = { issuer_subject: { issuer, subject } }
  const identity = await db.userIdentity.findUnique({ where, select: { userId: true } })
  return identity?.userId ?? null
}

/**
 * Links the subject to the user with its verified e-mail address, permanently. A user with a subject at this issuer
 * gets no other one (contract.md section 6). Returns null if there is no such user.
 */
export async function linkUser({ db, clock, bus }: LinkDeps, claims: Subject): Promise<string | null> {
  const { issuer, subject, email } = claims
  if (!email) return null
  const user = await db.user.findUnique({ where: { email }, select: { id: true, memberships: true } })
  if (!user) return null
  const { id: userId, memberships } = user
  const now = clock.now()
  try {
    await db.$transaction(async (tx) => {
      await tx.userIdentity.create({ data: { issuer, subject, userId, createdAt: now } })
      await verifyEmail(tx, userId, now)
      for (const { organizationId } of memberships)
        await audit(tx, { organizationId, userId }, 'user.link', userId, now)
    })
    bus.publish('token', [userId])
    return userId
  } catch (error) {
    if (!isUniqueViolation(error)) throw error
    return findUser(db, claims)
  }
}

/**
 * Marks the e-mail address of a user as verified, in a transaction. If it was unverified before, the password, sessions
 * and tokens end first, because another person may have made them (contract-2.md section 3.5). After the commit the
 * caller must publish the user's id on the bus.
 */
export async function verifyEmail(tx: Tx, userId: string, now: Date): Promise<void> {
  const data = { emailVerified: true, passwordHash: null, updatedAt: now }
  const { count } = await tx.user.updateMany({ where: { id: userId, emailVerified: false }, data })
  if (!count) return
  // Before the sessions, because a link that is being used delays this until its session can be found.
  await tx.oneTimeLink.deleteMany({ where: { userId } })
  await endSessions(tx, { userId }, {}, now)
  const tokens = await tx.token.findMany({
    where: { userId, revokedAt: null },
    select: { id: true, organizationId: true },
  })
  await tx.token.updateMany({ where: { userId, revokedAt: null }, data: { revokedAt: now } })
  for (const { id, organizationId } of tokens) await audit(tx, { organizationId, userId }, 'key.revoke', id, now)
}

/**
 * Returns the actor of an ID token's user in an organization, with every scope. Without a membership there, throws 404
 * for a space and 403 for the organization (contract.md sections 1 and 6).
 */
export async function actorIn(db: Db, ref: OrganizationRef, who: IdTokenUser): Promise<Actor> {
  const organizationId = await organizationOf(db, ref)
  const actor = await actorOf(db, { organizationId, userId: who.userId, scopes: null })
  if (!actor) throw 'spaceId' in ref ? notFound('Space') : forbidden()
  return { ...actor, expiresAt: who.expiresAt }
}

async function organizationOf(db: Db, ref: OrganizationRef): Promise<string> {
  if ('orgId' in ref) return ref.orgId
  const where = { id: ref.spaceId, archivedAt: null }
  const space = await db.space.findUnique({ where, select: { organizationId: true } })
  if (!space) throw notFound('Space')
  return space.organizationId
}
