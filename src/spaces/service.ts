import { type Actor, isAdmin } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'

/** Spaces whose content the caller may see: a private one is for its owner and for admins (contract.md section 2). */
export const visible = (actor: Actor): Prisma.SpaceWhereInput =>
  isAdmin(actor) ? {} : { OR: [{ visibility: { not: 'private' } }, { ownerId: actor.userId }] }

/** By id: what is visible in the organization and not archived. */
export const reachable = (actor: Actor): Prisma.SpaceWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  ...visible(actor),
})
