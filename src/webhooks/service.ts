import { isIP } from 'node:net'
import type { z } from 'zod'
import { type Actor, holdCredential, isAdmin, permit, requireScope } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf } from '../crypto/data-key.ts'
import { lockRows, type Prisma, rowLock, type Tx } from '../db/client.ts'
import { endOfEvents, settlePresentEvents } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, notFound } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newId, newSortableId } from '../lib/id.ts'
import { isPublicAddress } from '../lib/net/addresses.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import {
  type CreateWebhook,
  type DeliveryAttempt,
  type DeliveryId,
  type ListDeliveries,
  type ListWebhooks,
  MAX_WEBHOOKS,
  type ReplayDeliveries,
  type UpdateWebhook,
  type Webhook,
  type WebhookDelivery,
} from './schema.ts'
import { newSecret, sealSecret, sealUrl } from './secrets.ts'

export type WebhookRow = Prisma.WebhookGetPayload<object>
export type DeliveryRow = Prisma.WebhookDeliveryGetPayload<object>

/** How long the secret before a rotation signs too (ms). */
const OVERLAP = 24 * 60 * 60 * 1000
/** Type of the event that a test sends. */
export const TEST_EVENT = 'webhook.test'

/** Filters the webhooks of the caller's organization. Throws 403 unless the caller is an admin. */
export function reachable(actor: Actor): Prisma.WebhookWhereInput {
  permit(actor, isAdmin(actor))
  // Push notifications of a run belong to its caller (push.ts).
  return { organizationId: actor.organizationId, executionId: null }
}

/** Filters the deliveries of the caller's organization. Throws 403 unless the caller is an admin. */
export function reachableDeliveries(actor: Actor): Prisma.WebhookDeliveryWhereInput {
  permit(actor, isAdmin(actor))
  return { organizationId: actor.organizationId }
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

/** Returns the stored attempts of a delivery. */
export const attemptsOf = ({ attempts }: { attempts: unknown }) => attempts as z.output<typeof DeliveryAttempt>[]

/** Returns the id of the event of a delivery, as receivers get it. */
export const eventIdOf = (
  row: Pick<DeliveryRow, 'id' | 'organizationId' | 'event' | 'position' | 'sequence'>,
): string =>
  row.event === TEST_EVENT ? `evt-test-${row.id}` : `evt-${row.organizationId}-${row.position}-${row.sequence}`

const toDelivery = (row: DeliveryRow): z.input<typeof WebhookDelivery> => ({
  id: row.id,
  webhookId: row.webhookId,
  event: row.event,
  eventId: eventIdOf(row),
  subjectId: row.subjectId,
  status: row.status,
  attempts: attemptsOf(row),
  nextAttemptAt: row.nextAttemptAt?.toISOString() ?? null,
  createdAt: row.createdAt.toISOString(),
})

/** GET /webhooks, newest first. Throws 403 unless the caller is an admin, as all functions here. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListWebhooks>) {
  const { where: after, ...page } = pageQuery(input)
  const found = await db.webhook.findMany({ where: { AND: [reachable(actor), after ?? {}] }, ...page })
  const { rows, nextCursor } = toPage(found, input)
  return { webhooks: rows.map(toWebhook), nextCursor }
}

async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<WebhookRow> {
  const row = await db.webhook.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Webhook')
  return row
}

/** Finds a webhook, which stays until the transaction ends. */
async function hold(tx: Tx, actor: Actor, { settings }: Deps, id: string): Promise<WebhookRow> {
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

/** DELETE /webhooks/{id}, with its deliveries. */
export async function remove(actor: Actor, { db, clock }: Deps, id: string) {
  await db.$transaction(async (tx) => {
    const { count } = await tx.webhook.deleteMany({ where: { id, ...reachable(actor) } })
    if (!count) throw notFound('Webhook')
    await audit(tx, actor, 'webhook.delete', id, clock.now())
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

const isDisabled = () => conflict('Webhook is disabled', { detail: 'Enable it first: PATCH it with enabled: true.' })

/** POST /webhooks/{id}/test: sends an event without content. Throws 409 for a disabled webhook. */
export async function test(actor: Actor, deps: Deps, id: string) {
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    if (!(await hold(tx, actor, deps, id)).enabled) throw isDisabled()
    const created = await tx.webhookDelivery.create({
      data: {
        id: newSortableId(now),
        organizationId: actor.organizationId,
        webhookId: id,
        position: 0,
        sequence: 0,
        event: TEST_EVENT,
        subjectId: id,
        status: 'pending',
        nextAttemptAt: now,
        createdAt: now,
      },
    })
    await audit(tx, actor, 'webhook.test', id, now)
    return created
  })
  deps.bus.publish('webhook', [actor.organizationId])
  return { delivery: toDelivery(row) }
}

/** Returns the filter of a list of deliveries. */
export const deliveriesBy = (
  actor: Actor,
  { status, event }: Pick<z.output<typeof ListDeliveries>, 'status' | 'event'>,
): Prisma.WebhookDeliveryWhereInput => ({
  ...reachableDeliveries(actor),
  ...(status && { status }),
  ...(event !== undefined && { event }),
})

/** GET /webhooks/{id}/deliveries, newest first. */
export async function deliveries(actor: Actor, deps: Deps, input: z.output<typeof ListDeliveries>) {
  await find(actor, deps, input.id)
  const { where: after, ...page } = pageQuery(input)
  const where = { AND: [{ webhookId: input.id }, deliveriesBy(actor, input), after ?? {}] }
  const { rows, nextCursor } = toPage(await deps.db.webhookDelivery.findMany({ where, ...page }), input)
  return { deliveries: rows.map(toDelivery), nextCursor }
}

async function findDelivery(actor: Actor, { db }: { db: Tx }, input: z.output<typeof DeliveryId>) {
  const where = { id: input.deliveryId, webhookId: input.id, ...reachableDeliveries(actor) }
  const row = await db.webhookDelivery.findFirst({ where })
  if (!row) throw notFound('Delivery')
  return row
}

/** Checks that a delivery can be sent again. Throws 404, and 409 for a disabled webhook. */
async function checkReplay(actor: Actor, deps: Deps, id: string): Promise<void> {
  if (!(await find(actor, deps, id)).enabled) throw isDisabled()
}

/** Starts the schedule of a delivery over. */
const again = (now: Date) => ({ status: 'pending' as const, step: 0, nextAttemptAt: now })

/** POST /webhooks/{id}/deliveries/{deliveryId}/replay: sends it again, with the same `webhook-id`. */
export async function replay(actor: Actor, deps: Deps, input: z.output<typeof DeliveryId>) {
  await checkReplay(actor, deps, input.id)
  const found = await findDelivery(actor, deps, input)
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    // A delivery in progress stays as it is.
    await tx.webhookDelivery.updateMany({ where: { id: found.id, status: { not: 'pending' } }, data: again(now) })
    await audit(tx, actor, 'webhook.replay', input.id, now, { deliveryId: found.id })
    return findDelivery(actor, { db: tx }, input)
  })
  deps.bus.publish('webhook', [actor.organizationId])
  return { delivery: toDelivery(row) }
}

/** POST /webhooks/{id}/replay: sends all failed deliveries since a moment again. Pending ones stay as they are. */
export async function replayAll(actor: Actor, deps: Deps, { id, since, status }: z.output<typeof ReplayDeliveries>) {
  await checkReplay(actor, deps, id)
  const now = deps.clock.now()
  const count = await deps.db.$transaction(async (tx) => {
    const where = { ...reachableDeliveries(actor), webhookId: id, status: status ?? 'failed' }
    const { count } = await tx.webhookDelivery.updateMany({
      where: { ...where, nextAttemptAt: null, createdAt: { gte: new Date(since) } },
      data: again(now),
    })
    await audit(tx, actor, 'webhook.replay', id, now, { since, count })
    return count
  })
  deps.bus.publish('webhook', [actor.organizationId])
  return { count }
}
