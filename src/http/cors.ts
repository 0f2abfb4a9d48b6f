import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Logger } from 'pino'
import { forbidden } from '../errors.ts'
import type { Settings } from '../settings.ts'

/** Headers that pages may send if their preflight requests none. */
const ALLOWED_HEADERS =
  'Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, X-Request-Id, trpc-accept'

const EXPOSED_HEADERS =
  'X-Request-Id, Retry-After, X-Should-Retry, Idempotent-Replayed, X-Execution-Id, X-Muster-Warnings, WWW-Authenticate, ETag, ' +
  'Content-Range, Accept-Ranges, Content-Disposition, RateLimit, RateLimit-Policy, X-RateLimit-Limit, ' +
  'X-RateLimit-Remaining, X-RateLimit-Reset'

/** A list of header names as browsers send it. */
const HEADER_NAMES = /^[\w!#$%&'*+.^`|~-]+( *, *[\w!#$%&'*+.^`|~-]+)*$/

/** Interval at which rejections of an origin are logged (ms), and the maximum number of origins remembered for that. */
const LOG_INTERVAL = 60_000
const MAX_ORIGINS = 100

/**
 * Handles CORS for the allowed origins. Returns a function that returns true if the request was a preflight, and throws
 * 403 for one of another origin. This is logged too, once a minute per origin, because browsers do not report the
 * reason to the page.
 */
export function createCors({ CORS_ORIGINS }: Settings, log: Logger) {
  const refused = new Map<string, number>()

  function logRefusal(origin: string, req: IncomingMessage): void {
    const now = performance.now()
    if (now - (refused.get(origin) ?? Number.NEGATIVE_INFINITY) < LOG_INTERVAL) return
    if (refused.size >= MAX_ORIGINS) refused.clear()
    refused.set(origin, now)
    const details = { origin, wanted: req.headers['access-control-request-method'], path: req.url?.split('?', 1)[0] }
    log.warn(
      details,
      'a preflight of a browser was refused: add its origin to CORS_ORIGINS if the page may use this service',
    )
  }

  return (req: IncomingMessage, res: ServerResponse): boolean => {
    const { origin } = req.headers
    const isPreflight = req.method === 'OPTIONS' && req.headers['access-control-request-method'] !== undefined
    if (CORS_ORIGINS.length) res.appendHeader('Vary', 'Origin')
    if (!origin) return false
    if (!(CORS_ORIGINS.includes(origin) || CORS_ORIGINS.includes('*'))) {
      if (!isPreflight) return false
      logRefusal(origin.slice(0, 200), req)
      throw forbidden({
        detail: 'Pages of this origin may not use the service: the operator can add it to CORS_ORIGINS.',
      })
    }
    res.setHeader('Access-Control-Allow-Origin', origin)
    res.setHeader('Access-Control-Expose-Headers', EXPOSED_HEADERS)
    if (!isPreflight) return false
    const wanted = req.headers['access-control-request-headers']
    res.setHeader('Vary', 'Origin, Access-Control-Request-Headers')
    res.writeHead(204, {
      'Access-Control-Allow-Methods': 'GET, HEAD, POST, PATCH, PUT, DELETE',
      'Access-Control-Allow-Headers': wanted !== undefined && HEADER_NAMES.test(wanted) ? wanted : ALLOWED_HEADERS,
      'Access-Control-Max-Age': '600',
    })
    res.end()
    return true
  }
}
