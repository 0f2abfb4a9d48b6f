import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import type { Db } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { forbidden } from '../errors.ts'
import { normalizeEmail } from '../lib/email.ts'
import type { OrganizationId, OrganizationMember } from './schema.ts'
import { listedMembers } from './service.ts'

/** GET /organizations/{id}/members: all members, in the order of joining. 403 for an organization of others. */
export async function listMembers(actor: Actor, { db }: Deps, { id }: z.output<typeof OrganizationId>) {
  if (id !== actor.organizationId) throw forbidden()
  const rows = await db.membership.findMany({
    where: listedMembers(actor),
    include: { user: { select: { name: true, email: true } } },
    orderBy: [{ createdAt: 'asc' }, { userId: 'asc' }],
  })
  return {
    members: rows.map(({ userId, role, createdAt, user }): z.input<typeof OrganizationMember> => {
      return { userId, ...user, role, joinedAt: createdAt.toISOString() }
    }),
  }
}

/**
 * Finds the member that somebody names by id, by e-mail, or as `me` (contract-2.md section 1.11). Null for nobody of the
 * organization.
 */
export async function findMember(actor: Actor, { db }: { db: Pick<Db, 'membership'> }, name: string) {
  const email = name.includes('@') ? normalizeEmail(name) : null
  const who = email === null ? { userId: name === 'me' ? actor.userId : name } : { user: { email } }
  const member = await db.membership.findFirst({
    where: { AND: [listedMembers(actor), who] },
    select: { userId: true },
  })
  return member?.userId ?? null
}
