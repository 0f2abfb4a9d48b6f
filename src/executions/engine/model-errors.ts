import { cut } from '../../lib/text.ts'
import { asObject, asText, type Fields } from '../../lib/unknown.ts'

/** A model that cannot be used. Its message is for the caller: what is wrong, and what would help. */
export class ModelError extends Error {
  override name = 'ModelError'
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

/**
 * The sentence in an error body that is not of the provider's usual form (`{"detail": …}`, `{"error": "…"}`). Only
 * the fields that hold one: other fields may repeat the request, and with it an agent's prompt.
 */
function bodyMessage(body: unknown): string {
  try {
    const { error, message, detail } = asObject(JSON.parse(asText(body)))
    return asText(asObject(error).message) || asText(error) || asText(message) || asText(detail)
  } catch {
    return ''
  }
}

function causeOf(error: unknown): string {
  const fields = asObject(error)
  const { name, statusCode, data, responseBody } = fields
  const message = typeof error === 'string' ? error : asText(fields.message)
  // Their messages quote what was received, whatever it was.
  if (UNREADABLE.has(asText(name))) return 'The model server sent something that cannot be read'
  if (typeof statusCode === 'number' && statusCode >= 400) {
    const detail = (data === undefined && bodyMessage(responseBody)) || message
    return detail ? `HTTP ${statusCode}: ${detail}` : `HTTP ${statusCode}`
  }
  const reason = rootCause(fields) || 'no reason given'
  if (message === 'Failed to process successful response') return `The connection to the model broke: ${reason}`
  if (message === '') return `The model failed: ${reason}`
  if (message === 'fetch failed') return `${message}: ${reason}`
  if (message.endsWith(': ')) return message + reason
  return message
}

/**
 * A provider's error (thrown by `doStream`, by its stream, or the `error` of a stream part) as a short cause for
 * `Execution.error`: status and the provider's message on one line of at most 500 characters, without secrets: the
 * given ones, and whatever looks like one (contract.md section 4).
 */
export function describeModelError(error: unknown, secrets: readonly string[]): string {
  let text = causeOf(error)
  for (const secret of secrets) if (secret.length >= MIN_SECRET_LENGTH) text = text.replaceAll(secret, '[redacted]')
  text = text.slice(0, MAX_SCANNED)
  for (const [pattern, replacement] of PATTERNS) text = text.replace(pattern, replacement)
  // PostgreSQL stores neither NUL nor half a surrogate pair.
  text = text.replace(/[\s\x00-\x1f\x7f]+/g, ' ').trim()
  return cut(text, MAX_LENGTH - 1).toWellFormed()
}

/** A cause without the words of a provider or a network: a status, or the code of a connection that could not be had. */
export const withoutWords = (cause: string): string =>
  /^HTTP \d+|\bE(?:CONN(?:REFUSED|RESET|ABORTED)|NOTFOUND|TIMEDOUT|(?:HOST|NET)UNREACH|AI_AGAIN|PIPE)\b/.exec(
    cause,
  )?.[0] ?? 'The model failed'
