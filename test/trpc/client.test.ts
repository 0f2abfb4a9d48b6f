import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect as connectTo, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  createTRPCClient,
  httpBatchLink,
  httpLink,
  httpSubscriptionLink,
  splitLink,
  type TRPCClientError,
} from '@trpc/client'
import { EventSource } from 'eventsource'
import { describe, expect, it } from 'vitest'
import type { AppRouter } from '../../src/router.ts'
import { createClient } from '../../src/sdk/index.ts'
import { expectError } from '../support/api.ts'
import { freePort } from '../support/free-port.ts'
import { listen } from '../support/listen.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// Uses the service as a TypeScript front end does: with tRPC's own client over real HTTP.

const model = await use(startModelServer())
const server = await use(startServer(model.env))
const agentId: string = (await connect().agents.create.mutate({ name: 'Ada', systemPrompt: 'You are Ada.' })).id

type Target = Pick<TestServer, 'url' | 'token'>
type Seen = { path: string; lastEventId: string | null }

/** A client that authenticates by header throughout; `seen` records the connections of its subscriptions. */
function connect(
  { url, token }: Target = server,
  {
    seen = [],
    connectionParams,
    maxItems,
  }: { seen?: Seen[]; connectionParams?: Record<string, string>; maxItems?: number } = {},
) {
  const headers = { Authorization: `Bearer ${token}` }
  const http = { url: `${url}/trpc`, headers }
  return createTRPCClient<AppRouter>({
    links: [
      splitLink({
        condition: ({ type }) => type === 'subscription',
        true: httpSubscriptionLink({
          url: http.url,
          ...(connectionParams && { connectionParams }),
          EventSource,
          eventSourceOptions: {
            fetch: (input, init) => {
              const { pathname, search } = new URL(input)
              const sent = new Headers(init.headers)
              seen.push({ path: pathname + search, lastEventId: sent.get('last-event-id') })
              return fetch(input, { ...(init as RequestInit), headers: { ...init.headers, ...headers } })
            },
          },
        }),
        false: maxItems ? httpBatchLink({ ...http, maxItems }) : httpLink(http),
      }),
    ],
  })
}

type Client = ReturnType<typeof connect>
type Input = Parameters<Client['executions']['events']['subscribe']>[0]
type Event = { id: string; data: { seq: number; event: string; data: any } }

/** Subscribes, and records the events and the end. */
function subscribe(client: Client, input: Input) {
  const events: Event[] = []
  const { promise: ended, resolve, reject } = Promise.withResolvers<void>()
  const wanted = new Set<() => void>()
  const subscription = client.executions.events.subscribe(input, {
    onData(event) {
      events.push(event as unknown as Event)
      for (const look of wanted) look()
    },
    onError: reject,
    onComplete: resolve,
  })
  ended.catch(() => {})
  return {
    events,
    ended,
    /** Resolves after this number of events. */
    count: (number: number) =>
      new Promise<void>((done) => {
        const look = () => void (events.length >= number && done())
        wanted.add(look)
        look()
      }),
    close: () => subscription.unsubscribe(),
  }
}

function gated(tokens: string[]) {
  const gates = tokens.map(() => Promise.withResolvers<void>())
  model.script({ tokens: tokens.flatMap((token, index) => [gates[index]!.promise, token]) })
  return {
    open: (index: number) => gates[index]?.resolve(),
    openAll: () => gates.forEach((gate) => void gate.resolve()),
  }
}

const begin = (client: Client, id = agentId) => client.agents.execute.mutate({ id, message: 'Hi', background: true })
/** A proxy to the server that can break off all its connections. */
async function startProxy(target: string): Promise<AsyncDisposable & { url: string; hangUp: () => void }> {
  const sockets = new Set<Socket>()
  const proxy = createServer((socket) => {
    const upstream = connectTo(Number(new URL(target).port), '127.0.0.1')
    for (const end of [socket, upstream]) sockets.add(end.on('error', () => {}))
    socket.pipe(upstream).pipe(socket)
  })
  const port = await listen(proxy)
  const hangUp = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    url: `http://127.0.0.1:${port}`,
    hangUp,
    async [Symbol.asyncDispose]() {
      hangUp()
      proxy.close()
      await once(proxy, 'close')
    },
  }
}

const namesOf = (events: Event[]) => events.map(({ data }) => data.event)
/** All fields except times: a stored event has the time of its segment. */
const plain = (events: Event[]) => events.map(({ id, data: { seq, event, data } }) => ({ id, seq, event, data }))
const failure = (promise: Promise<unknown>): Promise<TRPCClientError<AppRouter>> =>
  promise.then(
    () => Promise.reject(new Error('It did not fail')),
    (error) => error,
  )

it.each(['', '/', '/api/v1', '/api/v1/', '/trpc'])(
  'the client takes the address of the service with "%s"',
  async (path) => {
    const client = createClient({ url: server.url + path, token: server.token })
    expect(await client.agents.get.query({ id: agentId })).toMatchObject({ agent: { name: 'Ada' } })
  },
)

describe('a tRPC call', () => {
  it('has the types and values of REST', async () => {
    const client = connect()
    const { agent } = await client.agents.get.query({ id: agentId })
    const name: string = agent.name
    expect(name).toBe('Ada')
    expect((await request(server, 'GET', `/api/v1/agents/${agentId}`)).body.agent).toEqual(agent)
    const { result } = await client.agents.execute.mutate({ id: agentId, message: 'Hi' })
    expect(result).toBe('A reply of the test model.')
  })

  it('a tRPC call that fails has the fields of an error body, and no stack', async () => {
    const { data, message } = await failure(connect().agents.get.query({ id: 'unknown' }))
    expect(message).toBe('Agent not found')
    expect(data).toEqual({
      code: 'NOT_FOUND',
      errorCode: 'not_found',
      httpStatus: 404,
      path: 'agents.get',
      error: true,
      statusCode: 404,
      statusMessage: 'Not Found',
      message: 'Agent not found',
      detail: expect.any(String),
      requestId: expect.stringMatching(/^\w{22}$/),
    })
  })

  it('a tRPC call without an input names the first missing field', async () => {
    const client = connect()
    for (const nothing of [undefined, null] as never[]) {
      expect((await failure(client.tasks.create.mutate(nothing))).message).toBe('Missing required field: title')
      expect((await failure(client.agents.get.query(nothing))).message).toBe('Missing required field: id')
      expect(await client.tasks.list.query(nothing)).toMatchObject({ success: true })
    }
  })
})

describe('a tRPC batch', () => {
  const ask = (client: Client, count: number) =>
    Promise.all(Array.from({ length: count }, () => client.agents.get.query({ id: agentId })))

  it('a tRPC batch of ten is answered at once, each call by itself', async () => {
    const client = connect(server, { maxItems: 10 })
    const ten = await Promise.allSettled([
      ...Array.from({ length: 9 }, () => client.agents.get.query({ id: agentId })),
      client.agents.get.query({ id: 'unknown' }),
    ])
    expect(ten.map(({ status }) => status)).toEqual([...Array(9).fill('fulfilled'), 'rejected'])
  })

  it.each([11, 100])('a tRPC batch of %i is refused, and the error names the limit', async (count) => {
    const error = await failure(ask(connect(server, { maxItems: 1000 }), count))
    const message = `A batch has at most 10 calls, this one ${count}: set maxItems`
    expect(error).toMatchObject({ message, data: { statusCode: 400, message } })
    expect(error.data?.requestId).toMatch(/^\w{22}$/)
  })

  it('authenticates once, and looks its token up once', async () => {
    const client = connect(server, { maxItems: 10 })
    await client.models.list.query()
    const ten = () => Promise.all(Array.from({ length: 10 }, () => client.models.list.query()))
    const statements = await server.statementsOf(ten)
    expect(statements.filter((sql) => sql.includes('FROM "Token"'))).toHaveLength(1)
  })
})

describe('the subscription to an execution', () => {
  it('sends every event as it happens, each with its number, and completes', async () => {
    const client = connect()
    const reply = gated(['One ', 'two'])
    const { executionId, chatId, sessionId } = await begin(client)
    const { events, ended, count } = subscribe(client, { executionId })
    await count(1)
    expect(events[0]?.data).toMatchObject({ event: 'meta', data: { executionId, chatId, sessionId } })
    for (const [index, text] of ['One ', 'two'].entries()) {
      reply.open(index)
      await count(index + 2)
      expect(events.at(-1)?.data.data).toEqual({
        messageType: 'stream_event',
        step: 1,
        delta: { type: 'text_delta', text },
      })
    }
    await ended
    expect(namesOf(events)).toEqual(['meta', 'message', 'message', 'message', 'result'])
    expect(events.map(({ id }) => Number(id))).toEqual(events.map(({ data }) => data.seq))
    const stream = await request(server, 'GET', `/api/v1/executions/${executionId}/events`)
    const lines = events.map(
      ({ id, data: { event, data } }) =>
        `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify({ type: event, ...data })}\n\n`,
    )
    expect(stream.body).toBe(lines.join(''))
  })

  it.each(['after', 'lastEventId'])('resumes after any event by %s', async (name) => {
    const client = connect()
    model.script({ tokens: ['One ', 'two ', 'three'] })
    const { executionId } = await begin(client)
    const whole = subscribe(client, { executionId })
    await whole.ended
    for (const [index, { id }] of whole.events.entries()) {
      const { events, ended } = subscribe(client, { executionId, [name]: name === 'after' ? Number(id) : id } as Input)
      await ended
      expect(plain(events)).toEqual(plain(whole.events.slice(index + 1)))
    }
  })

  it('resumes by itself after a lost connection, without gaps or duplicates', async () => {
    const seen: Seen[] = []
    await using proxy = await startProxy(server.url)
    const reply = gated(['One ', 'two ', 'three'])
    const { executionId } = await begin(connect())
    const client = connect({ url: proxy.url, token: server.token }, { seen })
    const { events, ended, count } = subscribe(client, { executionId })
    reply.open(0)
    await count(2)
    proxy.hangUp()
    reply.openAll()
    await ended
    expect(namesOf(events)).toEqual(['meta', 'message', 'message', 'message', 'message', 'result'])
    expect(new Set(events.map(({ id }) => id)).size).toBe(events.length)
    expect(seen.map(({ lastEventId }) => lastEventId)).toEqual([null, events[1]?.id])
  })

  it('survives a restart of the server and continues to the end', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'muster-test-'))
    try {
      const seen: Seen[] = []
      const env = { ...model.env, PORT: String(await freePort()) }
      const first = await startServer({ ...env, DRAIN_TIMEOUT: '0.1' }, { folder })
      const client = connect(first, { seen })
      const { id } = await client.agents.create.mutate({ name: 'Ada', systemPrompt: 'x' })
      const never = gated(['One ', 'never'])
      const { executionId } = await begin(client, id)
      const { events, ended, count } = subscribe(client, { executionId })
      never.open(0)
      await count(2)
      await first[Symbol.asyncDispose]()
      await using _second = await startServer(env, { folder })
      await ended
      expect(namesOf(events)).toEqual(['meta', 'message', 'error'])
      expect(events.at(-1)?.data.data).toMatchObject({ status: 'failed', executionId })
      expect(seen.at(-1)?.lastEventId).toBe(events[1]?.id)
      never.openAll()
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })

  it('ends with the run, however often its subscribers cancel it', async () => {
    const client = connect()
    const reply = gated(['One ', 'never'])
    const { executionId } = await begin(client)
    const followers = [1, 2, 3].map(() => subscribe(client, { executionId }))
    reply.open(0)
    await Promise.all(followers.map(({ count }) => count(2)))
    followers[0]?.close()
    await client.executions.cancel.mutate({ id: executionId })
    await Promise.all(followers.slice(1).map(({ ended }) => ended))
    expect(followers.map(({ events }) => namesOf(events).at(-1))).toEqual(['message', 'error', 'error'])
    reply.openAll()
  })

  it.each([
    ['unknown', 'Execution not found', 404],
    ['another organization’s', 'Execution not found', 404],
    ['requested without a token', 'Authorization header required', 401],
    ['requested with an invalid number', 'Invalid value for field: after. Expected at least 0', 400],
  ])(
    'the subscription to an execution of a run that is %s is refused once, without a retry',
    async (what, message, statusCode) => {
      const seen: Seen[] = []
      const { executionId } = await begin(connect())
      const other = await server.member({ organization: 'Other' })
      const token = what === 'another organization’s' ? other.token : server.token
      const client = connect({ url: server.url, token: what.includes('without') ? '' : token }, { seen })
      const id = what === 'unknown' ? 'exec-1-unknown' : executionId
      const error = await failure(
        subscribe(client, { executionId: id, ...(what.includes('invalid') && { after: -1 }) }).ended,
      )
      if (statusCode !== 401) expect(error).toMatchObject({ message, data: { statusCode } })
      expect(seen.length).toBe(1)
    },
  )

  it('the subscription with a token in connectionParams is refused, without a retry', async () => {
    const seen: Seen[] = []
    const { executionId } = await begin(connect())
    const client = connect(server, { seen, connectionParams: { token: server.token } })
    const error = await failure(subscribe(client, { executionId }).ended)
    expect(error.data).toMatchObject({ statusCode: 400, message: expect.stringContaining('Authorization') })
    expect(seen).toHaveLength(1)
    const answer = await request(server, 'GET', `/trpc/agents.list?connectionParams=${encodeURIComponent('{"a":"b"}')}`)
    expectError({ ...answer, body: answer.body.error.data }, 400, error.message)
  })
})
