import { InsufficientScopeError, SdkError, SdkErrorCode, SdkHttpError, SseError } from '@modelcontextprotocol/client'
import { causesOf } from '../../lib/causes.ts'
import { CERTIFICATE } from '../../lib/net/certificate.ts'
import { ForbiddenAddress, ProxyFailed } from '../../lib/net/network.ts'
import { delayOf } from '../../lib/net/retry-after.ts'
import { BadAnswer, TOO_LARGE } from '../../lib/net/safe-fetch.ts'
import type { Clean } from './content.ts'
import { EMPTY } from './mend.ts'
import { ENDED } from './mend-message.ts'
import { TOO_MANY_VALUES } from './message-size.ts'
import type { Seen } from './seen.ts'
import { isServerError, isUnanswered } from './transport.ts'
import { AuthorizationProblem } from './unreachable.ts'

/** Returns the HTTP status of an SDK error, or undefined. */
export function statusOf(error: unknown): number | undefined {
  if (error instanceof SdkHttpError) return error.status
  if (error instanceof SseError) return error.code
  if (error instanceof InsufficientScopeError) return 403
  const posted = error instanceof Error && /^Error POSTing to endpoint \(HTTP (\d{3})\)/.exec(error.message)
  return posted ? Number(posted[1]) : undefined
}

/** Delay of a server that asks for none (ms). */
const USUAL_DELAY = 1000

/** Returns the delay that a server asks for (ms), or null if it must not be asked again. */
export function waitOf(error: unknown, seen: Seen): number | null {
  const status = statusOf(error) ?? 0
  const reason = status ? null : causeIn(seen.error, String)
  // The server has closed a connection that it had kept open.
  if (reason === CLOSED) return 0
  // A server that restarts, or a gateway whose server is just starting or cannot be reached now.
  if (reason === REFUSED || status === 502 || status === 504 || isOfGateway(status)) return 500
  if (status !== 429 && status !== 503) return null
  return delayOf(seen.refusal?.headers.get('retry-after'), Date.now()) ?? USUAL_DELAY
}

const MAX_CHALLENGE = 500

const CLOSED = 'it closed the connection before its answer was complete'
const LATE = 'it did not answer in time'
const REFUSED = 'the connection was refused: nothing listens at its address'
const SILENT = 'it was silent in the middle of its answer for too long'
const FALSE_ENCODING = 'its answer is not compressed as its headers state'
/** Reason of a task whose server cannot be asked any more. */
export const LOST_TASK = 'the task that it had begun cannot be followed any more'
const NO_MESSAGE = 'its answer is not a message of the protocol'
/** Reasons after which a tool may have acted. */
const UNCLEAR: ReadonlySet<string> = new Set([
  CLOSED,
  LATE,
  SILENT,
  ENDED,
  EMPTY,
  NO_MESSAGE,
  LOST_TASK,
  TOO_LARGE,
  TOO_MANY_VALUES,
])
/** Reasons of connection failures by Node.js code. */
const CAUSES: Record<string, string> = {
  ECONNREFUSED: REFUSED,
  ENOTFOUND: 'its host name is unknown (DNS)',
  EAI_AGAIN: 'its host name cannot be resolved now (DNS)',
  EHOSTUNREACH: 'its host cannot be reached',
  ENETUNREACH: 'its network cannot be reached',
  ETIMEDOUT: 'the connection timed out',
  UND_ERR_CONNECT_TIMEOUT: 'the connection timed out',
  UND_ERR_HEADERS_TIMEOUT: LATE,
  UND_ERR_BODY_TIMEOUT: SILENT,
  UND_ERR_HEADERS_OVERFLOW: 'the headers of its answer are too large',
  ECONNRESET: CLOSED,
  EPIPE: CLOSED,
  UND_ERR_SOCKET: CLOSED,
  EPROTO: 'TLS failed: does it speak https at this port?',
  ERR_SSL_WRONG_VERSION_NUMBER: 'TLS failed: does it speak https at this port?',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its TLS certificate is for another host name',
  ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL: 'it speaks HTTP/2 alone at this port: HTTP/1.1 is needed',
  CERT_HAS_EXPIRED: 'its TLS certificate has expired',
  CERT_NOT_YET_VALID: 'its TLS certificate is not valid yet',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its TLS certificate is self-signed (see NODE_EXTRA_CA_CERTS)',
  SELF_SIGNED_CERT_IN_CHAIN: 'its TLS certificate is from an unknown authority (see NODE_EXTRA_CA_CERTS)',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its TLS certificate is from an unknown authority (see NODE_EXTRA_CA_CERTS)',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its TLS certificate cannot be verified (see NODE_EXTRA_CA_CERTS)',
}

/**
 * Returns the public reason why a server cannot be used. Quotes only the protocol's error fields, cleaned, because the
 * rest may contain anything, including the credentials sent.
 */
export function reasonOf(error: unknown, seen: Seen, clean: Clean): string {
  const status = statusOf(error)
  if (status && isAboutHost(status, error))
    return `it answered with the status ${status}: it does not allow the host of its address (add it to the allowed hosts of the server)`
  if (status) return ofStatus(status, seen, clean)
  if (isServerError(error)) return `it answered with the error ${error.code}`
  if (error instanceof SdkError && error.code === SdkErrorCode.ClientHttpUnexpectedContent) {
    const { contentType } = (error.data ?? {}) as { contentType?: unknown }
    return ofContent(typeof contentType === 'string' ? clean(contentType, 100) : '')
  }
  if (error instanceof SdkError && error.code === SdkErrorCode.InvalidResult) return NO_MESSAGE
  const hasEnded = isUnanswered(error) || (error instanceof SdkError && error.code === SdkErrorCode.ConnectionClosed)
  return causeIn(error, clean) ?? causeIn(seen.error, clean) ?? (hasEnded ? ENDED : 'the connection failed')
}

/** Returns whether a status is one of Cloudflare's own, for a server that fails or does not answer in time. */
const isOfGateway = (status: number) => status >= 520 && status <= 530

/**
 * Returns whether a tool may have acted, although its call failed for a reason of {@link reasonOf}. The reason of a
 * stream that ended is that of the attempts to resume it, but the server had accepted the call.
 */
export const mayHaveActed = (error: unknown, reason: string): boolean =>
  isUnanswered(error) ||
  UNCLEAR.has(reason) ||
  [408, 500, 502, 504].includes(statusOf(error) ?? 0) ||
  isOfGateway(statusOf(error) ?? 0)

/**
 * Returns whether no byte of a request was written: the server had closed the connection that was about to be reused.
 * True only for a request that is written in one piece.
 */
export function isUnwritten(error: unknown): boolean {
  const cause = error instanceof Error ? (error.cause as NodeJS.ErrnoException | undefined) : undefined
  return cause?.syscall === 'write' && (cause.code === 'ECONNRESET' || cause.code === 'EPIPE')
}

/** Returns the public reason of an error on the wire, or null for an unknown one. */
export function causeIn(error: unknown, clean: Clean): string | null {
  for (const cause of causesOf(error)) {
    const reason = ofKind(cause, clean) ?? ofCode((cause as NodeJS.ErrnoException).code)
    if (reason !== null) return reason
  }
  return null
}

/** Returns the reason of an error that its class, name or message tells. */
function ofKind(cause: Error, clean: Clean): string | null {
  const { name, message } = cause
  if (cause instanceof ForbiddenAddress) return 'its address is not allowed'
  if (cause instanceof BadAnswer || cause instanceof AuthorizationProblem) return message
  if (cause instanceof ProxyFailed) return message.replace(/^T/, 't')
  if (name === 'HTTPParserError') return 'its answer is not HTTP/1.1: is this its port?'
  if (message === 'bad port') return 'its port is one that HTTP clients do not use'
  if (cause instanceof SyntaxError || name === 'ZodError') return NO_MESSAGE
  const version = /protocol version is not supported: (.*)/s.exec(message)?.[1]
  if (version) return `it speaks version ${clean(version, 30)} of the protocol, which is not supported`
  return name === 'TimeoutError' ? LATE : null
}

/** Returns the reason of an error code of Node. */
function ofCode(code: unknown): string | null {
  if (typeof code !== 'string') return null
  if (/^(?:Z_|ZSTD_|ERR__ERROR_)/.test(code)) return FALSE_ENCODING
  return CAUSES[code] ?? (CERTIFICATE.test(code) || /^ERR_(?:SSL|TLS)/.test(code) ? `TLS failed (${code})` : null)
}

/** The words of frameworks and gateways for a `Host` header that they do not allow, against DNS rebinding. */
const ABOUT_HOST =
  /\bhost\b.{0,80}\bnot (?:allowed|permitted|trusted)|\b(?:invalid|disallowed|untrusted|unknown|bad|forbidden|missing|blocked).{0,20}\bhosts?\b|\bonly allowed at\b/is

/** Returns whether a server refuses the host of its address, rather than the credentials. */
const isAboutHost = (status: number, error: unknown): boolean =>
  (status === 403 || status === 421) &&
  ABOUT_HOST.test(error instanceof SdkHttpError ? String(error.data?.text) : (error as Error).message)

const IS_ADDRESS = 'is this the address of an MCP server?'

const OAUTH = ': give it credentials, or set `auth: oauth`'

const ofContent = (type: string) =>
  /html/i.test(type)
    ? `it answered with a web page (${type}): ${IS_ADDRESS}`
    : `it answered with the content type "${type}" instead of JSON or an event stream`

/** Meanings of statuses, whatever the body is. */
const MEANINGS: Readonly<Record<number, string>> = {
  413: 'its gateway does not take a request of this size',
  503: 'it is not available now',
}

const isPage = (headers: Headers): boolean => /html/i.test(headers.get('content-type') ?? '')

/** Returns the reason of a status, with the facts that the headers of that answer add. */
function ofStatus(status: number, { refusal }: Seen, clean: Clean): string {
  const { headers = new Headers(), movedTo = null } = refusal?.status === status ? refusal : {}
  if (status === 200) return 'it did not answer with an event stream'
  const answered = `it answered with the status ${status}`
  if (status === 401 || status === 403) {
    return movedTo
      ? `it redirects to ${clean(movedTo, 200)}, where no credentials are sent: give the address there instead`
      : `${answered}${ofDenial(status, headers, clean)}`
  }
  const location = headers.get('location')
  const target = location ? URL.parse(location) : null
  if (status < 400 && target) return `${answered}: it redirects to ${clean(target.origin + target.pathname, 200)}`
  const meaning = MEANINGS[status] ?? (status > 501 ? 'its gateway cannot reach it now, or waits no longer' : null)
  if (meaning) return `${answered}: ${meaning}`
  if (isPage(headers)) return `${answered} and a web page: ${IS_ADDRESS}`
  if (status === 405) return `${answered}: ${IS_ADDRESS}`
  return status === 429 ? `${answered}: too many requests` : answered
}

/** Returns the rest of the reason of a denial: the credentials that the server asks for, if it says. */
function ofDenial(status: 401 | 403, headers: Headers, clean: Clean): string {
  if (status === 401) return `: ${demandIn(headers, clean)}`
  const challenge = challengeOf(headers, clean)
  if (challenge) return `: ${challenge}`
  return isPage(headers) ? ' and a web page: a firewall may have refused it' : ': its credentials do not allow this'
}

/** Returns what a server demands that knows no credentials of the caller. */
export function demandIn(headers: Headers, clean: Clean): string {
  const challenge = challengeOf(headers, clean)
  const isOAuth = challenge?.includes('resource_metadata') ?? false
  return `it wants ${challenge ?? 'credentials that it knows'}${isOAuth ? OAUTH : ''}`
}

/** Returns the request of `WWW-Authenticate`: the metadata address (RFC 9728), the scope, the error. */
function challengeOf(headers: Headers, clean: Clean): string | null {
  const header = headers.get('www-authenticate')?.slice(0, 4 * MAX_CHALLENGE)
  if (!header) return null
  const scheme = /^\s*([\w-]+)/.exec(header)?.[1] ?? 'unknown'
  const parts = [
    ...header.matchAll(/\b(resource_metadata|scope|error|error_description|realm)=(?:"([^"]*)"|([^\s,]+))/gi),
  ]
  const parameters = parts.map(([, name = '', quoted, plain]) => `${name}=${quoted ?? plain ?? ''}`).join(', ')
  return clean(`authorization (${scheme}${parameters && `: ${parameters}`})`, MAX_CHALLENGE)
}
