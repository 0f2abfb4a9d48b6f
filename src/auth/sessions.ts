import type { KeyObject } from 'node:crypto'
import type { Db, Prisma, SignInMethod, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { forbidden, organizationRequired, signInRequired } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import { newId, newSecret } from '../lib/id.ts'
import { tokenDigest } from '../lib/token.ts'
import type { Actor } from './actor.ts'
import { type AuditSource, audit } from './audit.ts'

/** Lifetime of a session after its last use (ms). */
const LIFETIME = 30 * 24 * 60 * 60_000
/** Accuracy of the time of the last use in the database (ms). */
const LAST_SEEN_PRECISION = 5 * 60_000
const MAX_USER_AGENT = 500

/** The row of a browser session, without its digest. */
export type SessionRow = {
  id: string
  userId: string
  method: SignInMethod
  createdAt: Date
  lastSeenAt: Date
  expiresAt: Date
  userAgent: string | null
  address: string | null
}

/** The client of a request. */
export type Client = { address: string | undefined; userAgent: string | undefined }

const columns = {
  id: true,
  userId: true,
  method: true,
  createdAt: true,
  lastSeenAt: true,
  expiresAt: true,
  userAgent: true,
  address: true,
} as const satisfies Prisma.BrowserSessionSelect

/** A user who changes their own account, and the request if there is one. */
export type UserCause = Pick<AuditSource, 'userId' | 'request'>

type SessionDeps = { db: Db; clock: Clock; sessionKey: KeyObject }

/** Finds the session of a cookie's secret and prolongs it. Throws 401 if it is missing or has ended. */
export async function findSession({ db, clock, sessionKey }: SessionDeps, secret: string): Promise<SessionRow> {
  const where = { digest: tokenDigest(sessionKey, secret) }
  const session = await db.browserSession.findUnique({ where, select: columns })
  const now = clock.now()
  if (!session || session.expiresAt <= now) throw signInRequired()
  if (session.lastSeenAt.getTime() < now.getTime() - LAST_SEEN_PRECISION) {
    const data = { lastSeenAt: now, expiresAt: new Date(now.getTime() + LIFETIME) }
    await db.browserSession.updateMany({ where: { id: session.id }, data })
    return { ...session, ...data }
  }
  return session
}

/**
 * Finds the one of some organizations that a request names: by its id, by its slug, or by one that it had within a year.
 */
export async function findNamed<T extends { id: string; slug: string }>(
  db: Db,
  organizations: readonly T[],
  name: string,
  now: Date,
): Promise<T | undefined> {
  const wanted = name.normalize('NFC')
  const found = organizations.find(({ id, slug }) => id === name || slug.normalize('NFC') === wanted)
  if (found) return found
  const former = await db.formerSlug.findUnique({ where: { slug: wanted } })
  return former && former.endsAt > now ? organizations.find(({ id }) => id === former.organizationId) : undefined
}

/**
 * Finds the membership with which a user acts: the one that `name` names, or the only one. Throws 400 for several
 * without a name, 403 for an organization without the user.
 */
async function findMembership(db: Db, userId: string, name: string | undefined, now: Date) {
  const rows = await db.membership.findMany({
    where: { userId },
    select: { role: true, organization: { select: { id: true, slug: true } } },
  })
  const memberships = rows.map(({ role, organization }) => ({ ...organization, role }))
  if (name === undefined && memberships.length > 1) throw organizationRequired()
  const found = name === undefined ? memberships[0] : await findNamed(db, memberships, name, now)
  if (!found) throw forbidden()
  return found
}

/** Returns a user's rights in an organization, with every scope. Throws as {@link findMembership} does. */
export async function actorOfUser(db: Db, userId: string, name: string | undefined, now: Date): Promise<Actor> {
  const { role, id: organizationId, slug: organizationSlug } = await findMembership(db, userId, name, now)
  return { userId, organizationId, organizationSlug, role, scopes: ['*'], tokenId: '' }
}

/** Starts a session in a transaction. Returns the secret for the cookie, which the database never stores. */
export async function beginSession(
  tx: Tx,
  { clock, sessionKey }: Pick<Deps, 'clock' | 'sessionKey'>,
  { method, client, ...who }: UserCause & { method: SignInMethod; client: Client },
): Promise<{ secret: string; session: SessionRow }> {
  const secret = newSecret()
  const { userId } = who
  const now = clock.now()
  const session = {
    id: newId(),
    userId,
    method,
    createdAt: now,
    lastSeenAt: now,
    expiresAt: new Date(now.getTime() + LIFETIME),
    userAgent: client.userAgent?.slice(0, MAX_USER_AGENT).replaceAll('\0', '').toWellFormed() ?? null,
    address: client.address?.slice(0, 100) ?? null,
  }
  await tx.browserSession.create({
    data: { ...session, digest: tokenDigest(sessionKey, secret) },
    select: { id: true },
  })
  await auditUser(tx, who, 'session.create', session.id, now)
  return { secret, session }
}

/** Ends sessions of a user in a transaction: all, one, or all but one. Returns their ids, for the bus. */
export async function endSessions(
  tx: Tx,
  who: UserCause,
  which: { id?: string; except?: string | undefined },
  now: Date,
): Promise<string[]> {
  const { userId } = who
  const { id, except } = which
  const where = {
    userId,
    ...(id !== undefined && { id }),
    ...(except !== undefined && { NOT: { id: except } }),
  }
  const sessions = await tx.browserSession.findMany({ where, select: { id: true } })
  const ids = sessions.map((session) => session.id)
  if (!ids.length) return []
  await tx.browserSession.deleteMany({ where: { userId, id: { in: ids } } })
  for (const ended of ids) await auditUser(tx, who, 'session.end', ended, now)
  return ids
}

/** Writes an audit event in each organization of a user. */
export async function auditUser(tx: Tx, who: UserCause, action: string, target: string, at: Date): Promise<void> {
  const memberships = await tx.membership.findMany({ where: { userId: who.userId }, select: { organizationId: true } })
  for (const { organizationId } of memberships) await audit(tx, { ...who, organizationId }, action, target, at)
}
