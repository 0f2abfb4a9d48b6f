import { createHash } from 'node:crypto'
import { type Actor, holdCredential } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf } from '../crypto/data-key.ts'
import type { Prisma } from '../db/client.ts'
import type { FeedPosition } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import type { VisibleEvent } from '../events/show.ts'
import type { Settings } from '../settings.ts'
import { newSecret, openWebhook, sealPush, sealSecret, sealUrl } from './secrets.ts'
import { checkAddress } from './service.ts'

// Push notifications: webhooks of a caller of one run, made by a protocol. The API for webhooks does not show them.

/** How a caller of a run is notified. */
export type Push = {
  /** The caller's own name of the notification. */
  id: string
  url: string
  headers: Readonly<Record<string, string>>
  /** Data of the protocol for its bodies. */
  protocol: Readonly<Record<string, string>>
}

/** Returns the body of a push notification for an event, and its content type. */
export type PushBody = (
  settings: Settings,
  event: VisibleEvent,
  protocol: Push['protocol'],
) => Promise<{ body: string; contentType: string }>

/** Maximum number of notifications of a run that one caller can have. */
const MAX_PUSHES = 10

const ofCaller = ({ organizationId, userId }: Actor, executionId: string): Prisma.WebhookWhereInput => ({
  organizationId,
  ownerId: userId,
  executionId,
})

/** Derives the id of a row, so that the same notification set twice is one. */
const idOf = ({ organizationId, userId }: Actor, executionId: string, id: string): string =>
  `push-${createHash('sha256')
    .update(JSON.stringify([organizationId, userId, executionId, id]))
    .digest('base64url')}`

/**
 * Notifies a caller of the events of a run behind a position, or changes how it does. `hasEnded`: no event follows.
 * Throws 400 for a private address and beyond {@link MAX_PUSHES}.
 */
export async function setPush(
  actor: Actor,
  deps: Deps,
  executionId: string,
  push: Push,
  { from, hasEnded }: { from: FeedPosition; hasEnded: boolean },
): Promise<void> {
  checkAddress(push.url, deps)
  const { organizationId } = actor
  const now = deps.clock.now()
  const owner = { organizationId, id: idOf(actor, executionId, push.id) }
  await deps.db.$transaction(async (tx) => {
    await holdCredential(tx, deps.settings, actor)
    const key = await dataKeyOf(tx, deps, organizationId, now)
    const shownUrl = new URL(push.url).origin
    const address = { url: sealUrl(key, owner, push.url), shownUrl }
    const data = { ...address, push: sealPush(key, owner, push), updatedAt: now }
    const { count } = await tx.webhook.updateMany({ where: owner, data })
    // The end of a key with everything made with it finds the notification by this event.
    const action = count ? 'webhook.update' : 'webhook.create'
    await audit(tx, actor, action, owner.id, now, { executionId, url: shownUrl })
    if (count) return
    const others = await tx.webhook.count({ where: ofCaller(actor, executionId) })
    if (others >= MAX_PUSHES)
      throw badRequest(`Too many push notifications. At most ${MAX_PUSHES}`, { detail: 'Delete one first.' })
    await tx.webhook.createMany({
      data: [
        {
          ...owner,
          ...data,
          ownerId: actor.userId,
          executionId,
          description: '',
          events: ['execution.*'],
          format: 'standard',
          includeContent: true,
          secret: sealSecret(key, owner, newSecret()),
          ...from,
          runEndedAt: hasEnded ? now : null,
          createdAt: now,
        },
      ],
    })
  })
  deps.bus.publish('webhook', [organizationId])
}

/** Lists how a caller is notified of a run. */
export async function listPushes(actor: Actor, deps: Deps, executionId: string): Promise<Push[]> {
  const rows = await deps.db.webhook.findMany({
    where: ofCaller(actor, executionId),
    orderBy: { createdAt: 'asc' },
    take: MAX_PUSHES,
  })
  const pushes: Push[] = []
  for (const row of rows) {
    const { push } = await openWebhook(deps.db, deps, row, deps.clock.now())
    if (push) pushes.push(push)
  }
  return pushes
}

/** Ends a notification of a caller, if there is one. */
export async function deletePush(actor: Actor, { db, clock }: Deps, executionId: string, name: string): Promise<void> {
  const id = idOf(actor, executionId, name)
  await db.$transaction(async (tx) => {
    const { count } = await tx.webhook.deleteMany({ where: { ...ofCaller(actor, executionId), id } })
    if (count) await audit(tx, actor, 'webhook.delete', id, clock.now(), { executionId })
  })
}
