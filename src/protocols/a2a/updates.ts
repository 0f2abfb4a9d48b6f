import { Role, type StreamResponse, type Task, TaskState } from '@a2a-js/sdk'
import type { Part } from '../shared/run-parts.ts'
import { messageOf as noteOf } from '../shared/wait.ts'
import { artifactOf, messageOf, type TaskRef } from './tasks.ts'

/** Returns the event of a new status. */
export const statusUpdate = (ref: TaskRef, status: NonNullable<Task['status']>): StreamResponse => ({
  payload: { $case: 'statusUpdate', value: { ...ref, status, metadata: undefined } },
})

/** Returns a fragment of the answer. `append`: the text continues the artifact instead of replacing it. */
const artifactUpdate = (ref: TaskRef, fragment: string, append: boolean, lastChunk = false): StreamResponse => ({
  payload: {
    $case: 'artifactUpdate',
    value: { ...ref, artifact: artifactOf(fragment), append, lastChunk, metadata: undefined },
  },
})

/** Creates the writer of a run's parts as updates of its task: fragments of the answer, and messages about the rest. */
export function createUpdates(ref: TaskRef) {
  let text = ''
  let isAppended = false
  return {
    *of(part: Part): Generator<StreamResponse> {
      if (part.type === 'step-start' || part.type === 'reset') isAppended = false
      if (part.type === 'text-delta') {
        text = isAppended ? text + part.text : part.text
        yield artifactUpdate(ref, part.text, isAppended)
        isAppended = true
      }
      // The state of the task has these two.
      const note = part.type === 'start' || part.type === 'approval' ? null : noteOf(part)
      if (note === null) return
      const message = messageOf(ref, Role.ROLE_AGENT, `${ref.taskId}-${part.seq}`, note)
      yield statusUpdate(ref, { state: TaskState.TASK_STATE_WORKING, message, timestamp: undefined })
    },
    /** Returns the last fragment, which is the whole result if it differs from the fragments. */
    end(result: string): StreamResponse {
      const isWhole = text === result
      return artifactUpdate(ref, isWhole ? '' : result, isWhole && isAppended, true)
    },
  }
}
