import type { z } from 'zod'
import { reachable as reachableAgent } from '../agents/service.ts'
import type { Actor } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, notFound } from '../errors.ts'
import type { ExecutionRow } from '../executions/engine/events.ts'
import { type Call, start } from '../executions/start.ts'
import { newTimedId } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { reachable as reachableSpace } from '../spaces/service.ts'
import type { ClaimTask, CreateTask, ExecuteTask, ListTasks, Task, TaskStatus, UpdateTask } from './schema.ts'

type TaskRow = Prisma.TaskGetPayload<object>
type Status = z.output<typeof TaskStatus>

/** Tasks are the organization's, and any member may write them (contract.md section 2). */
export const reachable = (actor: Actor): Prisma.TaskWhereInput => ({ organizationId: actor.organizationId })

/** The state table of service.md, "Task status". */
export const TRANSITIONS: Readonly<Record<Status, readonly Status[]>> = {
  pending: ['in_progress', 'cancelled'],
  in_progress: ['completed', 'cancelled', 'pending'],
  completed: [],
  cancelled: [],
}

export const toTask = (row: TaskRow): z.input<typeof Task> => ({
  id: row.id,
  title: row.title,
  description: row.description,
  status: row.status,
  priority: row.priority,
  assignedTo: row.assignedTo,
  spaceId: row.spaceId,
  organizationId: row.organizationId,
  createdBy: row.createdBy,
  executionId: row.executionId,
  result: row.result,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
  completedAt: row.completedAt?.toISOString() ?? null,
})

/** What `list` lists: the filters of its input on top of {@link reachable}. */
export function listedBy(actor: Actor, input: z.output<typeof ListTasks>): Prisma.TaskWhereInput {
  const { status, priority, assignedTo, spaceId } = input
  const assignee = assignedTo === 'me' ? actor.userId : assignedTo === 'none' ? null : assignedTo
  const given = Object.entries({ status, priority, assignedTo: assignee, spaceId })
  return { ...reachable(actor), ...Object.fromEntries(given.filter(([, value]) => value !== undefined)) }
}

/** GET /tasks, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListTasks>) {
  const where = listedBy(actor, input)
  const { where: after, ...page } = pageQuery(input)
  const { rows, nextCursor } = toPage(await db.task.findMany({ where: { AND: [where, after ?? {}] }, ...page }), input)
  const total = input.count && { total: await db.task.count({ where }) }
  return { tasks: rows.map(toTask), nextCursor, ...total }
}

async function find(actor: Actor, { db }: Pick<Deps, 'db'>, id: string): Promise<TaskRow> {
  const row = await db.task.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Task')
  return row
}

/** GET /tasks/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { task: toTask(await find(actor, deps, id)) }
}

const NOBODY = { assignedTo: null, assignedAgentId: null }

/** An agent that the caller can reach in the organization, or a member of it. */
async function findAssignee(actor: Actor, { db }: Deps, id: string | null) {
  if (id === null) return NOBODY
  const agent = await db.agent.findFirst({ where: { id, ...reachableAgent(actor) }, select: { id: true } })
  if (agent) return { assignedTo: id, assignedAgentId: id }
  const { organizationId } = actor
  const member = await db.membership.findUnique({
    where: { organizationId_userId: { organizationId, userId: id } },
    select: { userId: true },
  })
  if (!member) throw badRequest('Invalid assignTo. Must be an agent or user id of this organization')
  return { assignedTo: id, assignedAgentId: null }
}

async function checkSpace(actor: Actor, { db }: Deps, id: string | null | undefined): Promise<void> {
  if (!id) return
  const space = await db.space.findFirst({ where: { id, ...reachableSpace(actor) }, select: { id: true } })
  if (!space) throw notFound('Space')
}

/** `assignTo` and its other name, which loses; undefined when neither is said. */
const assigneeOf = (input: { assignTo?: string | null | undefined; assignedTo?: string | null | undefined }) =>
  input.assignTo === undefined ? input.assignedTo : input.assignTo

/** POST /tasks. `createdBy` is the caller, or the agent whose tool asked for it. */
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
    const created = await tx.task.create({
      data: {
        id: newTimedId('task', now),
        organizationId: actor.organizationId,
        title: input.title,
        description: input.description ?? null,
        status: 'pending',
        priority: input.priority ?? 'medium',
        ...assignee,
        spaceId: input.spaceId ?? null,
        createdBy,
        createdAt: now,
        updatedAt: now,
      },
    })
    await audit(tx, actor, 'task.create', created.id, now)
    return created
  })
  return { id: row.id, title: row.title, status: row.status, task: toTask(row) }
}

/** Changes a task if its status is still the one it was decided on; null when it is not. */
async function write(
  tx: Tx,
  actor: Actor,
  task: TaskRow,
  action: string,
  now: Date,
  data: Prisma.TaskUncheckedUpdateManyInput,
): Promise<TaskRow | null> {
  const [row] = await tx.task.updateManyAndReturn({
    where: { id: task.id, status: task.status, assignedTo: task.assignedTo },
    data: { ...data, updatedAt: now },
  })
  if (row) await audit(tx, actor, action, task.id, now)
  return row ?? null
}

/**
 * PATCH /tasks/{id}. A status must follow from the one it has; cancelling cancels the run that works on it. 400 for a
 * transition that the state table does not have.
 */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateTask>) {
  await find(actor, deps, input.id)
  await checkSpace(actor, deps, input.spaceId)
  const assignTo = assigneeOf(input)
  const assignee = assignTo === undefined ? {} : await findAssignee(actor, deps, assignTo)
  const { title, description, priority, spaceId, status } = input
  const said = Object.entries({ title, description, priority, spaceId }).filter(([, value]) => value !== undefined)
  for (;;) {
    const task = await find(actor, deps, input.id)
    const now = deps.clock.now()
    const changed = await deps.db.$transaction((tx) =>
      write(tx, actor, task, 'task.update', now, {
        ...Object.fromEntries(said),
        ...assignee,
        ...(status && status !== task.status && moveTo(task.status, status, now)),
      }),
    )
    if (!changed) continue
    if (status === 'cancelled' && task.status === 'in_progress') await cancelRun(deps, task)
    return { task: toTask(changed) }
  }
}

/** What changes with a status. Throws 400 when it does not follow from the one before. */
function moveTo(from: Status, to: Status, now: Date) {
  if (!TRANSITIONS[from].includes(to)) throw badRequest(`Invalid status transition: ${from} to ${to}`)
  return { status: to, completedAt: to === 'completed' ? now : null }
}

async function cancelRun({ db, engine }: Deps, task: TaskRow): Promise<void> {
  const run = task.executionId ? await db.execution.findUnique({ where: { id: task.executionId } }) : null
  if (run?.taskId === task.id && run.terminalSeq === null) await engine.cancel(run)
}

/** DELETE /tasks/{id}. The run that works on it is cancelled. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const task = await find(actor, deps, id)
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    const { count } = await tx.task.deleteMany({ where: { id } })
    if (!count) throw notFound('Task')
    await audit(tx, actor, 'task.delete', id, now)
  })
  await cancelRun(deps, task)
  return { message: 'Task deleted successfully' }
}

/** POST /tasks/{id}/claim: of two who claim it, one gets it. */
export async function claim(actor: Actor, deps: Deps, input: z.output<typeof ClaimTask>) {
  const task = await find(actor, deps, input.id)
  const assignee = await findAssignee(actor, deps, input.agentId ?? actor.userId)
  if (input.agentId && !assignee.assignedAgentId) throw notFound('Agent')
  if (task.status !== 'pending' || task.assignedTo !== null) throw alreadyAssigned()
  const now = deps.clock.now()
  const row = await deps.db.$transaction((tx) => write(tx, actor, task, 'task.claim', now, assignee))
  if (!row) throw alreadyAssigned()
  return { task: toTask(row) }
}

const alreadyAssigned = () => conflict('Task is already assigned')

/**
 * POST /tasks/{id}/execute: runs its agent on its title and description. It is `in_progress` meanwhile, then
 * `completed` with the result, or `pending` again. 409 when it is running already.
 */
export async function execute(actor: Actor, deps: Deps, input: z.output<typeof ExecuteTask>, call: Call) {
  const task = await find(actor, deps, input.id)
  if (!task.assignedAgentId) throw badRequest('Task is not assigned to an agent')
  const message = [task.title, task.description].filter(Boolean).join('\n\n')
  const run = { id: task.assignedAgentId, message, spaceId: task.spaceId, background: input.background }
  const executed = await start(actor, deps, run, call, {
    path: `/api/v1/tasks/${task.id}/execute`,
    taskId: task.id,
    async also(tx, executionId, now) {
      if (task.status === 'in_progress') throw alreadyRunning()
      const data = { ...moveTo(task.status, 'in_progress', now), executionId, result: null }
      if (!(await write(tx, actor, task, 'task.execute', now, data))) throw alreadyRunning()
    },
  })
  return { ...executed, ...(await get(actor, deps, task.id)) }
}

const alreadyRunning = () => conflict('Task is already running')

/** In the terminal transaction of a run: moves its task on, unless somebody has moved it by hand meanwhile. */
export async function settle(tx: Tx, run: ExecutionRow, now: Date): Promise<void> {
  if (!run.taskId) return
  const completed = run.status === 'completed'
  await tx.task.updateMany({
    where: { id: run.taskId, status: 'in_progress', executionId: run.id },
    data: {
      status: completed ? 'completed' : 'pending',
      result: completed ? run.result : null,
      completedAt: completed ? now : null,
      updatedAt: now,
    },
  })
}
