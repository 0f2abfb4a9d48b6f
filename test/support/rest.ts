import type { Credentials } from '../../src/auth/actors.ts'
import { expectDocumented } from './openapi.ts'
import { type Received, type Sent, send } from './send.ts'
import type { TestServer } from './server.ts'
import { onSilence } from './silence.ts'

export type Answer = { status: number; headers: Headers; body: any }

/** The credentials of a request that has only this header. */
export const credentialsOf = (authorization: string, invalid = 'Invalid or expired token'): Credentials => ({
  authorization,
  cookie: undefined,
  organization: undefined,
  invalid,
  checkCookieWrite: () => {},
})

/** Headers that a page of the service sends with each request. */
export const ownPage = ({ url }: Pick<TestServer, 'url'>) => ({ 'X-Muster-Request': '1', Origin: url })

/** Paths that accept only requests of such a page. */
const OF_OWN_PAGE = /^\/(api\/auth\/|trpc\/sessions\.)/

/** Writes the session of a browser, in an organization, where a test has a token otherwise. */
export const asToken = (secret: string, organization: string): string => `cookie ${secret} ${organization}`

/** The headers of a token, or of a browser's session by {@link asToken}. */
export function credentialHeaders(server: Pick<TestServer, 'url'>, token: string | null): Record<string, string> {
  if (token === null) return {}
  const [, secret, organization] = /^cookie (\S+) (\S+)$/.exec(token) ?? []
  if (secret === undefined || organization === undefined) return { Authorization: `Bearer ${token}` }
  return { ...ownPage(server), Cookie: `muster=${secret}`, 'X-Organization': organization }
}

export type RequestOptions = { body?: unknown; token?: string | null; headers?: Record<string, string> }

/** The paths of the OpenAPI document: REST, and the health checks. */
const DOCUMENTED = /^\/(api\/(?!openapi\.json|docs)|healthz|readyz)/

/** Converts the request for `fetch` and `send`. `body` may be a string, which is sent unchanged. */
export function toFetch(
  server: Pick<TestServer, 'url' | 'token'>,
  method: string,
  { body, token = server.token, headers }: RequestOptions,
): Sent {
  return {
    method,
    headers: {
      ...credentialHeaders(server, token),
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  }
}

/** Throws unless the OpenAPI document allows this answer on this path. */
export function checkDocumented(
  method: string,
  path: string,
  response: Pick<Response, 'status' | 'headers'>,
  body: unknown,
): void {
  if (method === 'HEAD' || !DOCUMENTED.test(path)) return
  expectDocumented(method, path, response.status, response.headers, body)
}

/** Streams that end with the connection. */
const ENDLESS =
  /\/(chats\/[^/]+|tasks|approvals)\/events|\/events\/stream|\/trpc\/(chats\.events|events\.follow|\w+\.changes)/

/** Reads the first event of a stream, with the greeting of tRPC before it, or the whole of any other answer. */
async function beginningOf(url: string, sent: Sent): Promise<Received> {
  const response = await fetch(url, sent)
  const { status, headers } = response
  if (!headers.get('content-type')?.startsWith('text/event-stream'))
    return { status, headers, text: await response.text() }
  const events = response.url.includes('/trpc/') ? 2 : 1
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  // Chats start with their status. Changes may never come.
  const isChanges = !response.url.includes('chats')
  using _silence = isChanges ? onSilence(() => void reader.cancel()) : null
  let text = ''
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value
    if (text.split('\n\n').length > events) break
  }
  await reader.cancel()
  return { status, headers, text }
}

/** Sends one JSON request over real HTTP. The answer must be one of the OpenAPI document. */
export async function request(
  server: Pick<TestServer, 'url' | 'token'>,
  method: string,
  path: string,
  options: RequestOptions = {},
): Promise<Answer> {
  const headers = { ...(OF_OWN_PAGE.test(path) && ownPage(server)), ...options.headers }
  const sent = toFetch(server, method, { ...options, headers })
  const response = await (ENDLESS.test(path) ? beginningOf : send)(server.url + path, sent)
  const { status, text } = response
  const isJson = text && response.headers.get('content-type')?.startsWith('application/json')
  const body = isJson ? JSON.parse(text) : text || null
  checkDocumented(method, path, response, body)
  return { status, headers: response.headers, body }
}

/** Sends a request, and returns its answer without the parts that differ each time: the date, and the request's id. */
export async function comparableAnswer(
  server: Pick<TestServer, 'url' | 'token'>,
  method: string,
  path: string,
  options: RequestOptions = {},
): Promise<{ status: number; headers: string[][]; text: string }> {
  const response = await fetch(server.url + path, toFetch(server, method, options))
  const headers = [...response.headers].filter(([name]) => name !== 'date' && name !== 'x-request-id')
  const text = (await response.text()).replace(/"requestId":"\w{22}"/, '"requestId"')
  return { status: response.status, headers, text }
}
