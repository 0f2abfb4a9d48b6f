import type { Credentials } from '../../src/auth/actors.ts'
import { expectDocumented } from './openapi.ts'
import type { TestServer } from './server.ts'

export type Answer = { status: number; headers: Headers; body: any }

/** The credentials of a request that has nothing but this header. */
export const credentialsOf = (authorization: string, invalid = 'Invalid or expired token'): Credentials => ({
  authorization,
  cookie: undefined,
  organization: undefined,
  invalid,
  checkCookieWrite: () => {},
})

/** What a page of the service sends with each request. */
export const ownPage = ({ url }: Pick<TestServer, 'url'>) => ({ 'X-Muster-Request': '1', Origin: url })

/** Paths that take nothing but requests of such a page. */
const OF_OWN_PAGE = /^\/(api\/auth\/|trpc\/sessions\.)/

export type RequestOptions = { body?: unknown; token?: string | null; headers?: Record<string, string> }

/** What the OpenAPI document is about: REST, and the state of the server. */
const DOCUMENTED = /^\/(api\/(?!openapi\.json|docs)|healthz|readyz)/

/** The request as `fetch` wants it. `body` may be a string, sent as it is. */
export function toFetch(
  server: Pick<TestServer, 'url' | 'token'>,
  method: string,
  { body, token = server.token, headers }: RequestOptions,
): RequestInit {
  return {
    method,
    headers: {
      ...(token !== null && { Authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  }
}

/** Throws unless the OpenAPI document says that this path may answer so. */
export function checkDocumented(method: string, path: string, response: Response, body: unknown): void {
  if (method === 'HEAD' || !DOCUMENTED.test(path)) return
  expectDocumented(method, path, response.status, response.headers, body)
}

/** Streams that end with the connection. */
const ENDLESS = /\/(chats\/[^/]+|tasks|approvals)\/events|\/trpc\/(chats\.events|\w+\.changes)/

/** The time after which an endless stream without an event counts as one that has none (ms). */
const SILENCE = 300

/** The first event of a stream, and the greeting of tRPC before it; the whole of any other answer. */
async function beginningOf(response: Response): Promise<string> {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) return response.text()
  const events = response.url.includes('/trpc/') ? 2 : 1
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  // Chats begin with their status. Changes may never come.
  const isChanges = !response.url.includes('chats')
  const timer = isChanges ? setTimeout(() => void reader.cancel(), SILENCE) : undefined
  let text = ''
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value
    if (text.split('\n\n').length > events) break
  }
  clearTimeout(timer)
  await reader.cancel()
  return text
}

/** One JSON request over real HTTP; its answer is one that the OpenAPI document knows. */
export async function request(
  server: Pick<TestServer, 'url' | 'token'>,
  method: string,
  path: string,
  options: RequestOptions = {},
): Promise<Answer> {
  const headers = { ...(OF_OWN_PAGE.test(path) && ownPage(server)), ...options.headers }
  const response = await fetch(server.url + path, toFetch(server, method, { ...options, headers }))
  const text = ENDLESS.test(path) ? await beginningOf(response) : await response.text()
  const isJson = text && response.headers.get('content-type')?.startsWith('application/json')
  const body = isJson ? JSON.parse(text) : text || null
  checkDocumented(method, path, response, body)
  return { status: response.status, headers: response.headers, body }
}
