import { z } from 'zod'
import { causesOf } from './lib/causes.ts'
import { isOfDatabase, isUnavailable } from './lib/database-errors.ts'
import { type Trouble, troubleIn } from './lib/database-troubles.ts'
import { adviseOn } from './lib/input-issues.ts'
import { STATUS_CODES } from './lib/net/http.ts'
import { toPrintable } from './lib/text.ts'
import type { ErrorBody, ErrorCode } from './wire.ts'

/** The optional parts of an {@link AppError}. */
type ErrorOptions = {
  /** For the log only. */
  cause?: unknown
  headers?: Record<string, string>
  /** Overrides the code derived from status and message, see {@link codeOf}. */
  code?: ErrorCode
  /** One sentence that says how to fix the problem. A `detail` of a 401 or 404 never depends on an id. */
  detail?: string
  /** The run that failed. */
  executionId?: string
}

/**
 * The public form of a failure: status and message of contract.md section 1, `code` and `detail` of contract-2.md
 * section 1.1. Services intentionally throw nothing else; any other error becomes a 500.
 */
export class AppError extends Error {
  override name = 'AppError'
  readonly status: number
  readonly code: ErrorCode
  readonly detail: string | undefined
  readonly executionId: string | undefined
  readonly headers: Readonly<Record<string, string>>

  constructor(status: number, message: string, options: ErrorOptions = {}) {
    super(message, { cause: options.cause })
    this.status = status
    this.code = options.code ?? codeOf(status, message)
    this.detail = options.detail
    this.executionId = options.executionId
    this.headers = options.headers ?? {}
  }
}

/** Default error codes by status. A more specific code is set where the error is created. */
const CODES: Readonly<Record<number, ErrorCode>> = {
  400: 'invalid_value',
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  408: 'timeout',
  409: 'conflict',
  412: 'precondition_failed',
  413: 'too_large',
  415: 'unsupported_media_type',
  417: 'invalid_value',
  421: 'misdirected',
  422: 'idempotency_conflict',
  429: 'rate_limited',
  431: 'too_large',
  502: 'mcp_unreachable',
  503: 'unavailable',
}

/** Returns the code of an error without one: by its status, or by its message for errors of Zod. */
function codeOf(status: number, message: string): ErrorCode {
  if (status === 400 && message.startsWith('Missing required field')) return 'missing_field'
  return CODES[status] ?? (status < 500 ? 'invalid_value' : 'internal')
}

/** The resources that a 404 can name (contract.md section 1). */
export type ResourceName =
  | 'Agent'
  | 'Task'
  | 'Execution'
  | 'Space'
  | 'Chat'
  | 'Message'
  | 'Session'
  | 'Mission'
  | 'Skill'
  | 'MCP'
  | 'Connection'
  | 'Key'
  | 'Media'
  | 'File'
  | 'Secret'
  | 'Provider'
  | 'Approval'
  | 'Member'
  | 'Invitation'
  | 'Service account'
  | 'Webhook'
  | 'Delivery'

/** Returns a 400. A missing field explains itself; any other message needs a `detail`. */
export const badRequest = (message: string, options: Pick<ErrorOptions, 'code' | 'detail'> = {}) => {
  const [, field] = /^Missing required field: (\S+)/.exec(message) ?? []
  return new AppError(
    400,
    message,
    field === undefined ? options : { detail: `Send a value for \`${field}\`.`, ...options },
  )
}

/** Returns the 400 for a wrong value of a field. */
export const invalidField = (
  field: string,
  expected: string,
  detail = `Correct \`${field}\`: it must be ${expected}.`,
) => badRequest(`Invalid value for field: ${field}. Expected ${expected}`, { detail })

/** Returns the 400 for a cursor that does not belong to a list. `name`: the parameter with the cursor. */
export const invalidCursor = (name = 'cursor', cursor = 'a nextCursor') =>
  invalidField(name, `${cursor} of this list`, `Begin again without \`${name}\`, or send ${cursor} of the same list.`)

/** Returns the 400 for an id that refers to nothing that the caller can reach, foreign or unknown. */
export const badReference = (field: string, id: string | undefined, message = `Invalid ${field}`) =>
  badRequest(message, {
    detail: `\`${field}\` names ${toPrintable(id ?? '') || 'an empty id'}: there is none with this id, or none that you can reach.`,
  })

/** Throws the 400 for the first of some ids that was not found. */
export function requireAll(field: string, ids: readonly string[], found: { has(id: string): boolean }): void {
  const missing = ids.find((id) => !found.has(id))
  if (missing !== undefined) throw badReference(field, missing)
}

/** Returns the 400 for a query parameter that an operation does not have (contract-2.md section 1.3). */
export const unknownParameter = (name: string, detail: string) =>
  badRequest(`Unknown parameter: ${name}`, { code: 'invalid_parameter', detail })

const CHALLENGE = { 'WWW-Authenticate': 'Bearer' }
const ANOTHER_TOKEN = 'make another with POST /api/v1/keys, or the operator with `npm run admin -- token create`'

/** Details of a 401 by the beginning of its message, independent of the token's owner. */
const ADVICE: readonly (readonly [message: string, detail: string])[] = [
  ['Authorization header required', 'Send the header `Authorization: Bearer <token>`'],
  ['Invalid token format', 'Send the header `Authorization: Bearer <token>`, with the whole token'],
  ['Token expired', `This token has expired: ${ANOTHER_TOKEN}`],
  ['', `The token is unknown, mistyped or revoked: copy it again, or ${ANOTHER_TOKEN}`],
]

/** Returns a 401, with advice for the known messages. */
export const unauthorized = (message: string) => {
  const [, detail] = ADVICE.find(([beginning]) => message.startsWith(beginning)) ?? []
  return new AppError(401, message, { headers: CHALLENGE, ...(detail && { detail }) })
}

/** Returns the 401 of a browser whose session has ended. */
export const signInRequired = () =>
  new AppError(401, 'Sign in required', {
    code: 'sign_in_required',
    headers: CHALLENGE,
    detail: 'The session has ended or is unknown: sign in again at /app/sign-in',
  })

/** Returns the 400 for a user of several organizations who names none. */
export const organizationRequired = () =>
  badRequest('Missing required header: X-Organization', {
    code: 'missing_field',
    detail: 'You belong to several organizations: name one by its id or slug',
  })

/** Returns the 401 of a token that has expired. */
export const tokenExpired = () =>
  new AppError(401, 'Token expired', {
    code: 'token_expired',
    headers: CHALLENGE,
    detail: `This token has expired: ${ANOTHER_TOKEN}`,
  })

/** Returns a 403. */
export const forbidden = (options: Pick<ErrorOptions, 'code' | 'detail' | 'headers'> = {}) =>
  new AppError(403, "You don't have permission to access this resource", {
    detail: 'Your role does not allow it, or it belongs to another organization. Ask its owner or an admin.',
    ...options,
  })

/** Returns the 403 for a token without any of some scopes. */
export const lacksScopes = (anyOf: readonly string[]) =>
  forbidden({
    code: 'insufficient_scope',
    detail: `The token needs the scope ${anyOf.join(' or ')}`,
    // A challenge's scopes are all required (RFC 6750 section 3), so only one of the alternatives is named.
    headers: { 'WWW-Authenticate': `Bearer error="insufficient_scope", scope="${anyOf[0]}"` },
  })

/** Returns the 403 that a model gets for a call beyond the scopes of its run's token. */
export const lacksScope = (scope: string) =>
  new AppError(403, `This run's token lacks the scope ${scope}`, {
    code: 'insufficient_scope',
    detail: `Start the run with a token that has the scope ${scope}.`,
  })

/** Returns the 404 for a row that does not exist or that the caller cannot see. */
export const notFound = (
  resource: ResourceName,
  detail = resource === 'File'
    ? 'The space has no file with this path. Capitals count: GET /spaces/{id}/files lists the paths.'
    : 'There is none with this id, or none that you can see. Check the id and the organization of the token.',
) => new AppError(404, `${resource} not found`, { detail })

/** Returns the 405 of a path that has other methods (contract-2.md section 1.4). */
export const methodNotAllowed = (allowed: readonly string[]) =>
  new AppError(405, 'Method not allowed', {
    detail: `Use ${allowed.join(' or ')}`,
    headers: { Allow: allowed.join(', ') },
  })

/** Returns the 412 of a change to a resource that differs from the caller's version (contract-2.md section 1.17). */
export const hasChanged = (detail = 'Get the resource again, and repeat the change with its new ETag or version') =>
  new AppError(412, 'The resource has changed', { detail })

/** Returns the 410 of a place in the event feed whose events were removed (contract-2.md section 5.4). */
export const gone = (oldest: string) =>
  new AppError(410, 'Events behind this cursor were removed', {
    code: 'not_found',
    detail: `Events are stored for 30 days. The oldest cursor is ${oldest}`,
  })

/** Returns the 416 of an unsatisfiable range. */
export const rangeNotSatisfiable = (size: number) =>
  new AppError(416, 'Range not satisfiable', {
    code: 'invalid_value',
    detail: `The file has ${size} bytes`,
    headers: { 'Content-Range': `bytes */${size}` },
  })

/** Returns a 409. */
export const conflict = (message: string, options: Omit<ErrorOptions, 'headers'> = {}) =>
  new AppError(409, message, options)

/** Returns the 409 of a session that another run uses. */
export const sessionBusy = () =>
  conflict('Session is busy', {
    code: 'session_busy',
    detail:
      'Wait until its run has ended, decide the approval for which it waits, cancel it, or send `onBusy: "queue"`.',
  })

/** Returns the error of a cancelled run. */
export const cancelled = (executionId?: string) =>
  conflict('Execution was cancelled', {
    code: 'cancelled',
    detail: 'The run was cancelled before it ended. Execute again to get an answer.',
    ...(executionId && { executionId }),
  })

/** Returns the 400 for an answer that would be too long. */
export const tooLong = () =>
  badRequest('The answer would be too long: ask for fewer rows, or fewer long texts', {
    detail: 'Send a smaller `limit`, and read the rest with `cursor`.',
  })

/** Returns the 400 of a body with invalid JSON. `position`: the first invalid character. */
export const invalidJson = (position?: string) =>
  badRequest('Invalid JSON in request body', {
    detail:
      (position === undefined ? '' : `The mistake is at character ${position}. `) +
      'Send one JSON object in UTF-8, with double quotes around names and texts.',
  })

/** Returns the 413 of a body. Sizes in bytes. */
export const bodyTooLarge = (limit = 1024 * 1024, actual?: number) => {
  const sent = actual !== undefined && actual > limit ? `, and this one has ${actual}` : ''
  return new AppError(413, 'Request body too large', { detail: `A body has at most ${limit} bytes here${sent}` })
}

/** Returns the 421 for a host that this server does not serve. */
export const misdirected = () =>
  new AppError(421, 'Misdirected request', {
    detail: 'The operator has to add the host of this address to ALLOWED_HOSTS, or to set PUBLIC_URL.',
  })

/** Returns the 415 for a body of another content type. */
export const unsupportedType = (wanted = 'application/json') =>
  new AppError(415, 'Unsupported content type', {
    detail: `Send the header Content-Type: ${wanted}, and no Content-Encoding`,
  })

/** Returns the 429 of a limit that frees itself, with the seconds until then. */
export const rateLimited = (seconds: number, options: Pick<ErrorOptions, 'code' | 'detail'> = {}) =>
  new AppError(429, `Rate limit exceeded. Retry after ${seconds} seconds.`, {
    headers: { 'Retry-After': String(seconds) },
    detail: 'Wait as long as Retry-After says. GET /api/v1/limits has your limits and their state.',
    ...options,
  })

/** Returns the 429 for a run that would exceed the maximum number of waiting runs. */
export const queueFull = () =>
  rateLimited(60, {
    code: 'queue_full',
    detail:
      'Too many runs of the organization wait: repeat the request when some have ended. The operator can raise ' +
      'MAX_PENDING_RUNS.',
  })

/** Returns the 500 of a run that failed. */
export const chatFailed = (options: Pick<ErrorOptions, 'code' | 'detail' | 'executionId'>) =>
  new AppError(500, 'Chat execution failed', options)

/** Returns a 503. `detail`: what is missing, unless it is the database or the server itself. */
export const unavailable = (
  cause?: unknown,
  detail = 'The database does not answer, or the server is starting or stopping. Repeat the request in a moment.',
) =>
  new AppError(503, 'Service temporarily unavailable. Please retry.', {
    cause,
    headers: { 'Retry-After': '1' },
    detail,
  })

/** Returns the message of an error and what to do as one text, for protocols that have one field for both. */
export const textOf = ({ message, detail }: Pick<AppError, 'message' | 'detail'>): string =>
  detail ? `${message.replace(/\.$/, '')}. ${detail}` : message

/**
 * Returns the 503 of a database that cannot be used, with the problem that the operator has to end. The log has a known
 * one already, without a stack.
 */
const databaseUnavailable = (error: unknown, trouble?: Trouble) =>
  unavailable(trouble ? undefined : error, trouble?.detail)

/** Returns the 503 for a caller that waited for a run when the server stopped. */
export const stoppedBeforeEnd = (executionId: string) =>
  new AppError(503, 'Service temporarily unavailable. Please retry.', {
    headers: { 'Retry-After': '1' },
    executionId,
    detail:
      'The server stops before the run has ended; the next one to start takes it over. Read the execution or its events ' +
      'instead of executing again.',
  })

/** Returns the 503 of `/readyz` after the database has reported damage. */
export const damaged = (code: string) =>
  new AppError(503, 'Service temporarily unavailable. Please retry.', {
    headers: { 'Retry-After': '60' },
    detail: `The database is damaged (${code}). The operator has to restore a backup.`,
  })

/** Returns the 503 of a server whose runs and missions are paused (contract-2.md section 8.7). */
export const paused = () =>
  new AppError(503, 'Runs are paused on this server', {
    code: 'paused',
    detail: 'The operator ends the pause with `npm run admin -- resume`, or by unsetting PAUSED.',
  })

/** Throws the reason of a signal if it is for the client (an AppError). A plain disconnect has no recipient. */
export function throwRefusal({ reason }: AbortSignal): void {
  if (reason instanceof AppError) throw reason
}

/**
 * Converts any thrown value into a public error. An unknown error is a 500 without details. `input`: the rejected input
 * of an error of Zod, whose actual sizes and types the detail names.
 */
export function toAppError(error: unknown, input?: unknown): AppError {
  for (const cause of causesOf(error)) {
    if (cause instanceof AppError) return cause
    if (cause instanceof z.core.$ZodError) {
      const [issue] = cause.issues
      return issue ? badRequest(issue.message, { detail: adviseOn(issue, input) }) : badRequest('Invalid input')
    }
    // Other servers that do not answer have the same codes.
    if (isOfDatabase(cause) && isUnavailable(cause)) return databaseUnavailable(error, troubleIn(cause))
    // V8's error for JSON beyond half a gigabyte. Lists end long before that, see lib/page.ts.
    if (cause instanceof RangeError && cause.message === 'Invalid string length') return tooLong()
  }
  return new AppError(500, 'An unexpected error occurred', {
    cause: error,
    detail: 'The log of the server has the cause: give its operator the requestId.',
  })
}

/** Converts an error into the body that all APIs answer. */
export const toBody = (error: AppError, requestId: string): ErrorBody => ({
  error: true,
  statusCode: error.status,
  statusMessage: STATUS_CODES[error.status] ?? 'Error',
  message: error.message,
  code: error.code,
  ...(error.detail !== undefined && { detail: error.detail }),
  ...(error.executionId !== undefined && { executionId: error.executionId }),
  requestId,
})
