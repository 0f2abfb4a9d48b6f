import { z } from 'zod'
import type { oas31 } from 'zod-openapi'
import * as errors from '../errors.ts'
import { Execute } from '../executions/schema.ts'
import { ERROR_CODES } from '../wire.ts'

// Components of the OpenAPI document that operations refer to.

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
  429: ['TooManyRequests', 'A limit that the operator set', errors.rateLimited(60)],
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
