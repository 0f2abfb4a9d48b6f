import { type Actor, actorOf, isAdmin } from '../auth/actor.ts'
import { audit, OPERATOR } from '../auth/audit.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { announce, type EventRow, type FeedPosition, positionOf } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { show, type VisibleEvent } from '../events/show.ts'
import { newSortableId } from '../lib/id.ts'
import type { Reader, Taken } from './readers.ts'
import { eventsOf, type WebhookRow } from './service.ts'

/** Maximum age of an event in a mail (ms). A server that gets an SMTP_URL sends no mails for earlier ones. */
const MAX_AGE = 60 * 60 * 1000

/** Events after which no other event of a run follows. */
const LAST: ReadonlySet<string> = new Set(['execution.completed', 'execution.failed', 'execution.cancelled'])

export const LEFT = 'Its owner is no longer an admin of the organization'

/**
 * Disables an enabled webhook: its pending deliveries fail, with an event and an audit event. Removes push
 * notifications, and returns null for them.
 */
export async function disable(
  db: Db,
  { id, organizationId }: Pick<WebhookRow, 'id' | 'organizationId'>,
  reason: string,
  now: Date,
): Promise<WebhookRow | null> {
  return db.$transaction(async (tx) => {
    if ((await tx.webhook.deleteMany({ where: { id, executionId: { not: null } } })).count) return null
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

/** Finds the enabled webhooks whose owners have left, or are no admins and not the caller of a run. */
export const findLeft = (db: Db) =>
  db.$queryRaw<{ id: string; organizationId: string }[]>(Prisma.sql`
    SELECT w."id", w."organizationId" FROM "Webhook" w
    WHERE w."enabled" = ${true} AND NOT EXISTS (
      SELECT 1 FROM "Membership" m WHERE m."organizationId" = w."organizationId" AND m."userId" = w."ownerId"
        AND (m."role" IN ('owner', 'admin') OR w."executionId" IS NOT NULL))`)

/**
 * Returns the owner of a webhook as the actor who sees its events. Returns null if that user has left, or is no admin
 * and not the caller of a run.
 */
export async function ownerOf(
  db: Db,
  { organizationId, ownerId, executionId }: Pick<WebhookRow, 'organizationId' | 'ownerId' | 'executionId'>,
): Promise<Actor | null> {
  const actor = await actorOf(db, { organizationId, userId: ownerId, scopes: null })
  return actor && (isAdmin(actor) || executionId !== null) ? actor : null
}

const READER = {
  id: true,
  organizationId: true,
  ownerId: true,
  executionId: true,
  events: true,
  updatedAt: true,
  position: true,
  sequence: true,
} as const

type WebhookReader = Prisma.WebhookGetPayload<{ select: typeof READER }>

/** Loads the enabled webhooks as readers. */
export async function findWebhookReaders(deps: Deps): Promise<Reader[]> {
  const rows = await deps.db.webhook.findMany({ where: { enabled: true, runEndedAt: null }, select: READER })
  return rows.map((row) => ({
    key: `${row.id} ${row.updatedAt.getTime()}`,
    organizationId: row.organizationId,
    patterns: eventsOf(row),
    subjectId: row.executionId,
    position: positionOf(row),
    take: (events, from, upTo) => queueFor(deps, row, events, from, upTo),
    move: (from, upTo) => moveWebhook(deps.db, row, from, upTo),
  }))
}

/** Moves a webhook in the feed, unless it was changed or moved. */
async function moveWebhook(
  db: Tx,
  { id, updatedAt }: WebhookReader,
  from: FeedPosition,
  upTo: FeedPosition & { runEndedAt?: Date },
): Promise<boolean> {
  const { count } = await db.webhook.updateMany({ where: { id, enabled: true, updatedAt, ...from }, data: upTo })
  return count > 0
}

/**
 * Queues events for a webhook whose owner can see them. Its position moves with its deliveries in one transaction, so
 * that servers side by side queue an event once.
 */
async function queueFor(
  deps: Deps,
  webhook: WebhookReader,
  events: readonly EventRow[],
  from: FeedPosition,
  upTo: FeedPosition,
): Promise<Taken> {
  const { db, clock } = deps
  const { id, organizationId, executionId } = webhook
  const actor = await ownerOf(db, webhook)
  if (!actor) return 'stale'
  const views = await show(actor, deps, events)
  const visible = events.filter((_, index) => views[index])
  const isLast = executionId !== null && events.some(({ type }) => LAST.has(type))
  if (!visible.length && !isLast) return 'unseen'
  const now = clock.now()
  return db.$transaction(async (tx) => {
    if (!(await moveWebhook(tx, webhook, from, { ...upTo, ...(isLast && { runEndedAt: now }) }))) return 'stale'
    await tx.webhookDelivery.createMany({
      data: visible.map(({ position, sequence, type, subjectId, at }) => ({
        id: newSortableId(at),
        organizationId,
        webhookId: id,
        position,
        sequence,
        event: type,
        subjectId,
        status: 'pending' as const,
        nextAttemptAt: now,
        createdAt: at,
      })),
    })
    return isLast ? 'ended' : 'moved'
  })
}

/** A member with the events for a mail. */
export type Notified = { userId: string; events: VisibleEvent[] }

type MailRow = Prisma.MailNotificationsGetPayload<object>

/** Loads the members with mail notifications as readers. One who has left gets no mail, also after a return. */
export async function findMailReaders(deps: Deps, notify: (notified: Notified) => Promise<void>): Promise<Reader[]> {
  const left = await deps.db.$queryRaw<{ organizationId: string; userId: string }[]>(Prisma.sql`
    SELECT n."organizationId", n."userId" FROM "MailNotifications" n WHERE NOT EXISTS (
      SELECT 1 FROM "Membership" m WHERE m."organizationId" = n."organizationId" AND m."userId" = n."userId")`)
  for (const where of left) await deps.db.mailNotifications.deleteMany({ where })
  const rows = await deps.db.mailNotifications.findMany()
  return rows.map((row) => ({
    key: `${row.organizationId} ${row.userId} ${row.approvals} ${row.missions}`,
    organizationId: row.organizationId,
    patterns: [...(row.approvals ? ['approval.created'] : []), ...(row.missions ? ['mission.run_failed'] : [])],
    subjectId: null,
    position: positionOf(row),
    async take(events, from, upTo) {
      // The position moves first, so that a mail is sent at most once.
      if (!(await moveMails(deps.db, row, from, upTo))) return 'stale'
      const notified = await notificationOf(deps, row, events)
      if (notified) await notify(notified)
      return 'moved'
    },
    move: (from, upTo) => moveMails(deps.db, row, from, upTo),
  }))
}

/** Moves a member in the feed, unless the notifications were changed or moved. */
async function moveMails(db: Tx, row: MailRow, from: FeedPosition, upTo: FeedPosition): Promise<boolean> {
  const { organizationId, userId, approvals, missions } = row
  const where = { organizationId, userId, approvals, missions, ...from }
  return (await db.mailNotifications.updateMany({ where, data: upTo })).count > 0
}

/**
 * Returns what a member is notified of: approvals that the member can decide, and failed runs of missions that the
 * member owns or administers.
 */
async function notificationOf(deps: Deps, row: MailRow, events: readonly EventRow[]): Promise<Notified | null> {
  const { db } = deps
  const { organizationId, userId } = row
  const actor = await actorOf(db, { organizationId, userId, scopes: null })
  const since = deps.clock.now().getTime() - MAX_AGE
  const recent = events.filter(({ at }) => at.getTime() > since)
  if (!actor || !recent.length) return null
  const visible = (await show(actor, deps, recent)).filter((event) => event !== null)
  const concerned = await withoutForeign(db, actor, visible)
  return concerned.length ? { userId, events: concerned } : null
}

/** Removes approvals of others' runs, and others' missions, unless the member is an admin. */
async function withoutForeign(db: Tx, actor: Actor, events: readonly VisibleEvent[]): Promise<VisibleEvent[]> {
  if (isAdmin(actor)) return [...events]
  const ids = events.flatMap(({ data }) => (typeof data.executionId === 'string' ? [data.executionId] : []))
  const own = await db.execution.findMany({ where: { id: { in: ids }, userId: actor.userId }, select: { id: true } })
  const runs = new Set(own.map(({ id }) => id))
  return events.filter(({ type, data }) =>
    type === 'approval.created' ? runs.has(data.executionId as string) : data.userId === actor.userId,
  )
}
