import type { z } from 'zod'
import { type Actor, isAdmin } from '../auth/actor.ts'
import type { Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, forbidden } from '../errors.ts'
import type { ExecutionRow } from '../executions/engine/events/events.ts'
import { LIVE, markRuns } from '../executions/engine/queue/cancel-marks.ts'
import { registerRunHooks } from '../executions/engine/queue/run-hooks.ts'
import { type ExecuteCall, executeAgent } from '../executions/execute.ts'
import { readable } from '../executions/service.ts'
import { whenCommitted } from '../idempotency.ts'
import { outputOf } from '../lib/output.ts'
import { find, get, type TaskRow, updateTask } from './rows.ts'
import type { ExecuteTask } from './schema.ts'
import { moveTo, type Status } from './status.ts'

// The runs of tasks: their start, their cancellation, and what their end changes in the task.

/** Filters the active runs of a task. */
const runsOf = ({ organizationId, id: taskId }: TaskRow) => ({ organizationId, taskId, ...LIVE })

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

/**
 * Marks the active runs of a task for cancellation, in the transaction that cancels or deletes it. Throws 403 unless
 * the caller can reach each run and has started it, owns its agent, or is an admin. A task belongs to all members, but
 * its run may not.
 */
export async function endRuns(tx: Tx, actor: Actor, task: TaskRow, now: Date): Promise<void> {
  const marked = await markRuns(tx, runsOf(task), actor, now)
  const ids = marked.map(({ id }) => id)
  if (!ids.length || isAdmin(actor)) return
  const { userId } = actor
  // A task runs only agents of its own organization.
  const allowed = [readable(actor), { userId }, { agent: { userId } }]
  if ((await tx.execution.count({ where: { id: { in: ids }, OR: allowed } })) < ids.length) throw forbidden()
}

/** Cancels the runs of a task, including those that it was detached from by hand. */
export async function cancelRuns(actor: Actor, deps: Deps, task: TaskRow): Promise<void> {
  const runs = await deps.db.execution.findMany({ where: runsOf(task) })
  await whenCommitted(deps, () => Promise.all(runs.map((run) => deps.engine.cancel(run, actor))))
}

/** Maximum length of `lastError` (characters). */
const MAX_LAST_ERROR = 1_000

/** Returns the reason why a run that did not fail has not completed its task. */
const unfinished = ({ status, stopReason }: ExecutionRow) =>
  status === 'cancelled' ? 'Execution was cancelled' : `The answer is incomplete: it ended with ${stopReason}`

/** Moves a task on in the final transaction of its run, unless it was moved by hand meanwhile. */
async function onRunEnded(tx: Tx, run: ExecutionRow, now: Date): Promise<void> {
  if (!run.taskId) return
  // Runs of older versions have no stop reason.
  const completed = run.status === 'completed' && (run.stopReason ?? 'end_turn') === 'end_turn'
  const lastError = completed ? null : (run.error ?? unfinished(run)).slice(0, MAX_LAST_ERROR)
  await tx.task.updateMany({
    where: { id: run.taskId, status: 'in_progress', executionId: run.id },
    data: {
      status: completed ? 'completed' : 'pending',
      result: completed ? run.result : null,
      lastError,
      lastExecutionId: run.id,
      completedAt: completed ? now : null,
      updatedAt: now,
    },
  })
}

registerRunHooks({ onRunEnded })
