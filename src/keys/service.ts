import type { KeyObject } from 'node:crypto'
import type { z } from 'zod'
import { type Actor, holdAccess } from '../auth/actor.ts'
import { audit, auditEach, operator } from '../auth/audit.ts'
import { covers, type Scope } from '../auth/scopes.ts'
import { lockRows, type Prisma, rowLock, type Tx } from '../db/client.ts'
import { MAX_IN } from '../db/fast-path/index.ts'
import type { Deps } from '../deps.ts'
import { forbidden, notFound } from '../errors.ts'
import { LIVE, markRuns } from '../executions/engine/queue/cancel-marks.ts'
import { asDb } from '../idempotency.ts'
import { chunk } from '../lib/chunk.ts'
import { newId } from '../lib/id.ts'
import { MAX_ROWS, pageQuery, toPage } from '../lib/page.ts'
import { newToken, tokenDigest, tokenPreview } from '../lib/token.ts'
import { endKeys } from '../missions/endings.ts'
import type { Settings } from '../settings.ts'
import { disable } from '../webhooks/fan-out.ts'
import type { CreateKey, Derived, Key, ListKeys, RevokeKey } from './schema.ts'

type TokenRow = Prisma.TokenGetPayload<object>

/** Filters the user's own keys in the organization, without revoked ones. */
export const reachable = ({ organizationId, userId }: Actor): Prisma.TokenWhereInput => ({
  organizationId,
  userId,
  revokedAt: null,
})

/** Describes a key as its user sees it. */
export const toKey = (row: TokenRow): z.input<typeof Key> => ({
  id: row.id,
  name: row.name,
  preview: row.preview,
  scopes: row.scopes as string[],
  tokenId: row.tokenId,
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

/** Returns the scopes of a new key. Throws 403 for a scope that the caller does not have. */
export function scopesOf(actor: Actor, { scopes = null }: Pick<z.output<typeof CreateKey>, 'scopes'>): string[] {
  const wanted = scopes ?? [...actor.scopes]
  if (!wanted.every((scope) => covers(actor.scopes, scope as Scope)))
    throw forbidden({ detail: 'A key has at most the scopes of the token that makes it. Leave out the others.' })
  return wanted
}

/**
 * Returns the end of a new key: after some days, or never. A key never outlives the key that created it (contract-2.md
 * section 8.1).
 */
export function expiryOf(actor: Actor, days: number | null | undefined, now: Date): Date | null {
  const wanted = days ? new Date(now.getTime() + days * DAY) : null
  const latest = (actor.tokenId && actor.expiresAt) || null
  return wanted && latest ? new Date(Math.min(+wanted, +latest)) : (wanted ?? latest)
}

/** POST /keys: see {@link scopesOf} and {@link expiryOf}. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateKey>) {
  const scopes = scopesOf(actor, input)
  const { organizationId, userId } = actor
  const now = deps.clock.now()
  const expiresAt = expiryOf(actor, input.expiresInDays, now)
  const tokenId = actor.tokenId || null
  const how = { tokenKey: deps.tokenKey, prefix: deps.settings.TOKEN_PREFIX, now, by: actor }
  const { row, token } = await deps.db.$transaction(async (tx) => {
    await holdAccess(tx, deps.settings, actor)
    return createToken(tx, how, { organizationId, userId, name: input.name, scopes, expiresAt, tokenId })
  })
  const key = toKey(row)
  return { id: key.id, name: key.name, token, expiresAt: key.expiresAt, key }
}

/**
 * DELETE /keys/{id}: revokes the key and ends its open requests and streams. With `cascade` also revokes the keys
 * created with it, pauses missions written with any of them, cancels their runs, deletes their invitations and push
 * notifications, and disables their webhooks; without, the response lists these.
 */
export async function remove(actor: Actor, deps: Deps, { id, cascade = false }: z.output<typeof RevokeKey>) {
  const { organizationId } = actor
  const now = deps.clock.now()
  const derived = await deps.db.$transaction(async (tx) => {
    if (!(await tx.token.findFirst({ where: { id, ...reachable(actor) }, select: { id: true } }))) throw notFound('Key')
    // Lock order: keys, runs, mission counts, missions.
    const keys = await keysMadeWith(tx, deps.settings, { organizationId, id })
    const all = [id, ...keys.all]
    const made = [...chunk(all, MAX_IN)].map((ids) => ({ organizationId, tokenId: { in: ids } }))
    const select = { id: true }
    const runs = await eachOf(made, (theirs) =>
      cascade
        ? markRuns(tx, theirs, actor, now)
        : tx.execution.findMany({ where: { ...theirs, ...LIVE }, select, take: MAX_ROWS }),
    )
    const missions = cascade
      ? await endKeys(tx, { settings: deps.settings, by: actor, now }, organizationId, all)
      : await eachOf(made, (theirs) => {
          const where = { ...theirs, archivedAt: null, status: { not: 'completed' as const } }
          return tx.mission.findMany({ where, select, take: MAX_ROWS })
        })
    if (cascade) await closeDoors(tx, actor, all, now)
    const { count } = await tx.token.updateMany({ where: { id, ...reachable(actor) }, data: { revokedAt: now } })
    if (!count) throw notFound('Key')
    const revoked = [id, ...(cascade ? keys.valid : [])]
    for (const ids of chunk(revoked, MAX_IN))
      await tx.token.updateMany({ where: { id: { in: ids }, revokedAt: null }, data: { revokedAt: now } })
    if (cascade)
      for (const { tokenId } of made) await tx.token.updateMany({ where: { id: tokenId }, data: { cascade } })
    await auditEach(tx, actor, 'key.revoke', revoked, now)
    return { keys: keys.valid, missions, runs }
  })
  deps.bus.publish('token', cascade ? [id, ...derived.keys] : [id])
  if (cascade && derived.runs.length) deps.bus.publish('cancel', derived.runs)
  if (cascade) deps.bus.publish('webhook', [organizationId])
  return { message: 'Key revoked successfully', derived: first(derived) }
}

/** Returns the ids of the rows that `find` returns for each part of a list, in order. */
async function eachOf<Part>(
  parts: readonly Part[],
  find: (part: Part) => Promise<{ id: string }[]>,
): Promise<string[]> {
  const ids: string[] = []
  for (const part of parts) for (const { id } of await find(part)) ids.push(id)
  return ids
}

/** Limits each list to the size of a page. */
const first = ({ keys, missions, runs }: z.input<typeof Derived>) => ({
  keys: keys.slice(0, MAX_ROWS),
  missions: missions.slice(0, MAX_ROWS),
  runs: runs.slice(0, MAX_ROWS),
})

/** Actions that let a person in, or send events out. */
const OPENING = ['invitation.create', 'webhook.create', 'webhook.update', 'webhook.rotate']

/**
 * Deletes the open invitations and push notifications, and disables the webhooks, that the audit log attributes to some
 * keys. It then has an event for each.
 */
async function closeDoors(tx: Tx, actor: Actor, tokenIds: string[], now: Date): Promise<void> {
  const { organizationId } = actor
  const select = { id: true }
  const open = { organizationId, expiresAt: { gt: now } }
  const orderBy = [{ createdAt: 'desc' as const }, { id: 'desc' as const }]
  const invited = await tx.invitation.findMany({ where: open, select, orderBy, take: MAX_ROWS })
  const invitations = invited.map(({ id }) => id)
  const enabled = { organizationId, enabled: true }
  const webhooks = await tx.webhook.findMany({ where: enabled, select: { id: true, executionId: true } })
  const made = new Set<string>()
  const keys = new Set(tokenIds)
  for (const ids of chunk([...invitations, ...webhooks.map(({ id }) => id)], MAX_IN)) {
    const where = { organizationId, target: { in: ids }, action: { in: OPENING }, tokenId: { not: null } }
    const events = await tx.auditEvent.findMany({ where, select: { target: true, tokenId: true } })
    for (const { target, tokenId } of events) if (tokenId !== null && keys.has(tokenId)) made.add(target)
  }
  for (const id of invitations.filter((id) => made.has(id))) {
    const { count } = await tx.invitation.deleteMany({ where: { id } })
    if (count) await audit(tx, actor, 'invitation.delete', id, now)
  }
  const closed = webhooks.filter(({ id }) => made.has(id))
  // A key may have set push notifications for any number of runs.
  const runs = new Map(closed.flatMap(({ id, executionId }) => (executionId === null ? [] : [[id, executionId]])))
  for (const ids of chunk([...runs.keys()], MAX_IN)) await tx.webhook.deleteMany({ where: { id: { in: ids } } })
  await auditEach(tx, actor, 'webhook.delete', [...runs.keys()], now, (id) => ({ executionId: runs.get(id) }))
  for (const { id } of closed.filter(({ executionId }) => executionId === null))
    await disable(asDb(tx), { id, organizationId }, 'The key it was made or changed with was revoked', now)
}

/**
 * Finds the keys created with a key, and with those, also for service accounts, and locks them: {@link holdAccess}
 * waits. `valid` are the ones that are not revoked.
 */
async function keysMadeWith(
  tx: Tx,
  settings: Settings,
  { organizationId, id }: { organizationId: string; id: string },
) {
  const found: { id: string; revokedAt: Date | null }[] = []
  for (let makers = [id]; makers.length; ) {
    const made: typeof found = []
    for (const ids of chunk(makers, MAX_IN)) {
      await lockRows(tx, 'Token', ids, rowLock(settings))
      const where = { organizationId, tokenId: { in: ids } }
      made.push(...(await tx.token.findMany({ where, select: { id: true, revokedAt: true } })))
    }
    found.push(...made)
    makers = made.map((key) => key.id)
  }
  return {
    all: found.map((key) => key.id),
    valid: found.flatMap((key) => (key.revokedAt ? [] : key.id)),
  }
}

export type NewToken = {
  organizationId: string
  userId: string
  name: string
  scopes: readonly string[]
  expiresAt: Date | null
  /** The token that creates the key, if there is one. */
  tokenId?: string | null
}

/**
 * Stores a token's digest and returns the token, which cannot be read again. `token` is an existing one
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

/** Revokes a token, permanently. Returns the time of its first revocation, or null for an unknown id. */
export async function revokeToken(tx: Tx, id: string, at: Date): Promise<Date | null> {
  const { count } = await tx.token.updateMany({ where: { id, revokedAt: null }, data: { revokedAt: at } })
  const token = await tx.token.findUnique({ where: { id }, select: { organizationId: true, revokedAt: true } })
  if (token && count) await audit(tx, operator(token.organizationId), 'key.revoke', id, at)
  return token?.revokedAt ?? null
}
