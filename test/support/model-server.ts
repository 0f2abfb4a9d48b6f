import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { listen } from './listen.ts'
import { encoded, type Reply, whole } from './model-replies.ts'

export type ModelRequest = {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: {
    readonly model: string
    readonly messages: readonly { role: string; content: unknown; tool_calls?: unknown; tool_call_id?: string }[]
    readonly tools?: readonly unknown[]
    readonly stream_options?: { include_usage?: boolean }
    readonly [key: string]: unknown
  }
  /** Resolves when the connection closes before the reply was complete: by the client, unless the reply closes it. */
  readonly aborted: Promise<void>
}

/** The latest question of a request. Earlier unanswered questions stand above it in the same message. */
export const questionOf = ({ body }: Pick<ModelRequest, 'body'>): unknown => {
  const content = body.messages.at(-1)?.content
  return typeof content === 'string' ? content.split('\n\n').at(-1) : content
}

/** Returns a script that calls the tool `echo` with a text, and ends once it has the result. */
export const callEcho =
  (text: string) =>
  ({ body }: Pick<ModelRequest, 'body'>): Reply =>
    body.messages.at(-1)?.role === 'tool'
      ? { tokens: 'Done.' }
      : { toolCalls: [{ id: 'call', name: 'echo', input: { text } }] }

/** A reply, or a function that makes one of the request. */
type Script = Reply | ((request: ModelRequest) => Reply)

export type ModelServer = AsyncDisposable & {
  /** With `/v1`, as OPENAI_BASE_URL requires. */
  readonly baseUrl: string
  /** Settings of a server whose default model it is. */
  readonly env: { OPENAI_BASE_URL: string; DEFAULT_MODEL: string }
  /** The list or the failure of `GET /v1/models`. */
  models: readonly string[] | NonNullable<Reply['error']>
  /** The answer without a script. */
  fallback: Script
  /** The POSTs so far, in order of arrival, and the headers of each `GET /v1/models`. */
  readonly requests: readonly ModelRequest[]
  readonly listings: readonly IncomingHttpHeaders[]
  /** Unanswered requests, open sockets including idle ones, and all sockets so far. */
  readonly active: number
  readonly connections: number
  readonly accepted: number
  /** Scripts the answers to the next requests, one each. */
  script(...replies: Script[]): void
  /** Resolves with the request of this number, from 0, once it has arrived. */
  request(index: number): Promise<ModelRequest>
  close(): Promise<void>
}

/** The scripts of open servers that may have answers left. */
const scripts = new Set<Script[]>()

/** Removes the scripted answers of all open servers that no request has asked for. Returns their number. */
export function forgetScripts(): number {
  const left = [...scripts].flatMap((script) => script.splice(0)).length
  scripts.clear()
  return left
}

const HEADERS = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' }

function fail(
  response: ServerResponse,
  { status, message = 'scripted', code, body, headers }: NonNullable<Reply['error']>,
) {
  response.writeHead(status, { 'content-type': 'application/json', ...headers })
  response.end(body ?? JSON.stringify({ error: { message, type: 'error', param: null, code: code ?? null } }))
}

const writable = (response: ServerResponse) =>
  new Promise<void>((resolve) => {
    const done = () => {
      response.off('drain', done).off('close', done)
      resolve()
    }
    response.on('drain', done).on('close', done)
  })

async function answer(response: ServerResponse, reply: Reply, withUsage: boolean): Promise<void> {
  if (reply.error) return fail(response, reply.error)
  for (const step of encoded(reply, withUsage)) {
    if (typeof step === 'number') await sleep(step)
    else if (!(step instanceof Uint8Array)) await step
    else if (step.length > 0) {
      if (!response.headersSent) response.writeHead(200, HEADERS)
      if (!response.write(step)) await writable(response)
    }
    if (response.destroyed) return
  }
  if (reply.end === 'hang') return
  // The callback comes after all earlier data was sent, so that streamed text arrives before the break.
  if (reply.end === 'drop') return void response.write('\n', () => response.destroy())
  if (!response.headersSent) response.writeHead(200, HEADERS)
  response.end()
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const data of request) chunks.push(data)
  return Buffer.concat(chunks).toString()
}

/**
 * A model server on loopback with OpenAI's chat completions and `GET /v1/models`: real HTTP with scripted answers,
 * errors, silence and broken connections. Without `record` it stores no requests.
 */
export async function startModelServer({ record = true } = {}): Promise<ModelServer> {
  const requests: ModelRequest[] = []
  const listings: IncomingHttpHeaders[] = []
  const scripted: Script[] = []
  const arrivals = new Map<number, PromiseWithResolvers<ModelRequest>>()
  const sockets = new Set<Socket>()
  let active = 0
  let accepted = 0

  const arrival = (index: number) => {
    const known = arrivals.get(index) ?? Promise.withResolvers<ModelRequest>()
    arrivals.set(index, known)
    return known
  }

  const list = (response: ServerResponse) => {
    if ('status' in server.models) return fail(response, server.models)
    const data = server.models.map((id) => ({ id, object: 'model', created: 0, owned_by: 'test' }))
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ object: 'list', data }))
  }

  const complete = async (incoming: IncomingMessage, response: ServerResponse, aborted: Promise<void>) => {
    const body: ModelRequest['body'] = JSON.parse(await readBody(incoming))
    const request: ModelRequest = { path: incoming.url ?? '', headers: incoming.headers, body, aborted }
    if (record) arrival(requests.push(request) - 1).resolve(request)
    const script = scripted.shift() ?? server.fallback
    const reply = typeof script === 'function' ? script(request) : script
    // Gemini has a separate path for streams.
    if (body.stream || request.path.includes(':stream') || reply.error)
      return answer(response, reply, !!body.stream_options?.include_usage)
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(whole(reply)))
  }

  const http = createServer((incoming, response) => {
    active += 1
    const aborted = Promise.withResolvers<void>()
    response.on('close', () => {
      active -= 1
      if (!response.writableFinished) aborted.resolve()
    })
    if (incoming.method === 'GET') {
      if (record) listings.push(incoming.headers)
      return list(response)
    }
    complete(incoming, response, aborted.promise).catch(() => response.destroy())
  })
  http.on('connection', (socket) => {
    accepted += 1
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  const port = await listen(http)

  const baseUrl = `http://127.0.0.1:${port}/v1`
  const server: ModelServer = {
    baseUrl,
    env: { OPENAI_BASE_URL: baseUrl, DEFAULT_MODEL: 'compatible/test' },
    models: ['test-model'],
    fallback: { tokens: 'A reply of the test model.' },
    requests,
    listings,
    get active() {
      return active
    },
    get connections() {
      return sockets.size
    },
    get accepted() {
      return accepted
    },
    script(...replies) {
      scripted.push(...replies)
      scripts.add(scripted)
    },
    request: (index) => arrival(index).promise,
    close: () =>
      new Promise((resolve) => {
        scripts.delete(scripted)
        http.close(() => resolve())
        http.closeAllConnections()
      }),
    [Symbol.asyncDispose]: () => server.close(),
  }
  return server
}

// A separate process for benchmarks. Prints its address as a line of JSON.
if (import.meta.main) {
  const { values } = parseArgs({ options: { tokens: { type: 'string' }, delay: { type: 'string' } } })
  const server = await startModelServer({ record: false })
  const tokens = Array.from({ length: Number(values.tokens ?? 20) }, (_, index) => `token${index} `)
  server.fallback = { tokens, delay: Number(values.delay ?? 0) }
  console.log(JSON.stringify({ baseUrl: server.baseUrl }))
}
