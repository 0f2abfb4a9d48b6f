import { isIP } from 'node:net'
import type { z } from 'zod'
import { type Actor, holdCredential, isAdmin, permit, requireScope } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf } from '../crypto/data-key.ts'
import { lockRows, type Prisma, rowLock, type Tx } from '../db/client.ts'
import { endOfEvents, settlePresentEvents } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { badRequest, notFound } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newId } from '../lib/id.ts'
import { isPublicAddress } from '../lib/net/addresses.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { type CreateWebhook, type ListWebhooks, MAX_WEBHOOKS, type UpdateWebhook, type Webhook } from './schema.ts'
import { newSecret, sealSecret, sealUrl } from './secrets.ts'

export type WebhookRow = Prisma.WebhookGetPayload<object>

/** How long the secret before a rotation signs too (ms). */
const OVERLAP = 24 * 60 * 60 * 1000

/** Filters the webhooks of the caller's organization. Throws 403 unless the caller is an admin. */
export function reachable(actor: Actor): Prisma.WebhookWhereInput {
  permit(actor, isAdmin(actor))
  // Push notifications of a run belong to its caller (push.ts).
  return { organizationId: actor.organizationId, executionId: null, deletedAt: null }
}

/** Returns the patterns of a webhook. */
export const eventsOf = ({ events }: { events: unknown }): string[] => events as string[]

const toWebhook = (row: WebhookRow): z.input<typeof Webhook> => ({
  id: row.id,
  organizationId: row.organizationId,
  ownerId: row.ownerId,
  url: row.shownUrl,
  description: row.description,
  events: eventsOf(row),
  enabled: row.enabled,
  disabledReason: row.disabledReason,
  failingSince: row.failingSince?.toISOString() ?? null,
  format: row.format,
  includeContent: row.includeContent,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

/** GET /webhooks, newest first. Throws 403 unless the caller is an admin, as all functions here. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListWebhooks>) {
  const { where: after, ...page } = pageQuery(input)
  const found = await db.webhook.findMany({ where: { AND: [reachable(actor), after ?? {}] }, ...page })
  const { rows, nextCursor } = toPage(found, input)
  return { webhooks: rows.map(toWebhook), nextCursor }
}

/** Finds a webhook. Throws 404 for any other than the organization's, and 403 unless the caller is an admin. */
export async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<WebhookRow> {
  const row = await db.webhook.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Webhook')
  return row
}

/** Finds a webhook, which stays until the transaction ends. */
export async function hold(tx: Tx, actor: Actor, { settings }: Deps, id: string): Promise<WebhookRow> {
  await lockRows(tx, 'Webhook', [id], rowLock(settings))
  return find(actor, { db: tx }, id)
}

/** GET /webhooks/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { webhook: toWebhook(await find(actor, deps, id)) }
}

/** Scopes of the content that a webhook with `includeContent` receives. */
const CONTENT_SCOPES = [
  'agents:read',
  'approvals:read',
  'chats:read',
  'executions:read',
  'missions:read',
  'tasks:read',
] as const

/** Checks that the caller may have webhooks, and the content that one sends. Throws 403. */
export function check(actor: Actor, { includeContent }: { includeContent?: boolean | null | undefined } = {}): void {
  permit(actor, isAdmin(actor))
  if (includeContent) for (const scope of CONTENT_SCOPES) requireScope(actor, scope)
}

/** Returns the public form of an address: the address of a chat service is a secret. */
function masked(url: string, format: WebhookRow['format']): string {
  if (format === 'standard') return url
  return `${new URL(url).origin}/…${url.slice(-4)}`
}

/** Throws 400 for a private address in digits. Names are checked whenever something is sent. */
export function checkAddress(url: string, { settings }: Deps): void {
  const host = new URL(url).hostname.replace(/^\[(.*)\]$/, '$1')
  if (settings.ALLOW_PRIVATE_NETWORK || !isIP(host) || isPublicAddress(host)) return
  throw badRequest('Invalid url. Must not be a private address', {
    detail: 'The operator can allow private addresses with ALLOW_PRIVATE_NETWORK.',
  })
}

/** POST /webhooks. Only this answer has the signing secret. Throws 400 beyond {@link MAX_WEBHOOKS}. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateWebhook>) {
  check(actor, input)
  checkAddress(input.url, deps)
  const { db, settings } = deps
  const { organizationId } = actor
  const format = input.format ?? 'standard'
  const now = deps.clock.now()
  const owner = { organizationId, id: newId() }
  const secret = newSecret()
  await settlePresentEvents(db, settings, organizationId)
  const row = await db.$transaction(async (tx) => {
    await holdCredential(tx, settings, actor)
    await lockRows(tx, 'Organization', [organizationId], rowLock(settings))
    const count = await tx.webhook.count({ where: reachable(actor) })
    if (count >= MAX_WEBHOOKS)
      throw badRequest(`Too many webhooks. At most ${MAX_WEBHOOKS}`, { detail: 'Delete one first.' })
    const key = await dataKeyOf(tx, deps, organizationId, now)
    const created = await tx.webhook.create({
      data: {
        ...owner,
        ownerId: actor.userId,
        url: sealUrl(key, owner, input.url),
        shownUrl: masked(input.url, format),
        description: input.description ?? '',
        events: input.events,
        enabled: input.enabled ?? true,
        format,
        includeContent: input.includeContent ?? false,
        secret: sealSecret(key, owner, secret),
        ...(await endOfEvents(tx, settings, organizationId)),
        createdAt: now,
        updatedAt: now,
      },
    })
    await audit(tx, actor, 'webhook.create', created.id, now)
    return created
  })
  deps.bus.publish('webhook', [organizationId])
  return { id: row.id, webhook: toWebhook(row), secret }
}

/**
 * PATCH /webhooks/{id}. An admin who gives another address, or enables it, becomes the owner. Events that one owner can
 * see must not go to an address of another one. While it was disabled, events were not queued for it.
 */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateWebhook>) {
  check(actor, input)
  const row = await find(actor, deps, input.id)
  const { url, events, enabled, includeContent } = input
  const format = input.format ?? row.format
  if (url !== undefined) checkAddress(url, deps)
  // The address of a chat service is hidden, so that it cannot become one of another kind.
  if (url === undefined && format !== row.format)
    throw badRequest('Missing required field: url', { detail: 'A change of the format needs the url again.' })
  const description = input.description === null ? '' : input.description
  const changes = omitUndefined({ description, events, enabled, includeContent, format })
  const isEnabled = enabled === true && !row.enabled
  if (url === undefined && !hasChanges(row as never, changes as never)) return { webhook: toWebhook(row) }
  if (isEnabled) await settlePresentEvents(deps.db, deps.settings, actor.organizationId)
  const now = deps.clock.now()
  const written = await deps.db.$transaction(async (tx) => {
    await holdCredential(tx, deps.settings, actor)
    const key = url === undefined ? null : await dataKeyOf(tx, deps, actor.organizationId, now)
    const [changed] = await tx.webhook.updateManyAndReturn({
      where: { id: row.id, ...reachable(actor) },
      data: {
        ...changes,
        ...(key && url !== undefined && { url: sealUrl(key, row, url), shownUrl: masked(url, format) }),
        ...((url !== undefined || isEnabled) && { ownerId: actor.userId, failingSince: null }),
        ...(isEnabled && { disabledReason: null, ...(await endOfEvents(tx, deps.settings, actor.organizationId)) }),
        updatedAt: now,
      },
    })
    if (!changed) throw notFound('Webhook')
    await audit(tx, actor, 'webhook.update', row.id, now, {
      fields: Object.keys({ ...changes, ...(url !== undefined && { url }) }),
    })
    return changed
  })
  deps.bus.publish('webhook', [actor.organizationId])
  return { webhook: toWebhook(written) }
}

/** DELETE /webhooks/{id}. Servers remove its rows later, because many deliveries would delay all others (retention.ts). */
export async function remove(actor: Actor, { db, clock }: Deps, id: string) {
  const now = clock.now()
  await db.$transaction(async (tx) => {
    const data = { enabled: false, deletedAt: now }
    const { count } = await tx.webhook.updateMany({ where: { id, ...reachable(actor) }, data })
    if (!count) throw notFound('Webhook')
    await audit(tx, actor, 'webhook.delete', id, now)
  })
  return { message: 'Webhook deleted successfully' }
}

/** POST /webhooks/{id}/rotate: the new secret and the one before sign for 24 hours. */
export async function rotate(actor: Actor, deps: Deps, id: string) {
  const row = await find(actor, deps, id)
  const now = deps.clock.now()
  const secret = newSecret()
  const written = await deps.db.$transaction(async (tx) => {
    await holdCredential(tx, deps.settings, actor)
    const key = await dataKeyOf(tx, deps, row.organizationId, now)
    // The second of two rotations sees the first.
    const current = await hold(tx, actor, deps, id)
    const data = {
      secret: sealSecret(key, row, secret),
      oldSecret: current.secret,
      oldSecretUntil: new Date(now.getTime() + OVERLAP),
      updatedAt: now,
    }
    await audit(tx, actor, 'webhook.rotate', id, now)
    return tx.webhook.update({ where: { id }, data })
  })
  return { webhook: toWebhook(written), secret }
}
