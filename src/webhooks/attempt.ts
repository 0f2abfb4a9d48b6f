import { findEvents, positionOf } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { show, type VisibleEvent } from '../events/show.ts'
import { cutTexts } from '../lib/page.ts'
import { scrubber } from '../lib/scrub.ts'
import { publicAddress } from '../settings.ts'
import { attemptsOf, type DeliveryRow, eventIdOf, TEST_EVENT } from './deliveries.ts'
import { LEFT, ownerOf } from './fan-out.ts'
import { bodyOf } from './formats.ts'
import type { Push, PushBody } from './push.ts'
import { openWebhook } from './secrets.ts'
import { createSender, type Sent } from './send.ts'
import type { WebhookRow } from './service.ts'
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
/** Time without an attempt (ms) after which the service itself was away: stopped, paused or asleep. */
const SILENCE = 28 * HOUR
/** Minimum time between two stored times of a failure (ms), so that few failures write the webhook's row. */
const STORING_INTERVAL = HOUR
/** How long a webhook may fail after a silence before it is disabled (ms). */
const GRACE = 24 * HOUR
/**
 * Pause of a webhook whose attempts fail before the next ones (ms), however many deliveries are due: a share of the
 * time for which it has failed.
 */
const COOLDOWN = { least: 5 * SECOND, most: MINUTE, share: 0.1 }
/** Maximum size of a body with whole texts (characters). Longer ones have cut texts. */
const MAX_BODY = 256 * 1024
/** Maximum number of attempts of a delivery that are stored: the latest ones, however often it is replayed. */
const MAX_STORED = 50

type Prepared = {
  webhook: WebhookRow
  url: string
  secrets: string[]
  push: Push | null
  events: ReadonlyMap<string, VisibleEvent>
}

type Options = {
  pushBody: PushBody
  disable: (webhook: WebhookRow, reason: string) => Promise<void>
  /** Called after each attempt with the time for which its webhook pauses (ms): 0 after a success. */
  onResult: (webhookId: string, pause: number) => void
}

/** Creates the functions that make an attempt. */
export function createAttempt(deps: Deps, { pushBody, disable, onResult }: Options) {
  const { db, clock, settings } = deps
  const sender = createSender(settings, clock)
  const over = new AbortController()

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
    const positions = rows.filter(({ event }) => event !== TEST_EVENT).map(positionOf)
    const found = await findEvents(db, organizationId, positions)
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
    await record(row, webhook, at, { ...sent, response: withoutSecrets(sent.response, prepared) })
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
        nextAttemptAt: isLast ? null : new Date(clock.now().getTime() + wait),
        leasedUntil: null,
      },
    })
    await (isDelivered ? noteSuccess(webhook) : noteFailure(webhook, at, sent))
  }

  async function noteSuccess({ id, failingSince }: WebhookRow): Promise<void> {
    onResult(id, 0)
    // A failure that began later is cleared by its own retry.
    if (failingSince) await db.webhook.updateMany({ where: { id, failingSince }, data: { failingSince: null } })
  }

  /** Lets a webhook pause after a failure, and disables it if it has failed for too long or is gone. */
  async function noteFailure(webhook: WebhookRow, at: Date, { status, retryAfter }: Sent): Promise<void> {
    const now = clock.now().getTime()
    const failing = webhook.failingSince ? now - webhook.failingSince.getTime() : 0
    onResult(webhook.id, Math.min(Math.max(failing * COOLDOWN.share, retryAfter, COOLDOWN.least), COOLDOWN.most))
    if (status === 410) return disable(webhook, 'It answered 410 Gone')
    const graceUntil = await storeFailure(webhook, at)
    if (failing >= MAX_FAILING && now >= graceUntil) await disable(webhook, 'It has failed for 5 days')
  }

  /** Stores the time of a failure, if it is news. Returns the time before which no failure disables the webhook (ms). */
  async function storeFailure(webhook: WebhookRow, failedAt: Date): Promise<number> {
    const { id, failingSince } = webhook
    const at = failedAt.getTime()
    if (!failingSince) {
      const data = { failingSince: failedAt, failedAt, graceUntil: null }
      await db.webhook.updateMany({ where: { id, failingSince }, data })
      return 0
    }
    const past = at - (webhook.failedAt?.getTime() ?? 0)
    const graceUntil = past > SILENCE ? new Date(at + GRACE) : webhook.graceUntil
    if (past > STORING_INTERVAL)
      await db.webhook.updateMany({
        where: { id, failingSince, failedAt: webhook.failedAt },
        data: { failedAt, graceUntil },
      })
    return graceUntil?.getTime() ?? 0
  }

  return {
    prepare,
    deliver,
    /** Ends the attempts under way; another process makes them again. */
    abort: () => over.abort(),
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

/**
 * Removes the credentials of a push notification, and an address that is a secret, from an answer. Many servers repeat
 * the path that they do not know, and some the whole request.
 */
function withoutSecrets(response: string, { url, webhook, push }: Prepared): string {
  const { pathname, search } = new URL(url)
  const address = [url, pathname + search, pathname, pathname.split('/').at(-1) ?? '']
  // A scheme may stand before credentials.
  const credentials = Object.values(push?.headers ?? {}).flatMap((value) => [value, value.replace(/^\S+ /, '')])
  return scrubber([...(url === webhook.shownUrl ? [] : address), ...credentials])(response, true)
}

/** Cuts the long texts of an event that is too long to be sent whole. */
function shortened(event: VisibleEvent): VisibleEvent {
  if (JSON.stringify(event.data).length <= MAX_BODY) return event
  return { ...event, data: cutTexts(event.data, Object.keys(event.data)) }
}
