import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { describe, expect, it, vi } from 'vitest'
import { expectError } from '../support/api.ts'
import type { Reply } from '../support/model-replies.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { type EventStream, openStream, type StreamEvent } from '../support/sse.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const server = await use(startServer(model.env))

type Server = Pick<TestServer, 'url' | 'token'>
type Fields = Record<string, unknown>

const create = async (at: Server): Promise<string> =>
  (await request(at, 'POST', '/api/v1/agents', { body: { name: 'Ada', systemPrompt: 'You are Ada.' } })).body.id
const agent: string = await create(server)

const execute = (fields: Fields = {}, query = '', headers: Record<string, string> = {}): Promise<EventStream> => {
  const body = { message: 'Hi', stream: true, ...fields }
  return openStream(server, `/api/v1/agents/${agent}/execute${query}`, { method: 'POST', body, headers })
}

const background = async (fields: Fields = {}) => {
  const body = { message: 'Hi', background: true, ...fields }
  return (await request(server, 'POST', `/api/v1/agents/${agent}/execute`, { body })).body
}

const events = (id: string, query = '', headers: Record<string, string> = {}, at: Server = server) =>
  openStream(at, `/api/v1/executions/${id}/events${query}`, { headers })

const get = async (id: string) => (await request(server, 'GET', `/api/v1/executions/${id}`)).body.execution
const isEnded = async (id: string) => (await get(id)).completedAt !== undefined
const cancel = (id: string) => request(server, 'POST', `/api/v1/executions/${id}/cancel`)

/** Returns a number of next events, or fewer if the stream ends. */
async function take(stream: EventStream, count: number): Promise<StreamEvent[]> {
  const taken: StreamEvent[] = []
  while (taken.length < count) {
    const event = await stream.next()
    if (!event) break
    taken.push(event)
  }
  return taken
}

/** A reply whose tokens come one by one, each when its gate is opened. */
function gated(tokens: string[], more: Reply = {}) {
  const gates = tokens.map(() => Promise.withResolvers<void>())
  model.script({ tokens: tokens.flatMap((token, index) => [gates[index]!.promise, token]), ...more })
  return {
    open: (index: number) => gates[index]?.resolve(),
    openAll: () => gates.forEach((gate) => void gate.resolve()),
  }
}

/** Sends a request on its own connection. Returns all received bytes. */
async function talk(message: string): Promise<string> {
  const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
  socket.write(message)
  return textOf(socket)
}

/** A body of chunks (RFC 9112, section 7.1), each of them in ASCII. */
function unchunked(body: string): string {
  const [, size = '', rest = ''] = /^([0-9a-f]+)\r\n(.*)$/s.exec(body) ?? []
  const length = Number.parseInt(size, 16)
  expect(rest.slice(length, length + 2)).toBe('\r\n')
  return length ? rest.slice(0, length) + unchunked(rest.slice(length + 2)) : ''
}

const textsOf = (all: StreamEvent[]) => all.flatMap(({ data }) => data.delta?.text ?? [])
/** Without the line separators that JSON leaves unescaped. */
const escaped = (json: string) =>
  json.replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029').replaceAll('\u0085', '\\u0085')
const delta = (text: string, step = 1) =>
  `{"type":"message","messageType":"stream_event","step":${step},"delta":{"type":"text_delta","text":${JSON.stringify(text)}}}`

describe('the stream of a run', () => {
  it.each(['3', 'abc'])('starts with meta, whatever the request asks of other events: %s', async (lastEventId) => {
    const headers = { 'Idempotency-Key': crypto.randomUUID(), 'Last-Event-ID': lastEventId }
    for (const replayed of [null, 'true']) {
      const stream = await execute({ message: lastEventId }, '', headers)
      expect([stream.status, stream.headers.get('idempotent-replayed')]).toEqual([200, replayed])
      expect((await stream.rest()).map(({ id, event }) => [id, event])[0]).toEqual([1, 'meta'])
    }
  })

  it('equals the documentation byte for byte', async () => {
    const tokens = ['Hel', 'lo,\n', '"Wörld"', ' 👋 ', '\u2028', '\u2029\u0085']
    model.script({ tokens, usage: { input: 7, output: 5 } })
    const stream = await execute()
    const all = await stream.rest()
    const { executionId, chatId, sessionId } = all[0]!.data
    const json = JSON.stringify(tokens.join(''))
    const expected: [event: string, data: string][] = [
      ['meta', `{"type":"meta","executionId":"${executionId}","chatId":"${chatId}","sessionId":"${sessionId}"}`],
      ...tokens.map((token): [string, string] => ['message', delta(token)]),
      [
        'message',
        `{"type":"message","messageType":"assistant","step":1,"text":${json},"content":[{"type":"text","text":${json}}]}`,
      ],
      [
        'result',
        `{"type":"result","sessionId":"${sessionId}","usage":{"input_tokens":7,"output_tokens":5},"executionId":"${executionId}","status":"completed","stopReason":"end_turn"}`,
      ],
    ]
    const ids = all.map(({ id }) => id)
    expect(ids).toEqual(ids.toSorted((a, b) => a - b))
    expect(new Set(ids).size).toBe(ids.length)
    const text = expected
      .map(([event, data], index) => `id: ${ids[index]}\nevent: ${event}\ndata: ${escaped(data)}\n\n`)
      .join('')
    expect(stream.text).toBe(text)
    expect(executionId).toMatch(/^exec-\d+-\w{22}$/)
    expect(await get(executionId)).toMatchObject({ status: 'completed', chatId, sessionId, result: tokens.join('') })
    expect((await (await events(executionId)).rest()).map((event) => event.text).join('\n\n')).toBe(text.trimEnd())
  })

  it('has the headers that keep proxies from buffering it', async () => {
    const stream = await execute()
    expect(stream.status).toBe(200)
    expect(Object.fromEntries(stream.headers)).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
      'x-request-id': expect.any(String),
    })
    expect(stream.headers.get('content-length')).toBeNull()
    expect(stream.headers.get('content-encoding')).toBeNull()
    await stream.rest()
  })

  it('depends on the body alone, whatever Accept is', async () => {
    for (const Accept of ['application/json', 'text/event-stream', '*/*']) {
      const stream = await execute({}, '', { Accept })
      expect((await stream.rest()).at(-1)?.event).toBe('result')
      const whole = await execute({ stream: false }, '', { Accept })
      expect(JSON.parse(whole.text)).toMatchObject({ success: true, status: 'completed' })
    }
  })

  it('is the only answer of the paths that end with /stream, whatever the body is', async () => {
    const ask = (path: string, body: Fields) => openStream(server, `/api/v1/${path}/stream`, { method: 'POST', body })
    const first = await ask(`agents/${agent}/execute`, { message: 'Hi', stream: false })
    const [meta] = await first.rest()
    const { executionId, chatId } = meta?.data ?? {}
    for (const [path, body] of [
      ['execute', { agentId: agent, message: 'Hi' }],
      [`chats/${chatId}/messages`, { message: 'Hi' }],
      [`executions/${executionId}/rerun`, {}],
    ] as const) {
      const stream = await ask(path, body)
      expect(stream.headers.get('x-execution-id')).toMatch(/^exec-/)
      expect((await stream.rest()).map(({ event }) => event)).toEqual(
        expect.arrayContaining(['meta', 'message', 'result']),
      )
    }
    const refused = await ask(`agents/${agent}/execute`, {})
    await refused.rest().catch(() => {})
    expect(refused.status).toBe(400)
    expectError(await request(server, 'GET', `/api/v1/agents/${agent}/execute/stream`), 405, 'Method not allowed')
  })

  it('joins the run of the same Idempotency-Key from the path without /stream', async () => {
    const headers = { 'Idempotency-Key': 'stream-or-not' }
    const begun = await execute({}, '', headers)
    await begun.rest()
    const body = { message: 'Hi' }
    const path = `/api/v1/agents/${agent}/execute/stream`
    const joined = await openStream(server, path, { method: 'POST', body, headers })
    await joined.rest()
    expect(joined.text).toBe(begun.text)
    expect(joined.headers.get('idempotent-replayed')).toBe('true')
  })

  it('is whole over HTTP/1.0, and behind another answer on the connection', async () => {
    const reply = gated(['One ', 'two ', 'three'])
    const stream = await execute()
    const meta = await stream.next()
    const ask = (version: string) =>
      `GET /api/v1/executions/${meta?.data.executionId}/events HTTP/${version}\r\nHost: localhost\r\n` +
      `Authorization: Bearer ${server.token}\r\nConnection: close\r\n\r\n`
    const old = talk(ask('1.0'))
    const twice = talk(ask('1.1').replace('Connection: close\r\n', '') + ask('1.1'))
    for (const index of [0, 1, 2]) {
      reply.open(index)
      await stream.next()
    }
    await stream.rest()
    const [, plain] = (await old).split('\r\n\r\n')
    expect(plain).toBe(stream.text)
    const answers = (await twice).split(/(?=HTTP\/1\.1 )/)
    expect(answers.map((answer) => unchunked(answer.slice(answer.indexOf('\r\n\r\n') + 4)))).toEqual([plain, plain])
  })

  it('shows a tool call, its result, and the next step', async () => {
    model.script({ tokens: ['Let me see.'], toolCalls: [{ id: 'call-1', name: 'nothing', input: { a: [1] } }] })
    model.script({ tokens: ['There is ', 'none.'] })
    const stream = await execute()
    const all = await stream.rest()
    expect(all.slice(1, -1).map(({ data }) => data)).toEqual([
      JSON.parse(delta('Let me see.')),
      {
        type: 'message',
        messageType: 'assistant',
        step: 1,
        text: 'Let me see.',
        content: [
          { type: 'text', text: 'Let me see.' },
          { type: 'tool_use', id: 'call-1', name: 'nothing', input: { a: [1] } },
        ],
      },
      {
        type: 'message',
        messageType: 'tool_result',
        toolUseId: 'call-1',
        content: 'There is no tool named nothing',
        isError: true,
      },
      JSON.parse(delta('There is ', 2)),
      JSON.parse(delta('none.', 2)),
      {
        type: 'message',
        messageType: 'assistant',
        step: 2,
        text: 'There is none.',
        content: [{ type: 'text', text: 'There is none.' }],
      },
    ])
    expect((await get(all[0]!.data.executionId)).result).toBe('There is none.')
  })

  it('starts with meta before the model is asked', async () => {
    const { models } = server.service.deps
    const { resolve } = models
    const gate = Promise.withResolvers<void>()
    models.resolve = async (...args) => {
      await gate.promise
      return resolve(...args)
    }
    const asked = model.requests.length
    const stream = await execute()
    expect(await stream.next()).toMatchObject({ id: 1, event: 'meta' })
    expect(model.requests.length).toBe(asked)
    models.resolve = resolve
    gate.resolve()
    expect((await stream.rest()).at(-1)?.event).toBe('result')
    expect(model.requests.length).toBe(asked + 1)
  })

  it('shows each token as it arrives', async () => {
    const tokens = ['One ', 'two ', 'three ', 'four']
    const reply = gated(tokens)
    const stream = await execute()
    await stream.next()
    for (const [index, token] of tokens.entries()) {
      reply.open(index)
      expect((await stream.next())?.data.delta.text).toBe(token)
    }
    expect((await stream.rest()).map(({ event }) => event)).toEqual(['message', 'result'])
  })

  it('has one line of data per event, whatever its length', async () => {
    const long = 'line\n'.repeat(20_000)
    model.script({ tokens: [long] })
    const stream = await execute()
    expect(textsOf(await stream.rest()).join('')).toBe(long)
  })

  it('sends no heartbeat inside a long event', async () => {
    const long = 'x'.repeat(2_000_000)
    model.script({ tokens: [long] })
    const { executionId } = (
      await request(server, 'POST', `/api/v1/agents/${agent}/execute`, { body: { message: 'Hi' } })
    ).body
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    try {
      const headers = { Authorization: `Bearer ${server.token}` }
      const { body } = await fetch(`${server.url}/api/v1/executions/${executionId}/events`, { headers })
      let text = ''
      for await (const part of body!.pipeThrough(new TextDecoderStream())) {
        text += part
        vi.advanceTimersByTime(15_000)
      }
      const events = text.split('\n\n').filter((event) => event && event !== ': ping')
      const data = events.map((event) => JSON.parse(event.split('\ndata: ')[1]!))
      expect(data.find(({ messageType }) => messageType === 'assistant').content).toEqual([
        { type: 'text', text: long },
      ])
    } finally {
      vi.useRealTimers()
    }
  })

  it('sends heartbeats while nothing happens', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    try {
      const reply = gated(['Late.'])
      const stream = await execute()
      await stream.next()
      const late = stream.next()
      vi.advanceTimersByTime(15_000)
      reply.openAll()
      expect((await late)?.data.delta.text).toBe('Late.')
      expect(stream.text).toContain('\n\n: ping\n\nid: 2\n')
      await stream.rest()
    } finally {
      vi.useRealTimers()
    }
  })
})

describe('the content of a complete step', () => {
  const streamed = { tokens: ['Let me ', 'see.'], toolCalls: [{ id: 'call-1', name: 'nothing', input: {} }] }
  const call = { type: 'tool_use', id: 'call-1', name: 'nothing', input: {} }
  const text = { type: 'text', text: 'Let me see.' }
  const firstOf = (all: StreamEvent[]) => all.find(({ data }) => data.messageType === 'assistant')?.data

  it.each([
    ['is whole', '', {}, [text, call]],
    ['is whole on request', '?content=all', {}, [text, call]],
    ['lacks the streamed text if the query asks for that', '?content=rest', {}, [call]],
    ['lacks the streamed text if the body asks for that', '', { content: 'rest' }, [call]],
  ])('%s', async (_, query, fields, content) => {
    model.script(streamed)
    model.script({ tokens: ['None.'] })
    const all = await (await execute(fields, query)).rest()
    expect(firstOf(all)).toMatchObject({ text: 'Let me see.', content })
    expect(textsOf(all)).toEqual(['Let me ', 'see.', 'None.'])
  })

  it('is omitted after streamed text for readers from the start and returning ones', async () => {
    model.script(streamed)
    model.script({ tokens: ['None.'] })
    const [meta, ...rest] = await (await execute()).rest()
    const { executionId } = meta!.data
    for (const after of [0, 1, rest[1]!.id]) {
      const all = await (await events(executionId, `?content=rest&after=${after}`)).rest()
      expect(firstOf(all)).toMatchObject({ text: 'Let me see.', content: [call] })
    }
    const refused = await events(executionId, '?content=some')
    const expected = 'Invalid value for field: content. Expected one of: all, rest'
    expectError({ ...refused, body: JSON.parse(refused.text) }, 400, expected)
  })

  it('is omitted after streamed text by default for clients of the hosted original', async () => {
    await using hosted = await startServer({ ...model.env, TOKEN_PREFIX: 'td' })
    const path = `/api/v1/agents/${await create(hosted)}/execute`
    for (const [query, content] of [
      ['', []],
      ['?content=all', [{ type: 'text', text: 'Hello' }]],
    ] as const) {
      model.script({ tokens: ['Hel', 'lo'] })
      const stream = await openStream(hosted, path + query, { method: 'POST', body: { message: 'Hi', stream: true } })
      expect(firstOf(await stream.rest())).toMatchObject({ text: 'Hello', content })
    }
  })
})

describe('the last event', () => {
  const failed = { message: 'Chat execution failed', status: 'failed' }
  const cancelled = { message: 'Execution was cancelled', status: 'cancelled' }

  it.each([
    ['before a word', { error: { status: 500 } }, []],
    ['in the middle', { tokens: ['Well, '], end: 'drop' }, ['Well, ']],
  ] as [string, Reply, string[]][])('is an error when the model fails %s', async (_, reply, texts) => {
    model.script(reply)
    const stream = await execute()
    const all = await stream.rest()
    expect(stream.status).toBe(200)
    expect(textsOf(all)).toEqual(texts)
    const { executionId } = all[0]!.data
    expect(all.at(-1)).toMatchObject({ event: 'error' })
    const why = { code: 'provider_error', detail: expect.any(String), stopReason: 'error' }
    expect(all.at(-1)?.data).toEqual({ type: 'error', ...failed, ...why, executionId })
    expect((await (await events(executionId)).rest()).map(({ text }) => text)).toEqual(all.map(({ text }) => text))
  })

  it('is an error when the run is cancelled, for all followers', async () => {
    const reply = gated(['Well, ', 'never'])
    const stream = await execute()
    const { executionId } = (await stream.next())!.data
    const other = await events(executionId)
    reply.open(0)
    expect((await stream.next())?.data.delta.text).toBe('Well, ')
    await cancel(executionId)
    const end = await stream.rest()
    const why = { code: 'cancelled', stopReason: 'cancelled' }
    expect(end.map(({ event, data }) => [event, data])).toEqual([
      ['error', { type: 'error', ...cancelled, ...why, executionId }],
    ])
    expect((await other.rest()).at(-1)?.text).toBe(end[0]?.text)
    reply.openAll()
  })

  it('comes at once to followers of a run that is cancelled before it starts', async () => {
    const reply = gated(['Done.'])
    const { sessionId } = await background()
    const { executionId } = await background({ sessionId })
    const stream = await events(executionId)
    expect((await stream.next())?.event).toBe('meta')
    await cancel(executionId)
    expect((await stream.rest()).map(({ event, data }) => [event, data.status])).toEqual([['error', 'cancelled']])
    reply.openAll()
  })
})

describe('a client that reconnects', () => {
  it('a client that reconnects with a number beyond any event gets the end', async () => {
    const { executionId } = (await (await execute()).next())!.data
    const stream = await events(executionId, `?after=${'9'.repeat(20)}`)
    expect((await stream.rest()).map(({ event }) => event)).toEqual(['result'])
  })

  it('a client that reconnects with the last event, or a later one, gets a 204, which stops it', async () => {
    const stream = await execute()
    const { executionId } = (await stream.next())!.data
    const last = (await stream.rest()).at(-1)!.id
    for (const id of [last, last + 1, '9'.repeat(20)]) {
      const over = await events(executionId, '', { 'Last-Event-ID': String(id) })
      expect([over.status, over.text]).toEqual([204, ''])
    }
    expect((await events(executionId, '', { 'Last-Event-ID': String(last - 1) })).status).toBe(200)
  })

  const HOW: [how: string, open: (id: string, after: number, at?: Server) => Promise<EventStream>][] = [
    ['Last-Event-ID', (id, after, at) => events(id, '', { 'Last-Event-ID': String(after) }, at)],
    ['?after', (id, after, at) => events(id, `?after=${after}`, {}, at)],
    ['both', (id, after, at) => events(id, '?after=0', { 'Last-Event-ID': String(after) }, at)],
  ]

  it.each(HOW)(
    'a client that reconnects with %s resumes after any event, during the run and after its end',
    async (_, open) => {
      const tokens = ['One ', 'two ', 'three ', 'four ', 'five']
      const reply = gated(tokens)
      const stream = await execute()
      const { executionId } = (await stream.next())!.data
      for (let part = 0; part < 3; part++) reply.open(part)
      await take(stream, 3)
      const first = await events(executionId)
      const seen = await take(first, 4)
      const followers = await Promise.all([0, ...seen.map(({ id }) => id)].map((after) => open(executionId, after)))
      // Each client is up to date before the next event.
      const begun = await Promise.all(followers.map((follower, index) => take(follower, seen.length - index)))
      reply.openAll()
      const all = [...seen, ...(await first.rest())].map(({ text }) => text)
      expect(all).toHaveLength(1 + tokens.length + 2)
      for (const [index, follower] of followers.entries()) {
        const got = [...(begun[index] ?? []), ...(await follower.rest())].map(({ text }) => text)
        expect(got).toEqual(all.slice(index))
      }
      await stream.rest()
      const numbers = [0, ...all.map((text) => Number(/^id: (\d+)/.exec(text)?.[1]))]
      for (const [index, after] of numbers.slice(0, -1).entries()) {
        const got = (await (await open(executionId, after)).rest()).map(({ text }) => text)
        expect(got).toEqual(all.slice(index))
      }
    },
  )

  it('a client that reconnects after a restart of the server gets the same events, none twice', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'muster-test-'))
    try {
      let before = await startServer(model.env, { folder })
      const { token } = before
      const id = await create(before)
      model.script({ tokens: ['One ', 'two ', 'three'] })
      const body = { message: 'Hi', stream: true }
      const stream = await openStream(before, `/api/v1/agents/${id}/execute`, { method: 'POST', body })
      const all = await stream.rest()
      await before[Symbol.asyncDispose]()
      before = await startServer(model.env, { folder })
      const at = { url: before.url, token }
      for (const [, open] of HOW) {
        for (const [index, after] of [0, ...all.slice(0, -1).map((event) => event.id)].entries()) {
          const again = await (await open(all[0]!.data.executionId, after, at)).rest()
          expect(again).toEqual(all.slice(index))
        }
      }
      await before[Symbol.asyncDispose]()
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })

  it('gets the events of a run that a stopped server ended, to the terminal one', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'muster-test-'))
    try {
      const first = await startServer({ ...model.env, DRAIN_TIMEOUT: '0.1' }, { folder })
      const { token } = first
      const id = await create(first)
      const reply = gated(['One ', 'never'])
      const body = { message: 'Hi', stream: true }
      const stream = await openStream(first, `/api/v1/agents/${id}/execute`, { method: 'POST', body })
      reply.open(0)
      const seen = await take(stream, 2)
      await first[Symbol.asyncDispose]()
      await using second = await startServer(model.env, { folder })
      const { executionId } = seen[0]!.data
      const resumed = await events(
        executionId,
        '',
        { 'Last-Event-ID': String(seen[1]!.id) },
        { url: second.url, token },
      )
      const rest = await resumed.rest()
      expect(rest.map(({ event, data }) => [event, data.status])).toEqual([['error', 'failed']])
      expect(rest[0]!.id).toBeGreaterThan(seen[1]!.id)
      reply.openAll()
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })
})

describe('followers', () => {
  it('followers of a pending run get meta at once, and then the rest', async () => {
    const [first, second] = [gated(['One']), gated(['Two'])]
    const { sessionId } = await background()
    const stream = await execute({ sessionId })
    const meta = await stream.next()
    expect(meta).toMatchObject({ id: 1, event: 'meta', data: { sessionId } })
    const other = await events(meta?.data.executionId)
    expect((await other.next())?.text).toBe(meta?.text)
    expect((await get(meta?.data.executionId)).status).toBe('pending')
    first.openAll()
    second.openAll()
    const rest = await stream.rest()
    expect(rest.map(({ event }) => event)).toEqual(['message', 'message', 'result'])
    expect(await other.rest()).toEqual(rest)
  })

  it('see the same, a hundred of them, whenever they join', async () => {
    const tokens = Array.from({ length: 100 }, (_, index) => `token${index} `)
    model.script({ tokens, delay: 1 })
    const { executionId } = await background()
    const first = await events(executionId)
    const all: StreamEvent[] = []
    const followers: Promise<[after: number, StreamEvent[]]>[] = []
    // During the run clients keep joining: from the start, and after their last event.
    for (let event = await first.next(); event; event = await first.next()) {
      const after = all.push(event) % 2 ? 0 : event.id
      followers.push(events(executionId, `?after=${after}`).then(async (stream) => [after, await stream.rest()]))
    }
    expect(textsOf(all)).toEqual(tokens)
    for (const [after, got] of await Promise.all(followers)) expect(got).toEqual(all.filter(({ id }) => id > after))
  })

  it('followers that do not read delay no others, and lose nothing', async () => {
    const tokens = Array.from({ length: 100 }, (_, index) => `${index} `.padEnd(40_960, '.'))
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: [gate.promise, ...tokens] })
    const { executionId } = await background()
    const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
    const head = [`GET /api/v1/executions/${executionId}/events HTTP/1.0`, `Authorization: Bearer ${server.token}`]
    socket.write(`${head.join('\r\n')}\r\n\r\n`)
    await once(socket, 'readable')
    gate.resolve()
    expect(textsOf(await (await events(executionId)).rest())).toEqual(tokens)
    expect(await isEnded(executionId)).toBe(true)
    const text = await textOf(socket)
    const ids = [...text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))
    expect(ids).toEqual(Array.from({ length: tokens.length + 3 }, (_, index) => index + 1))
    expect(text).toMatch(/\nevent: result\ndata: .*\n\n$/)
  })

  it.each([
    ['continues', '', {}, 'completed'],
    ['is cancelled if the query asks for that', '?onDisconnect=cancel', {}, 'cancelled'],
    ['is cancelled if the body asks for that', '', { onDisconnect: 'cancel' }, 'cancelled'],
  ])('may leave: the run %s', async (_, query, fields, status) => {
    const index = model.requests.length
    const reply = gated(['One ', 'two'])
    const stream = await execute(fields, query)
    reply.open(0)
    const { executionId } = (await take(stream, 2))[0]!.data
    await stream.close()
    if (status === 'cancelled') await (await model.request(index)).aborted
    reply.openAll()
    await expect.poll(() => isEnded(executionId)).toBe(true)
    expect((await get(executionId)).status).toBe(status)
  })

  it('followers of a foreign run get a JSON error before any byte of a stream', async () => {
    const { token } = await server.member({ organization: 'Other' })
    const { executionId } = await background()
    for (const [id, who] of [
      ['exec-1-unknown', server.token],
      [executionId, token],
    ] as const) {
      const stream = await openStream(server, `/api/v1/executions/${id}/events`, { token: who })
      expect(stream.headers.get('content-type')).toBe('application/json; charset=utf-8')
      expectError({ ...stream, body: JSON.parse(stream.text) }, 404, 'Execution not found')
    }
    const refused = await execute({ message: ' ' })
    expectError({ ...refused, body: JSON.parse(refused.text) }, 400, 'Missing required field: message')
  })
})
