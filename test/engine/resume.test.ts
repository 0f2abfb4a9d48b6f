import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { subscribe } from '../graphql/support.ts'
import { createAgent } from '../support/api.ts'
import { createFolder } from '../support/folder.ts'
import { event as chunk } from '../support/model-replies.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'

// A surrogate pair, look-alikes of line ends and event ends, and spaces at both ends.
const ODD = ['😀', '\n', '\r\n\r\n', '\u2028', 'data: x\n\n', '  ']
const TOKENS = [...Array.from({ length: 40 - ODD.length }, (_, index) => `token${index} `), ...ODD]
/** `meta`, the tokens, the whole text, `result`. */
const COUNT = TOKENS.length + 3

let folder: Awaited<ReturnType<typeof createFolder>>
let model: ModelServer
let server: TestServer
let agentId: string

const start = async () => {
  const env = { OPENAI_BASE_URL: model.baseUrl, DEFAULT_MODEL: 'compatible/test-model' }
  const started = await startServer(env, { folder: folder.path })
  return Object.assign(started, { token: started.token || server.token })
}

beforeAll(async () => {
  folder = await createFolder()
  model = await startModelServer()
  server = await start()
  agentId = await createAgent(server)
})

afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await model.close()
  await folder[Symbol.asyncDispose]()
})

/** The common fields of an event on every API. */
type Seen = { seq: number; what: unknown }

type Api = (executionId: string, after: number) => AsyncGenerator<Seen, void>

const eventsPath = (executionId: string) => `/api/v1/executions/${executionId}/events`

async function* overRest(path: string, headers: Record<string, string>): AsyncGenerator<Seen, void> {
  await using stream = await openStream(server, path, { headers })
  for (let event = await stream.next(); event; event = await stream.next()) {
    yield { seq: event.id, what: { event: event.event, data: event.data } }
  }
}

/** tRPC's own stream: a number for each tracked event, `connected` before and `return` after them. */
async function* overTrpc(input: object, headers: Record<string, string> = {}): AsyncGenerator<Seen, void> {
  const url = `${server.url}/trpc/executions.events?input=${encodeURIComponent(JSON.stringify(input))}`
  const gone = new AbortController()
  const authorization = { Authorization: `Bearer ${server.token}` }
  const response = await fetch(url, { headers: { ...authorization, ...headers }, signal: gone.signal })
  let text = ''
  try {
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      const blocks = (text + chunk).split('\n\n')
      text = blocks.pop()!
      for (const block of blocks) {
        const field = (name: string) => new RegExp(`^${name}: ?([^\\n]*)$`, 'm').exec(block)?.[1]
        if (field('event') === 'return') return
        const { event, data, seq } = JSON.parse(field('data') ?? '{}')
        // REST's data begins with its type.
        if (field('id')) yield { seq, what: { event, data: { type: event, ...data } } }
        if (field('id')) expect(field('id')).toBe(String(seq))
      }
    }
    throw new Error('The stream broke off')
  } finally {
    gone.abort()
  }
}

const QUERY = `subscription ($executionId: ID!, $after: Int) {
  executionEvents(executionId: $executionId, after: $after) {
    __typename seq ... on TextDeltaEvent { text } ... on ThinkingDeltaEvent { text }
    ... on AssistantEvent { content { __typename ... on TextBlock { text } ... on ThinkingBlock { text } } }
  }
}`

async function* overGraphql(executionId: string, after: number): AsyncGenerator<Seen, void> {
  const gone = new AbortController()
  try {
    for await (const answer of subscribe(server, QUERY, { executionId, after }, { signal: gone.signal })) {
      const { seq, ...what } = answer.data.executionEvents
      yield { seq, what }
    }
  } finally {
    gone.abort()
  }
}

const APIS: Record<string, Api> = {
  'REST, Last-Event-ID': (id, after) => overRest(eventsPath(id), { 'Last-Event-ID': String(after) }),
  'REST, ?after=': (id, after) => overRest(`${eventsPath(id)}?after=${after}`, {}),
  'tRPC, Last-Event-ID': (executionId, after) => overTrpc({ executionId }, { 'Last-Event-ID': String(after) }),
  'tRPC, lastEventId': (executionId, after) => overTrpc({ executionId, lastEventId: String(after) }),
  GraphQL: overGraphql,
}

const execute = (body: object = {}) => ({ method: 'POST', body: { message: 'Hello', stream: true, ...body } })
const executePath = () => `/api/v1/agents/${agentId}/execute`

/** The uncut stream of a run on each API. */
async function uncut(): Promise<{ executionId: string; streamed: Seen[] }> {
  model.script({ tokens: TOKENS })
  await using stream = await openStream(server, executePath(), execute())
  const streamed = (await stream.rest()).map(({ id, event, data }) => ({ seq: id, what: { event, data } }))
  expect(streamed).toHaveLength(COUNT)
  const deltas = streamed.slice(1, -2).map(({ what }) => (what as any).data.delta.text)
  expect(deltas).toEqual(TOKENS)
  return { executionId: (streamed[0]!.what as any).data.executionId, streamed }
}

const all = (api: Api, executionId: string, after = 0) => Array.fromAsync(api(executionId, after))

async function expectEveryCutToResume(executionId: string, whole: Seen[], api: Api): Promise<void> {
  for (const [index, { seq }] of whole.entries()) {
    expect(await all(api, executionId, seq)).toEqual(whole.slice(index + 1))
  }
}

describe('a stream cut at any of 40 tokens and resumed equals the uncut one', () => {
  for (const [name, api] of Object.entries(APIS)) {
    test(`a stream cut at any token equals the uncut one after the run and a restart (${name})`, async () => {
      const { executionId, streamed } = await uncut()
      const whole = await all(api, executionId)
      if (name !== 'GraphQL') expect(whole).toEqual(streamed)
      await expectEveryCutToResume(executionId, whole, api)
      await server[Symbol.asyncDispose]()
      server = await start()
      await expectEveryCutToResume(executionId, whole, api)
    })

    test(`a stream cut at any token equals the uncut one while the run is active (${name})`, async () => {
      const gates = TOKENS.map(() => Promise.withResolvers<void>())
      const open = (index: number) => gates[index]?.resolve()
      model.script({ tokens: TOKENS.flatMap((token, index) => [gates[index]!.promise, token]) })
      const { body } = await request(server, 'POST', executePath(), {
        body: { message: 'Hello', background: true },
      })
      const { executionId } = body
      const seen: Seen[] = []
      for (let index = 0; index < COUNT; index++) {
        // The next event happens while the client is away, or while it reconnects.
        if (index % 2) open(index - 1)
        const events = api(executionId, seen.at(-1)?.seq ?? 0)
        const next = events.next()
        if (index % 2 === 0) open(index - 1)
        const { value } = await next
        seen.push(value!)
        await events.return()
      }
      expect(seen).toEqual(await all(api, executionId))
      expect(seen).toHaveLength(COUNT)
    })
  }
})

test('20 clients that cut and resume one live stream at random each get exactly the whole', async () => {
  const resume = Promise.withResolvers<void>()
  model.script({ tokens: [resume.promise, ...TOKENS], delay: 4 })
  const { body } = await request(server, 'POST', executePath(), { body: { message: 'Hello', background: true } })
  const api = APIS['REST, Last-Event-ID']!
  const client = async (patience: number): Promise<Seen[]> => {
    const seen: Seen[] = []
    while (!isTerminal(seen.at(-1))) {
      let left = 1 + ((seen.length * patience) % 11)
      for await (const event of api(body.executionId, seen.at(-1)?.seq ?? 0)) {
        seen.push(event)
        if (--left === 0) break
      }
    }
    return seen
  }
  const clients = Promise.all(Array.from({ length: 20 }, (_, index) => client(index + 1)))
  resume.resolve()
  const seen = await clients
  const whole = await all(api, body.executionId)
  expect(whole).toHaveLength(COUNT)
  for (const one of seen) expect(one).toEqual(whole)
})

const isTerminal = (seen: Seen | undefined) => /^(result|error)$/.test((seen?.what as any)?.event)

test('a client that claims a number beyond the end still gets the terminal event', async () => {
  const { executionId, streamed } = await uncut()
  const last = streamed.at(-1)!
  for (const [name, api] of Object.entries(APIS)) {
    if (name === 'GraphQL') continue
    // Over REST such a client gets 204, which stops it.
    const expected = name === 'REST, Last-Event-ID' ? [] : [last]
    expect(await all(api, executionId, last.seq + 1_000)).toEqual(expected)
  }

  const resume = Promise.withResolvers<void>()
  model.script({ tokens: ['one ', resume.promise, 'two'] })
  const { body } = await request(server, 'POST', executePath(), { body: { message: 'Hello', background: true } })
  const rest = all(APIS['REST, Last-Event-ID']!, body.executionId, 1_000_000)
  resume.resolve()
  expect((await rest).map(({ what }) => (what as any).event)).toEqual(['result'])
})

test('a pending run can be followed from its meta event through its start to its end', async () => {
  const resume = Promise.withResolvers<void>()
  model.script({ tokens: [resume.promise, 'First.'] }, { tokens: 'Second.' })
  const first = await request(server, 'POST', executePath(), { body: { message: 'Hello', background: true } })
  const { sessionId } = first.body
  await using stream = await openStream(server, executePath(), execute({ sessionId }))
  expect(await stream.next()).toMatchObject({ id: 1, event: 'meta' })
  const { executionId } = (await request(server, 'GET', '/api/v1/executions?status=pending')).body.executions[0]
  const follower = all(APIS['REST, Last-Event-ID']!, executionId)
  resume.resolve()
  const rest = await stream.rest()
  expect(rest.map(({ event }) => event)).toEqual(['message', 'message', 'result'])
  expect((await follower).slice(1).map(({ seq }) => seq)).toEqual(rest.map(({ id }) => id))
})

/** The thinking and text of a run in stream order, with adjacent fragments joined. */
function thoughts(seen: readonly Seen[]): string[] {
  const parts: [kind: string, text: string][] = []
  for (const { what } of seen as readonly { what: any }[]) {
    const { __typename: type, text, content, data } = what
    const block = (one: any) => `block ${one.type ?? (one.__typename === 'ThinkingBlock' ? 'thinking' : 'text')}`
    const blocks = content ?? (data?.messageType === 'assistant' ? data.content : [])
    const delta = data?.delta ?? (text === undefined ? null : { type, text })
    const kind = /^thinking/i.test(delta?.type) ? 'thinking' : 'text'
    if (delta && parts.at(-1)?.[0] === kind) parts.at(-1)![1] += delta.text
    else if (delta) parts.push([kind, delta.text])
    parts.push(...blocks.map((one: any): [string, string] => [block(one), one.text]))
  }
  return parts.map((one) => one.join(': '))
}

test.each(Object.entries(APIS))('thinking is streamed as it comes, and replayed later, over %s', async (_, follow) => {
  const resume = Promise.withResolvers<void>()
  const think = (reasoning_content: string) => chunk({ choices: [{ index: 0, delta: { reasoning_content } }] })
  model.script({ tokens: [think('First '), resume.promise, think('this.'), 'Then ', 'that.'] })
  const body = { message: 'Hello', background: true }
  const { executionId } = (await request(server, 'POST', executePath(), { body })).body
  const live: Seen[] = []
  for await (const seen of follow(executionId, 0)) {
    live.push(seen)
    // The model waits until a reader has seen this.
    if (thoughts(live)[0] === 'thinking: First ') resume.resolve()
  }
  const expected = [
    'thinking: First this.',
    'text: Then that.',
    'block thinking: First this.',
    'block text: Then that.',
  ]
  expect(thoughts(live)).toEqual(expected)
  expect(thoughts(await Array.fromAsync(follow(executionId, 0)))).toEqual(expected)
  const { body: read } = await request(server, 'GET', `/api/v1/executions/${executionId}`)
  expect(read.execution.result).toBe('Then that.')
})
