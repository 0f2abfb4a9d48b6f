import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { forbidden } from '../errors.ts'
import { given, isNews } from '../lib/changes.ts'
import type { Profile, UpdateProfile } from './schema.ts'

/** GET /profile. */
export async function get(actor: Actor, { db }: Deps) {
  return { profile: await read(db, actor) }
}

async function read(db: Tx, actor: Actor): Promise<z.input<typeof Profile>> {
  const [user, memberships] = await Promise.all([
    db.user.findUniqueOrThrow({ where: { id: actor.userId } }),
    db.membership.findMany({
      where: { userId: actor.userId },
      select: { role: true, organization: { select: { id: true, name: true, slug: true } } },
      orderBy: [{ createdAt: 'asc' }, { organizationId: 'asc' }],
    }),
  ])
  const organizations = memberships.map(({ role, organization }) => ({ ...organization, role }))
  const organization = organizations.find(({ id }) => id === actor.organizationId)
  if (!organization) throw forbidden()
  const { id, email, name, image } = user
  return { id, email, name, image, organization, organizations }
}

/** PATCH /profile: the name and the picture, in every organization. */
export async function update(actor: Actor, { db, clock }: Deps, { name, image }: z.output<typeof UpdateProfile>) {
  const now = clock.now()
  const profile = await read(db, actor)
  const said = given({ name, image })
  if (!isNews(profile, said)) return { profile }
  await db.$transaction(async (tx) => {
    const data = { ...said, updatedAt: now }
    await tx.user.update({ where: { id: actor.userId }, data, select: { id: true } })
    await audit(tx, actor, 'profile.update', actor.userId, now)
  })
  return { profile: { ...profile, ...said } }
}
