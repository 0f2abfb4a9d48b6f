import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Tx } from '../db/client.ts'
import { endOfEvents } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { forbidden } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import type { Notifications, Profile, UpdateProfile } from './schema.ts'

/** GET /profile. */
export async function get(actor: Actor, { db }: Deps) {
  return { profile: await read(db, actor) }
}

const NONE = { approvals: false, missions: false }

async function read(db: Tx, actor: Actor): Promise<z.input<typeof Profile>> {
  const { userId, organizationId } = actor
  const [user, memberships, found] = await Promise.all([
    db.user.findUniqueOrThrow({ where: { id: userId } }),
    db.membership.findMany({
      where: { userId },
      select: { role: true, organization: { select: { id: true, name: true, slug: true } } },
      orderBy: [{ createdAt: 'asc' }, { organizationId: 'asc' }],
    }),
    db.mailNotifications.findUnique({
      where: { organizationId_userId: { organizationId, userId } },
      select: { approvals: true, missions: true },
    }),
  ])
  const organizations = memberships.map(({ role, organization }) => ({ ...organization, role }))
  const organization = organizations.find(({ id }) => id === organizationId)
  if (!organization) throw forbidden()
  const { id, email, name, image } = user
  return { id, email, name, image, notifications: found ?? NONE, organization, organizations }
}

/** PATCH /profile: the name and the picture, in every organization; the notifications in this one. */
export async function update(actor: Actor, deps: Deps, { notifications, ...input }: z.output<typeof UpdateProfile>) {
  const { db, clock } = deps
  const now = clock.now()
  const profile = await read(db, actor)
  const changes = omitUndefined({ name: input.name, image: input.image })
  const wanted = { ...profile.notifications, ...omitUndefined(notifications ?? {}) }
  const isNotified = hasChanges(profile.notifications, wanted)
  if (!hasChanges(profile, changes) && !isNotified) return { profile }
  await db.$transaction(async (tx) => {
    if (Object.keys(changes).length) {
      const data = { ...changes, updatedAt: now }
      await tx.user.update({ where: { id: actor.userId }, data, select: { id: true } })
    }
    if (isNotified) await setNotifications(tx, actor, deps, wanted)
    await audit(tx, actor, 'profile.update', actor.userId, now)
  })
  if (isNotified) deps.bus.publish('webhook', [actor.organizationId])
  return { profile: { ...profile, ...changes, notifications: wanted } }
}

/** Stores the mail notifications of a member, for events from now on. A member without any has no row. */
async function setNotifications(
  tx: Tx,
  { organizationId, userId }: Actor,
  { settings }: Deps,
  wanted: z.output<typeof Notifications>,
): Promise<void> {
  const where = { organizationId, userId }
  if (!wanted.approvals && !wanted.missions) return void (await tx.mailNotifications.deleteMany({ where }))
  const { count } = await tx.mailNotifications.updateMany({ where, data: wanted })
  const place = count ? null : await endOfEvents(tx, settings, organizationId)
  if (place) await tx.mailNotifications.createMany({ data: { ...where, ...wanted, ...place } })
}
