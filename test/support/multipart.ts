import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type Answer, checkDocumented } from './rest.ts'
import type { TestServer } from './server.ts'

export const BOUNDARY = '----boundary'

/** A part of a form: `disposition` is its header, whatever the bytes. */
export type Part = { disposition: string; type?: string; content: string | Uint8Array }

export const filePart = (name: string, content: string | Uint8Array, field = 'file'): Part => ({
  disposition: `form-data; name="${field}"; filename="${name}"`,
  type: 'application/octet-stream',
  content,
})

/** A whole form. `end` closes it. */
export const form = (parts: readonly Part[], end = `--${BOUNDARY}--\r\n`): Buffer =>
  Buffer.concat([
    ...parts.flatMap(({ disposition, type, content }) => [
      Buffer.from(
        `--${BOUNDARY}\r\nContent-Disposition: ${disposition}\r\n${type ? `Content-Type: ${type}\r\n` : ''}\r\n`,
      ),
      Buffer.from(content as string),
      Buffer.from('\r\n'),
    ]),
    Buffer.from(end),
  ])

type Options = { token?: string | null; headers?: Record<string, string> }

/** POST /media with an arbitrary body. The answer must be one of the OpenAPI document. */
export async function post(
  server: Pick<TestServer, 'url' | 'token'>,
  body: Uint8Array,
  { token = server.token, headers }: Options = {},
): Promise<Answer> {
  const response = await fetch(`${server.url}/api/v1/media`, {
    method: 'POST',
    headers: {
      ...(token !== null && { Authorization: `Bearer ${token}` }),
      'Content-Type': `multipart/form-data; boundary=${BOUNDARY}`,
      ...headers,
    },
    body: body as Uint8Array<ArrayBuffer>,
  })
  const answer = await response.json()
  checkDocumented('POST', '/api/v1/media', response, answer)
  return { status: response.status, headers: response.headers, body: answer }
}

export const upload = (
  server: Pick<TestServer, 'url' | 'token'>,
  content: string | Uint8Array,
  { name = 'a.bin', ...options }: Options & { name?: string } = {},
): Promise<Answer> => post(server, form([filePart(name, content)]), options)

/** The paths of all files below a folder. */
export async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  return entries.flatMap((entry) => (entry.isFile() ? join(entry.parentPath, entry.name) : [])).sort()
}
