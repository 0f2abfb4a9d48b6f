import type { z } from 'zod'
import { type Actor, holdMembership } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, forbidden, notFound } from '../errors.ts'
import { type ExecuteCall, executeAgent } from '../executions/execute.ts'
import { readableOf as findRuns } from '../executions/service.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newTimedId } from '../lib/id.ts'
import { outputOf, toOutputColumn } from '../lib/output.ts'
import { listPage } from '../lib/page.ts'
import { having, searchedIn } from '../lib/search.ts'
import { findMember } from '../organizations/members.ts'
import { reachable as reachableSpace } from '../spaces/visibility.ts'
import { assigneeOf, findAssignee, findClaimant, holdAssignee } from './assignees.ts'
import { cancelRuns, endRuns, runsOf } from './runs.ts'
import type { ClaimTask, CreateTask, ExecuteTask, ListTasks, Task, TaskStatus, UpdateTask } from './schema.ts'

export type TaskRow = Prisma.TaskGetPayload<object> & { truncated?: boolean }

/** The long texts of a task, which long lists cut. */
export const LONG_TEXTS = ['description', 'result', 'lastError'] as const

type Status = z.output<typeof TaskStatus>

/** Tasks belong to the organization, and any member may write them (contract.md section 2). */
export const reachable = (actor: Actor): Prisma.TaskWhereInput => ({ organizationId: actor.organizationId })

/** The state table of service.md, "Task status". */
const TRANSITIONS: Readonly<Record<Status, readonly Status[]>> = {
  pending: ['in_progress', 'cancelled'],
  in_progress: ['completed', 'cancelled', 'pending'],
  completed: [],
  cancelled: [],
}

/**
 * Returns tasks as the caller sees them, in at most one statement. The result of a run is null for users who cannot
 * read the run, because it may belong to a private agent or space.
 */
async function toTasks(actor: Actor, db: Tx, rows: readonly TaskRow[]): Promise<z.input<typeof Task>[]> {
  const ids = rows.flatMap(({ result, executionId, lastError, lastExecutionId }) => [
    ...(result === null || executionId === null ? [] : [executionId]),
    ...(lastError === null || lastExecutionId === null ? [] : [lastExecutionId]),
  ])
  const runs = await findRuns(actor, db, ids)
  const isShown = (id: string | null) => id === null || runs.has(id)
  return rows.map((row) =>
    toTask({
      ...row,
      result: isShown(row.executionId) ? row.result : null,
      lastError: isShown(row.lastExecutionId) ? row.lastError : null,
    }),
  )
}

async function viewOf(actor: Actor, { db }: { db: Tx }, row: TaskRow): Promise<z.input<typeof Task>> {
  const [task] = await toTasks(actor, db, [row])
  return task!
}

const toTask = (row: TaskRow): z.input<typeof Task> => ({
  id: row.id,
  title: row.title,
  description: row.description ?? '',
  status: row.status,
  priority: row.priority,
  assignedTo: row.assignedTo,
  spaceId: row.spaceId,
  output: outputOf(row.output),
  organizationId: row.organizationId,
  createdBy: row.createdBy,
  executionId: row.executionId,
  result: row.result,
  lastError: row.lastError,
  lastExecutionId: row.lastExecutionId,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
  completedAt: row.completedAt?.toISOString() ?? null,
  ...(row.truncated && { truncated: true }),
})

/** Returns the filter of `list`: its input on top of {@link reachable}. */
export async function listedBy(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof ListTasks>,
): Promise<Prisma.TaskWhereInput> {
  const { status, priority, assignedTo, spaceId } = input
  const named = assignedTo?.includes('@') ? ((await findMember(actor, deps, assignedTo)) ?? assignedTo) : assignedTo
  const assignee = named === 'me' ? actor.userId : named === 'none' ? null : named
  const given = Object.entries({ status, priority, assignedTo: assignee, spaceId })
  const filter = Object.fromEntries(given.filter(([, value]) => value !== undefined))
  return { ...reachable(actor), ...filter, ...having(input.search) }
}

/** GET /tasks, newest first. */
export async function list(actor: Actor, deps: Deps, input: z.output<typeof ListTasks>) {
  const { db } = deps
  const where = await listedBy(actor, deps, input)
  const { rows, nextCursor } = await listPage<TaskRow>(input, LONG_TEXTS, ({ where: after, ...page }) =>
    db.task.findMany({ where: { AND: [where, after ?? {}] }, ...page }),
  )
  const total = input.count && { total: await db.task.count({ where }) }
  return { tasks: await toTasks(actor, db, rows), nextCursor, ...total }
}

async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<TaskRow> {
  const row = await db.task.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Task')
  return row
}

/** Returns the tasks with these ids that the caller can reach. */
export async function findMany(actor: Actor, { db }: Deps, ids: readonly string[]) {
  return toTasks(actor, db, await db.task.findMany({ where: { id: { in: [...ids] }, ...reachable(actor) } }))
}

/** GET /tasks/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { task: await viewOf(actor, deps, await find(actor, deps, id)) }
}

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

/** A change of a task, and the action of its audit event. */
type TaskChange = { action: `task.${string}`; now: Date; data: Prisma.TaskUncheckedUpdateManyInput }

/** Changes a task if its status and its assignee are unchanged since it was read. Returns null otherwise. */
async function updateTask(
  tx: Tx,
  actor: Actor,
  task: TaskRow,
  { action, now, data }: TaskChange,
): Promise<TaskRow | null> {
  const [row] = await tx.task.updateManyAndReturn({
    where: { id: task.id, status: task.status, assignedTo: task.assignedTo },
    data: { ...data, updatedAt: now },
  })
  if (row) await audit(tx, actor, action, task.id, now)
  return row ?? null
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

/** Returns the changes for a new status. Throws 400 for an invalid transition. */
function moveTo(from: Status, to: Status, now: Date) {
  // Completing a pending task by hand combines both transitions (contract-2.md section 1.15).
  const isBoth = from === 'pending' && to === 'completed'
  if (!isBoth && !TRANSITIONS[from].includes(to)) {
    const next = TRANSITIONS[from].join(' or ')
    throw badRequest(`Invalid status transition: ${from} to ${to}`, {
      detail: next ? `From ${from} a task can become ${next}.` : `A task that is ${from} stays so: create another one.`,
    })
  }
  // The end of a run changes the task whose `executionId` it is, so a task started by hand has none.
  const begun = (to === 'in_progress' || isBoth) && { executionId: null }
  return { status: to, completedAt: to === 'completed' ? now : null, ...begun }
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

/**
 * POST /tasks/{id}/execute: runs its agent on the title and description. The task is `in_progress` meanwhile, then
 * `completed` with the result, or `pending` again. Throws 409 if it is running already, and 400 if it has ended or has
 * no agent.
 */
export async function execute(actor: Actor, deps: Deps, input: z.output<typeof ExecuteTask>, call: ExecuteCall) {
  const task = await find(actor, deps, input.id)
  if (!task.assignedAgentId)
    throw badRequest('Task is not assigned to an agent', {
      detail: 'Assign an agent with a PATCH of `assignTo`, or with POST /tasks/{id}/claim.',
    })
  const { background, idempotencyKey } = input
  const message = [task.title, task.description].filter(Boolean).join('\n\n')
  const run = {
    id: task.assignedAgentId,
    message,
    spaceId: task.spaceId,
    output: outputOf(task.output),
    background,
    idempotencyKey,
  }
  const executed = await executeAgent(actor, deps, run, call, {
    path: `/api/v1/tasks/${task.id}/execute`,
    request: { background },
    taskId: task.id,
    also: (tx, executionId, now) => moveToInProgress(tx, actor, task, executionId, now),
  })
  return { ...executed, ...(await get(actor, deps, task.id)) }
}

const alreadyRunning = () =>
  conflict('Task is already running', { detail: 'Wait until its run has ended, or cancel the task.' })

/** Sets the task to running, in the transaction that accepts its run. Throws if the task is no longer pending. */
async function moveToInProgress(tx: Tx, actor: Actor, task: TaskRow, executionId: string, now: Date): Promise<void> {
  const moveFrom = (status: Status) => {
    if (status === 'in_progress') throw alreadyRunning()
    return moveTo(status, 'in_progress', now)
  }
  const data = { ...moveFrom(task.status), executionId }
  if (await updateTask(tx, actor, task, { action: 'task.execute', now, data })) {
    // A run that was detached by hand is cancelled, but may not have stopped yet.
    const isRunning = await tx.execution.count({ where: { ...runsOf(task), id: { not: executionId } } })
    if (isRunning) throw alreadyRunning()
    return
  }
  moveFrom((await find(actor, { db: tx }, task.id)).status)
  throw conflict('The task was changed concurrently. Please retry.', { detail: 'Get the task, and decide again.' })
}
