import type { TestServer } from './server.ts'

export type Answer = { status: number; headers: Headers; body: any }

/** One JSON request over real HTTP. `body` may be a string, sent as it is. */
export async function request(
  server: Pick<TestServer, 'url' | 'token'>,
  method: string,
  path: string,
  options: { body?: unknown; token?: string | null; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const { body, token = server.token } = options
  const response = await fetch(server.url + path, {
    method,
    headers: {
      ...(token !== null && { Authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...options.headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, headers: response.headers, body: text === '' ? null : JSON.parse(text) }
}
