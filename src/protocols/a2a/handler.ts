import type {
  CancelTaskRequest,
  GetTaskRequest,
  ListTasksRequest,
  ListTasksResponse,
  Message,
  Part,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
} from '@a2a-js/sdk'
import { Role, TaskState } from '@a2a-js/sdk'
import {
  A2AError,
  ContentTypeNotSupportedError,
  RequestMalformedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/errors'
import type { A2ARequestHandler } from '@a2a-js/sdk/server'
import { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import { type Actor, requireScope } from '../../auth/actor.ts'
import { endOfEvents } from '../../db/events.ts'
import { type AppError, toAppError } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { Execute, ListExecutions } from '../../executions/schema.ts'
import { findMany, find as findRun, list } from '../../executions/service.ts'
import { MAX_NAME } from '../../http/door-schemas.ts'
import { report } from '../../http/log.ts'
import { readKey } from '../../idempotency.ts'
import { checkInput, IDEMPOTENCY_KEY } from '../../lib/fields.ts'
import { createCaller } from '../../router.ts'
import { type Context, fromTRPCError } from '../../trpc.ts'
import { deletePush, listPushes, setPush } from '../../webhooks/push.ts'
import { checkAddress } from '../../webhooks/service.ts'
import { conversationOf, isSessionId, startRun } from '../shared/runs.ts'
import { followToWait, messageOf, type Run, waitForRun, waitOf } from '../shared/wait.ts'
import { cardOf } from './card.ts'
import { idOf, toConfig, toPush } from './push.ts'
import { artifactUpdate, STATES, statusOf, statusUpdate, messageOf as toMessage, toTask } from './tasks.ts'

/** Number of tasks on a page, unless the client asks for another. */
const PAGE = 50
const MAX_PAGE = 100

const Since = z.object({ statusTimestampAfter: ListExecutions.shape.since })

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

  /** Returns the contexts of sessions by id: the name that the client gave to each. */
  async function namesOf(sessionIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const { organizationId, userId } = actor
    const of = { organizationId, userId, agentId: agent.id, protocol: 'a2a', sessionId: { in: [...sessionIds] } }
    const found = await deps.db.conversationName.findMany({ where: of, select: { sessionId: true, name: true } })
    return new Map(found.map(({ sessionId, name }) => [sessionId, name]))
  }

  /** Returns the context of a session: the name that the client gave to it, or its id. */
  const contextOf = async (sessionId: string) => (await namesOf([sessionId])).get(sessionId) ?? sessionId

  const show = async (run: Run, historyLength?: number) =>
    toTask(run, { contextId: await contextOf(run.sessionId), settings, historyLength })

  /** Starts the run of a message, or joins that of a repeated one. The client may ask to be notified of it. */
  async function send(params: SendMessageRequest, version: string): Promise<ExecutionRow> {
    const config = params.configuration?.taskPushNotificationConfig
    if (!config) return startOf(params)
    const { url } = toPush(config, '', version, '')
    await translated(context, async () => checkAddress(url, deps))
    // From a place before the run, so that none of its events is missing.
    const from = await endOfEvents(deps.db, deps.settings, actor.organizationId)
    const row = await startOf(params)
    const push = toPush(config, row.id, version, await contextOf(row.sessionId))
    const place = { from, hasEnded: row.completedAt !== null }
    await translated(context, () => setPush(actor, deps, row.id, push, place))
    return row
  }

  async function startOf({ message }: SendMessageRequest): Promise<ExecutionRow> {
    if (typeof message?.messageId !== 'string' || !message.messageId) {
      throw new RequestMalformedError('The message has no messageId')
    }
    if (message.taskId) await refuseTask(message)
    const { contextId = '', parts } = message
    if (typeof contextId !== 'string' || !Array.isArray(parts)) {
      throw new RequestMalformedError('Invalid message: contextId is a text, parts are a list')
    }
    if (contextId.length > MAX_NAME) throw new RequestMalformedError(`A contextId has at most ${MAX_NAME} characters`)
    const content = parts.map(textOf).join('\n\n')
    return translated(context, async () => {
      checkInput([content, contextId, message.messageId])
      const path = `/a2a/agents/${agent.id}`
      const asked = {
        agent,
        protocol: 'a2a' as const,
        path,
        body: { content, contextId },
        history: null,
        ...Execute.pick({ message: true }).parse({ message: content }),
        ...conversationOf(contextId || null),
        options: { background: true },
      }
      const key = IDEMPOTENCY_KEY.test(message.messageId) ? readKey(message.messageId, 'POST', path) : null
      return startRun(actor, deps, asked, { idempotency: key, onAccepted: context.onAccepted })
    })
  }

  /** Refuses a message to a task, because a run takes no further messages: a conversation continues in its context. */
  async function refuseTask({ taskId }: Message): Promise<never> {
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
    const place = { taskId: row.id, contextId: task.contextId }
    yield { payload: { $case: 'task', value: { ...task, artifacts: [] } } }
    const working = { state: TaskState.TASK_STATE_WORKING, message: undefined, timestamp: undefined }
    let text = ''
    let isAppended = false
    for await (const { parts, wait } of followToWait(context, actor, row)) {
      for (const part of parts) {
        if (part.type === 'step-start' || part.type === 'reset') isAppended = false
        if (part.type === 'text-delta') {
          text = isAppended ? text + part.text : part.text
          yield artifactUpdate(place, part.text, isAppended)
          isAppended = true
        }
        const note = part.type === 'start' || part.type === 'approval' ? null : messageOf(part)
        if (note)
          yield statusUpdate(place, {
            ...working,
            message: toMessage(place, Role.ROLE_AGENT, `${row.id}-${part.seq}`, note),
          })
      }
      if (wait) return yield statusUpdate(place, statusOf(await find(row.id), place, settings, wait))
    }
    const ended = await find(row.id)
    if (ended.status === 'completed') {
      const isWhole = text === (ended.result ?? '')
      yield artifactUpdate(place, isWhole ? '' : (ended.result ?? ''), isWhole && isAppended, true)
    }
    // Not if the server stops, or the caller has lost access.
    if (ended.completedAt) yield statusUpdate(place, statusOf(ended, place, settings))
  }

  return guarded(context, {
    getAgentCard: async () => cardOf(deps.settings, agent),
    getAuthenticatedExtendedAgentCard: async () => {
      throw new UnsupportedOperationError('The card is already complete')
    },
    async sendMessage(params, { requestedVersion }) {
      const { returnImmediately = false, historyLength } = params.configuration ?? {}
      const row = await send(params, requestedVersion)
      if (returnImmediately) return show(await find(row.id), historyLength)
      const { run, wait } = await translated(context, () => waitForRun(context, actor, row, null))
      const task = await show(run, historyLength)
      return wait
        ? { ...task, status: statusOf(run, { taskId: run.id, contextId: task.contextId }, settings, wait) }
        : task
    },
    async *sendMessageStream(params, { requestedVersion }) {
      yield* stream(await send(params, requestedVersion))
    },
    getTask: async ({ id, historyLength }: GetTaskRequest) => show(await find(id), historyLength),
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
    async listTasks(params: ListTasksRequest): Promise<ListTasksResponse> {
      return listTasks(params)
    },
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

  async function listTasks(params: ListTasksRequest): Promise<ListTasksResponse> {
    const { contextId, status, pageToken, historyLength, statusTimestampAfter, includeArtifacts } = params
    if (status === TaskState.UNRECOGNIZED) {
      throw new RequestMalformedError('Invalid status: send a state of tasks, such as TASK_STATE_COMPLETED')
    }
    const pageSize = Math.min(Math.max(params.pageSize ?? PAGE, 1), MAX_PAGE)
    const none = { tasks: [], nextPageToken: '', pageSize, totalSize: 0 }
    const session = contextId ? await findSession(contextId) : null
    if (contextId && !session) return none
    const wanted = STATES[status]
    if (status !== TaskState.TASK_STATE_UNSPECIFIED && !wanted) return none
    const { status: ofRuns, ...waits } = wanted ?? {}
    const page = await translated(context, async () => {
      requireScope(actor, 'executions:read')
      const since = Since.parse({ statusTimestampAfter: statusTimestampAfter || undefined }).statusTimestampAfter
      const input = {
        agentId: agent.id,
        limit: pageSize,
        count: true,
        status: ofRuns,
        chatId: session?.chatId,
        cursor: pageToken || undefined,
      }
      return list(actor, deps, input, {
        ...waits,
        ...(session && { sessionId: session.id }),
        ...(since && { updatedAt: { gte: new Date(since) } }),
      })
    })
    // Pages follow the creation of tasks, because no index has the time of their last change; each page follows that.
    const runs = (page.executions as Run[]).toSorted((one, other) => (one.updatedAt < other.updatedAt ? 1 : -1))
    const whole = includeArtifacts ? await wholeOf(runs) : runs
    const names = await namesOf(whole.map(({ sessionId }) => sessionId))
    const tasks = whole.map((run) =>
      toTask(run, {
        contextId: names.get(run.sessionId) ?? run.sessionId,
        settings,
        historyLength: historyLength ?? 0,
      }),
    )
    return { tasks, nextPageToken: page.nextCursor ?? '', pageSize, totalSize: page.total ?? tasks.length }
  }

  /** Returns runs with their answers, in the same order. */
  async function wholeOf(runs: readonly Run[]): Promise<Run[]> {
    const ids = runs.map(({ id }) => id)
    const found = new Map((await findMany(actor, deps, ids, { isWhole: true })).map((run) => [run.id, run]))
    return ids.flatMap((id) => found.get(id) ?? [])
  }

  /** Finds the session of a context. */
  async function findSession(contextId: string) {
    const { organizationId, userId } = actor
    const select = { id: true, chatId: true } as const
    if (isSessionId(contextId)) {
      return deps.db.session.findFirst({ where: { id: contextId, organizationId, agentId: agent.id }, select })
    }
    const key = { organizationId, userId, agentId: agent.id, protocol: 'a2a', name: contextId }
    const named = await deps.db.conversationName.findUnique({
      where: { organizationId_userId_agentId_protocol_name: key },
      select: { sessionId: true },
    })
    return named && deps.db.session.findFirst({ where: { id: named.sessionId, organizationId }, select })
  }
}

/** Converts every error of a handler. */
const guarded = (context: Context, handler: A2ARequestHandler): A2ARequestHandler => ({
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

/** Returns the text of a part. Throws ContentTypeNotSupportedError for a file. */
function textOf(part: Part): string {
  const { content, mediaType } = part ?? {}
  switch (content?.$case) {
    case 'text':
      return String(content.value)
    case 'data':
      return JSON.stringify(content.value)
    default:
      throw new ContentTypeNotSupportedError(`A part of type ${mediaType || 'file'} cannot be read: send text or data`)
  }
}

/** Converts the errors of services and procedures to errors of the protocol. Unexpected ones are logged. */
async function translated<T>({ deps, requestId }: Context, work: () => Promise<T>, of?: 'task' | 'cancel'): Promise<T> {
  try {
    return await work()
  } catch (thrown) {
    if (thrown instanceof A2AError) throw thrown
    const error: AppError = toAppError(fromTRPCError(thrown))
    const text = [error.message, error.detail].filter(Boolean).join('. ')
    if (error.status === 404 && of) throw new TaskNotFoundError()
    if (error.status === 400 && of === 'cancel') throw new TaskNotCancelableError(error.message)
    if (error.status === 409) throw new UnsupportedOperationError(text)
    if (error.status < 500) throw new RequestMalformedError(text)
    report(deps, error, requestId)
    throw new A2AError(text)
  }
}
