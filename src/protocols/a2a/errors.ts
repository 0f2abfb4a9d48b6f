import type { StreamResponse } from '@a2a-js/sdk'
import {
  A2AError,
  RequestMalformedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/errors'
import type { A2ARequestHandler } from '@a2a-js/sdk/server'
import { type AppError, textOf, toAppError } from '../../errors.ts'
import { report } from '../../http/log.ts'
import type { Context } from '../../trpc.ts'
import { fromTRPCError } from '../../trpc-errors.ts'

/** Converts every error of a handler. */
export const guarded = (context: Context, handler: A2ARequestHandler): A2ARequestHandler => ({
  getAgentCard: handler.getAgentCard,
  getAuthenticatedExtendedAgentCard: handler.getAuthenticatedExtendedAgentCard,
  sendMessage: (...given) => translated(context, () => handler.sendMessage(...given)),
  sendMessageStream: (...given) => guardedStream(context, handler.sendMessageStream(...given)),
  getTask: (...given) => translated(context, () => handler.getTask(...given)),
  listTasks: (...given) => translated(context, () => handler.listTasks(...given)),
  cancelTask: (...given) => translated(context, () => handler.cancelTask(...given)),
  resubscribe: (...given) => guardedStream(context, handler.resubscribe(...given)),
  createTaskPushNotificationConfig: (...given) =>
    translated(context, () => handler.createTaskPushNotificationConfig(...given)),
  getTaskPushNotificationConfig: (...given) =>
    translated(context, () => handler.getTaskPushNotificationConfig(...given)),
  listTaskPushNotificationConfigs: (...given) =>
    translated(context, () => handler.listTaskPushNotificationConfigs(...given)),
  deleteTaskPushNotificationConfig: (...given) =>
    translated(context, () => handler.deleteTaskPushNotificationConfig(...given)),
})

async function* guardedStream(context: Context, events: AsyncGenerator<StreamResponse, void, undefined>) {
  try {
    yield* events
  } catch (error) {
    await translated(context, () => Promise.reject(error))
  }
}

/** A message's id is its idempotency key, a word that clients of this protocol do not know. */
const REPEATED_ID = 'The messageId was used with another message: give each message an id of its own'

/**
 * Converts the errors of services and procedures to errors of the protocol. Unexpected ones are logged. `of`: the call
 * finds a task, so that 404 is of the task, or cancels it, so that 400 is of its state.
 */
export async function translated<T>(
  { deps, requestId }: Context,
  work: () => Promise<T>,
  of?: 'task' | 'cancel',
): Promise<T> {
  try {
    return await work()
  } catch (thrown) {
    if (thrown instanceof A2AError) throw thrown
    const error: AppError = toAppError(fromTRPCError(thrown))
    const text = textOf(error)
    if (error.status === 404 && of) throw new TaskNotFoundError()
    if (error.status === 400 && of === 'cancel') throw new TaskNotCancelableError(error.message)
    if (error.code === 'idempotency_conflict') throw new RequestMalformedError(REPEATED_ID)
    if (error.status === 409) throw new UnsupportedOperationError(text)
    if (error.status < 500) throw new RequestMalformedError(text)
    report(deps, error, requestId)
    throw new A2AError(text)
  }
}
