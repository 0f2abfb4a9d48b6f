import { z } from 'zod'
import type { ZodOpenApiPathsObject } from 'zod-openapi'
import { ApprovalEventData, FollowApprovals } from '../approvals/schema.ts'
import { ChatEventData, ChatId } from '../chats/schema.ts'
import { ListEvents, OrganizationEvent } from '../events/schema.ts'
import { EventData } from '../executions/event-schema.ts'
import { ExecutionId, FollowExecution } from '../executions/schema.ts'
import { FollowTasks, TaskEventData } from '../tasks/schema.ts'
import { headers } from './openapi-parts.ts'
import { APPROVAL_CHANGES_PATH, CHAT_EVENTS_PATH, EVENTS_PATH, FEED_STREAM_PATH, TASK_CHANGES_PATH } from './paths.ts'

// The event streams of the OpenAPI document.

const ExecutionEvents = {
  meta: EventData.meta.meta({ id: 'ExecutionMetaEvent', description: 'The first event: the run was accepted' }),
  message: EventData.message.meta({
    id: 'ExecutionMessageEvent',
    description: 'A fragment of text, a complete step, or the answer of a tool',
  }),
  result: EventData.result.meta({ id: 'ExecutionResultEvent', description: 'The last event of a completed run' }),
  error: EventData.error.meta({
    id: 'ExecutionErrorEvent',
    description: 'The last event of a run that failed or was cancelled',
  }),
}

const ExecutionEvent = z.union(Object.values(ExecutionEvents)).meta({
  id: 'ExecutionEvent',
  description: 'The data of one event of a run. `type` is the name of the event',
})

const EXAMPLE: z.output<typeof ExecutionEvent> = {
  type: 'message',
  messageType: 'stream_event',
  step: 1,
  delta: { type: 'text_delta', text: 'Hello' },
}

/**
 * Describes an event stream. OpenAPI 3.1 has no schema for one: by custom the schema is that of the data of one event.
 */
export const STREAM = `An event stream: one \`meta\` first, then any number of \`message\`, then one \`result\` or
\`error\`, and the end. The schema is that of the \`data\` of each event. An event as it is sent:

\`\`\`
id: 3
event: ${EXAMPLE.type}
data: ${JSON.stringify(EXAMPLE)}
\`\`\``

export const STREAM_CONTENT = {
  'text/event-stream': { schema: { $ref: '#/components/schemas/ExecutionEvent' }, example: EXAMPLE },
}

const ChatEvent = z
  .union([
    ChatEventData.status.meta({
      id: 'ChatStatusEvent',
      description: 'The status of the chat: first the current one, then each change',
    }),
    ExecutionEvents.meta,
    z
      .intersection(ExecutionEvents.message, z.object({ executionId: z.string().describe('Id of the run') }))
      .meta({ id: 'ChatMessageEvent', description: 'A message event of a run of the chat' }),
    ExecutionEvents.result,
    ExecutionEvents.error,
    ChatEventData.reset.meta({
      id: 'ChatResetEvent',
      description: 'The event that `Last-Event-ID` names was removed: read the messages again',
    }),
  ])
  .meta({ id: 'ChatEvent', description: 'The data of one event of a chat. `type` is the name of the event' })

const CHAT_EXAMPLE = {
  type: 'status' as const,
  executionId: 'exec-1795242860041-Jcvu16FTDoklGU0gRCgv5d',
  status: 'working' as const,
  at: '2026-11-25T10:00:00.000Z',
}

const FEED_EXAMPLE: z.output<typeof OrganizationEvent> = {
  type: 'task.completed',
  id: 'evt-b7Kd9sWq2LmXz7PvTy5RbC-4021-4021',
  timestamp: '2026-11-25T10:00:00.000Z',
  sequence: 4021,
  organizationId: 'b7Kd9sWq2LmXz7PvTy5RbC',
  data: { id: 'task-1795600000000-f3Kd9sWq2LmXz7PvTy5RbC', title: 'Write the release notes', status: 'completed' },
}

const TaskEvent = z
  .union([
    TaskEventData.changed.meta({ id: 'TaskChangedEvent', description: 'A task was created or changed' }),
    TaskEventData.deleted.meta({ id: 'TaskDeletedEvent', description: 'A task was deleted' }),
  ])
  .meta({ id: 'TaskEvent', description: 'The data of one event of tasks. `type` is the name of the event' })

const TASK_EXAMPLE = { type: 'deleted' as const, id: 'task-1795242860041-Jcvu16FTDoklGU0gRCgv5d' }

const ApprovalEvent = ApprovalEventData.meta({
  id: 'ApprovalChangedEvent',
  description: 'The data of one event of approvals: a run asked for one, or one was decided or has expired',
})

const APPROVAL_EXAMPLE: z.input<typeof ApprovalEvent> = {
  type: 'changed',
  approval: {
    id: 'k3Jx0aQ9mZr7TbYc2LwVn5',
    executionId: 'exec-1795242860041-Jcvu16FTDoklGU0gRCgv5d',
    chatId: 'Jcvu16FTDoklGU0gRCgv5d',
    userId: 'aQ9mZr7TbYc2LwVn5k3Jx0',
    agentId: 'mZr7TbYc2LwVn5k3Jx0aQ9',
    toolUseId: 'call_1',
    tool: 'send_mail',
    input: { to: 'ann@example.com' },
    status: 'pending',
    createdAt: '2026-11-25T10:00:00.000Z',
    expiresAt: '2026-12-02T10:00:00.000Z',
  },
}

/** Describes the start and the end of a stream of changes. */
const FROM_NOW_ON =
  'The stream begins with the request and has no ids to resume from: open it first, then read the list, and after a lost ' +
  'connection do both again. Several changes at once may be one event. The stream ends with the connection, and at ' +
  'once when the token ends.'

const CHANGES = 'An event stream. The schema is that of the `data` of each event. Events have no ids.'

const { after, content } = FollowExecution.shape

const wanted = content
  .unwrap()
  .unwrap()
  .optional()
  .describe('Content of complete steps: `all`, or the `rest` without the streamed blocks')

/** Paths of the event streams, which bridge subscriptions. */
export const STREAM_PATHS: ZodOpenApiPathsObject = {
  [EVENTS_PATH]: {
    get: {
      summary: 'Follow an execution',
      description:
        'Its events from the start, live while it runs. An ended execution can be followed, too. A client that reconnects ' +
        'continues after the last event that it received.',
      requestParams: {
        path: ExecutionId,
        query: z.object({
          after: after.describe('Only events after this one'),
          content: wanted,
        }),
        header: z.object({
          'Last-Event-ID': after.describe(
            'Alias of `after` that reconnecting clients of event streams send. It takes precedence',
          ),
        }),
      },
      responses: {
        204: { description: '`Last-Event-ID` is the last event or later, so the client stops', headers: headers() },
        200: { description: STREAM, content: { 'text/event-stream': { schema: ExecutionEvent, example: EXAMPLE } } },
      },
    },
  },
  [CHAT_EVENTS_PATH]: {
    get: {
      summary: 'Follow a chat',
      description:
        'Events of all runs in a chat from now on; active runs are streamed from their start. A client ' +
        'that reconnects continues after the last event that it received. The stream ends with the connection, or ' +
        'when the caller loses access to the chat.',
      requestParams: {
        path: ChatId,
        query: z.object({
          content: wanted,
        }),
        header: z.object({
          'Last-Event-ID': z.string().optional().describe('Id of the last event, as reconnecting clients send it'),
        }),
      },
      responses: {
        200: {
          description: 'An event stream. The schema is that of the `data` of each event. The ids of events are opaque.',
          content: { 'text/event-stream': { schema: ChatEvent, example: CHAT_EXAMPLE } },
        },
      },
    },
  },
  [TASK_CHANGES_PATH]: {
    get: {
      summary: 'Follow tasks',
      description: `The tasks that are created, changed or deleted from now on, each in its state at that time. ${FROM_NOW_ON}`,
      requestParams: { query: FollowTasks },
      responses: {
        200: {
          description: CHANGES,
          content: { 'text/event-stream': { schema: TaskEvent, example: TASK_EXAMPLE } },
        },
      },
    },
  },
  [APPROVAL_CHANGES_PATH]: {
    get: {
      summary: 'Follow approvals',
      description: `The approvals that runs ask for, and those that are decided or expire, from now on. ${FROM_NOW_ON}`,
      requestParams: { query: FollowApprovals },
      responses: {
        200: {
          description: CHANGES,
          content: { 'text/event-stream': { schema: ApprovalEvent, example: APPROVAL_EXAMPLE } },
        },
      },
    },
  },
  [FEED_STREAM_PATH]: {
    get: {
      summary: 'Follow the events of your organization',
      description:
        'The events that you can see, from now on or after a cursor. `GET /api/v1/events` answers the same with ' +
        '`Accept: text/event-stream`. A client that reconnects with the id of the last event misses none.',
      requestParams: {
        query: ListEvents.pick({ since: true, types: true }),
        header: z.object({
          'Last-Event-ID': z.string().optional().describe('The id of the last event, as reconnecting clients send it'),
        }),
      },
      responses: {
        200: {
          description: 'An event stream. The name of each event is its type; the schema is that of its `data`.',
          content: { 'text/event-stream': { schema: OrganizationEvent, example: FEED_EXAMPLE } },
        },
      },
    },
  },
}
