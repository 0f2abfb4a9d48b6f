import { databaseFile, Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { watchTask } from '../lib/watch-task.ts'
import { findServices } from '../organizations/service.ts'
import { publicAddress } from '../settings.ts'
import { createAttempts } from './attempts.ts'
import { disable, findLeft, LEFT, type Notified, ownerOf } from './fan-out.ts'
import { disabledMail, notificationMail } from './mails.ts'
import type { PushBody } from './push.ts'
import { createReaders } from './readers.ts'
import { removeOld } from './retention.ts'
import type { WebhookRow } from './service.ts'

/** Polling interval (ms), and delay after a notice, so that changes in quick succession make one pass. */
const INTERVAL = 1_000
const DEBOUNCE = 30
/** Minimum time between two passes that notices start (ms), so that many runs make few passes. */
const SPACING = 250
/** Maximum time that shutdown waits for attempts under way (ms). */
const PATIENCE = 3_000
/** Maximum number of times that one pass queues new events. */
const MAX_ROUNDS = 10
/** Interval at which old deliveries and events are removed (ms). */
const RETENTION_INTERVAL = 60_000

/** The kinds of events that a notice may announce. Other events wait for the next poll. */
const KINDS = {
  execution: ['execution', 'mission'],
  approval: ['approval'],
  chat: ['chat'],
  task: ['task'],
} as const

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
 * Delivers events to webhooks, and mails to members. Any number of servers can do so side by side: deliveries are
 * claimed like runs. A webhook has at most four attempts at a time, so that a slow one delays no other. A paused server
 * sends nothing. `pushBody`: writes the push notifications of the protocol that made them.
 */
export function createDeliverer(deps: Deps, pushBody: PushBody): Deliverer {
  const { db, clock, log, pause, settings, bus, mail } = deps
  const stopping = new AbortController()
  const isOver = () => pause.isPaused() || stopping.signal.aborted
  const readers = createReaders(deps, mail && notify)
  const attempts = createAttempts(deps, { pushBody, isOver, disable: disableFor })
  let ticking: Promise<void> | null = null
  let again = false
  let soon: NodeJS.Timeout | null = null
  let lastWoken = Number.NEGATIVE_INFINITY
  let isFirst = true
  /** Whether there may be work that no notice announces. */
  let isWanted = true

  async function pass(): Promise<void> {
    if (isOver()) return
    await takeOver()
    // Events that never end must not keep the due attempts waiting.
    for (let left = MAX_ROUNDS; left && !isOver(); left--) {
      if (await readers.load()) for (const row of await findLeft(db)) await disableFor(row, LEFT)
      if (!(await readers.advance())) break
    }
    isWanted = (await attempts.start()) || readers.hasAny()
  }

  /** Takes over the claims of the previous server. On SQLite there is no other server. */
  async function takeOver(): Promise<void> {
    if (isFirst && databaseFile(settings) !== null) {
      await db.$executeRaw(Prisma.sql`
        UPDATE "WebhookDelivery" SET "leasedUntil" = NULL, "nextAttemptAt" = ${clock.now()}
        WHERE "webhookId" IN (SELECT "id" FROM "Webhook" WHERE "enabled" = ${true})
          AND "status" = 'pending' AND "leasedUntil" IS NOT NULL`)
    }
    isFirst = false
  }

  async function disableFor(webhook: Pick<WebhookRow, 'id' | 'organizationId'>, reason: string): Promise<void> {
    const row = await disable(db, webhook, reason, clock.now())
    if (!row) return
    readers.forget()
    log.warn({ webhookId: row.id, reason }, 'a webhook was disabled')
    if (!mail) return
    for (const to of await keepersOf(row)) mail.send({ to, ...disabledMail(publicAddress(settings), row, reason) })
  }

  /** Finds the address of a webhook's owner, or else those of the organization's owners. */
  async function keepersOf(row: WebhookRow): Promise<string[]> {
    const owner = await personOf(row.ownerId)
    if (owner && (await ownerOf(db, row))) return [owner.email]
    const owners = await db.membership.findMany({
      where: { organizationId: row.organizationId, role: 'owner' },
      select: { user: { select: { email: true } } },
    })
    return owners.map(({ user }) => user.email)
  }

  /** Finds the address of a person. Returns null for a service account, which gets no mail. */
  const personOf = async (id: string) =>
    (await findServices(db, [id])).size ? null : db.user.findUnique({ where: { id }, select: { email: true } })

  async function notify({ userId, events }: Notified): Promise<void> {
    const user = await personOf(userId)
    if (user) mail?.send({ to: user.email, ...notificationMail(publicAddress(settings), events) })
  }

  async function forget(): Promise<void> {
    if (!pause.isPaused()) await removeOld(deps)
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

  const watch = watchTask((error) => log.error({ err: error }, 'failed to look for events, retrying'))
  const tickLater = () => watch(tick())

  function wake(): void {
    if (soon || stopping.signal.aborted) return
    const delay = Math.max(DEBOUNCE, lastWoken + SPACING - performance.now())
    soon = setTimeout(() => {
      soon = null
      lastWoken = performance.now()
      void tickLater()
    }, delay)
  }

  function reload(): void {
    isWanted = true
    readers.forget()
    attempts.resume()
    wake()
  }

  const subscriptions = [
    bus.subscribe('webhook', reload),
    ...(Object.keys(KINDS) as (keyof typeof KINDS)[]).map((channel) =>
      bus.subscribe(channel, () => readers.want(KINDS[channel]) && wake()),
    ),
  ]
  const timers = [
    // Without readers and deliveries no polling is necessary, because the first new reader publishes a notice.
    setInterval(() => void (isWanted && tickLater()), INTERVAL),
    setInterval(() => {
      forget().catch(
        (error) => stopping.signal.aborted || log.error({ err: error }, 'failed to remove old events, retrying'),
      )
    }, RETENTION_INTERVAL),
  ]

  return {
    tick,
    forget,
    quiet: () => attempts.quiet(),
    async stop() {
      stopping.abort()
      for (const timer of timers) clearInterval(timer)
      if (soon) clearTimeout(soon)
      for (const unsubscribe of subscriptions) unsubscribe()
      await ticking?.catch(() => {})
      // A receiver that is cut off may have had the event already, and gets it again.
      const timer = setTimeout(() => attempts.abort(), PATIENCE)
      await attempts.quiet()
      clearTimeout(timer)
      await attempts.close()
    },
  }
}
