import { type Artifact, type Message, type Part, Role, type Task, TaskState } from '@a2a-js/sdk'
import type { Narrower } from '../../executions/service.ts'
import type { Settings } from '../../settings.ts'
import { type Run, type Wait, waitOf } from '../shared/wait.ts'

// A task is an execution, its context the session (contract-2.md section 6.4).

const ARTIFACT = 'result'

const text = (value: string): Part => ({
  content: { $case: 'text', value },
  metadata: undefined,
  filename: '',
  mediaType: 'text/plain',
})

/** Returns an artifact with the answer of a run, or a fragment of it. */
export const artifactOf = (answer: string): Artifact => ({
  artifactId: ARTIFACT,
  name: 'Answer',
  description: '',
  parts: [text(answer)],
  metadata: undefined,
  extensions: [],
})

/** Ids of a task and its context. */
export type TaskRef = { taskId: string; contextId: string }

/** Returns a text as a message of a task. */
export const messageOf = ({ taskId, contextId }: TaskRef, role: Role, id: string, content: string): Message => ({
  messageId: id,
  contextId,
  taskId,
  role,
  parts: [text(content)],
  metadata: undefined,
  extensions: [],
  referenceTaskIds: [],
})

/** Returns the state of a run as that of a task. */
function stateOf({ status, waitingFor }: Pick<Run, 'status' | 'waitingFor'>): TaskState {
  if (waitingFor === 'authorization') return TaskState.TASK_STATE_AUTH_REQUIRED
  if (waitingFor) return TaskState.TASK_STATE_INPUT_REQUIRED
  switch (status) {
    case 'pending':
      return TaskState.TASK_STATE_SUBMITTED
    case 'running':
      return TaskState.TASK_STATE_WORKING
    case 'completed':
      return TaskState.TASK_STATE_COMPLETED
    case 'failed':
      return TaskState.TASK_STATE_FAILED
    case 'cancelled':
      return TaskState.TASK_STATE_CANCELED
  }
}

/** The runs of each state of a task, see {@link stateOf}. */
export const STATES: { [State in TaskState]?: { status: Run['status'] } & Pick<Narrower, 'waitingFor'> } = {
  [TaskState.TASK_STATE_SUBMITTED]: { status: 'pending', waitingFor: null },
  [TaskState.TASK_STATE_INPUT_REQUIRED]: { status: 'pending', waitingFor: { in: ['approval', 'client_tool'] } },
  [TaskState.TASK_STATE_AUTH_REQUIRED]: { status: 'pending', waitingFor: { in: ['authorization'] } },
  [TaskState.TASK_STATE_WORKING]: { status: 'running' },
  [TaskState.TASK_STATE_COMPLETED]: { status: 'completed' },
  [TaskState.TASK_STATE_FAILED]: { status: 'failed' },
  [TaskState.TASK_STATE_CANCELED]: { status: 'cancelled' },
}

/** Returns the explanation of a state: the reason of a failure, or the address where a person ends the wait. */
function noteOf({ status, error, waitingFor }: Run, settings: Settings): string | null {
  if (waitingFor) return waitOf({ settings }, waitingFor).text
  if (status === 'failed') return error ?? 'Chat execution failed'
  return status === 'cancelled' ? 'Execution was cancelled' : null
}

/**
 * Returns the status of a run, with an explanation if it waits or has failed. `wait`: what its caller is to know that
 * it waits for, perhaps behind another run of its context.
 */
export function statusOf(run: Run, ref: TaskRef, settings: Settings, wait?: Wait): NonNullable<Task['status']> {
  const isBehind = wait !== undefined && wait.executionId !== run.id
  const note = isBehind ? waitOf({ settings }, wait.waitingFor, wait.executionId).text : noteOf(run, settings)
  return {
    state: stateOf(isBehind ? { ...run, waitingFor: wait.waitingFor } : run),
    message: note === null ? undefined : messageOf(ref, Role.ROLE_AGENT, `${run.id}-status`, note),
    timestamp: run.updatedAt,
  }
}

type Options = { contextId: string; settings: Settings; historyLength?: number | undefined }

/** Returns a run as a task. */
export function toTask(run: Run, { contextId, settings, historyLength }: Options): Task {
  const ref = { taskId: run.id, contextId }
  const status = statusOf(run, ref, settings)
  const asked = messageOf(ref, Role.ROLE_USER, `${run.id}-message`, run.message)
  // Microsoft's Agent Framework takes the last message of a task without an artifact for the answer.
  const reason = run.status === 'failed' || run.status === 'cancelled' ? status.message : undefined
  const history = [...(run.message ? [asked] : []), ...(reason ? [reason] : [])]
  return {
    id: run.id,
    contextId,
    status,
    artifacts: run.status === 'completed' && run.result ? [artifactOf(run.result)] : [],
    history: historyLength === 0 ? [] : history.slice(-(historyLength ?? history.length)),
    metadata: undefined,
  }
}
