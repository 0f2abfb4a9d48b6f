import type { z } from 'zod'
import { notPrivate, notThenPrivate, ofPrivateAgents, ofThenPrivate } from '../agents/visibility.ts'
import { type Actor, isAdmin } from '../auth/actor.ts'
import { Prisma } from '../db/client.ts'
import type { Hidden } from '../db/counting.ts'
import { having } from '../lib/search.ts'
import type { ListSpaces } from './schema.ts'

// The filters of spaces, and of the chats in them (contract.md section 2).

type SpaceRow = Prisma.SpaceGetPayload<object>

/** Spaces whose content the caller may see: a private one is for its owner and for admins (contract.md section 2). */
export const visible = (actor: Actor): Prisma.SpaceWhereInput =>
  isAdmin(actor) ? {} : { OR: [{ visibility: { not: 'private' } }, { ownerId: actor.userId }] }

/** Describes rows that belong to certain spaces. */
export const inSpaces = (where: Prisma.Sql): Hidden => ({
  of: 'Space',
  where,
  on: Prisma.sql`t."organizationId" = h."organizationId" AND t."spaceId" = h."id"`,
})

/**
 * Describes the rows that {@link visible} excludes: those in other users' private spaces, unless the caller is an
 * admin.
 */
export const inPrivateSpaces = (actor: Actor): Hidden[] =>
  isAdmin(actor) ? [] : [inSpaces(Prisma.sql`h."visibility" = 'private' AND h."ownerId" <> ${actor.userId}`)]

/** Filters access by id: visible in the organization and not archived. */
export const reachable = (actor: Actor): Prisma.SpaceWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  ...visible(actor),
})

/** Returns the filter of `list`: its input on top of {@link reachable}. */
export const listedBy = (actor: Actor, { search }: z.output<typeof ListSpaces>): Prisma.SpaceWhereInput => ({
  ...reachable(actor),
  ...having(search),
})

/** Chats without a mission, or of a mission that is not another user's private one. */
export const ofMissionFor = ({ userId }: Actor): Prisma.ChatWhereInput => ({
  OR: [{ missionId: null }, { mission: { visibility: { not: 'private' } } }, { mission: { userId } }],
})

/** Describes the rows that {@link ofMissionFor} excludes: those of other users' private missions. */
export const ofPrivateMissions = ({ userId }: Actor): Hidden => ({
  of: 'Mission',
  where: Prisma.sql`h."visibility" = 'private' AND h."userId" <> ${userId}`,
  on: Prisma.sql`t."organizationId" = h."organizationId" AND t."missionId" = h."id"`,
})

/** Filters the chats of a visible space: those whose agent and mission the caller may see. */
export const chatsFor = (actor: Actor): Prisma.ChatWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  AND: [{ OR: [{ agentId: null }, notPrivate(actor)] }, notThenPrivate(actor), ofMissionFor(actor)],
})

/** Describes the unarchived chats that {@link chatsFor} excludes. */
export const hiddenChats = (actor: Actor): Hidden[] => [
  ofPrivateAgents(actor),
  ofThenPrivate(actor, 'Chat'),
  ofPrivateMissions(actor),
]

/** Returns whether the caller may change a reachable space and its files: its owner and admins may. */
export const mayChange = (actor: Actor, { ownerId }: Pick<SpaceRow, 'ownerId'>): boolean =>
  ownerId === actor.userId || isAdmin(actor)
