import type { IncomingMessage, ServerResponse } from 'node:http'
import { createParser } from 'eventsource-parser'
import { forbidden } from '../../errors.ts'
import { drained } from '../../http/back-pressure.ts'
import { isObject } from '../../lib/unknown.ts'
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

const JSON_TYPE = 'application/json'
const EVENT_STREAM = 'text/event-stream'

/** Returns whether a client accepts JSON and no event stream. */
export function wantsJson({ headers: { accept = '' } }: IncomingMessage): boolean {
  return accept.includes(JSON_TYPE) && !accept.includes(EVENT_STREAM) && !accept.includes('*/*')
}

/** Returns the answers in an event stream as JSON: one, or a list if the client has sent several messages. */
export async function toJson(response: Response): Promise<Response> {
  if (!response.headers.get('content-type')?.startsWith(EVENT_STREAM)) return response
  const text = await response.text().catch(() => null)
  // The client has gone, or has lost access: the response breaks off.
  if (text === null) return response
  const answers: unknown[] = []
  const parser = createParser({
    onEvent({ data }) {
      const message: unknown = JSON.parse(data)
      if (isObject(message) && !('method' in message)) answers.push(message)
    },
  })
  parser.feed(text)
  return Response.json(answers.length === 1 ? answers[0] : answers)
}

/** Converts a request whose body has been read. `body`: null if it is not read again. */
export function toRequest(req: IncomingMessage, body: Buffer | null, signal: AbortSignal): Request {
  const headers = new Headers()
  for (const [name, value] of Object.entries(req.headers)) {
    for (const each of [value ?? []].flat()) headers.append(name, each)
  }
  const { method = 'GET', url = '/' } = req
  // The package requires both types by name, and many clients send one of them, none, or any type.
  if (method === 'POST') headers.set('accept', `${JSON_TYPE}, ${EVENT_STREAM}`)
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
