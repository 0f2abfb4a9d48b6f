import { setImmediate } from 'node:timers/promises'
import { Prisma } from '../db/client.ts'
import { organizationsWithEventsBefore, removeEventsBefore } from '../db/events.ts'
import type { Deps } from '../deps.ts'

/** How long deliveries and events are stored (ms). */
const LIFETIME = 30 * 24 * 60 * 60 * 1000
/** How long the push notifications of an ended run are stored (ms), so that their caller can still read them. */
const PUSH_LIFETIME = 60 * 60 * 1000
const BATCH = 500
/** Maximum number of batches at a time. */
const BATCHES = 40

/**
 * Removes deliveries and events of more than 30 days, except the newest event of each organization. Removes push
 * notifications an hour after their run has ended, if all of them are delivered or given up, and deleted webhooks.
 */
export async function removeOld({ db, clock }: Pick<Deps, 'db' | 'clock'>): Promise<void> {
  const old = new Date(clock.now().getTime() - LIFETIME)
  await inBatches((limit) =>
    db.$executeRaw(Prisma.sql`
      DELETE FROM "WebhookDelivery" WHERE "id" IN (
        SELECT d."id" FROM "Webhook" w JOIN "WebhookDelivery" d ON d."webhookId" = w."id"
        WHERE d."createdAt" < ${old} LIMIT ${limit})`),
  )
  await removeDeleted(db)
  const ended = new Date(clock.now().getTime() - PUSH_LIFETIME)
  await inBatches((limit) =>
    db.$executeRaw(Prisma.sql`
      DELETE FROM "Webhook" WHERE "id" IN (
        SELECT w."id" FROM "Webhook" w WHERE w."executionId" IS NOT NULL AND (w."createdAt" < ${old} OR (
          w."runEndedAt" < ${ended} AND NOT EXISTS (
            SELECT 1 FROM "WebhookDelivery" d WHERE d."webhookId" = w."id" AND d."status" = 'pending')))
        LIMIT ${limit})`),
  )
  for (const organizationId of await organizationsWithEventsBefore(db, old)) {
    await inBatches((limit) => removeEventsBefore(db, organizationId, old, limit))
  }
}

/** Removes the deliveries of deleted webhooks, and then these. */
async function removeDeleted(db: Deps['db']): Promise<void> {
  await inBatches((limit) =>
    db.$executeRaw(Prisma.sql`
      DELETE FROM "WebhookDelivery" WHERE "id" IN (
        SELECT d."id" FROM "Webhook" w JOIN "WebhookDelivery" d ON d."webhookId" = w."id"
        WHERE w."deletedAt" IS NOT NULL LIMIT ${limit})`),
  )
  await db.$executeRaw(Prisma.sql`
    DELETE FROM "Webhook" WHERE "deletedAt" IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM "WebhookDelivery" d WHERE d."webhookId" = "Webhook"."id")`)
}

/** Repeats a deletion in batches until one is not full. Yields between two, because SQLite blocks the event loop. */
async function inBatches(remove: (limit: number) => Promise<number>): Promise<void> {
  for (let left = BATCHES; left && (await remove(BATCH)) === BATCH; left--) await setImmediate()
}
