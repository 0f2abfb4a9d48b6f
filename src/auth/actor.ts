import type { KeyObject } from 'node:crypto'
import { type Db, keyLock, lockRows, Prisma, type Role, rowLock, type Tx } from '../db/client.ts'
import { forbidden, lacksScopes, signInRequired, tokenExpired, unauthorized } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import { isWellFormed, tokenDigest } from '../lib/token.ts'
import type { Settings } from '../settings.ts'
import { covers, fromColumn, type Scope } from './scopes.ts'

/** The actor of a request: a user in one organization, limited by role and token scopes (contract.md section 2). */
export type Actor = {
  readonly userId: string
  readonly organizationId: string
  readonly organizationSlug: string
  readonly role: Role
  readonly scopes: readonly string[]
  /** Id of the personal access token, empty without one. */
  readonly tokenId: string
  /** The browser session it came with, if it came with one. */
  readonly sessionId?: string
  /** Expiry of the token, of either kind. */
  readonly expiresAt?: Date
  /** The request that makes a change, for the audit log. */
  readonly request?: { readonly id: string; readonly address: string | undefined }
}

declare const authorized: unique symbol

/** A row on which the actor may act. Only {@link permit} creates it, so that an unchecked row does not compile. */
export type Authorized<T> = T & { readonly [authorized]: true }

/** Brands the row if it is `allowed`, otherwise throws 403. For visible rows only; invisible ones are a 404 earlier. */
export function permit<T>(row: T, allowed: boolean): Authorized<T> {
  if (!allowed) throw forbidden()
  return row as Authorized<T>
}

/** Returns whether the actor is an admin. Owners are admins too. */
export const isAdmin = (actor: Actor): boolean => actor.role !== 'member'

/** Returns the id of the actor's organization. Throws 403 for any other, whether it exists or not. */
export function ownOrganization(actor: Actor, id: string): string {
  if (id !== actor.organizationId) throw forbidden()
  return id
}

/** Throws 403 unless the actor has one of the scopes. */
export function requireScope(actor: Actor, ...anyOf: Scope[]): void {
  if (!anyOf.some((scope) => covers(actor.scopes, scope))) throw lacksScopes(anyOf)
}

type TokenRow = {
  id: string
  userId: string
  organizationId: string
  scopes: unknown
  expiresAt: unknown
  revokedAt: unknown
  lastUsedAt: unknown
  role: Role | null
  slug: string
}

/** Precision of the time of a token's last use (ms), so that a busy token is written once a minute. */
const LAST_USED_PRECISION = 60_000

/**
 * Returns the actor of an `Authorization` header with a personal access token, in one statement. Throws the 401s of
 * contract.md section 1, and 403 if the membership has ended. `invalid` is the message for an unknown token, which
 * differs between `/api/v1` and other paths.
 */
export async function authenticate(
  deps: { db: Db; clock: Clock; tokenKey: KeyObject; settings: Pick<Settings, 'TOKEN_PREFIX'> },
  header: string,
  invalid: string,
): Promise<Actor> {
  const { db } = deps
  const tokenPrefix = deps.settings.TOKEN_PREFIX
  const token = /^Bearer ([\x21-\x7e]+)$/i.exec(header)?.[1]
  if (!token?.startsWith(`${tokenPrefix}_`)) {
    throw unauthorized(`Invalid token format. Token must start with ${tokenPrefix}_`)
  }
  if (!isWellFormed(token, tokenPrefix)) throw unauthorized(invalid)
  // Subqueries instead of joins, because SQLite replans a join with parameters on each execution.
  const [row] = await db.$queryRaw<TokenRow[]>(Prisma.sql`
    SELECT t."id", t."userId", t."organizationId", t."scopes", t."expiresAt", t."revokedAt", t."lastUsedAt",
      (SELECT m."role" FROM "Membership" m
        WHERE m."organizationId" = t."organizationId" AND m."userId" = t."userId") AS "role",
      (SELECT o."slug" FROM "Organization" o WHERE o."id" = t."organizationId") AS "slug"
    FROM "Token" t WHERE t."digest" = ${tokenDigest(deps.tokenKey, token)}`)
  if (!row || row.revokedAt) throw unauthorized(invalid)
  const now = deps.clock.now()
  const expiresAt = row.expiresAt ? new Date(time(row.expiresAt)) : undefined
  if (hasExpired({ expiresAt }, now)) throw tokenExpired()
  if (!row.role) throw forbidden()
  if (!row.lastUsedAt || time(row.lastUsedAt) < now.getTime() - LAST_USED_PRECISION) {
    await db.token.updateMany({ where: { id: row.id }, data: { lastUsedAt: now } })
  }
  return {
    tokenId: row.id,
    userId: row.userId,
    organizationId: row.organizationId,
    organizationSlug: row.slug,
    role: row.role,
    scopes: (typeof row.scopes === 'string' ? JSON.parse(row.scopes) : row.scopes) as string[],
    ...(expiresAt && { expiresAt }),
  }
}

/**
 * Holds the caller's token or browser session until the transaction ends, so that a request that ends it finds the
 * things made with it. Throws 401 if it has ended since the request began.
 */
export async function holdCredential(tx: Tx, settings: Settings, { tokenId: id, sessionId }: Actor): Promise<void> {
  if (id) {
    await lockRows(tx, 'Token', [id], rowLock(settings))
    if (!(await tx.token.count({ where: { id, revokedAt: null } }))) throw unauthorized('Invalid or expired token')
  } else if (sessionId !== undefined) {
    await lockRows(tx, 'BrowserSession', [sessionId], rowLock(settings))
    if (!(await tx.browserSession.count({ where: { id: sessionId } }))) throw signInRequired()
  }
}

/**
 * Holds a membership until the transaction ends, so that its end finds the things made for the member. Returns false if
 * it has ended.
 */
export async function holdMembership(
  tx: Tx,
  settings: Settings,
  { organizationId, userId }: Pick<Actor, 'organizationId' | 'userId'>,
): Promise<boolean> {
  const rows = await tx.$queryRaw<unknown[]>(Prisma.sql`
    SELECT "role" FROM "Membership"
    WHERE "organizationId" = ${organizationId} AND "userId" = ${userId} ${keyLock(settings)}`)
  return rows.length > 0
}

/**
 * Holds the caller's credential and membership until the transaction ends ({@link holdCredential},
 * {@link holdMembership}). Throws 401 or 403 if one of them has ended.
 */
export async function holdAccess(tx: Tx, settings: Settings, actor: Actor): Promise<void> {
  await holdCredential(tx, settings, actor)
  if (!(await holdMembership(tx, settings, actor))) throw forbidden()
}

/** Returns whether the actor's token has expired. */
export const hasExpired = ({ expiresAt }: { expiresAt?: Date | undefined }, now: Date): boolean =>
  expiresAt !== undefined && expiresAt <= now

/**
 * Returns the actor of a run or a mission, within its scopes (null for all) and its token. Returns null if the
 * membership has ended.
 */
export async function actorOf(
  db: Db,
  who: { organizationId: string; userId: string; scopes: string | null; tokenId?: string | null },
): Promise<Actor | null> {
  const { organizationId, userId } = who
  const membership = await db.membership.findUnique({
    where: { organizationId_userId: { organizationId, userId } },
    include: { organization: { select: { slug: true } } },
  })
  if (!membership) return null
  const { role, organization } = membership
  const scopes = fromColumn(who.scopes)
  return { userId, organizationId, organizationSlug: organization.slug, role, scopes, tokenId: who.tokenId ?? '' }
}

/** Dates in raw rows have the driver's type. */
const time = (value: unknown): number => new Date(value as string | number | Date).getTime()
