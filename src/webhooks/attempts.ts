import { freeRowLock, Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { createAttempt } from './attempt.ts'
import type { DeliveryRow } from './deliveries.ts'
import type { PushBody } from './push.ts'
import type { WebhookRow } from './service.ts'

/** Maximum number of attempts at a time to one webhook, of all servers. */
const AT_ONCE = 4
/** Duration of a claim (ms), longer than an attempt. A server that dies leaves the delivery to the others after it. */
const LEASE = 20_000

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

/** Claims due deliveries for this process, and makes their attempts. */
export function createAttempts(deps: Deps, { pushBody, isOver, disable }: Options): Attempts {
  const { db, clock, log, settings } = deps
  const running = new Map<string, number>()
  const attempts = new Set<Promise<void>>()
  /** Until when this process leaves a failing webhook alone. */
  const cooling = new Map<string, number>()
  const lock = freeRowLock(settings)
  const { prepare, deliver, abort, close } = createAttempt(deps, {
    pushBody,
    disable,
    onResult(webhookId, pause) {
      if (pause) cooling.set(webhookId, clock.now().getTime() + pause)
      else cooling.delete(webhookId)
    },
  })
  const isCooling = (webhookId: string) => (cooling.get(webhookId) ?? 0) > clock.now().getTime()

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
    if (isOver() || isCooling(webhookId) || (running.get(webhookId) ?? 0) >= AT_ONCE) return
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
    if (isOver() || isCooling(webhookId)) return
    if (await db.webhookDelivery.findFirst({ where: due, select: { id: true } })) await claim(webhookId)
  }

  return {
    start,
    resume: () => cooling.clear(),
    abort,
    async quiet() {
      while (attempts.size) await Promise.all(attempts)
    },
    close,
  }
}
