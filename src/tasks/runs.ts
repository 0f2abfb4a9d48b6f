import { type Actor, isAdmin } from '../auth/actor.ts'
import type { Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { forbidden } from '../errors.ts'
import type { ExecutionRow } from '../executions/engine/events/events.ts'
import { LIVE, markRuns } from '../executions/engine/queue/cancel-marks.ts'
import { registerRunHooks } from '../executions/engine/queue/run-hooks.ts'
import { readable } from '../executions/service.ts'
import { whenCommitted } from '../idempotency.ts'
import type { TaskRow } from './service.ts'

/** Filters the active runs of a task. */
export const runsOf = ({ organizationId, id: taskId }: TaskRow) => ({ organizationId, taskId, ...LIVE })

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
