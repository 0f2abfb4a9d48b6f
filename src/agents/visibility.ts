import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { Prisma } from '../db/client.ts'
import type { Hidden } from '../db/counting.ts'
import type { ListAgents } from './schema.ts'

// The filters of agents, and of rows that follow the visibility of an agent (contract.md section 2).

type AgentRow = Prisma.AgentGetPayload<object>

type Filter = Pick<z.output<typeof ListAgents>, 'owner' | 'visibility'>

const SHARED = ['organization', 'public'] as const

/** Returns the shared visibilities that match a filter. */
export const sharedBy = ({ visibility }: Filter) => SHARED.filter((shared) => shared === (visibility ?? shared))

/** Filters the organization's list: shared agents; with `owner: 'me'` the caller's own agents of every visibility. */
export const listed = (actor: Actor, { owner, visibility }: Filter = {}) => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  ...(owner === 'me'
    ? { userId: actor.userId, ...(visibility && { visibility }) }
    : { visibility: { in: sharedBy({ visibility }) } }),
})

/** Filters access by id: all agents of the organization but other users' private ones. */
export const reachable = (actor: Actor): Prisma.AgentWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  OR: [{ visibility: { not: 'private' } }, { userId: actor.userId }],
})

/** Filters agents that the caller may run: the reachable ones, and public and unlisted ones of other organizations. */
export const executable = (actor: Actor): Prisma.AgentWhereInput => ({
  archivedAt: null,
  OR: [{ visibility: { in: ['public', 'unlisted'] } }, reachable(actor)],
})

/**
 * Filters rows of an agent (chats, executions), which follow its visibility: with a private agent they belong to its
 * owner. Rows for another organization's agent belong to the organization that ran it (contract.md section 2).
 */
export const notPrivate = (actor: Actor) => ({
  OR: [
    { agentOrganizationId: { not: actor.organizationId } },
    { agent: { OR: [{ visibility: { not: 'private' as const } }, { userId: actor.userId }] } },
  ],
})

/**
 * Filters executions, sessions and chats, in addition to {@link notPrivate}: rows written while an agent was private
 * stay visible to its owner only (contract-2.md section 8.6).
 */
export const notThenPrivate = ({ userId }: Actor) => ({ OR: [{ wasPrivate: false }, { agent: { userId } }] })

/** Describes the rows that {@link notThenPrivate} excludes. */
export const ofThenPrivate = ({ userId }: Actor, of: 'Execution' | 'Chat'): Hidden => ({
  of,
  where: Prisma.sql`h."wasPrivate" = ${true}
    AND (SELECT a."userId" FROM "Agent" a WHERE a."id" = h."agentId") <> ${userId}`,
  on: Prisma.sql`t."id" = h."id"`,
})

/** Describes the rows that {@link notPrivate} excludes: those of other users' private agents. */
export const ofPrivateAgents = ({ userId }: Actor): Hidden => ({
  of: 'Agent',
  where: Prisma.sql`h."visibility" = 'private' AND h."userId" <> ${userId}`,
  on: Prisma.sql`t."organizationId" = h."organizationId" AND t."agentId" = h."id"`,
})

/** Filters the cards of all organizations' agents: public ones in the list, unlisted ones also by id. */
export const publiclyVisible = (how: 'listed' | 'byId') => {
  const visibilities: AgentRow['visibility'][] = how === 'listed' ? ['public'] : ['public', 'unlisted']
  return { archivedAt: null, visibility: { in: visibilities } }
}

/** Columns that determine an agent's name for other organizations. */
export const NAMED = { name: true, organizationId: true, visibility: true, archivedAt: true } as const

/** Returns an agent's name as seen by an organization: null once its own organization has withdrawn it. */
export function nameIn(organizationId: string, agent: Pick<AgentRow, keyof typeof NAMED>): string | null {
  const isOpen = agent.archivedAt === null && (agent.visibility === 'public' || agent.visibility === 'unlisted')
  return isOpen || agent.organizationId === organizationId ? agent.name : null
}
