import type {
  CancelTaskRequest,
  GetTaskRequest,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  Task,
} from '@a2a-js/sdk'
import { RequestMalformedError, TaskNotFoundError, UnsupportedOperationError } from '@a2a-js/sdk/errors'
import type { A2ARequestHandler } from '@a2a-js/sdk/server'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import { endOfEvents } from '../../db/events.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { Execute } from '../../executions/schema.ts'
import { find as findRun } from '../../executions/service.ts'
import { readKey } from '../../idempotency.ts'
import { IDEMPOTENCY_KEY } from '../../lib/fields.ts'
import { createCaller } from '../../router.ts'
import type { Context } from '../../trpc.ts'
import { deletePush, listPushes, setPush } from '../../webhooks/push.ts'
import { checkAddress } from '../../webhooks/service.ts'
import { conversationOf, startRun } from '../shared/runs.ts'
import { followToWait, type Run, type Wait, waitBehind, waitForRun, waitOf } from '../shared/wait.ts'
import { cardOf } from './card.ts'
import { namesOf } from './contexts.ts'
import { guarded, translated } from './errors.ts'
import { listTasks } from './list.ts'
import { readMessage } from './messages.ts'
import { idOf, toConfig, toPush } from './push.ts'
import { statusOf, toTask } from './tasks.ts'
import { createUpdates, statusUpdate } from './updates.ts'

/** Creates the handler of one request, for the SDK's transports. */
export function createHandler(context: Context, actor: Actor, agent: CachedAgent): A2ARequestHandler {
  const { deps } = context
  const { settings } = deps
  const caller = createCaller(context)

  /** Finds a run of this agent. Throws TaskNotFoundError for any other. */
  async function find(id: string): Promise<Run> {
    if (typeof id !== 'string' || !id.trim()) throw new RequestMalformedError('The id of the task is missing')
    const { execution } = await translated(context, () => caller.executions.get({ id }), 'task')
    if (execution.agentId !== agent.id) throw new TaskNotFoundError()
    return execution as Run
  }

  /** Returns the context of a session: the name that the client gave to it, or its id. */
  const contextOf = async (sessionId: string) =>
    (await namesOf(actor, deps, agent, [sessionId])).get(sessionId) ?? sessionId

  /** Returns a run as a task. `wait`: what it waits for, perhaps behind another run of its context. */
  async function show(run: Run, historyLength?: number, wait?: Wait | null): Promise<Task> {
    const contextId = await contextOf(run.sessionId)
    const task = toTask(run, { contextId, settings, historyLength })
    return wait ? { ...task, status: statusOf(run, { taskId: run.id, contextId }, settings, wait) } : task
  }

  /**
   * Starts the run of a message, or joins that of a repeated one. The client may ask to be notified of it. `background`:
   * whether the client does not wait, so that the run may wait for the end of a pause.
   */
  async function send(params: SendMessageRequest, version: string, background = false): Promise<ExecutionRow> {
    const config = params.configuration?.taskPushNotificationConfig
    if (!config) return startOf(params, background)
    const { url } = toPush(config, '', version, '')
    checkAddress(url, deps)
    // From a place before the run, so that none of its events is missing.
    const from = await endOfEvents(deps.db, deps.settings, actor.organizationId)
    const row = await startOf(params, background)
    const push = toPush(config, row.id, version, await contextOf(row.sessionId))
    await setPush(actor, deps, row.id, push, { from, hasEnded: row.completedAt !== null })
    return row
  }

  async function startOf({ message }: SendMessageRequest, background: boolean): Promise<ExecutionRow> {
    if (message?.taskId) await refuseTask(message.taskId)
    const { messageId, contextId, content } = readMessage(message)
    const path = `/a2a/agents/${agent.id}`
    const request = {
      agent,
      protocol: 'a2a' as const,
      path,
      body: { content, contextId },
      history: null,
      ...Execute.pick({ message: true }).parse({ message: content }),
      ...conversationOf(contextId || null),
      options: { background },
    }
    const key = IDEMPOTENCY_KEY.test(messageId) ? readKey(messageId, 'POST', path) : null
    const { onAccepted, countRun } = context
    return startRun(actor, deps, request, { idempotency: key, onAccepted, countRun })
  }

  /** Refuses a message to a task, because a run takes no further messages: a conversation continues in its context. */
  async function refuseTask(taskId: string): Promise<never> {
    const run = await find(taskId)
    throw new UnsupportedOperationError(
      run.waitingFor
        ? waitOf(deps, run.waitingFor).text
        : `The task takes no further messages. Continue the conversation with contextId ${await contextOf(run.sessionId)}`,
    )
  }

  /**
   * Streams a run: the task, fragments of the answer, and changes of the state, until it ends or waits for a person.
   */
  async function* stream(row: ExecutionRow): AsyncGenerator<StreamResponse, void, undefined> {
    const task = await show(await find(row.id))
    const ref = { taskId: row.id, contextId: task.contextId }
    yield { payload: { $case: 'task', value: { ...task, artifacts: [] } } }
    const updates = createUpdates(ref)
    for await (const { parts, wait } of followToWait(context, actor, row)) {
      for (const part of parts) yield* updates.of(part)
      if (wait) return yield statusUpdate(ref, statusOf(await find(row.id), ref, settings, wait))
    }
    const ended = await find(row.id)
    if (ended.status === 'completed') yield updates.end(ended.result ?? '')
    // Not if the server stops, or the caller has lost access.
    if (ended.completedAt) yield statusUpdate(ref, statusOf(ended, ref, settings))
  }

  return guarded(context, {
    getAgentCard: async () => cardOf(deps.settings, agent),
    getAuthenticatedExtendedAgentCard: async () => {
      throw new UnsupportedOperationError('The card is already complete')
    },
    async sendMessage(params, { requestedVersion }) {
      const { returnImmediately = false, historyLength } = params.configuration ?? {}
      const row = await send(params, requestedVersion, returnImmediately)
      if (returnImmediately) return show(await find(row.id), historyLength)
      const { run, wait } = await waitForRun(context, actor, row, null)
      return show(run, historyLength, wait)
    },
    async *sendMessageStream(params, { requestedVersion }) {
      yield* stream(await send(params, requestedVersion))
    },
    async getTask({ id, historyLength }: GetTaskRequest) {
      const run = await find(id)
      return show(run, historyLength, await waitBehind(deps, run))
    },
    async *resubscribe({ id }: SubscribeToTaskRequest) {
      const run = await find(id)
      if (run.completedAt) throw new UnsupportedOperationError('The task has ended: get it instead')
      yield* stream(await translated(context, () => findRun(actor, deps, id), 'task'))
    },
    async cancelTask({ id }: CancelTaskRequest) {
      await find(id)
      const cancel = () => caller.executions.cancel({ id })
      const { execution } = await translated(context, cancel, 'cancel')
      return show(execution as Run)
    },
    listTasks: (params) => listTasks(actor, deps, agent, params),
    async createTaskPushNotificationConfig(config, { requestedVersion }) {
      const from = await endOfEvents(deps.db, deps.settings, actor.organizationId)
      const run = await find(config.taskId)
      const push = toPush(config, run.id, requestedVersion, await contextOf(run.sessionId))
      await setPush(actor, deps, run.id, push, { from, hasEnded: Boolean(run.completedAt) })
      return toConfig(push, run.id)
    },
    async getTaskPushNotificationConfig({ taskId, id }) {
      const run = await find(taskId)
      const push = (await listPushes(actor, deps, run.id)).find((one) => one.id === idOf({ id }, run.id))
      if (!push) throw new TaskNotFoundError(`The task has no push notification ${id}`)
      return toConfig(push, run.id)
    },
    async listTaskPushNotificationConfigs({ taskId }) {
      const run = await find(taskId)
      const configs = (await listPushes(actor, deps, run.id)).map((push) => toConfig(push, run.id))
      return { configs, nextPageToken: '' }
    },
    async deleteTaskPushNotificationConfig({ taskId, id }) {
      const run = await find(taskId)
      await deletePush(actor, deps, run.id, idOf({ id }, run.id))
    },
  })
}
