import { STATUS_CODES } from 'node:http'
import { z } from 'zod'
import { isUnavailable } from './lib/database-errors.ts'
import type { ErrorBody } from './wire.ts'

/**
 * What the caller is told: a status and a message of contract.md section 1. `cause` is for the log alone.
 * Services throw nothing else on purpose; everything else becomes a 500.
 */
export class AppError extends Error {
  override name = 'AppError'
  readonly status: number
  readonly headers: Readonly<Record<string, string>>

  constructor(status: number, message: string, options: { cause?: unknown; headers?: Record<string, string> } = {}) {
    super(message, { cause: options.cause })
    this.status = status
    this.headers = options.headers ?? {}
  }
}

/** The resources that a 404 can name (contract.md section 1). */
export type ResourceName =
  | 'Agent'
  | 'Task'
  | 'Execution'
  | 'Space'
  | 'Chat'
  | 'Session'
  | 'Mission'
  | 'Skill'
  | 'MCP'
  | 'Key'
  | 'Media'
  | 'File'
  | 'Secret'
  | 'Approval'

export const badRequest = (message: string) => new AppError(400, message)
export const invalidField = (field: string, expected: string) =>
  badRequest(`Invalid value for field: ${field}. Expected ${expected}`)
export const unauthorized = (message: string) => new AppError(401, message)
export const forbidden = () => new AppError(403, "You don't have permission to access this resource")
/** What the model of a run is told whose token does not allow a call. */
export const lacksScope = (scope: string) => new AppError(403, `This run's token lacks the scope ${scope}`)
export const notFound = (resource: ResourceName) => new AppError(404, `${resource} not found`)
export const noSuchPath = () => new AppError(404, 'Not found')
export const conflict = (message: string) => new AppError(409, message)
export const tooLong = () => badRequest('The answer would be too long: ask for fewer rows, or fewer long texts')
export const invalidJson = () => badRequest('Invalid JSON in request body')
export const bodyTooLarge = () => new AppError(413, 'Request body too large')
export const unsupportedType = () => new AppError(415, 'Unsupported content type')
export const tooManyRequests = () =>
  new AppError(429, 'Rate limit exceeded. Retry after 60 seconds.', { headers: { 'Retry-After': '60' } })
export const chatFailed = () => new AppError(500, 'Chat execution failed')
export const unavailable = (cause?: unknown) =>
  new AppError(503, 'Service temporarily unavailable. Please retry.', { cause, headers: { 'Retry-After': '1' } })

/** Throws the reason of a signal if it is for the client (an AppError). After a plain disconnect there is nobody to tell. */
export function throwRefusal({ reason }: AbortSignal): void {
  if (reason instanceof AppError) throw reason
}

/** The one way from anything thrown to what the caller may see. An unknown error is a 500 without details. */
export function toAppError(error: unknown): AppError {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof AppError) return cause
    if (cause instanceof z.core.$ZodError) return badRequest(cause.issues[0]?.message ?? 'Invalid input')
    if (isUnavailable(cause)) return unavailable(error)
    // What V8 says of JSON beyond half a gigabyte. Lists end long before that, see lib/page.ts.
    if (cause instanceof RangeError && cause.message === 'Invalid string length') return tooLong()
  }
  return new AppError(500, 'An unexpected error occurred', { cause: error })
}

export const toBody = (error: AppError, requestId: string): ErrorBody => ({
  error: true,
  statusCode: error.status,
  statusMessage: STATUS_CODES[error.status] ?? 'Error',
  message: error.message,
  requestId,
})

const TYPE_NAMES: Record<string, string> = { int: 'integer', record: 'object', nan: 'number' }

/**
 * The message of a failed check, for `z.config({ customError })`: contract.md section 1 to the letter for what is
 * missing or of a wrong type, the same pattern for what is out of bounds. A schema's own `error` wins over it.
 */
export function describeIssue(issue: z.core.$ZodRawIssue): string {
  const field = (issue.path ?? []).join('.') || 'body'
  const expected = (what: string) => `Invalid value for field: ${field}. Expected ${what}`
  switch (issue.code) {
    case 'invalid_type':
      if (issue.input === undefined || issue.input === null) return `Missing required field: ${field}`
      return expected(TYPE_NAMES[issue.expected] ?? issue.expected)
    case 'too_big':
      return expected(`${issue.inclusive === false ? 'less than' : 'at most'} ${issue.maximum}${unit(issue.origin)}`)
    case 'too_small':
      return expected(`${issue.inclusive === false ? 'more than' : 'at least'} ${issue.minimum}${unit(issue.origin)}`)
    case 'invalid_value':
      if (issue.input === undefined) return `Missing required field: ${field}`
      return expected(`one of: ${issue.values.map(String).join(', ')}`)
    case 'invalid_format':
      return expected(issue.format === 'datetime' ? 'ISO 8601 timestamp' : issue.format)
    default:
      return `Invalid value for field: ${field}`
  }
}

const unit = (origin: string) => (origin === 'string' ? ' characters' : origin === 'array' ? ' items' : '')
