import { SdkError, SdkErrorCode, SdkHttpError, SUPPORTED_PROTOCOL_VERSIONS } from '@modelcontextprotocol/client'
import type { ToolResult } from '../../executions/engine/run/tools.ts'
import { parseJson } from '../../lib/json.ts'
import { asList, asObject, asText } from '../../lib/unknown.ts'
import type { Clean } from './content.ts'
import { NO_CODE } from './mend-message.ts'
import { statusOf } from './reasons.ts'
import { isServerError } from './transport.ts'

// Reads the errors with which servers answer: a refused handshake, a refused call, a lost session.

/** Maximum length of a server's error message (characters). */
const MAX_ERROR_TEXT = 4000
/** Maximum length of an error that is not of the protocol (characters). */
const MAX_FOREIGN = 500

/** The oldest revision, which most servers still accept. */
const OLDEST = '2024-11-05'

/**
 * Answers to a handshake that a server does not understand, after which the next variant is tried. A server of the
 * other transport may answer 200 with something else than an event stream.
 */
const NOT_UNDERSTOOD: ReadonlySet<number | undefined> = new Set([
  ...[200, 400, 404, 405, 406, 410, 415, 422, 501],
  ...[-32600, -32601, -32602, -32004, -32022],
])

/**
 * Returns whether a server that fails in another way may be one of the older transport: by its address, as most of them
 * have it. Frameworks refuse its handshake with statuses of their own, or with a message that is none of the protocol.
 */
export const mayBeOlder = (url: string, error: unknown) =>
  /\/sse\/?$/.test(new URL(url).pathname) &&
  !(isServerError(error) && error.code !== NO_CODE) &&
  ![401, 429, 503].includes(statusOf(error) ?? 0)

/** Returns whether a server does not understand the handshake of a protocol variant. */
export const isRefusal = (error: unknown) => NOT_UNDERSTOOD.has(isServerError(error) ? error.code : statusOf(error))

/**
 * Returns the revision to offer to a server that refuses the newest one: the latest that it names, or the oldest.
 * Returns null for any other error.
 */
export function olderVersionIn(error: unknown): string | null {
  const text = isServerError(error) ? `${error.message} ${JSON.stringify(error.data)}` : bodyOf(error)
  if (!text || !/protocol.?version/i.test(text)) return null
  const [, ...older] = SUPPORTED_PROTOCOL_VERSIONS
  return older.find((version) => text.includes(version)) ?? OLDEST
}

/** Returns the words of a server's error at connecting, cleaned; empty without any. */
export const wordsOf = (error: unknown, clean: Clean): string =>
  clean(serverMessage(error)?.replace(/^\d{3}: /, '') ?? '', MAX_FOREIGN)

const DOUBT = 'The tool may have acted: check before you call it again'

/**
 * Returns the result of a failed call: the words of the server, or else the reason. `mayHaveActed`: whether the tool
 * may have acted nevertheless.
 */
export function failedCall(error: unknown, reason: string, mayHaveActed: boolean, clean: Clean): ToolResult {
  const content = clean(`The call failed: ${serverMessage(error) || reason}`, MAX_ERROR_TEXT)
  const doubt = content.includes('\n') ? `\n${DOUBT}` : /[.!?]$/.test(content) ? ` ${DOUBT}` : `. ${DOUBT}`
  return { content: mayHaveActed ? content + doubt : content, isError: true }
}

/** Returns the message and the details of a server's error for a rejected call; undefined if it has no message. */
export function serverMessage(error: unknown): string | undefined {
  if (isServerError(error)) return withDetails(error.message, error.data)
  const whole = bodyOf(error)?.trim() ?? ''
  // Web frameworks answer with a sentence, or with a page.
  if (whole && whole.length <= MAX_FOREIGN && !/^[[{<"]/.test(whole)) return `${statusOf(error)}: ${whole}`
  const body = asObject(parseJson(whole))
  const { message, data } = asObject(body.error)
  if (typeof message === 'string') return withDetails(message, data)
  // Some servers send the result of a failed call with the status of an error.
  const said = asList(asObject(body.result).content).flatMap((part) => asText(asObject(part).text) || [])
  if (said.length) return said.join('\n\n')
  // Gateways and web frameworks have errors of their own.
  const both = [body.error, body.message].map(asText).filter(Boolean).join(': ')
  const fields = [body.error_description, both, body.error, body.message, body.detail, body.title, body.msg]
  const text = fields.find((field) => field)
  if (text === undefined) return undefined
  return `${statusOf(error)}: ${(typeof text === 'string' ? text : JSON.stringify(text)).slice(0, MAX_FOREIGN)}`
}

/** Returns the body of an HTTP error. Errors of the older transport have it in their message. */
function bodyOf(error: unknown): string | undefined {
  if (error instanceof SdkHttpError) return asText(error.data?.text)
  const [, body] = /^Error POSTing to endpoint \(HTTP \d{3}\): (.*)$/s.exec((error as Error).message) ?? []
  return body
}

/** Adds the data of an error, which often names the mistake in the input. */
function withDetails(message: string, data: unknown): string {
  const details = typeof data === 'string' ? data : data === null || data === undefined ? '' : JSON.stringify(data)
  if (!message) return details
  return details && details !== '{}' && !message.includes(details) ? `${message}: ${details}` : message
}

/**
 * Wordings for a session that a server no longer knows. Servers that were restarted report instead that the session
 * was never initialized.
 */
const SESSION_GONE =
  /session.{0,60}(?:not found|expired|invalid|terminated|unknown|missing|closed|required|does not exist|doesn't exist|ended|not active|mismatch)|(?:no|invalid|unknown|missing|expired|transport|bad|stale|not find)\b.{0,40}session|no (?:active )?transport found|SSE connection not established|not initialized|before initialization|expect initialize/is
/** Returns whether the body of a refusal says that the server does not know the session. */
export const isAboutSession = (body: string): boolean => SESSION_GONE.test(body.slice(0, MAX_ERROR_TEXT))

/** Codes of the protocol's own errors. A tool reports its errors with others. */
const isOfProtocol = (code: number) => code === -32600 || code === -32602 || (code <= -32000 && code > -32100)

/**
 * Returns whether a call certainly did not reach the tool, because its session or stream is gone. `canBeLost`: whether
 * the server has a session.
 */
export function isLost(error: unknown, canBeLost: boolean): boolean {
  if (error instanceof SdkError && error.code === SdkErrorCode.NotConnected) return true
  if (error instanceof Error && error.message === 'Not connected') return true
  if (!canBeLost) return false
  // Some servers answer 200 with the error.
  if (isServerError(error)) return isOfProtocol(error.code) && SESSION_GONE.test(error.message)
  const status = statusOf(error)
  if (!status) return false
  const text = error instanceof SdkHttpError ? error.data?.text : (error as Error).message
  return status === 404 || status === 410 || (status <= 503 && isAboutSession(String(text)))
}
