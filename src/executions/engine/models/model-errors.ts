import { cut } from '../../../lib/text.ts'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import { contextWindowIn } from './context-length.ts'
import { type ErrorBody, readErrorBody } from './error-bodies.ts'
import { type FailureKind, isRetryable, kindOf, type ModelFailure, refills, UNREAD_ANSWER } from './model-failures.ts'
import { delayInHeaders, retryAfterOf } from './retry-after.ts'
import { inEnglish } from './translations.ts'

/** Thrown if a model cannot be used. The message tells the caller the problem and its fix. */
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

/** Message of a reply that ended without an answer and without a reason. */
export const NO_END = 'The stream of the model ended without an answer and without a finish reason'

/** Public message of an error that does not belong to a model (contract.md section 1). */
export const UNEXPECTED = 'An unexpected error occurred'

/**
 * Returns whether an error is the provider's. Provider packages mark theirs; names and messages of internal errors must
 * not reach the caller.
 */
export const isModelError = (error: unknown): boolean =>
  !(error instanceof Error) || error instanceof ModelError || error.name.startsWith('AI_')

/** Maximum length of a public message (characters). */
const MAX_LENGTH = 500
/** Maximum scanned length of a message (characters). Configured keys are removed first, so that none is split. */
const MAX_SCANNED = 20_000
/** Maximum length of an answer of the model in a message (characters). */
const MAX_ANSWER = 200
/** Minimum length of a key to redact (characters). Shorter "keys" (none, EMPTY, ollama) are ordinary words. */
const MIN_SECRET_LENGTH = 8

/** Names of errors whose messages quote the received data. */
const UNREADABLE = new Set(['AI_JSONParseError', 'AI_TypeValidationError'])

/** Texts that look like keys, with their replacements: as providers repeat them in messages about a wrong key. */
const KEYS: readonly (readonly [RegExp, string])[] = [
  [/\/\/[^\s/]*@/g, '//[redacted]@'],
  [
    /\b(bearer|basic)\s+(?!(?:tokens?|auth(?:entication|orization)?|credentials?|scheme|header)[.:)]*(?:[\s"',;]|$))[^\s"',;]+/gi,
    '$1 [redacted]',
  ],
  [/\bsk-[\w*-]+/g, '[redacted]'],
  [/\bAIza[\w*-]+/g, '[redacted]'],
  [/[\w-]{0,64}\*{3,}[\w-]{0,64}/g, '[redacted]'],
  [/([\w-]{0,32}(?:key|token|secret|password)["']?=["']?)[^\s&"',;]+/gi, '$1[redacted]'],
  [/\b(x-[\w-]{0,32}key["']?\s*:\s*["']?)[^\s"',;]+/gi, '$1[redacted]'],
]

/** Returns the message of the innermost cause. Node's AggregateError has only a code. */
function rootCause(error: Fields): string {
  let bottom = error
  for (let depth = 0; depth < 8 && bottom.cause !== undefined; depth++) bottom = asObject(bottom.cause)
  return bottom === error ? '' : asText(bottom.message) || asText(bottom.code)
}

/** Facts of an error before redaction. */
type Cause = ErrorBody & { message: string; kind?: FailureKind; headers?: unknown }

function causeOf(error: unknown): Cause {
  if (error instanceof ModelError) return { message: error.message || NO_REASON, kind: error.kind }
  if (error instanceof ReportedError || !(error instanceof Error)) return reportedCause(error)
  const fields = asObject(error)
  const { message, name } = error
  if (UNREADABLE.has(name)) return { message: 'The model server sent data that cannot be read', kind: 'unreadable' }
  if (typeof fields.statusCode === 'number' && fields.statusCode >= 300) return responseCause(fields, fields.statusCode)
  const reason = rootCause(fields) || 'no reason given'
  if (message === 'Failed to process successful response')
    return { message: `The connection to the model broke: ${reason}`, kind: 'connection' }
  if (message === 'fetch failed') return { message: `${message}: ${reason}`, kind: 'connection' }
  if (/^Cannot connect to API/.test(message))
    return { message: message.endsWith(': ') ? message + reason : message, kind: 'connection' }
  if (name === 'AI_InvalidArgumentError') return { message: withProblem(message, fields.cause) }
  if (name === 'AI_NoContentGeneratedError' || name === 'AI_EmptyResponseBodyError')
    return { message, kind: 'unreadable' }
  return { message: message === '' ? `The model failed: ${reason}` : message }
}

const NO_REASON = 'The model failed: no reason given'

/** Adds the place of an invalid option, which Zod states in the innermost cause, to the message of a package. */
function withProblem(message: string, cause: unknown): string {
  const { message: problem } = readErrorBody(asObject(asObject(cause).cause))
  return problem ? `${message}: ${problem}` : message
}

/** Reads an error inside a stream. Its status is the one it states, if any. */
function reportedCause(error: unknown): Cause {
  const read = readErrorBody(error instanceof ReportedError ? error.body : error)
  // Alibaba's messages begin with their status.
  const [, stated] = /^<([45]\d\d)> /.exec(read.message ?? '') ?? []
  const body = stated && read.status === undefined ? { ...read, status: Number(stated) } : read
  const message = body.message ?? (body.code ? `The model failed: ${body.code}` : NO_REASON)
  return { ...body, message: body.status === undefined ? message : `HTTP ${body.status}: ${message}` }
}

/** Reads an unsuccessful HTTP response. The reason comes from its body, otherwise from its status. */
function responseCause({ message, responseBody, responseHeaders }: Fields, status: number): Cause {
  const { status: stated, ...body } = readErrorBody(asText(responseBody))
  const { location } = asObject(responseHeaders)
  const reason = (status < 400 ? redirection(asText(message), asText(location)) : body.message) || asText(message)
  const detail = body.upstream ? `${reason} (from ${body.upstream})` : reason
  return { ...body, status, headers: responseHeaders, message: detail ? `HTTP ${status}: ${detail}` : `HTTP ${status}` }
}

/** Describes a redirect. Redirects are not followed because the key is for the configured address only. */
function redirection(message: string, location: string): string {
  const target = location.replace(/[?#].*$/, '')
  const advice = 'redirects are not followed, set the base address to the target'
  return target ? `${message}, a redirect to ${target}: ${advice}` : message
}

/** Makes one line of at most 500 characters, without the given secrets and anything that looks like one. */
function redact(message: string, secrets: readonly string[]): string {
  let text = message
  for (const secret of secrets) if (secret.length >= MIN_SECRET_LENGTH) text = text.replaceAll(secret, '[redacted]')
  text = text.slice(0, MAX_SCANNED)
  for (const [pattern, replacement] of KEYS) text = text.replace(pattern, replacement)
  // PostgreSQL can store neither NUL nor unpaired surrogates.
  text = text.replace(/[\s\x00-\x1f\x7f]+/g, ' ').trim()
  return cut(text, MAX_LENGTH - 1).toWellFormed()
}

/**
 * Classifies an error of a provider: one that `doStream` or its stream throws, or the `error` of a stream part.
 * `provider` is the first segment of the model's id. Retries, fallback models, changed requests and error codes depend
 * only on the result (contract.md section 4, contract-2.md sections 1.2, 2.1, 2.2).
 */
export function classifyModelError(
  error: unknown,
  { provider = null, secrets = [] }: { provider?: string | null; secrets?: readonly string[] } = {},
  now = Date.now(),
): ModelFailure {
  const cause = causeOf(error)
  const facts = { ...cause, message: scannable(cause.message) }
  const message = inEnglish(facts.message)
  const { kind: stated, field } = cause.kind ? { kind: cause.kind, field: null } : kindOf({ ...facts, message })
  const status = cause.status ?? null
  const retryAfter =
    retryAfterOf(facts, now) ?? (cause.upstreamHeaders ? delayInHeaders(cause.upstreamHeaders, now) : null)
  const isRate = stated === 'quota' && retryAfter !== null && refills(status, `${cause.code} ${message}`)
  const kind = isRate ? 'rate_limit' : stated
  return {
    kind,
    field,
    provider,
    status,
    upstream: cause.upstream ?? null,
    code: cause.code ? redact(cause.code, secrets) : null,
    retryable: isRetryable(kind, status),
    retryAfter,
    contextWindow: kind === 'context_too_long' ? contextWindowIn(message) : null,
    detail: redact(kind === 'broken_off' ? withAnswer(cause) : cause.message, secrets),
  }
}

/** Adds the answer that a server could not use to its message, which refers to it. */
const withAnswer = ({ message, failedAnswer }: Cause): string =>
  failedAnswer ? `${message} The answer was: ${cut(failedAnswer, MAX_ANSWER)}` : message

/**
 * Returns a message without its long words, such as a picture of the request that a server repeats, and without an answer
 * of the model that it quotes, whose words say nothing about the failure. The patterns of {@link kindOf} would take time
 * quadratic in the length of a word, during which no other run continues. Chinese and Japanese have no spaces.
 */
function scannable(message: string): string {
  const text = message.replace(/[!-~]{256,4096}/g, '…').slice(0, MAX_SCANNED)
  const unread = UNREAD_ANSWER.exec(text)
  return unread ? text.slice(0, unread.index + unread[0].length) : text
}

/** Returns the `detail` of {@link classifyModelError}, for `Execution.error` (contract.md section 4). */
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
    /^The model server sent data that cannot be read/,
  ]
    .map(({ source }) => source)
    .join('|'),
)
