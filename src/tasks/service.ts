import type { z } from 'zod'
import { type Actor, holdMembership } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { conflict, forbidden, notFound } from '../errors.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newTimedId } from '../lib/id.ts'
import { toOutputColumn } from '../lib/output.ts'
import { searchedIn } from '../lib/search.ts'
import { reachable as reachableSpace } from '../spaces/visibility.ts'
import { assigneeOf, findAssignee, findClaimant, holdAssignee } from './assignees.ts'
import { find, toTask, updateTask, viewOf } from './rows.ts'
import { cancelRuns, endRuns } from './runs.ts'
import type { ClaimTask, CreateTask, UpdateTask } from './schema.ts'
import { moveTo } from './status.ts'

async function checkSpace(actor: Actor, { db }: Deps, id: string | null | undefined): Promise<void> {
  if (id === null || id === undefined) return
  const space = await db.space.findFirst({ where: { id, ...reachableSpace(actor) }, select: { id: true } })
  if (!space) throw notFound('Space')
}

/** References of a request. */
type Named = { id?: string } & {
  [Field in 'spaceId' | 'agentId' | 'assignTo' | 'assignedTo']?: string | null | undefined
}

/**
 * Throws if the caller cannot see a referenced object, also before a stored response is repeated (contract.md section
 * 1).
 */
export async function checkVisible(actor: Actor, deps: Deps, { id, spaceId, agentId, ...assignee }: Named) {
  if (id !== undefined) await find(actor, deps, id)
  await checkSpace(actor, deps, spaceId)
  await findClaimant(actor, deps, agentId)
  await findAssignee(actor, deps, assigneeOf(assignee) ?? null)
}

/** POST /tasks. `createdBy` is the caller, or the agent whose tool made the call. */
export async function create(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof CreateTask>,
  createdBy: string = actor.userId,
) {
  await checkSpace(actor, deps, input.spaceId)
  const assignee = await findAssignee(actor, deps, assigneeOf(input) ?? null)
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    await holdAssignee(tx, actor, deps, assignee)
    const created = await tx.task.create({
      data: {
        id: newTimedId('task', now),
        organizationId: actor.organizationId,
        title: input.title,
        ...searchedIn(input.title),
        description: input.description ?? '',
        status: 'pending',
        priority: input.priority ?? 'medium',
        ...assignee,
        spaceId: input.spaceId ?? null,
        output: toOutputColumn(input.output ?? null) as Prisma.InputJsonObject,
        createdBy,
        createdAt: now,
        updatedAt: now,
      },
    })
    await audit(tx, actor, 'task.create', created.id, now)
    return created
  })
  deps.bus.publish('task', [row.id])
  return { id: row.id, title: row.title, status: row.status, task: toTask(row) }
}

/** Thrown if the task was changed concurrently. Nothing is written. */
class Overtaken extends Error {
  override name = 'Overtaken'
}

function nullIfOvertaken(error: unknown): null {
  if (error instanceof Overtaken) return null
  throw error
}

/**
 * PATCH /tasks/{id}. An empty change writes nothing. Throws 400 for a status transition outside the state table.
 * Cancelling a task, or returning it to `pending`, cancels its active runs.
 */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateTask>) {
  const { title, priority, spaceId, status } = input
  const description = input.description === null ? '' : input.description
  const assignTo = assigneeOf(input)
  for (;;) {
    const task = await find(actor, deps, input.id)
    const ends = (status === 'cancelled' || status === 'pending') && status !== task.status
    await checkSpace(actor, deps, spaceId)
    const now = deps.clock.now()
    const changes = omitUndefined({
      ...(title !== undefined && { title, ...searchedIn(title) }),
      description,
      priority,
      spaceId,
      ...(input.output !== undefined && { output: toOutputColumn(input.output) as Prisma.JsonObject }),
      ...(assignTo !== undefined && (await findAssignee(actor, deps, assignTo))),
      ...(status !== undefined && status !== task.status && moveTo(task.status, status, now)),
    })
    const change = async (tx: Tx) => {
      // Runs are locked before their tasks.
      if (ends) await endRuns(tx, actor, task, now)
      await holdAssignee(tx, actor, deps, changes)
      const row = await updateTask(tx, actor, task, { action: 'task.update', now, data: changes })
      if (!row) throw new Overtaken()
      return row
    }
    const changed = hasChanges(task, changes) ? await deps.db.$transaction(change).catch(nullIfOvertaken) : task
    if (!changed) continue
    if (changed !== task) deps.bus.publish('task', [task.id])
    if (ends) await cancelRuns(actor, deps, changed)
    return { task: await viewOf(actor, deps, changed) }
  }
}

/** DELETE /tasks/{id}. Cancels its active runs. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const task = await find(actor, deps, id)
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    await endRuns(tx, actor, task, now)
    const { count } = await tx.task.deleteMany({ where: { id } })
    if (!count) throw notFound('Task')
    await audit(tx, actor, 'task.delete', id, now)
  })
  deps.bus.publish('task', [id])
  await cancelRuns(actor, deps, task)
  return { message: 'Task deleted successfully' }
}

/**
 * POST /tasks/{id}/claim: of two concurrent claims, one succeeds. Throws 404 for an agent that the caller cannot reach.
 */
export async function claim(actor: Actor, deps: Deps, input: z.output<typeof ClaimTask>) {
  const task = await find(actor, deps, input.id)
  const assignee = await findClaimant(actor, deps, input.agentId)
  if (task.status !== 'pending')
    throw alreadyAssigned(`Only a pending task can be claimed. This one is ${task.status}.`)
  if (task.assignedTo !== null) throw alreadyAssigned()
  const now = deps.clock.now()
  const row = await deps.db.$transaction(async (tx) => {
    if (!assignee.assignedAgentId && !(await holdMembership(tx, deps.settings, actor))) throw forbidden()
    return updateTask(tx, actor, task, { action: 'task.claim', now, data: assignee })
  })
  if (!row) throw alreadyAssigned()
  deps.bus.publish('task', [row.id])
  return { task: await viewOf(actor, deps, row) }
}

const alreadyAssigned = (detail = 'Remove the assignee with a PATCH of `assignTo: null` first.') =>
  conflict('Task is already assigned', { detail })
