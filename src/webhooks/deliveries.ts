import type { z } from 'zod'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { conflict, notFound } from '../errors.ts'
import { newSortableId } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import type { DeliveryAttempt, DeliveryId, ListDeliveries, ReplayDeliveries, WebhookDelivery } from './schema.ts'
import { find, hold } from './service.ts'

// The deliveries of webhooks: to test, to list, and to send again.

export type DeliveryRow = Prisma.WebhookDeliveryGetPayload<object>

/** Type of the event that a test sends. */
export const TEST_EVENT = 'webhook.test'

/** Filters the deliveries of the caller's organization. Throws 403 unless the caller is an admin. */
export function reachableDeliveries(actor: Actor): Prisma.WebhookDeliveryWhereInput {
  permit(actor, isAdmin(actor))
  return { organizationId: actor.organizationId }
}

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
