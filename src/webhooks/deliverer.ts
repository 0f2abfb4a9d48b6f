import { databaseFile, freeRowLock, Prisma } from '../db/client.ts'
import { findEvent } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { type ShownEvent, show } from '../events/show.ts'
import { cutTexts } from '../lib/page.ts'
import { publicAddress } from '../settings.ts'
import { disable, findLeft, LEFT, ownerOf, queueDeliveries, takeNotifications } from './fan-out.ts'
import { bodyOf } from './formats.ts'
import { disabledMail, notificationMail } from './mails.ts'
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
/** Pause of a webhook whose attempts fail before the next ones (ms), however many deliveries are due. */
const COOLDOWN = 5 * SECOND
/** Polling interval (ms), and delay after a notice, so that changes in quick succession make one pass. */
const INTERVAL = SECOND
const DEBOUNCE = 30
/** Minimum time between two passes that notices start (ms), so that many runs make few passes. */
const SPACING = 250
/** Maximum time that shutdown waits for attempts under way (ms). */
const PATIENCE = 3_000
/** Maximum size of a body with whole texts (characters). Longer ones have cut texts. */
const MAX_BODY = 256 * 1024
/** Maximum number of times that one pass queues new events. */
const MAX_ROUNDS = 10
/** Maximum number of webhooks with due deliveries that one pass looks at. */
const MAX_DUE = 1000
const DAY = 24 * HOUR
/** How long deliveries and events are stored (ms). */
const LIFETIME = 30 * DAY
const RETENTION_INTERVAL = MINUTE
const RETENTION_BATCH = 500
const MAX_BATCHES = 40

export type Deliverer = {
  /** Queues new events and starts the attempts that are due. Resolves when they have begun. */
  tick(): Promise<void>
  /** Removes old deliveries and events. */
  forget(): Promise<void>
  /** Waits for the attempts under way. */
  quiet(): Promise<void>
  stop(): Promise<void>
}

/**
 * Delivers events to webhooks, and mails to members. Any number of servers can do so side by side: deliveries are claimed
 * like runs. A webhook has at most four attempts at a time, so that a slow one delays no other. A paused server sends
 * nothing.
 */
export function createDeliverer(deps: Deps): Deliverer {
  const { db, clock, log, pause, settings, bus, mail } = deps
  const sender = createSender(settings, clock)
  const stopping = new AbortController()
  /** Ends the attempts that are still under way when this process shuts down. */
  const over = new AbortController()
  const running = new Map<string, number>()
  const attempts = new Set<Promise<void>>()
  /** Until when this process leaves a failing webhook alone. */
  const cooling = new Map<string, number>()
  const lock = freeRowLock(settings)
  let ticking: Promise<void> | null = null
  let again = false
  let soon: NodeJS.Timeout | null = null
  let lastWoken = Number.NEGATIVE_INFINITY
  /** Whether any reader wants events. Without one, notices cost nothing. */
  let isWanted = false
  let isFirst = true

  async function pass(): Promise<void> {
    if (pause.isPaused() || stopping.signal.aborted) return
    await takeOver()
    isWanted = await hasReaders()
    if (!isWanted) return
    for (const row of await findLeft(db)) await disableFor(row, LEFT)
    // Events that never end must not keep the due attempts waiting.
    for (let left = MAX_ROUNDS; left && !stopping.signal.aborted && (await queueDeliveries(deps)); left--);
    if (mail) for (const notified of await takeNotifications(deps)) await notify(notified)
    for (const { id } of await findDue()) await claim(id)
  }

  /** Takes the claims of the server before over: on SQLite there is no other. */
  async function takeOver(): Promise<void> {
    if (isFirst && databaseFile(settings) !== null) {
      await db.$executeRaw(Prisma.sql`
        UPDATE "WebhookDelivery" SET "leasedUntil" = NULL, "nextAttemptAt" = ${clock.now()}
        WHERE "webhookId" IN (SELECT "id" FROM "Webhook" WHERE "enabled" = ${true})
          AND "status" = 'pending' AND "leasedUntil" IS NOT NULL`)
    }
    isFirst = false
  }

  async function hasReaders(): Promise<boolean> {
    const [webhook, member] = await Promise.all([
      db.webhook.findFirst({ where: { enabled: true }, select: { id: true } }),
      mail && db.mailNotifications.findFirst({ select: { userId: true } }),
    ])
    return webhook !== null || Boolean(member)
  }

  /** Finds the webhooks with due deliveries: one look into the index for each, however many deliveries wait. */
  const findDue = () =>
    db.$queryRaw<{ id: string }[]>(Prisma.sql`
      SELECT w."id" FROM "Webhook" w WHERE w."enabled" = ${true} AND EXISTS (
        SELECT 1 FROM "WebhookDelivery" d
        WHERE d."webhookId" = w."id" AND d."status" = 'pending' AND d."nextAttemptAt" <= ${clock.now()})
      LIMIT ${MAX_DUE}`)

  /** Claims due deliveries of a webhook, as many as may be sent at a time, and starts their attempts. */
  async function claim(webhookId: string): Promise<void> {
    const now = clock.now()
    if (pause.isPaused() || stopping.signal.aborted) return
    if ((cooling.get(webhookId) ?? 0) > now.getTime() || (running.get(webhookId) ?? 0) >= AT_ONCE) return
    const isDue = await db.webhookDelivery.findFirst({
      where: { webhookId, status: 'pending', nextAttemptAt: { lte: now } },
      select: { id: true },
    })
    if (!isDue) return
    const until = new Date(now.getTime() + LEASE)
    const claimed = await db.$transaction(async (tx) => {
      // While the row is locked, no other server counts the attempts under way.
      const [free] = await tx.$queryRaw<{ id: string }[]>(Prisma.sql`
        SELECT "id" FROM "Webhook" WHERE "id" = ${webhookId} AND "enabled" = ${true} ${lock}`)
      if (!free) return []
      const pending = { webhookId, status: 'pending' as const }
      const busy = await tx.webhookDelivery.count({
        where: { ...pending, nextAttemptAt: { gt: now, lte: until }, leasedUntil: { gt: now } },
      })
      const due = await tx.webhookDelivery.findMany({
        where: { ...pending, nextAttemptAt: { lte: now } },
        orderBy: { nextAttemptAt: 'asc' },
        take: Math.max(0, AT_ONCE - busy),
      })
      const rows: DeliveryRow[] = []
      for (const { id, claims } of due) {
        const data = { claims: claims + 1, leasedUntil: until, nextAttemptAt: until }
        const [row] = await tx.webhookDelivery.updateManyAndReturn({ where: { id, claims, status: 'pending' }, data })
        if (row) rows.push(row)
      }
      return rows
    })
    for (const row of claimed) start(row)
  }

  function start(row: DeliveryRow): void {
    const { webhookId } = row
    running.set(webhookId, (running.get(webhookId) ?? 0) + 1)
    const attempt = deliver(row)
      .catch((error) => log.error({ err: error, deliveryId: row.id }, 'failed to deliver an event, retrying'))
      .finally(() => {
        attempts.delete(attempt)
        const left = (running.get(webhookId) ?? 1) - 1
        if (left) running.set(webhookId, left)
        else running.delete(webhookId)
      })
      // The next deliveries of this webhook follow without waiting for a pass.
      .then(() => claim(webhookId))
      .catch((error) => log.error({ err: error, webhookId }, 'failed to claim deliveries, retrying'))
    attempts.add(attempt)
  }

  /** Makes one attempt. */
  async function deliver(row: DeliveryRow): Promise<void> {
    const webhook = await db.webhook.findUnique({ where: { id: row.webhookId } })
    if (!webhook?.enabled) return
    const actor = await ownerOf(db, webhook)
    if (!actor) return void (await disableFor(webhook, LEFT))
    const event = row.event === TEST_EVENT ? testOf(row, webhook) : await eventOf(row, webhook)
    // The owner can no longer see it, or it is too old to be stored.
    if (!event) return void (await db.webhookDelivery.deleteMany({ where: { id: row.id, claims: row.claims } }))
    const at = clock.now()
    const { url, secrets } = await openWebhook(db, deps, webhook, at)
    const body = JSON.stringify(bodyOf(webhook.format, publicAddress(settings), event))
    const sent = await sender.send(url, sign(secrets, event.id, at, body), body, over.signal)
    // An attempt that this process gave up is made again by the next one.
    if (sent.status === null && over.signal.aborted) return void (await release(row))
    await record(row, webhook, at, { ...sent, response: sent.response.replaceAll(url, webhook.shownUrl) })

    async function eventOf({ position, sequence }: DeliveryRow, { includeContent, organizationId }: WebhookRow) {
      const place = { position: Number(position), sequence: Number(sequence) }
      const found = await findEvent(db, organizationId, place)
      if (!found || !actor) return null
      const [shown] = await show(actor, deps, [found], { includeContent })
      return shown ? shortened(shown) : null
    }
  }

  const testOf = (row: DeliveryRow, { id, organizationId, description }: WebhookRow): ShownEvent => ({
    id: eventIdOf(row),
    type: TEST_EVENT,
    timestamp: row.createdAt.toISOString(),
    sequence: 0,
    organizationId,
    data: { id, title: description || 'The webhook works', description },
  })

  /** Lets the next process make the attempt at once. */
  const release = ({ id, claims }: DeliveryRow) =>
    db.webhookDelivery.updateMany({
      where: { id, claims, status: 'pending' },
      data: { leasedUntil: null, nextAttemptAt: clock.now() },
    })

  /** Stores the result of an attempt, unless another server has claimed the delivery since. */
  async function record(row: DeliveryRow, webhook: WebhookRow, at: Date, sent: Sent): Promise<void> {
    const { retryAfter, ...result } = sent
    const now = clock.now()
    const isDelivered = sent.error === undefined
    const step = row.step + 1
    const delay = SCHEDULE[step]
    const isOver = isDelivered || sent.status === 410 || delay === undefined
    const wait = Math.max((delay ?? 0) * (1 + Math.random() * JITTER), retryAfter)
    await db.webhookDelivery.updateMany({
      where: { id: row.id, claims: row.claims, status: 'pending' },
      data: {
        status: isDelivered ? 'delivered' : isOver ? 'failed' : 'pending',
        step,
        attempts: [...attemptsOf(row), { at: at.toISOString(), ...result }],
        nextAttemptAt: isOver ? null : new Date(now.getTime() + wait),
        leasedUntil: null,
      },
    })
    const { id, failingSince } = webhook
    if (isDelivered) {
      cooling.delete(id)
      // Another attempt may have failed since this one began.
      await db.webhook.updateMany({ where: { id, failingSince: { not: null } }, data: { failingSince: null } })
      return
    }
    cooling.set(id, now.getTime() + Math.max(COOLDOWN, Math.min(retryAfter, MINUTE)))
    if (sent.status === 410) return void (await disableFor(webhook, 'It answered 410 Gone'))
    if (!failingSince) await db.webhook.updateMany({ where: { id, failingSince: null }, data: { failingSince: at } })
    else if (now.getTime() - failingSince.getTime() >= MAX_FAILING)
      await disableFor(webhook, 'It has failed for 5 days')
  }

  async function disableFor(webhook: Pick<WebhookRow, 'id' | 'organizationId'>, reason: string): Promise<void> {
    const row = await disable(db, webhook, reason, clock.now())
    if (!row) return
    log.warn({ webhookId: row.id, reason }, 'a webhook was disabled')
    cooling.delete(row.id)
    if (!mail) return
    const owner = await db.user.findUnique({ where: { id: row.ownerId }, select: { email: true } })
    const isMember = await ownerOf(db, row)
    const others = isMember
      ? []
      : await db.membership.findMany({
          where: { organizationId: row.organizationId, role: 'owner' },
          select: { user: { select: { email: true } } },
        })
    const addresses = isMember && owner ? [owner.email] : others.map(({ user }) => user.email)
    for (const to of addresses) mail.send({ to, ...disabledMail(publicAddress(settings), row, reason) })
  }

  async function notify({ userId, events }: Awaited<ReturnType<typeof takeNotifications>>[number]): Promise<void> {
    const user = await db.user.findUnique({ where: { id: userId }, select: { email: true } })
    if (user) mail?.send({ to: user.email, ...notificationMail(publicAddress(settings), events) })
  }

  /** Removes deliveries and events of more than 30 days, except the newest event of each organization. */
  async function forget(): Promise<void> {
    if (pause.isPaused()) return
    const old = new Date(clock.now().getTime() - LIFETIME)
    await inBatches((limit) =>
      db.$executeRaw(Prisma.sql`
        DELETE FROM "WebhookDelivery" WHERE "id" IN (
          SELECT d."id" FROM "Webhook" w JOIN "WebhookDelivery" d ON d."webhookId" = w."id"
          WHERE d."createdAt" < ${old} LIMIT ${limit})`),
    )
    await inBatches((limit) =>
      db.$executeRaw(Prisma.sql`
        DELETE FROM "OrganizationEvent" WHERE ("organizationId", "position", "sequence") IN (
          SELECT e."organizationId", e."position", e."sequence" FROM "OrganizationEvent" e
          WHERE e."at" < ${old} AND EXISTS (
            SELECT 1 FROM "OrganizationEvent" n WHERE n."organizationId" = e."organizationId"
              AND (n."position", n."sequence") > (e."position", e."sequence"))
          ORDER BY e."at" LIMIT ${limit})`),
    )
  }

  function tick(): Promise<void> {
    again = ticking !== null
    ticking ??= (async () => {
      do {
        again = false
        await pass()
      } while (again)
    })().finally(() => {
      ticking = null
    })
    return ticking
  }

  const tickLater = () => tick().catch((error) => log.error({ err: error }, 'failed to look for events, retrying'))

  function wake(): void {
    if (soon || stopping.signal.aborted) return
    const delay = Math.max(DEBOUNCE, lastWoken + SPACING - performance.now())
    soon = setTimeout(() => {
      soon = null
      lastWoken = performance.now()
      void tickLater()
    }, delay)
  }

  const wakeIfWanted = () => isWanted && wake()
  const subscriptions = [
    bus.subscribe('webhook', wake),
    ...(['execution', 'chat', 'task'] as const).map((channel) => bus.subscribe(channel, wakeIfWanted)),
  ]
  const timers = [
    // Without readers no polling is necessary, because the first new reader publishes a notice.
    setInterval(() => void ((isWanted || isFirst) && tickLater()), INTERVAL),
    setInterval(() => {
      forget().catch((error) => log.error({ err: error }, 'failed to remove old events, retrying'))
    }, RETENTION_INTERVAL),
  ]

  const deliverer: Deliverer = {
    tick,
    forget,
    async quiet() {
      while (attempts.size) await Promise.all(attempts)
    },
    async stop() {
      stopping.abort()
      for (const timer of timers) clearInterval(timer)
      if (soon) clearTimeout(soon)
      for (const unsubscribe of subscriptions) unsubscribe()
      await ticking?.catch(() => {})
      // A receiver that is cut off may have had the event already, and gets it again.
      const timer = setTimeout(() => over.abort(), PATIENCE)
      await deliverer.quiet()
      clearTimeout(timer)
      await sender.close()
    },
  }
  return deliverer
}

/** Cuts the long texts of an event that is too long to be sent whole. */
function shortened(event: ShownEvent): ShownEvent {
  if (JSON.stringify(event.data).length <= MAX_BODY) return event
  return { ...event, data: cutTexts(event.data, Object.keys(event.data)) }
}

/** Repeats a deletion in batches until one is not full. */
async function inBatches(remove: (limit: number) => Promise<number>): Promise<void> {
  for (let left = MAX_BATCHES; left; left--) if ((await remove(RETENTION_BATCH)) < RETENTION_BATCH) return
}
