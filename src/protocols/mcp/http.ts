import type { IncomingMessage, ServerResponse } from 'node:http'
import { forbidden } from '../../errors.ts'
import { drained } from '../../http/unread.ts'
import type { Settings } from '../../settings.ts'

/**
 * Throws 403 for a request of a page that is neither one of this service nor allowed by CORS_ORIGINS. Clients other
 * than browsers send no Origin.
 */
export function checkOrigin({ CORS_ORIGINS, PUBLIC_URL }: Settings, { headers }: IncomingMessage): void {
  const { origin, host = '' } = headers
  if (origin === undefined || CORS_ORIGINS.includes('*') || CORS_ORIGINS.includes(origin)) return
  const own = PUBLIC_URL ? [new URL(PUBLIC_URL).origin] : ['http', 'https'].map((scheme) => `${scheme}://${host}`)
  if (own.some((allowed) => allowed.toLowerCase() === origin.toLowerCase())) return
  throw forbidden({ detail: 'The operator has to add the origin of this page to CORS_ORIGINS.' })
}

/** Converts a request whose body has been read. `body`: null if it is not read again. */
export function toRequest(req: IncomingMessage, body: Buffer | null, signal: AbortSignal): Request {
  const headers = new Headers()
  for (const [name, value] of Object.entries(req.headers)) {
    for (const each of [value ?? []].flat()) headers.append(name, each)
  }
  const { method = 'GET', url = '/' } = req
  // HTTP takes both as any type, but the package requires its types by name.
  if (method === 'POST' && /^$|(?:^|,)\s*\*\/\*/.test(headers.get('accept') ?? '')) {
    headers.set('accept', 'application/json, text/event-stream')
  }
  const hasBody = body && method !== 'GET' && method !== 'HEAD'
  return new Request(`http://localhost${url}`, {
    method,
    headers,
    signal,
    ...(hasBody && { body: new Uint8Array(body) }),
  })
}

/** Writes a response, as fast as the client reads. */
export async function writeResponse(res: ServerResponse, response: Response): Promise<void> {
  if (res.destroyed) return void response.body?.cancel()
  for (const [name, value] of response.headers) {
    // It belongs to HTTP/1.1 connections, which Node manages.
    if (name !== 'connection') res.setHeader(name, value)
  }
  res.writeHead(response.status)
  if (!response.body) return void res.end()
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream')
  if (isStream) res.flushHeaders()
  try {
    for await (const chunk of response.body) {
      if (res.destroyed) return
      if (!res.write(chunk)) await drained(res)
    }
    res.end()
  } catch {
    res.destroy()
  }
}
