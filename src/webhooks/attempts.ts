import { freeRowLock, Prisma } from '../db/client.ts'
import { findEvents, placeOf } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { show, type VisibleEvent } from '../events/show.ts'
import { cutTexts } from '../lib/page.ts'
import { scrubber } from '../lib/scrub.ts'
import { publicAddress } from '../settings.ts'
import { LEFT, ownerOf } from './fan-out.ts'
import { bodyOf } from './formats.ts'
import type { Push, PushBody } from './push.ts'
import { openWebhook } from './secrets.ts'
import { createSender, type Sent } from './send.ts'
import { attemptsOf, type DeliveryRow, eventIdOf, TEST_EVENT, type WebhookRow } from './service.ts'
import { sign } from './signature.ts'

const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

/** Delays before the attempts, each after the one before (ms; protocols.md section 6). */
const SCHEDULE = [0, 5 * SECOND, 5 * MINUTE, 30 * MINUTE, ...[2, 5, 10, 14, 20, 24].map((hours) => hours * HOUR)]
/** Maximum share that is added to a delay at random, so that receivers that come back are not overrun. */
const JITTER = 0.1
/** How long a webhook may fail before it is disabled (ms). */
const MAX_FAILING = 5 * 24 * HOUR
/** Maximum number of attempts at a time to one webhook, of all servers. */
const AT_ONCE = 4
/** Duration of a claim (ms), longer than an attempt. A server that dies leaves the delivery to the others after it. */
const LEASE = 20 * SECOND
/**
 * Pause of a webhook whose attempts fail before the next ones (ms), however many deliveries are due: a share of the
 * time for which it has failed.
 */
const COOLDOWN = { least: 5 * SECOND, most: MINUTE, share: 0.1 }
/** Maximum size of a body with whole texts (characters). Longer ones have cut texts. */
const MAX_BODY = 256 * 1024
/** Maximum number of attempts of a delivery that are stored: the latest ones, however often it is replayed. */
const MAX_STORED = 50

export type Attempts = {
  /** Starts attempts of all webhooks with due deliveries. Returns whether any delivery waits, due or not. */
  start(): Promise<boolean>
  /** Ends the pauses of failing webhooks, because one may work again. */
  resume(): void
  /** Ends the attempts under way; another process makes them again. */
  abort(): void
  /** Waits for the attempts under way. */
  quiet(): Promise<void>
  close(): Promise<void>
}

type Options = {
  pushBody: PushBody
  /** Returns whether no attempt may begin any more. */
  isOver: () => boolean
  disable: (webhook: WebhookRow, reason: string) => Promise<void>
}

/** Creates the attempts of this process. */
export function createAttempts(deps: Deps, { pushBody, isOver, disable }: Options): Attempts {
  const { db, clock, log, settings } = deps
  const sender = createSender(settings, clock)
  const over = new AbortController()
  const running = new Map<string, number>()
  const attempts = new Set<Promise<void>>()
  /** Until when this process leaves a failing webhook alone. */
  const cooling = new Map<string, number>()
  const lock = freeRowLock(settings)

  /** Looks into the index once for each webhook, however many deliveries wait. */
  async function start(): Promise<boolean> {
    const waiting = (condition: Prisma.Sql) => Prisma.sql`EXISTS (
      SELECT 1 FROM "WebhookDelivery" d WHERE d."webhookId" = w."id" AND d."status" = 'pending' ${condition})`
    const found = await db.$queryRaw<{ id: string; isDue: boolean | number | bigint }[]>(Prisma.sql`
      SELECT w."id", ${waiting(Prisma.sql`AND d."nextAttemptAt" <= ${clock.now()}`)} AS "isDue"
      FROM "Webhook" w WHERE w."enabled" = ${true} AND ${waiting(Prisma.empty)}`)
    for (const { id, isDue } of found) if (Number(isDue)) await claim(id)
    return found.length > 0
  }

  /** Claims due deliveries of a webhook, as many as may be sent at a time, and starts their attempts. */
  async function claim(webhookId: string): Promise<void> {
    if (isOver() || (cooling.get(webhookId) ?? 0) > clock.now().getTime() || (running.get(webhookId) ?? 0) >= AT_ONCE)
      return
    const claimed = await db.$transaction(async (tx) => {
      // While the row is locked, no other server counts the attempts under way.
      const [free] = await tx.$queryRaw<{ id: string }[]>(Prisma.sql`
        SELECT "id" FROM "Webhook" WHERE "id" = ${webhookId} AND "enabled" = ${true} ${lock}`)
      if (!free) return []
      const now = clock.now()
      const pending = { webhookId, status: 'pending' as const }
      const due = { ...pending, nextAttemptAt: { lte: now } }
      // The clock of another server may be ahead, so its claims may end later than those of this one.
      const latest = new Date(now.getTime() + 2 * LEASE)
      const busy = await tx.webhookDelivery.count({
        where: { ...pending, nextAttemptAt: { gt: now, lte: latest }, leasedUntil: { gt: now } },
      })
      const first = await tx.webhookDelivery.findMany({
        where: due,
        orderBy: { nextAttemptAt: 'asc' },
        take: Math.max(0, AT_ONCE - busy),
        select: { id: true },
      })
      if (!first.length) return []
      const until = new Date(now.getTime() + LEASE)
      return tx.webhookDelivery.updateManyAndReturn({
        where: { id: { in: first.map(({ id }) => id) }, ...due },
        data: { claims: { increment: 1 }, leasedUntil: until, nextAttemptAt: until },
      })
    })
    if (claimed.length) begin(webhookId, claimed)
  }

  function begin(webhookId: string, rows: readonly DeliveryRow[]): void {
    const prepared = prepare(webhookId, rows)
    for (const row of rows) {
      running.set(webhookId, (running.get(webhookId) ?? 0) + 1)
      const attempt = prepared
        .then((all) => all && deliver(row, all))
        .catch((error) => log.error({ err: error, deliveryId: row.id }, 'failed to deliver an event, retrying'))
        .finally(() => {
          attempts.delete(attempt)
          const left = (running.get(webhookId) ?? 1) - 1
          if (left) running.set(webhookId, left)
          else running.delete(webhookId)
        })
        // The next deliveries of this webhook follow without waiting for a pass.
        .then(() => claimMore(webhookId))
        .catch((error) => log.error({ err: error, webhookId }, 'failed to claim deliveries, retrying'))
      attempts.add(attempt)
    }
  }

  /** Claims more deliveries after an attempt. A look is cheaper than the transaction of a claim. */
  async function claimMore(webhookId: string): Promise<void> {
    const due = { webhookId, status: 'pending' as const, nextAttemptAt: { lte: clock.now() } }
    if (isOver() || (cooling.get(webhookId) ?? 0) > clock.now().getTime()) return
    if (await db.webhookDelivery.findFirst({ where: due, select: { id: true } })) await claim(webhookId)
  }

  type Prepared = {
    webhook: WebhookRow
    url: string
    secrets: string[]
    push: Push | null
    events: ReadonlyMap<string, VisibleEvent>
  }

  /** Reads what attempts of one webhook need. Returns null if it is disabled. */
  async function prepare(id: string, rows: readonly DeliveryRow[]): Promise<Prepared | null> {
    const webhook = await db.webhook.findUnique({ where: { id } })
    if (!webhook?.enabled) return null
    const actor = await ownerOf(db, webhook)
    if (!actor) {
      await disable(webhook, LEFT)
      return null
    }
    const { organizationId, includeContent } = webhook
    const places = rows.filter(({ event }) => event !== TEST_EVENT).map(placeOf)
    const found = await findEvents(db, organizationId, places)
    const views = await show(actor, deps, found, { includeContent })
    const tests = rows.filter(({ event }) => event === TEST_EVENT).map((row) => testOf(row, webhook))
    const events = [...views.filter((event) => event !== null), ...tests]
    const opened = await openWebhook(db, deps, webhook, clock.now())
    return { webhook, ...opened, events: new Map(events.map((event) => [event.id, event])) }
  }

  /** Makes one attempt. */
  async function deliver(row: DeliveryRow, prepared: Prepared): Promise<void> {
    const { webhook, url, events } = prepared
    const event = events.get(eventIdOf(row))
    // The owner can no longer see it, or it is too old to be stored.
    if (!event) return void (await db.webhookDelivery.deleteMany({ where: { id: row.id, claims: row.claims } }))
    const at = clock.now()
    const { headers, body } = await requestOf(prepared, event, at)
    const sent = await sender.send(url, headers, body, over.signal)
    // An attempt that this process gave up is made again by the next one.
    if (sent.status === null && over.signal.aborted) return void (await release(row))
    await record(row, webhook, at, { ...sent, response: withoutAddress(sent.response, url, webhook.shownUrl) })
  }

  async function requestOf({ webhook, secrets, push }: Prepared, event: VisibleEvent, at: Date) {
    if (push) {
      const { body, contentType } = await pushBody(settings, event, push.protocol)
      return { body, headers: { 'webhook-id': event.id, ...push.headers, 'content-type': contentType } }
    }
    const body = JSON.stringify(bodyOf(webhook.format, publicAddress(settings), shortened(event)))
    return { body, headers: sign(secrets, event.id, at, body) }
  }

  /** Lets the next process make the attempt at once. */
  const release = ({ id, claims }: DeliveryRow) =>
    db.webhookDelivery.updateMany({
      where: { id, claims, status: 'pending' },
      data: { leasedUntil: null, nextAttemptAt: clock.now() },
    })

  /** Stores the result of an attempt, unless another server has claimed the delivery since. */
  async function record(row: DeliveryRow, webhook: WebhookRow, at: Date, sent: Sent): Promise<void> {
    const { retryAfter, ...result } = sent
    const now = clock.now().getTime()
    const isDelivered = sent.error === undefined
    const step = row.step + 1
    const delay = SCHEDULE[step]
    const isLast = isDelivered || sent.status === 410 || delay === undefined
    const wait = Math.max((delay ?? 0) * (1 + Math.random() * JITTER), retryAfter)
    await db.webhookDelivery.updateMany({
      where: { id: row.id, claims: row.claims, status: 'pending' },
      data: {
        status: isDelivered ? 'delivered' : isLast ? 'failed' : 'pending',
        step,
        attempts: [...attemptsOf(row), { at: at.toISOString(), ...result }].slice(-MAX_STORED),
        nextAttemptAt: isLast ? null : new Date(now + wait),
        leasedUntil: null,
      },
    })
    const { id, failingSince } = webhook
    if (isDelivered) {
      cooling.delete(id)
      // A failure that began later is cleared by its own retry.
      if (failingSince) await db.webhook.updateMany({ where: { id, failingSince }, data: { failingSince: null } })
      return
    }
    const failing = failingSince ? now - failingSince.getTime() : 0
    const pause = Math.min(Math.max(failing * COOLDOWN.share, retryAfter, COOLDOWN.least), COOLDOWN.most)
    cooling.set(id, now + pause)
    if (sent.status === 410) return disable(webhook, 'It answered 410 Gone')
    if (!failingSince) await db.webhook.updateMany({ where: { id, failingSince: null }, data: { failingSince: at } })
    else if (failing >= MAX_FAILING) await disable(webhook, 'It has failed for 5 days')
  }

  return {
    start,
    resume: () => cooling.clear(),
    abort: () => over.abort(),
    async quiet() {
      while (attempts.size) await Promise.all(attempts)
    },
    close: () => sender.close(),
  }
}

/** Returns the event of a test. */
const testOf = (row: DeliveryRow, { id, organizationId, description }: WebhookRow): VisibleEvent => ({
  id: eventIdOf(row),
  type: TEST_EVENT,
  timestamp: row.createdAt.toISOString(),
  sequence: 0,
  organizationId,
  data: { id, title: description || 'The webhook works', description },
})

/** Removes an address that is a secret from an answer. Many servers repeat the path that they do not know. */
function withoutAddress(response: string, url: string, shownUrl: string): string {
  if (url === shownUrl) return response
  const { pathname, search } = new URL(url)
  return scrubber([url, pathname + search, pathname, pathname.split('/').at(-1) ?? ''])(response, true)
}

/** Cuts the long texts of an event that is too long to be sent whole. */
function shortened(event: VisibleEvent): VisibleEvent {
  if (JSON.stringify(event.data).length <= MAX_BODY) return event
  return { ...event, data: cutTexts(event.data, Object.keys(event.data)) }
}
