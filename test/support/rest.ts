import { expectDocumented } from './openapi.ts'
import type { TestServer } from './server.ts'

export type Answer = { status: number; headers: Headers; body: any }

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

/** One JSON request over real HTTP; its answer is one that the OpenAPI document knows. */
export async function request(
  server: Pick<TestServer, 'url' | 'token'>,
  method: string,
  path: string,
  options: RequestOptions = {},
): Promise<Answer> {
  const response = await fetch(server.url + path, toFetch(server, method, options))
  const text = await response.text()
  const isJson = text && response.headers.get('content-type')?.startsWith('application/json')
  const body = isJson ? JSON.parse(text) : text || null
  checkDocumented(method, path, response, body)
  return { status: response.status, headers: response.headers, body }
}
