import { cut } from '../../../lib/text.ts'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import { contextWindowIn } from './context-length.ts'
import { type ErrorBody, readErrorBody } from './error-bodies.ts'
import { type FailureKind, isRetryable, kindOf, type ModelFailure, retryAfterOf } from './model-failures.ts'

/** A model that cannot be used. Its message is for the caller: what is wrong, and what would help. */
export class ModelError extends Error {
  override name = 'ModelError'
  readonly kind: FailureKind
  constructor(message?: string, kind: FailureKind = 'unknown') {
    super(message)
    this.kind = kind
  }
}

/** An error that a model server reported inside a successful answer: an error event, or a body with status 200. */
export class ReportedError extends Error {
  override name = 'AI_ReportedError'
  readonly body: unknown
  constructor(body: unknown) {
    super('The model server reported an error')
    this.body = body
  }
}

/** What the caller reads of an error that is not a model's (contract.md section 1). */
export const UNEXPECTED = 'An unexpected error occurred'

/** Errors of our own have names and messages that are not for the caller; provider packages mark theirs. */
export const isModelError = (error: unknown): boolean =>
  !(error instanceof Error) || error instanceof ModelError || error.name.startsWith('AI_')

const MAX_LENGTH = 500

// More than this of a message is not looked at. Configured keys are taken out before: none is cut in two.
const MAX_SCANNED = 20_000

// Shorter "keys" (none, EMPTY, ollama) are placeholders for servers that want none, and words of ordinary messages.
const MIN_SECRET_LENGTH = 8

const UNREADABLE = new Set(['AI_JSONParseError', 'AI_TypeValidationError'])

const PATTERNS: readonly (readonly [RegExp, string])[] = [
  [/\/\/[^\s/]*@/g, '//[redacted]@'],
  [/\b(bearer|basic)\s+[^\s"',;]+/gi, '$1 [redacted]'],
  [/\bsk-[\w*-]+/g, '[redacted]'],
  [/\bAIza[\w*-]+/g, '[redacted]'],
  [/[\w-]{0,64}\*{3,}[\w-]{0,64}/g, '[redacted]'],
  [/([\w-]{0,32}(?:key|token|secret|password)["']?=["']?)[^\s&"',;]+/gi, '$1[redacted]'],
  [/\b(x-[\w-]{0,32}key["']?\s*:\s*["']?)[^\s"',;]+/gi, '$1[redacted]'],
]

/** What is at the bottom of a chain of causes. Node's AggregateError has no message of its own, only a code. */
function rootCause(error: Fields): string {
  let bottom = error
  for (let depth = 0; depth < 8 && bottom.cause !== undefined; depth++) bottom = asObject(bottom.cause)
  return bottom === error ? '' : asText(bottom.message) || asText(bottom.code)
}

/** The facts of an error, its words still with everything that they may hold. */
type Cause = ErrorBody & { message: string; kind?: FailureKind; headers?: unknown }

function causeOf(error: unknown): Cause {
  if (error instanceof ModelError) return { message: error.message || NO_REASON, kind: error.kind }
  if (error instanceof ReportedError || !(error instanceof Error)) return reportedCause(error)
  const fields = asObject(error)
  const { message, name } = error
  // Their messages quote what was received, whatever it was.
  if (UNREADABLE.has(name))
    return { message: 'The model server sent something that cannot be read', kind: 'unreadable' }
  if (typeof fields.statusCode === 'number' && fields.statusCode >= 300) return responseCause(fields, fields.statusCode)
  const reason = rootCause(fields) || 'no reason given'
  if (message === 'Failed to process successful response')
    return { message: `The connection to the model broke: ${reason}`, kind: 'connection' }
  if (message === 'fetch failed') return { message: `${message}: ${reason}`, kind: 'connection' }
  if (/^Cannot connect to API/.test(message))
    return { message: message.endsWith(': ') ? message + reason : message, kind: 'connection' }
  if (name === 'AI_NoContentGeneratedError' || name === 'AI_EmptyResponseBodyError')
    return { message, kind: 'unreadable' }
  return { message: message === '' ? `The model failed: ${reason}` : message }
}

const NO_REASON = 'The model failed: no reason given'

/** An error inside a stream: its status is the one that it states, if it states any. */
function reportedCause(error: unknown): Cause {
  const body = readErrorBody(error instanceof ReportedError ? error.body : error)
  const message = body.message ?? (body.code ? `The model failed: ${body.code}` : NO_REASON)
  return { ...body, message: body.status === undefined ? message : `HTTP ${body.status}: ${message}` }
}

/** An HTTP answer that is no success. Its body tells the reason, else its status does. */
function responseCause({ message, responseBody, responseHeaders }: Fields, status: number): Cause {
  const { status: stated, ...body } = readErrorBody(asText(responseBody))
  const { location } = asObject(responseHeaders)
  const reason = (status < 400 ? redirection(asText(message), asText(location)) : body.message) || asText(message)
  const told = body.upstream ? `${reason} (from ${body.upstream})` : reason
  return { ...body, status, headers: responseHeaders, message: told ? `HTTP ${status}: ${told}` : `HTTP ${status}` }
}

/** Redirects are not followed: the key is for the configured address alone. */
function redirection(message: string, location: string): string {
  const target = location.replace(/[?#].*$/, '')
  const advice = 'redirects are not followed, set the base address to where it leads'
  return target ? `${message}, a redirect to ${target}: ${advice}` : message
}

/** Makes one line of at most 500 characters, without the given secrets and anything that looks like one. */
function redact(message: string, secrets: readonly string[]): string {
  let text = message
  for (const secret of secrets) if (secret.length >= MIN_SECRET_LENGTH) text = text.replaceAll(secret, '[redacted]')
  text = text.slice(0, MAX_SCANNED)
  for (const [pattern, replacement] of PATTERNS) text = text.replace(pattern, replacement)
  // PostgreSQL stores neither NUL nor half a surrogate pair.
  text = text.replace(/[\s\x00-\x1f\x7f]+/g, ' ').trim()
  return cut(text, MAX_LENGTH - 1).toWellFormed()
}

/**
 * Classifies an error of a provider: one that `doStream` or its stream throws, or the `error` of a stream part.
 * `provider` is the first segment of the model's id. Retries, fallback models, changed requests and error codes go by
 * this alone (contract.md section 4, contract-2.md sections 1.2, 2.1, 2.2).
 */
export function classifyModelError(
  error: unknown,
  { provider = null, secrets = [] }: { provider?: string | null; secrets?: readonly string[] } = {},
  now = Date.now(),
): ModelFailure {
  const cause = causeOf(error)
  const { kind, field } = cause.kind ? { kind: cause.kind, field: null } : kindOf(cause)
  const status = cause.status ?? null
  return {
    ...{ kind, field, provider, status },
    upstream: cause.upstream ?? null,
    code: cause.code ? redact(cause.code, secrets) : null,
    retryable: isRetryable(kind, status),
    retryAfter: retryAfterOf(cause, now),
    contextWindow: kind === 'context_too_long' ? contextWindowIn(cause.message) : null,
    detail: redact(cause.message, secrets),
  }
}

/** The `detail` of {@link classifyModelError}, for `Execution.error` (contract.md section 4). */
export const describeModelError = (error: unknown, secrets: readonly string[]): string =>
  classifyModelError(error, { secrets }).detail

/**
 * Returns a cause without the words of a provider, which may repeat a prompt: a status, the code of a network error, or
 * one of this service's own sentences.
 */
export const withoutWords = (cause: string): string => WORDLESS.exec(cause)?.[0] ?? 'The model failed'

const WORDLESS = new RegExp(
  [
    /^HTTP \d+/,
    /\bE(?:CONN(?:REFUSED|RESET|ABORTED)|NOTFOUND|TIMEDOUT|(?:HOST|NET)UNREACH|AI_AGAIN|PIPE)\b/,
    /\b(?:self-signed certificate|certificate has expired|unable to verify the first certificate)\b/,
    /^The connection to the model broke/,
    /^The model server sent something that cannot be read/,
  ]
    .map(({ source }) => source)
    .join('|'),
)
