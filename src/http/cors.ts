import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Settings } from '../settings.ts'

/** What the documented clients send, tRPC's streaming one among them. */
const ALLOWED_HEADERS = 'Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id, trpc-accept'

const EXPOSED_HEADERS =
  'X-Request-Id, Retry-After, Idempotent-Replayed, X-Execution-Id, X-Muster-Warnings, WWW-Authenticate'

/** Lets pages of the allowed origins use the service; true when that was the whole request (a preflight). */
export function allowCrossOrigin({ CORS_ORIGINS }: Settings, req: IncomingMessage, res: ServerResponse): boolean {
  const { origin } = req.headers
  if (!CORS_ORIGINS.length) return false
  res.setHeader('Vary', 'Origin')
  if (!origin || !(CORS_ORIGINS.includes(origin) || CORS_ORIGINS.includes('*'))) return false
  res.setHeader('Access-Control-Allow-Origin', origin)
  res.setHeader('Access-Control-Expose-Headers', EXPOSED_HEADERS)
  if (req.method !== 'OPTIONS' || !req.headers['access-control-request-method']) return false
  res.writeHead(204, {
    'Access-Control-Allow-Methods': 'GET, POST, PATCH, PUT, DELETE',
    'Access-Control-Allow-Headers': ALLOWED_HEADERS,
    'Access-Control-Max-Age': '600',
  })
  res.end()
  return true
}
