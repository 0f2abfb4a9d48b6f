import { execFile } from 'node:child_process'
import { symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { runnerImport } from 'vite'
import { beforeAll, describe, expect, it } from 'vitest'
import { createFolder } from '../support/folder.ts'
import { startServer, type TestServer } from '../support/server.ts'

// The OpenAPI document as people use it: five generators make clients of it, which are compiled and call a server.

const ROOT = join(import.meta.dirname, '..', '..')
const MODULES = join(ROOT, 'node_modules')
const run = promisify(execFile)

/** The expected output of each program, in the same order of calls. */
type Outcome = {
  created: string
  listed: number
  pages: string[]
  result: string
  uploaded: string
  error: [status: number, code: string | undefined]
  events: string[]
}

/** The generators, of which two, with half of the processor time, run only with NIGHTLY=1. */
const NAMES = [
  ...['openapi-fetch', 'hey-api', 'oazapfts'],
  ...(process.env.NIGHTLY === '1' ? ['orval', 'swagger-typescript-api'] : []),
]

const PATIENCE = process.env.NIGHTLY === '1' ? 300_000 : 120_000

type Client = { main: (url: string, token: string, name: string) => Promise<Outcome> }

let folder: string
let server: TestServer
beforeAll(async () => {
  const made = await createFolder()
  folder = made.path
  server = await startServer()
  await symlink(MODULES, join(folder, 'node_modules'), 'junction')
  await run(process.execPath, [join(ROOT, 'test/support/generate-clients.ts'), server.url, folder, ...NAMES])
  await Promise.all(Object.entries(FILES).map(([name, text]) => writeFile(join(folder, name), text)))
  return async () => {
    await server[Symbol.asyncDispose]()
    await made[Symbol.asyncDispose]()
  }
}, PATIENCE)

describe('the clients that generators make of the OpenAPI document', () => {
  it(
    'compile strictly, and so do programs that use them with typed results',
    async () => {
      const compilerOptions = {
        strict: true,
        noUncheckedIndexedAccess: true,
        skipLibCheck: true,
        noEmit: true,
        types: [],
        target: 'esnext',
        lib: ['esnext', 'dom'],
        module: 'esnext',
        moduleResolution: 'bundler',
        allowImportingTsExtensions: true,
      }
      const files = NAMES.map((name) => `use-${name}.ts`)
      await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
      const tsc = join(MODULES, 'typescript/lib/tsc.js')
      const { stdout } = await run(process.execPath, [tsc, '-p', folder, '--checkers', '1']).catch((error) => error)
      expect(stdout).toBe('')
    },
    PATIENCE,
  )

  it.each(NAMES)('%s creates, lists, pages, executes, uploads, reads an error and follows a stream', async (name) => {
    // Node neither imports folders nor runs enums, which some generators write.
    const { module } = await runnerImport<Client>(join(folder, `use-${name}.ts`), { logLevel: 'error' })
    // Each has its own agents, so that the pages have the same length.
    const { token } = await server.member({ email: `${name}@example.com`, role: 'owner' })
    const outcome = await module.main(server.url, token, name)
    expect(outcome).toEqual({
      created: name,
      listed: 2,
      pages: [`${name} 2`, name],
      result: expect.stringContaining('Hello'),
      uploaded: 'notes.txt',
      error: [404, 'not_found'],
      events: expect.arrayContaining(['meta', 'message', 'result']),
    })
    expect(outcome.events.at(-1)).toBe('result')
  })
})

const SSE = `
/** The data of each event of a stream. */
export async function* eventsOf<Event>(body: ReadableStream<Uint8Array> | null): AsyncGenerator<Event> {
  let rest = ''
  const reader = (body ?? new Blob([]).stream()).pipeThrough(new TextDecoderStream() as never).getReader()
  for (;;) {
    const { done, value } = (await reader.read()) as { done: boolean; value?: string }
    if (done) return
    const blocks = (rest + value).split('\\n\\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) {
      const data = /^data: (.*)$/m.exec(block)?.[1]
      if (data) yield JSON.parse(data) as Event
    }
  }
}
`

const OPENAPI_FETCH = `
import createClient from 'openapi-fetch'
import { eventsOf } from './sse.ts'
import type { components, paths } from './openapi-typescript.ts'

type Event = components['schemas']['ExecutionEvent']

export async function main(baseUrl: string, token: string, name: string) {
  const client = createClient<paths>({ baseUrl, headers: { Authorization: \`Bearer \${token}\` } })
  const body = { name, systemPrompt: 'Be brief.' }
  const { data: created, error } = await client.POST('/api/v1/agents', { body })
  if (!created) throw new Error(error.message)
  await client.POST('/api/v1/agents', { body: { ...body, name: \`\${name} 2\` } })
  const query = { owner: 'me' as const, limit: 1 }
  const { data: first } = await client.GET('/api/v1/agents', { params: { query } })
  const cursor = first?.nextCursor ?? ''
  const { data: second } = await client.GET('/api/v1/agents', { params: { query: { ...query, cursor } } })
  const path = { id: created.id }
  const { data: executed } = await client.POST('/api/v1/agents/{id}/execute', {
    params: { path },
    body: { message: 'Hello' },
  })
  const { data: uploaded } = await client.POST('/api/v1/media', {
    body: { file: 'notes' },
    bodySerializer({ file }) {
      const form = new FormData()
      form.append('file', new Blob([file], { type: 'text/plain' }), 'notes.txt')
      return form
    },
  })
  const { error: refused } = await client.GET('/api/v1/agents/{id}', { params: { path: { id: 'none' } } })
  const { data: stream } = await client.POST('/api/v1/agents/{id}/execute/stream', {
    params: { path },
    body: { message: 'Hello' },
    parseAs: 'stream',
  })
  const events: Event['type'][] = []
  for await (const event of eventsOf<Event>(stream as ReadableStream<Uint8Array>)) {
    if (event.type === 'message' && event.messageType === 'stream_event') event.delta.text.trim()
    events.push(event.type)
  }
  // @ts-expect-error an agent has no such field
  created.agent.nothing
  return {
    created: created.agent.name,
    listed: first?.total ?? 0,
    pages: [...(first?.agents ?? []), ...(second?.agents ?? [])].map((agent) => agent.name),
    result: executed?.result ?? '',
    uploaded: uploaded?.media.name ?? '',
    error: [refused?.statusCode ?? 0, refused?.code],
    events,
  }
}
`

const HEY_API = `
import { createClient } from './hey-api/client'
import { agentsCreate, agentsExecute, agentsExecuteStream, agentsGet, agentsList, mediaUpload } from './hey-api'
import type { ExecutionEvent } from './hey-api'

export async function main(baseUrl: string, token: string, name: string) {
  const client = createClient({ baseUrl, auth: token })
  const body = { name, systemPrompt: 'Be brief.' }
  const { data: created, error } = await agentsCreate({ client, body })
  if (!created) throw new Error(error?.message)
  await agentsCreate({ client, body: { ...body, name: \`\${name} 2\` } })
  const query = { owner: 'me' as const, limit: 1 }
  const { data: first } = await agentsList({ client, query })
  const { data: second } = await agentsList({ client, query: { ...query, cursor: first?.nextCursor ?? '' } })
  const path = { id: created.id }
  const { data: executed } = await agentsExecute({ client, path, body: { message: 'Hello' } })
  const file = new File(['notes'], 'notes.txt', { type: 'text/plain' })
  const { data: uploaded } = await mediaUpload({ client, body: { file } })
  const { error: refused } = await agentsGet({ client, path: { id: 'none' } })
  const { stream } = await agentsExecuteStream({ client, path, body: { message: 'Hello' } })
  const events: ExecutionEvent['type'][] = []
  for await (const event of stream) {
    if (event.type === 'message' && event.messageType === 'stream_event') event.delta.text.trim()
    events.push(event.type)
  }
  // @ts-expect-error an agent has no such field
  created.agent.nothing
  return {
    created: created.agent.name,
    listed: first?.total ?? 0,
    pages: [...(first?.agents ?? []), ...(second?.agents ?? [])].map((agent) => agent.name),
    result: executed?.result ?? '',
    uploaded: uploaded?.media.name ?? '',
    error: [refused?.statusCode ?? 0, refused?.code],
    events,
  }
}
`

const ORVAL = `
import { eventsOf } from './sse.ts'
import * as api from './orval.ts'

export async function main(_: string, token: string, name: string) {
  const options = { headers: { Authorization: \`Bearer \${token}\` } }
  const body = { name, systemPrompt: 'Be brief.' }
  const created = await api.agentsCreate(body, options)
  if (created.status !== 200) throw new Error(created.data.message)
  await api.agentsCreate({ ...body, name: \`\${name} 2\` }, options)
  const query = { owner: 'me' as const, limit: 1 }
  const first = await api.agentsList(query, options)
  if (first.status !== 200) throw new Error(first.data.message)
  const second = await api.agentsList({ ...query, cursor: first.data.nextCursor ?? '' }, options)
  if (second.status !== 200) throw new Error(second.data.message)
  const { id } = created.data
  const executed = await api.agentsExecute(id, { message: 'Hello' }, undefined, options)
  const file = new File(['notes'], 'notes.txt', { type: 'text/plain' })
  const uploaded = await api.mediaUpload({ file }, options)
  const refused = await api.agentsGet('none', options)
  const { body: stream } = await fetch(api.getAgentsExecuteStreamUrl(id), {
    method: 'POST',
    headers: { ...options.headers, 'Content-Type': 'application/json' },
    body: JSON.stringify({ message: 'Hello' } satisfies api.AgentsExecuteStreamRequest),
  })
  const events: api.ExecutionEvent['type'][] = []
  for await (const event of eventsOf<api.ExecutionEvent>(stream)) {
    if (event.type === 'message' && event.messageType === 'stream_event') event.delta.text.trim()
    events.push(event.type)
  }
  // @ts-expect-error an agent has no such field
  created.data.agent.nothing
  return {
    created: created.data.agent.name,
    listed: first.data.total,
    pages: [...first.data.agents, ...second.data.agents].map((agent) => agent.name),
    result: executed.status === 200 ? (executed.data.result ?? '') : '',
    uploaded: uploaded.status === 200 ? uploaded.data.media.name : '',
    error: refused.status === 404 ? [refused.data.statusCode, refused.data.code] : [0, undefined],
    events,
  }
}
`

const SWAGGER_TYPESCRIPT_API = `
import { eventsOf } from './sse.ts'
import { Api, type ErrorResponse, type ExecutionEvent, type HttpResponse } from './swagger-typescript-api.ts'

export async function main(baseUrl: string, token: string, name: string) {
  const { api } = new Api({ baseUrl, baseApiParams: { headers: { Authorization: \`Bearer \${token}\` } } })
  const body = { name, systemPrompt: 'Be brief.' }
  const { data: created } = await api.agentsCreate(body)
  await api.agentsCreate({ ...body, name: \`\${name} 2\` })
  const query = { owner: 'me' as const, limit: 1 }
  const { data: first } = await api.agentsList(query)
  const { data: second } = await api.agentsList({ ...query, cursor: first.nextCursor ?? '' })
  const { data: executed } = await api.agentsExecute(created.id, { message: 'Hello' })
  const file = new File(['notes'], 'notes.txt', { type: 'text/plain' })
  const { data: uploaded } = await api.mediaUpload({ file })
  const refused: ErrorResponse = await api
    .agentsGet('none')
    .then(() => Promise.reject(), (response: HttpResponse<unknown, ErrorResponse>) => response.error)
  const stream = await api.agentsExecuteStream(created.id, { message: 'Hello' })
  const events: ExecutionEvent['type'][] = []
  for await (const event of eventsOf<ExecutionEvent>(stream.body)) {
    if (event.type === 'message' && event.messageType === 'stream_event') event.delta.text.trim()
    events.push(event.type)
  }
  // @ts-expect-error an agent has no such field
  created.agent.nothing
  return {
    created: created.agent.name,
    listed: first.total,
    pages: [...first.agents, ...second.agents].map((agent) => agent.name),
    result: executed.result ?? '',
    uploaded: uploaded.media.name,
    error: [refused.statusCode, refused.code],
    events,
  }
}
`

const OAZAPFTS = `
import { HttpError } from '@oazapfts/runtime'
import { eventsOf } from './sse.ts'
import * as api from './oazapfts.ts'

export async function main(baseUrl: string, token: string, name: string) {
  api.defaults.baseUrl = baseUrl
  api.defaults.headers = { Authorization: \`Bearer \${token}\` }
  const body = { name, systemPrompt: 'Be brief.' }
  const created = await api.agentsCreate(body)
  await api.agentsCreate({ ...body, name: \`\${name} 2\` })
  const query = { owner: 'me' as const, limit: 1 }
  const first = await api.agentsList(query)
  const second = await api.agentsList({ ...query, cursor: first.nextCursor ?? '' })
  const executed = await api.agentsExecute(created.id, { message: 'Hello' })
  const file = new File(['notes'], 'notes.txt', { type: 'text/plain' })
  const uploaded = await api.mediaUpload({ file })
  const refused: api.ErrorResponse = await api.agentsGet('none').then(
    () => Promise.reject(),
    (error: HttpError) => error.data,
  )
  const { body: stream } = await fetch(\`\${baseUrl}/api/v1/agents/\${created.id}/execute/stream\`, {
    method: 'POST',
    headers: { Authorization: \`Bearer \${token}\`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ message: 'Hello' } satisfies api.AgentsExecuteStreamRequest),
  })
  const events: api.ExecutionEvent['type'][] = []
  for await (const event of eventsOf<api.ExecutionEvent>(stream)) {
    if (event.type === 'message' && event.messageType === 'stream_event') event.delta.text.trim()
    events.push(event.type)
  }
  // @ts-expect-error an agent has no such field
  created.agent.nothing
  return {
    created: created.agent.name,
    listed: first.total,
    pages: [...first.agents, ...second.agents].map((agent) => agent.name),
    result: executed.result ?? '',
    uploaded: uploaded.media.name,
    error: [refused.statusCode, refused.code],
    events,
  }
}
`

const FILES: Record<string, string> = {
  'sse.ts': SSE,
  'use-openapi-fetch.ts': OPENAPI_FETCH,
  'use-hey-api.ts': HEY_API,
  'use-orval.ts': ORVAL,
  'use-swagger-typescript-api.ts': SWAGGER_TYPESCRIPT_API,
  'use-oazapfts.ts': OAZAPFTS,
}
