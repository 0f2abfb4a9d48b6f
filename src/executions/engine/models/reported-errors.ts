import { asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { readErrorBody } from './error-bodies.ts'
import { ReportedError } from './model-errors.ts'

// The errors that servers report inside of their answers.

/** Keys that report a failure in a chunk without choices. */
const ERROR_KEYS = [
  'error_type',
  'error_message',
  'error_msg',
  'error_code',
  'errorMessage',
  'ErrorMessage',
  'Error',
  'fault',
  'exception',
  'errors',
  'detail',
  'msg',
  'message',
  'Message',
]
/** Types, states and event names of keep-alives, of waiting in a queue, and of the end. */
const HARMLESS =
  /^(?:ping|keep-?alive|heartbeat|info|status|ok|success|queued?|pending|waiting|loading|start(?:ed)?|running|processing|progress|in_progress|done|end|complete|completed|finish|finished)$/i

/** Returns the error that a chunk of chat completions reports in any of the forms that servers use, or undefined. */
export function reportedError(chunk: Fields, choice: Fields, event: string | undefined): ReportedError | undefined {
  if (isErrorValue(chunk.error)) return new ReportedError(chunk.error === true ? chunk : withKind(chunk))
  if (isErrorValue(choice.error)) return new ReportedError({ error: choice.error })
  const ofMiniMax = errorOfMiniMax(chunk)
  if (ofMiniMax) return ofMiniMax
  // Groq's reason for a stream that it stopped early.
  const { error: ofGroq } = asObject(chunk.x_groq)
  if (isErrorValue(ofGroq)) return new ReportedError({ error: ofGroq })
  if (Array.isArray(chunk.choices)) return undefined
  const isError = event === 'error' || chunk.object === 'error' || chunk.type === 'error'
  return isError || hasErrorKey(chunk, event) ? new ReportedError(chunk) : undefined
}

/** Statuses for MiniMax's own codes, which it sends with 200, many beside a message of two words. */
const OF_MINIMAX: Readonly<Record<number, number>> = {
  ...{ 1000: 500, 1001: 504, 1002: 429, 1004: 401, 1008: 402, 1013: 500, 1024: 500, 1033: 500, 1039: 429, 1041: 429 },
  ...{ 2045: 429, 2049: 401, 2056: 429, 2064: 529 },
}

function errorOfMiniMax({ base_resp }: Fields): ReportedError | undefined {
  const { status_code: code, status_msg: message } = asObject(base_resp)
  if (typeof code !== 'number' || code === 0) return undefined
  return new ReportedError({ code, message, status: OF_MINIMAX[code] })
}

/** Fields of the answers of Anthropic's, OpenAI's and Google's APIs. */
const OF_ANSWERS = [
  'content',
  'delta',
  'output',
  'response',
  'candidates',
  'usageMetadata',
  'promptFeedback',
  'choices',
]

/** Returns an error with its kind, which some servers state beside it. */
const withKind = ({ error, error_type, code, status, message }: Fields): Fields => ({
  error,
  error_type,
  code,
  status,
  ...(!isObject(error) && typeof message === 'string' && { message }),
})

/** Returns whether a chunk without choices reports a failure in one of the {@link ERROR_KEYS}. */
function hasErrorKey(chunk: Fields, event: string | undefined): boolean {
  if (HARMLESS.test(event ?? '') || HARMLESS.test(asText(chunk.type)) || HARMLESS.test(asText(chunk.status)))
    return false
  if (chunk.code === 0 || chunk.code === 200 || chunk.usage !== undefined) return false
  if (chunk.success === false) return true
  return ERROR_KEYS.some((key) => key in chunk && (isErrorValue(chunk[key]) || typeof chunk[key] === 'number'))
}

/** Returns whether a value states an error. Servers send `error: null`, `""` and `{}` in each chunk of a good reply. */
function isErrorValue(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(isErrorValue)
  if (isObject(value)) return Object.values(value).some((inner) => isErrorValue(inner) || typeof inner === 'number')
  return value === true || (typeof value === 'string' && value !== '')
}

/**
 * Returns the error of an event of the other APIs: `error` as an object or text, an event of that name, or an error in
 * a form of a gateway.
 */
export function errorIn(event: Fields): ReportedError | undefined {
  const { error, type } = event
  if (isObject(error) || asText(error) || type === 'error') return new ReportedError(withStatus(event))
  const isAnswer = typeof type === 'string' || isObject(event.message) || OF_ANSWERS.some((key) => key in event)
  const isError = event.object === 'error' || (!isAnswer && hasErrorKey(event, undefined))
  return isError ? new ReportedError(event) : errorOfMiniMax(event)
}

const STATUSES: Readonly<Record<string, number>> = {
  invalid_request_error: 400,
  authentication_error: 401,
  billing_error: 402,
  permission_error: 403,
  not_found_error: 404,
  request_too_large: 413,
  rate_limit_error: 429,
  rate_limit_exceeded: 429,
  api_error: 500,
  server_error: 500,
  timeout_error: 504,
  overloaded_error: 529,
}

/** Adds the HTTP status that corresponds to an error code of Anthropic or OpenAI. */
export function withStatus(body: Fields): Fields {
  const { code, status } = readErrorBody(body)
  const known = code ? STATUSES[code] : undefined
  return known && !status ? { status: known, error: body } : body
}
