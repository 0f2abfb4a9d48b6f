import { z } from 'zod'
import type { oas31, ZodOpenApiOperationObject, ZodOpenApiPathsObject } from 'zod-openapi'
import { ApprovalEventData, FollowApprovals } from '../approvals/schema.ts'
import { AuditEvent, ExportAudit } from '../audit/schema.ts'
import { ChatEventData, ChatId } from '../chats/schema.ts'
import { FileUploaded, UploadFile } from '../client/schema.ts'
import * as errors from '../errors.ts'
import { ListEvents, OrganizationEvent } from '../events/schema.ts'
import { EventData, Execute, ExecutionId, FollowExecution } from '../executions/schema.ts'
import { ok } from '../lib/fields.ts'
import { MediaCreated, MediaId } from '../media/schema.ts'
import { FollowTasks, TaskEventData } from '../tasks/schema.ts'
import { ERROR_CODES } from '../wire.ts'
import {
  APPROVAL_CHANGES_PATH,
  AUDIT_EXPORT_PATH,
  CHAT_EVENTS_PATH,
  CONTENT_PATH,
  EVENTS_PATH,
  FEED_STREAM_PATH,
  MEDIA_PATH,
  SPACE_UPLOAD_PATH,
  TASK_CHANGES_PATH,
} from './paths.ts'

// Parts of the OpenAPI document besides the procedures.

export const ErrorBody = z
  .object({
    error: z.literal(true).describe('The request failed'),
    statusCode: z.int().describe('The HTTP status'),
    statusMessage: z.string().describe('The standard phrase of the status'),
    message: z.string().describe('Description of the problem, for people'),
    code: z
      .string()
      .optional()
      .describe(`The kind of the error, for programs. New ones may appear. One of: ${ERROR_CODES.join(', ')}`),
    detail: z.string().optional().describe('One sentence for the person who has to act'),
    executionId: z.string().optional().describe('The run that failed'),
    requestId: z.string().describe('Id of this request in the logs; also in the header X-Request-Id'),
  })
  .describe('The body of every error')

const HEADERS = {
  'X-Request-Id': {
    description: "Id of this request in the logs: the request's own if it is well-formed",
    required: true,
    schema: { type: 'string' },
  },
  'Idempotent-Replayed': {
    description: '`true` if this is the answer to an earlier request with the same Idempotency-Key',
    schema: { type: 'string', const: 'true' },
  },
  'X-Execution-Id': {
    description: 'The run that the request started, or joined by its key; on `execute` only',
    schema: { type: 'string' },
  },
  'Retry-After': {
    description: 'Time until the next attempt (seconds). Absent on a 503 that only the operator can end',
    required: false,
    schema: { type: 'string' },
  },
  'WWW-Authenticate': {
    description: 'How to authenticate. For a missing scope: `Bearer error="insufficient_scope", scope="tasks:write"`',
    schema: { type: 'string' },
  },
  'X-Muster-Warnings': {
    description: 'Number of warnings about fields of the body that the operation does not have',
    schema: { type: 'string', pattern: '^[0-9]+$' },
  },
  ETag: {
    description: 'Version of the answer for If-None-Match and If-Match: `"v<version>"` for an agent, otherwise opaque',
    schema: { type: 'string' },
  },
  Allow: {
    description: 'Methods of this path, separated by commas',
    schema: { type: 'string' },
  },
} satisfies Record<string, oas31.HeaderObject>

const PARAMETERS = {
  'Idempotency-Key': {
    in: 'header',
    name: 'Idempotency-Key',
    description: 'Key of the request. A repetition within a day gets the first answer and has no second effect',
    schema: { type: 'string', minLength: 1, maxLength: 255, pattern: '^[ -~]+$' },
  },
  'If-Match': {
    in: 'header',
    name: 'If-Match',
    description: 'ETag of an earlier answer: 412 if the resource has changed since. `*`: any existing resource',
    schema: { type: 'string' },
  },
  'If-None-Match': {
    in: 'header',
    name: 'If-None-Match',
    description: 'ETag of an earlier answer: 304 without a body if the resource has not changed',
    schema: { type: 'string' },
  },
  onDisconnect: {
    in: 'query',
    name: 'onDisconnect',
    description: 'As in the body, over which it takes precedence',
    schema: { type: 'string', enum: Execute.shape.onDisconnect.unwrap().unwrap().options },
  },
  content: {
    in: 'query',
    name: 'content',
    description: 'As in the body, over which it takes precedence',
    schema: { type: 'string', enum: Execute.shape.content.unwrap().unwrap().options },
  },
} satisfies Record<string, oas31.ParameterObject>

/** Returns references to {@link HEADERS}. */
export const headers = (...names: (keyof typeof HEADERS)[]): oas31.HeadersObject =>
  Object.fromEntries(['X-Request-Id', ...names].map((name) => [name, { $ref: `#/components/headers/${name}` }]))

/** Headers of errors with certain statuses. */
const OF_ERRORS = ['Retry-After', 'WWW-Authenticate', 'Allow'] as const

const errorResponse = (description: string, example?: errors.AppError): oas31.ResponseObject => ({
  description,
  headers: headers('X-Execution-Id', ...OF_ERRORS.filter((name) => example?.headers[name])),
  content: {
    'application/json': {
      schema: { $ref: '#/components/schemas/ErrorResponse' },
      ...(example && { example: errors.toBody(example, 'k3Jx0aQ9mZr7TbYc2LwVn5') }),
    },
  },
})

/** The errors by status, with their descriptions. */
const ERRORS: Record<string, [name: string, description: string, example?: errors.AppError]> = {
  400: ['BadRequest', 'The request is incomplete or wrong', errors.badRequest('Missing required field: name')],
  401: ['Unauthorized', 'No token, or no valid one', errors.unauthorized('Unauthorized. Invalid or expired token')],
  403: ['Forbidden', 'The role, or the scopes of the token, do not allow it', errors.lacksScopes(['tasks:write'])],
  404: ['NotFound', 'Not found: it does not exist, or you cannot see it', errors.notFound('Agent')],
  405: ['MethodNotAllowed', 'The path does not have this method', errors.methodNotAllowed(['GET', 'HEAD', 'POST'])],
  409: ['Conflict', 'The state of the resource, or a concurrent change, does not allow it', errors.sessionBusy()],
  410: ['Gone', 'The events after the cursor were removed', errors.gone('NDAyMS40MDIxLjE3OTU2MDAwMDAwMDA')],
  412: ['PreconditionFailed', 'The resource does not have the ETag of If-Match', errors.hasChanged()],
  413: ['BodyTooLarge', 'The body is larger than 1 MiB', errors.bodyTooLarge()],
  415: ['UnsupportedContentType', 'The body is not JSON', errors.unsupportedType()],
  416: ['RangeNotSatisfiable', 'The file has no such part', errors.rangeNotSatisfiable(100)],
  422: [
    'KeyReused',
    'The Idempotency-Key was used with another body',
    new errors.AppError(422, 'Idempotency-Key was used with another request'),
  ],
  429: ['TooManyRequests', 'A limit that the operator set', errors.tooManyRequests()],
  500: ['InternalError', 'The service failed', errors.toAppError(undefined)],
  502: ['BadGateway', 'Another server did not answer', new errors.AppError(502, 'MCP server unreachable')],
  503: ['Unavailable', 'The service cannot answer just now', errors.unavailable()],
  default: ['UnexpectedError', 'Any other error has the same body'],
}

/** Warnings about unknown fields of a request (contract-2.md section 1.3). */
export const WARNINGS: oas31.SchemaObject = {
  type: 'array',
  items: { type: 'string' },
  description: 'If the body had fields that the operation does not have: `Unknown field: <name>`, at most 20',
}

/** Components that operations refer to. */
export const COMPONENTS = {
  headers: HEADERS,
  parameters: PARAMETERS,
  responses: Object.fromEntries(Object.values(ERRORS).map(([name, ...response]) => [name, errorResponse(...response)])),
}

/** Returns a reference to an error response. Throws for a status without one, which must be added to ERRORS. */
export function errorReference(status: string, description?: string): oas31.ReferenceObject {
  const [name] = ERRORS[status] ?? []
  if (!name) throw new Error(`No error response for status ${status}`)
  return { $ref: `#/components/responses/${name}`, ...(description && { description }) }
}

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

/** Describes an event stream. OpenAPI 3.1 has no schema for one: by custom the schema is that of the data of one event. */
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

const AUDIT_EXAMPLE: z.output<typeof AuditEvent> = {
  id: '06Kq3x9dTn2Vb8Lw5RzYcA',
  at: '2026-11-25T10:00:00.000Z',
  action: 'member.update',
  actor: { id: '0eJx3aQ9mZr7TbYc2LwVn5', name: 'Ada', kind: 'token', tokenId: '8sWv2LwVn50eJx3aQ9mZr7' },
  target: '2LwVn58sWv0eJx3aQ9mZr7',
  ip: '192.0.2.7',
  requestId: 'k3Jx0aQ9mZr7TbYc2LwVn5',
  changes: { role: { from: 'member', to: 'admin' } },
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

const Alive = z.object({
  success: z.literal(true).describe('The request succeeded'),
  status: z.literal('ok').describe('The server answers'),
})

const Ready = Alive.extend({
  status: z.enum(['ok', 'paused']).describe('`paused`: requests are served, but no run begins and no mission fires'),
  notices: z
    .enum(['listening', 'polling'])
    .optional()
    .describe('With PostgreSQL: whether this server receives the notices of others, or polls four times a second'),
  writes: z
    .enum(['disk_full', 'read_only'])
    .optional()
    .describe(
      'Reason for which the database refuses writes. Absent while it accepts them. Reads are served in either case',
    ),
})

const Version = ok({
  name: z.literal('muster').describe('Name of the service'),
  version: z.string().describe('Version of the service'),
})

const health = (operationId: string, summary: string, canFail: boolean): { get: ZodOpenApiOperationObject } => ({
  get: {
    operationId,
    summary,
    description: 'Needs no token.',
    tags: ['health'],
    security: [],
    responses: {
      200: {
        description: 'Yes',
        headers: headers(),
        content: { 'application/json': { schema: canFail ? Ready : Alive } },
      },
      ...(canFail && { 503: errorReference('503', 'No') }),
      default: errorReference('default'),
    },
  },
})

const { after, content } = FollowExecution.shape

/** Paths that trpc-to-openapi does not know: the bridge over the subscription, and the health checks. */
export const PATHS: ZodOpenApiPathsObject = {
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
          content: content
            .unwrap()
            .unwrap()
            .optional()
            .describe('Content of complete steps: `all`, or the `rest` without the streamed blocks'),
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
          content: content
            .unwrap()
            .unwrap()
            .optional()
            .describe('Content of complete steps: `all`, or the `rest` without the streamed blocks'),
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
  [MEDIA_PATH]: {
    post: {
      summary: 'Upload a file',
      description: 'At most 25 MiB. The server detects its type from its content.',
      requestBody: {
        required: true,
        content: {
          'multipart/form-data': {
            schema: z.object({ file: z.string().meta({ format: 'binary' }).describe('The file') }),
          },
        },
      },
      responses: { 200: { description: 'Success', content: { 'application/json': { schema: MediaCreated } } } },
    },
  },
  [SPACE_UPLOAD_PATH]: {
    post: {
      summary: 'Upload a file into a space',
      description: 'At most 1 MiB. `path` is the folder. An existing file is replaced.',
      requestParams: { query: UploadFile },
      requestBody: {
        required: true,
        content: {
          'multipart/form-data': {
            schema: z.object({ file: z.string().meta({ format: 'binary' }).describe('The file') }),
          },
        },
      },
      responses: { 200: { description: 'Success', content: { 'application/json': { schema: FileUploaded } } } },
    },
  },
  [AUDIT_EXPORT_PATH]: {
    get: {
      summary: 'Export the audit events of your organization',
      description:
        'Streams all matching events, newest first, one JSON object per line. The export itself becomes an event. Only ' +
        'admins can export.',
      requestParams: { query: ExportAudit },
      responses: {
        200: {
          description: 'Lines of JSON. The schema is that of each line.',
          content: { 'application/x-ndjson': { schema: AuditEvent, example: AUDIT_EXAMPLE } },
        },
      },
    },
  },
  [CONTENT_PATH]: {
    get: {
      summary: 'Get the content of an uploaded file',
      description: 'Pictures are sent to be displayed, other files to be saved.',
      requestParams: { path: MediaId },
      responses: {
        200: { description: 'The bytes', content: { '*/*': { schema: z.string().meta({ format: 'binary' }) } } },
        206: {
          description: 'The bytes that `Range` asks for: one part, from an unchanged file if there is an `If-Range`',
          headers: headers('ETag'),
          content: { '*/*': { schema: z.string().meta({ format: 'binary' }) } },
        },
        304: { description: 'The answer still has the ETag of If-None-Match', headers: headers('ETag') },
      },
    },
  },
  '/healthz': health('isAlive', 'Is the process alive?', false),
  '/readyz': health('isReady', 'Can it serve requests?', true),
  '/api/health': health('isHealthy', 'The same as /readyz', true),
  '/api/version': {
    get: {
      operationId: 'getVersion',
      summary: 'Get the version of the service',
      description: 'Needs no token.',
      tags: ['health'],
      security: [],
      responses: {
        200: {
          description: 'Success',
          headers: headers(),
          content: {
            'application/json': { schema: Version, example: { success: true, name: 'muster', version: '1.2.0' } },
          },
        },
        default: errorReference('default'),
      },
    },
  },
}
