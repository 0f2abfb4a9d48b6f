import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { readableOf as findRuns } from '../executions/service.ts'
import { outputOf } from '../lib/output.ts'
import type { Task } from './schema.ts'

// Finds and changes the rows of tasks, and converts them for the API.

export type TaskRow = Prisma.TaskGetPayload<object> & { truncated?: boolean }

/** The long texts of a task, which long lists cut. */
export const LONG_TEXTS = ['description', 'result', 'lastError'] as const

/** Tasks belong to the organization, and any member may write them (contract.md section 2). */
export const reachable = (actor: Actor): Prisma.TaskWhereInput => ({ organizationId: actor.organizationId })

/**
 * Returns tasks as the caller sees them, in at most one statement. The result of a run is null for users who cannot
 * read the run, because it may belong to a private agent or space.
 */
export async function toTasks(actor: Actor, db: Tx, rows: readonly TaskRow[]): Promise<z.input<typeof Task>[]> {
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

/** Returns a task as the caller sees it. */
export async function viewOf(actor: Actor, { db }: { db: Tx }, row: TaskRow): Promise<z.input<typeof Task>> {
  const [task] = await toTasks(actor, db, [row])
  return task!
}

/** Converts a task's row for the API. */
export const toTask = (row: TaskRow): z.input<typeof Task> => ({
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

/** Finds a task that the caller can reach. Throws 404 for any other. */
export async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<TaskRow> {
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

/** A change of a task, and the action of its audit event. */
type TaskChange = { action: `task.${string}`; now: Date; data: Prisma.TaskUncheckedUpdateManyInput }

/** Changes a task if its status and its assignee are unchanged since it was read. Returns null otherwise. */
export async function updateTask(
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
