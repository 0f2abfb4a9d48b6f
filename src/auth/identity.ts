import type { Db } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { forbidden, notFound, unauthorized } from '../errors.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import { type Actor, actorOf } from './actor.ts'
import { audit } from './audit.ts'
import type { IdToken } from './id-tokens.ts'

/**
 * The authenticated caller: a user with a personal access token, which determines the organization, or with an ID
 * token, for which the request determines it.
 */
export type Identity = { actor: Actor } | IdTokenUser
export type IdTokenUser = { userId: string; expiresAt: Date }

/** Place of an ID token's user: the organization of a space, or a named one. */
export type Place = { spaceId: string } | { orgId: string }

/**
 * Authenticates an `Authorization` header. Calls `authenticate` for everything that cannot be an ID token, because
 * personal access tokens contain no dot. Throws the 401s of contract.md section 1.
 */
export async function identify(
  deps: Pick<Deps, 'db' | 'clock' | 'idTokens'>,
  header: string | undefined,
  authenticate: () => Promise<Actor>,
): Promise<Identity> {
  const [, token] = /^Bearer ([\x21-\x7e]*\.[\x21-\x7e]*)$/i.exec(header ?? '') ?? []
  if (!token) return { actor: await authenticate() }
  const claims = await deps.idTokens?.verify(token)
  const userId = claims && ((await findUser(deps.db, claims)) ?? (await linkUser(deps, claims)))
  if (!userId) throw unauthorized('Invalid or expired token')
  return { userId, expiresAt: claims.expiresAt }
}

async function findUser(db: Db, { issuer, subject }: IdToken): Promise<string | null> {
  const where = { issuer_subject: { issuer, subject } }
  const identity = await db.userIdentity.findUnique({ where, select: { userId: true } })
  return identity?.userId ?? null
}

/**
 * Permanently links the subject to the user with its verified e-mail address. A user with a subject at this issuer gets
 * no other one (contract.md section 6). Returns null if there is no such user.
 */
async function linkUser({ db, clock }: Pick<Deps, 'db' | 'clock'>, claims: IdToken): Promise<string | null> {
  const { issuer, subject, email } = claims
  if (!email) return null
  const user = await db.user.findUnique({ where: { email }, select: { id: true, memberships: true } })
  if (!user) return null
  const { id: userId, memberships } = user
  const now = clock.now()
  try {
    await db.$transaction(async (tx) => {
      await tx.userIdentity.create({ data: { issuer, subject, userId, createdAt: now } })
      for (const { organizationId } of memberships)
        await audit(tx, { organizationId, userId }, 'user.link', userId, now)
    })
    return userId
  } catch (error) {
    if (!isUniqueViolation(error)) throw error
    return findUser(db, claims)
  }
}

/**
 * Returns the actor of an ID token's user in a place, with every scope. Throws 404 for a space of an organization
 * without membership, and 403 for such an organization (contract.md sections 1 and 6).
 */
export async function actorIn(db: Db, place: Place, who: IdTokenUser): Promise<Actor> {
  const organizationId = await organizationOf(db, place)
  const actor = await actorOf(db, { organizationId, userId: who.userId, scopes: null })
  if (!actor) throw 'spaceId' in place ? notFound('Space') : forbidden()
  return { ...actor, expiresAt: who.expiresAt }
}

async function organizationOf(db: Db, place: Place): Promise<string> {
  if ('orgId' in place) return place.orgId
  const where = { id: place.spaceId, archivedAt: null }
  const space = await db.space.findUnique({ where, select: { organizationId: true } })
  if (!space) throw notFound('Space')
  return space.organizationId
}
