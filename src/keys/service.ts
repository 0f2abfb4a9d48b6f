import type { KeyObject } from 'node:crypto'
import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { audit, operator } from '../auth/audit.ts'
import { covers, type Scope } from '../auth/scopes.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { forbidden, notFound } from '../errors.ts'
import { newId } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { newToken, tokenDigest, tokenPreview } from '../lib/token.ts'
import type { CreateKey, Key, ListKeys } from './schema.ts'

type TokenRow = Prisma.TokenGetPayload<object>

/** A user's own keys in the organization, unless revoked: nobody else's concern. */
export const reachable = ({ organizationId, userId }: Actor): Prisma.TokenWhereInput => ({
  organizationId,
  userId,
  revokedAt: null,
})

const toKey = (row: TokenRow): z.input<typeof Key> => ({
  id: row.id,
  name: row.name,
  preview: row.preview,
  scopes: row.scopes as string[],
  createdAt: row.createdAt.toISOString(),
  expiresAt: row.expiresAt?.toISOString() ?? null,
  lastUsedAt: row.lastUsedAt?.toISOString() ?? null,
})

/** GET /keys, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListKeys>) {
  const { where: after, ...page } = pageQuery(input)
  const found = await db.token.findMany({ where: { AND: [reachable(actor), after ?? {}] }, ...page })
  const { rows, nextCursor } = toPage(found, input)
  return { keys: rows.map(toKey), nextCursor }
}

const DAY = 24 * 60 * 60 * 1000

/** The scopes of a key that is to be. It never outranks its maker: 403 for one that the caller does not have. */
export function scopesOf(actor: Actor, { scopes = null }: z.output<typeof CreateKey>): string[] {
  const wanted = scopes ?? [...actor.scopes]
  if (!wanted.every((scope) => covers(actor.scopes, scope as Scope))) throw forbidden()
  return wanted
}

/** POST /keys. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateKey>) {
  const scopes = scopesOf(actor, input)
  const { organizationId, userId } = actor
  const now = deps.clock.now()
  const expiresAt = input.expiresInDays ? new Date(now.getTime() + input.expiresInDays * DAY) : null
  const how = { tokenKey: deps.tokenKey, prefix: deps.settings.TOKEN_PREFIX, now, by: actor }
  const { row, token } = await deps.db.$transaction((tx) =>
    createToken(tx, how, { organizationId, userId, name: input.name, scopes, expiresAt }),
  )
  const key = toKey(row)
  return { id: key.id, name: key.name, token, expiresAt: key.expiresAt, key }
}

/** DELETE /keys/{id}: revokes it; what is open with it ends. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    const { count } = await tx.token.updateMany({ where: { id, ...reachable(actor) }, data: { revokedAt: now } })
    if (!count) throw notFound('Key')
    await audit(tx, actor, 'key.revoke', id, now)
  })
  deps.bus.publish('token', [id])
  return { message: 'Key revoked successfully' }
}

export type NewToken = {
  organizationId: string
  userId: string
  name: string
  scopes: readonly string[]
  expiresAt: Date | null
}

/**
 * Stores a token's digest and returns the token, which is never to be seen again. `token` is one that exists already
 * (BOOTSTRAP_TOKEN).
 */
export async function createToken(
  tx: Tx,
  deps: { tokenKey: KeyObject; prefix: string; now: Date; by?: Actor },
  input: NewToken,
  token = newToken(deps.prefix),
) {
  const row = await tx.token.create({
    data: {
      id: newId(),
      ...input,
      scopes: [...input.scopes],
      digest: tokenDigest(deps.tokenKey, token),
      preview: tokenPreview(token),
      createdAt: deps.now,
    },
  })
  await audit(tx, deps.by ?? operator(input.organizationId), 'key.create', row.id, deps.now)
  return { row, token }
}

/** Revokes a token for good, if it is not already. When it was; null when there is none of that id. */
export async function revokeToken(tx: Tx, id: string, at: Date): Promise<Date | null> {
  const { count } = await tx.token.updateMany({ where: { id, revokedAt: null }, data: { revokedAt: at } })
  const token = await tx.token.findUnique({ where: { id }, select: { organizationId: true, revokedAt: true } })
  if (token && count) await audit(tx, operator(token.organizationId), 'key.revoke', id, at)
  return token?.revokedAt ?? null
}
