import { notPrivate } from '../agents/service.ts'
import type { Actor } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'
import { visible } from '../spaces/service.ts'

/** By id: the organization's chats, in a space and with an agent that the caller may see. */
export const reachable = (actor: Actor): Prisma.ChatWhereInput => ({
  organizationId: actor.organizationId,
  space: { archivedAt: null, ...visible(actor) },
  OR: [{ agentId: null }, notPrivate(actor)],
})
