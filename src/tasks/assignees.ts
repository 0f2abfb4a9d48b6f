import { reachable as reachableAgent } from '../agents/visibility.ts'
import { type Actor, holdMembership } from '../auth/actor.ts'
import type { Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badReference, notFound } from '../errors.ts'
import { findMember } from '../organizations/members.ts'
import type { TaskRow } from './rows.ts'

// Users and agents to whom tasks are assigned.

type Assignee = Pick<TaskRow, 'assignedTo' | 'assignedAgentId'>

const toUser = (id: string | null): Assignee => ({ assignedTo: id, assignedAgentId: null })

async function findAgent(actor: Actor, { db }: Deps, id: string): Promise<Assignee | null> {
  const agent = await db.agent.findFirst({ where: { id, ...reachableAgent(actor) }, select: { id: true } })
  return agent && { assignedTo: id, assignedAgentId: id }
}

/**
 * Finds an assignee: an agent that the caller can reach in the organization, or a member, by id, by e-mail, or as `me`
 * (contract.md section 5; contract-2.md section 1.11).
 */
export async function findAssignee(actor: Actor, deps: Deps, id: string | null): Promise<Assignee> {
  if (id === null) return toUser(null)
  const agent = await findAgent(actor, deps, id)
  if (agent) return agent
  const userId = await findMember(actor, deps, id)
  if (!userId) throw badAssignee(id)
  return toUser(userId)
}

const badAssignee = (id: string) =>
  badReference('assignTo', id, 'Invalid assignTo. Must be an agent or user id of this organization')

/**
 * Holds the membership of the user whom a transaction assigns a task to, so that its end finds the task. Throws 400 if
 * it has ended since.
 */
export async function holdAssignee(
  tx: Tx,
  actor: Actor,
  { settings }: Deps,
  assignee: Partial<Assignee>,
): Promise<void> {
  const { assignedTo: userId, assignedAgentId } = assignee
  if (!userId || assignedAgentId) return
  const { organizationId } = actor
  if (!(await holdMembership(tx, settings, { organizationId, userId }))) throw badAssignee(userId)
}

/** Finds the agent that claims a task, or returns the caller. */
export async function findClaimant(actor: Actor, deps: Deps, agentId: string | null | undefined): Promise<Assignee> {
  if (agentId === null || agentId === undefined) return toUser(actor.userId)
  const agent = await findAgent(actor, deps, agentId)
  if (!agent) throw notFound('Agent')
  return agent
}

/** Returns `assignTo`, otherwise its alias; undefined if neither is given. */
export const assigneeOf = (input: { assignTo?: string | null | undefined; assignedTo?: string | null | undefined }) =>
  input.assignTo === undefined ? input.assignedTo : input.assignTo
