import type { z } from 'zod'
import { type Actor, holdAccess, holdMembership } from '../auth/actor.ts'
import { audit, changesOf } from '../auth/audit.ts'
import { Prisma, type Role, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, notFound } from '../errors.ts'
import { createToken, expiryOf, scopesOf, toKey } from '../keys/service.ts'
import { omitUndefined } from '../lib/changes.ts'
import { newId } from '../lib/id.ts'
import { MAX_ROWS, pageQuery, toPage } from '../lib/page.ts'
import { administered } from './details.ts'
import { checkGrant, checkGrantIn, endMembership, tokensOf } from './members.ts'
import type {
  CreateServiceAccount,
  CreateServiceKey,
  ListServiceKeys,
  OrganizationId,
  ServiceAccount,
  ServiceAccountId,
  ServiceKeyId,
  UpdateServiceAccount,
} from './schema.ts'

/** Maximum number of service accounts of an organization. */
const MAX_ACCOUNTS = 500

type Row = { userId: string; name: string; role: Role; createdBy: string; createdAt: Date | string | number }

const toAccount = ({ userId, name, role, createdBy, createdAt }: Row): z.input<typeof ServiceAccount> => ({
  id: userId,
  name,
  role: role as 'member' | 'admin',
  createdBy,
  createdAt: new Date(createdAt).toISOString(),
})

/** Reads the service accounts of an organization that have not ended, newest first; one of them, if one is named. */
const read = (db: Pick<Tx, '$queryRaw'>, organizationId: string, userId?: string) =>
  db.$queryRaw<Row[]>(Prisma.sql`
    SELECT s."userId", u."name", m."role", s."createdBy", s."createdAt" FROM "ServiceAccount" s
    JOIN "Membership" m ON m."organizationId" = s."organizationId" AND m."userId" = s."userId"
    JOIN "User" u ON u."id" = s."userId"
    WHERE s."organizationId" = ${organizationId} ${userId === undefined ? Prisma.empty : Prisma.sql`AND s."userId" = ${userId}`}
    ORDER BY s."createdAt" DESC, s."userId" DESC LIMIT ${MAX_ROWS}`)

async function find(db: Pick<Tx, '$queryRaw'>, organizationId: string, userId: string): Promise<Row> {
  const [row] = await read(db, organizationId, userId)
  if (!row) throw notFound('Service account')
  return row
}

/** GET /organizations/{id}/service-accounts, newest first. Throws 403 for callers who are no admin. */
export async function list(actor: Actor, { db }: Deps, { id }: z.output<typeof OrganizationId>) {
  return { serviceAccounts: (await read(db, administered(actor, id))).map(toAccount) }
}

/** POST /organizations/{id}/service-accounts: a user who acts by keys alone. Throws 403 as {@link checkGrantIn} does. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateServiceAccount>) {
  checkGrantIn(actor, input)
  const { name, role } = input
  const { organizationId, userId: createdBy } = actor
  const now = deps.clock.now()
  const userId = newId()
  await deps.db.$transaction(async (tx) => {
    if ((await read(tx, organizationId)).length >= MAX_ACCOUNTS)
      throw badRequest(`Too many service accounts. At most ${MAX_ACCOUNTS}`, { detail: 'Delete one first.' })
    // Neither mail nor an identity provider can have an address under .invalid (RFC 2606).
    const email = `${userId.toLowerCase()}-${newId().toLowerCase()}@service.invalid`
    await tx.user.create({
      data: { id: userId, email, name, createdAt: now, updatedAt: now },
      select: { id: true },
    })
    await tx.serviceAccount.create({
      data: { userId, organizationId, createdBy, createdAt: now },
      select: { userId: true },
    })
    await tx.membership.create({ data: { organizationId, userId, role, createdAt: now }, select: { userId: true } })
    await audit(tx, actor, 'service_account.create', userId, now, { name, role })
  })
  const serviceAccount = toAccount({ userId, name, role, createdBy, createdAt: now })
  return { id: userId, name, serviceAccount }
}

/** PATCH /organizations/{id}/service-accounts/{userId}. Throws 403 and 404. */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateServiceAccount>) {
  const organizationId = administered(actor, input.id)
  const { userId, name, role } = input
  if (role !== undefined) checkGrant(actor, role)
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    const before = await find(tx, organizationId, userId)
    const changes = changesOf({ name: before.name, role: before.role }, omitUndefined({ name, role }))
    if (!Object.keys(changes).length) return
    if (name !== undefined) await tx.user.updateMany({ where: { id: userId }, data: { name, updatedAt: now } })
    if (role !== undefined) await tx.membership.updateMany({ where: { organizationId, userId }, data: { role } })
    await audit(tx, actor, 'service_account.update', userId, now, changes)
  })
  deps.bus.publish('token', [userId, ...(await tokensOf(deps.db, organizationId, userId))])
  return { serviceAccount: toAccount(await find(deps.db, organizationId, userId)) }
}

/**
 * DELETE /organizations/{id}/service-accounts/{userId}: ends the account. Its keys are revoked, its runs cancelled.
 * Throws 403 and 404.
 */
export async function remove(actor: Actor, deps: Deps, input: z.output<typeof ServiceAccountId>) {
  const organizationId = administered(actor, input.id)
  const { userId } = input
  await endMembership(actor, deps, userId, async (tx) => {
    await find(tx, organizationId, userId)
    const where = { organizationId, userId, revokedAt: null }
    await tx.token.updateMany({ where, data: { revokedAt: deps.clock.now() } })
  })
  return { message: 'Service account deleted successfully' }
}

/** GET /organizations/{id}/service-accounts/{userId}/keys, newest first. Throws 403 and 404. */
export async function listKeys(actor: Actor, { db }: Deps, input: z.output<typeof ListServiceKeys>) {
  const organizationId = administered(actor, input.id)
  const { userId } = await find(db, organizationId, input.userId)
  const { where: after, ...page } = pageQuery(input)
  const where = { AND: [{ organizationId, userId, revokedAt: null }, after ?? {}] }
  const { rows, nextCursor } = toPage(await db.token.findMany({ where, ...page }), input)
  return { keys: rows.map(toKey), nextCursor }
}

/** Checks that the caller may make a key of an account. Throws 403 for scopes that the caller lacks, 404. */
export async function checkKey(
  actor: Actor,
  { db }: Pick<Deps, 'db'>,
  input: z.output<typeof CreateServiceKey>,
): Promise<Row> {
  const organizationId = administered(actor, input.id)
  scopesOf(actor, input)
  const account = await find(db, organizationId, input.userId)
  // The key acts with the role of the account, which must not exceed the caller's.
  checkGrant(actor, account.role)
  return account
}

/**
 * POST /organizations/{id}/service-accounts/{userId}/keys. The key never outlives the caller's own, and has none of the
 * scopes that the caller lacks. Throws 403 and 404.
 */
export async function createKey(actor: Actor, deps: Deps, input: z.output<typeof CreateServiceKey>) {
  const { userId } = await checkKey(actor, deps, input)
  const { organizationId } = actor
  const now = deps.clock.now()
  const expiresAt = expiryOf(actor, input.expiresInDays, now)
  const how = { tokenKey: deps.tokenKey, prefix: deps.settings.TOKEN_PREFIX, now, by: actor }
  const key = { organizationId, userId, name: input.name, scopes: scopesOf(actor, input), expiresAt }
  const { row, token } = await deps.db.$transaction(async (tx) => {
    await holdAccess(tx, deps.settings, actor)
    if (!(await holdMembership(tx, deps.settings, { organizationId, userId }))) throw notFound('Service account')
    return createToken(tx, how, { ...key, tokenId: actor.tokenId || null })
  })
  const made = toKey(row)
  return { id: made.id, name: made.name, token, expiresAt: made.expiresAt, key: made }
}

/** DELETE /organizations/{id}/service-accounts/{userId}/keys/{keyId}. Throws 403 and 404. */
export async function removeKey(actor: Actor, deps: Deps, input: z.output<typeof ServiceKeyId>) {
  const organizationId = administered(actor, input.id)
  const { userId, keyId: id } = input
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    await find(tx, organizationId, userId)
    const where = { id, organizationId, userId, revokedAt: null }
    const { count } = await tx.token.updateMany({ where, data: { revokedAt: now } })
    if (!count) throw notFound('Key')
    await audit(tx, actor, 'key.revoke', id, now)
  })
  deps.bus.publish('token', [id])
  return { message: 'Key revoked successfully' }
}
