import { type Actor, actorOf, isAdmin } from '../auth/actor.ts'
import { audit, OPERATOR } from '../auth/audit.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { announce, type Place, readEvents, settledEvents } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { matches } from '../events/schema.ts'
import { type ShownEvent, show } from '../events/show.ts'
import { newSortableId } from '../lib/id.ts'
import { eventsOf, type WebhookRow } from './service.ts'

/** Maximum number of readers that are served in one pass, and of events that one of them reads at once. */
const READERS = 100
const READ = 200
/** Maximum age of an event in a mail (ms). A server that gets an SMTP_URL sends no mails for earlier ones. */
const MAX_AGE = 60 * 60 * 1000

export const LEFT = 'Its owner is no longer an admin of the organization'

/** Disables an enabled webhook: its pending deliveries fail, with an event and an audit event. */
export async function disable(
  db: Db,
  { id, organizationId }: Pick<WebhookRow, 'id' | 'organizationId'>,
  reason: string,
  now: Date,
): Promise<WebhookRow | null> {
  return db.$transaction(async (tx) => {
    const [row] = await tx.webhook.updateManyAndReturn({
      where: { id, enabled: true },
      data: { enabled: false, disabledReason: reason, updatedAt: now },
    })
    if (!row) return null
    await tx.webhookDelivery.updateMany({
      where: { webhookId: id, status: 'pending' },
      data: { status: 'failed', nextAttemptAt: null, leasedUntil: null },
    })
    const { ownerId, shownUrl: url, description } = row
    const data = { id, organizationId, ownerId, url, description, enabled: false, disabledReason: reason }
    await announce(tx, { organizationId, type: 'webhook.disabled', subjectId: id, at: now, data })
    await audit(tx, { organizationId, userId: OPERATOR }, 'webhook.disable', id, now, { reason })
    return row
  })
}

/** Finds the enabled webhooks whose owners have left or are no admins. */
export const findLeft = (db: Db) =>
  db.$queryRaw<{ id: string; organizationId: string }[]>(Prisma.sql`
    SELECT w."id", w."organizationId" FROM "Webhook" w
    WHERE w."enabled" = ${true} AND NOT EXISTS (
      SELECT 1 FROM "Membership" m WHERE m."organizationId" = w."organizationId" AND m."userId" = w."ownerId"
        AND m."role" IN ('owner', 'admin'))
    LIMIT ${READERS}`)

/** Returns the owner of a webhook as the actor who sees its events; null if that user has left or is no admin. */
export async function ownerOf(db: Db, { organizationId, ownerId }: WebhookRow): Promise<Actor | null> {
  const actor = await actorOf(db, { organizationId, userId: ownerId, scopes: null })
  return actor && isAdmin(actor) ? actor : null
}

/** A reader of events with a place of its own in the feed. */
type Reader = { table: 'Webhook' | 'MailNotifications'; where: Prisma.Sql }

const WEBHOOKS: Reader = { table: 'Webhook', where: Prisma.sql`r."enabled" = true` }
const MAILS: Reader = { table: 'MailNotifications', where: Prisma.sql`true` }

/** Finds readers for whom there are new events. */
async function findBehind<Key extends object>(db: Db, settings: Deps['settings'], reader: Reader, key: Prisma.Sql) {
  return db.$queryRaw<Key[]>(Prisma.sql`
    SELECT ${key} FROM ${Prisma.raw(`"${reader.table}"`)} r
    WHERE ${reader.where} AND EXISTS (
      SELECT 1 FROM "OrganizationEvent" e WHERE e."organizationId" = r."organizationId"
        AND (e."position", e."sequence") > (r."position", r."sequence") AND ${settledEvents(settings, 'e')})
    LIMIT ${READERS}`)
}

/**
 * Queues new events for the webhooks that want them and whose owners can see them. Each webhook's place in the feed moves
 * on with its deliveries in one transaction, so that servers side by side queue an event once. Returns whether any moved
 * on, and so may have more to queue.
 */
export async function queueDeliveries(deps: Deps): Promise<boolean> {
  const { db, settings } = deps
  const behind = await findBehind<{ id: string }>(db, settings, WEBHOOKS, Prisma.sql`r."id"`)
  let hasMoved = false
  for (const { id } of behind) {
    const webhook = await db.webhook.findUnique({ where: { id } })
    if (webhook?.enabled && (await queueFor(deps, webhook))) hasMoved = true
  }
  return hasMoved
}

async function queueFor(deps: Deps, webhook: WebhookRow): Promise<boolean> {
  const { db, clock, settings } = deps
  const { id, organizationId } = webhook
  const actor = await ownerOf(db, webhook)
  if (!actor) return false
  const events = await readEvents(db, settings, organizationId, placeOf(webhook), READ)
  const last = events.at(-1)
  if (!last) return false
  // A webhook that reports itself would never end.
  const wanted = events.filter(({ type, subjectId }) => matches(eventsOf(webhook), type) && subjectId !== id)
  const shown = await show(actor, deps, wanted)
  const visible = wanted.filter((_, index) => shown[index])
  const now = clock.now()
  return db.$transaction(async (tx) => {
    const { count } = await tx.webhook.updateMany({
      where: { id, enabled: true, position: webhook.position, sequence: webhook.sequence },
      data: { position: last.position, sequence: last.sequence },
    })
    // Another server was faster.
    if (!count) return false
    if (visible.length)
      await tx.webhookDelivery.createMany({
        data: visible.map(({ position, sequence, type, subjectId, at }) => ({
          ...{ id: newSortableId(at), organizationId, webhookId: id, position, sequence, event: type, subjectId },
          ...{ status: 'pending' as const, nextAttemptAt: now, createdAt: at },
        })),
      })
    return true
  })
}

const placeOf = ({ position, sequence }: { position: bigint; sequence: bigint }): Place => ({
  position: Number(position),
  sequence: Number(sequence),
})

/** A member with the events for a mail. */
export type Notified = { userId: string; events: ShownEvent[] }

/**
 * Finds new events for the members who are notified by mail: of approvals that they can decide, and of failed runs of
 * missions that they own or administer. A member's place in the feed moves on first, so that a mail is sent at most
 * once.
 */
export async function takeNotifications(deps: Deps): Promise<Notified[]> {
  const { db, settings } = deps
  const key = Prisma.sql`r."organizationId", r."userId"`
  const behind = await findBehind<{ organizationId: string; userId: string }>(db, settings, MAILS, key)
  const notified: Notified[] = []
  for (const id of behind) {
    const row = await db.mailNotifications.findUnique({ where: { organizationId_userId: id } })
    const actor = row && (await actorOf(db, { ...id, scopes: null }))
    // A member who has left gets no mail, also after a return.
    if (row && !actor) await db.mailNotifications.deleteMany({ where: id })
    if (!row || !actor) continue
    const events = await readEvents(db, settings, id.organizationId, placeOf(row), READ)
    const last = events.at(-1)
    if (!last) continue
    const { count } = await db.mailNotifications.updateMany({
      where: { ...id, position: row.position, sequence: row.sequence },
      data: { position: last.position, sequence: last.sequence },
    })
    const types = [...(row.approvals ? ['approval.created'] : []), ...(row.missions ? ['mission.run_failed'] : [])]
    const since = deps.clock.now().getTime() - MAX_AGE
    const wanted = events.filter(({ type, at }) => types.includes(type) && at.getTime() > since)
    if (!count || !wanted.length) continue
    const shown = (await show(actor, deps, wanted)).filter((event) => event !== null)
    const concerned = await withoutForeign(db, actor, shown)
    if (concerned.length) notified.push({ userId: id.userId, events: concerned })
  }
  return notified
}

/** Removes approvals of others' runs, and others' missions, unless the member is an admin. */
async function withoutForeign(db: Tx, actor: Actor, events: readonly ShownEvent[]): Promise<ShownEvent[]> {
  if (isAdmin(actor)) return [...events]
  const ids = events.flatMap(({ data }) => (typeof data.executionId === 'string' ? [data.executionId] : []))
  const own = await db.execution.findMany({ where: { id: { in: ids }, userId: actor.userId }, select: { id: true } })
  const runs = new Set(own.map(({ id }) => id))
  return events.filter(({ type, data }) =>
    type === 'approval.created' ? runs.has(data.executionId as string) : data.userId === actor.userId,
  )
}
