import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { createClient } from '../../src/sdk/index.ts'
import { subscribe } from '../graphql/support.ts'
import { expectError } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { type EventStream, openStream, type StreamEvent } from '../support/sse.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const server = await use(startServer(model.env))

type Server = Pick<TestServer, 'url' | 'token'>
type Fields = Record<string, unknown>

const post = async (path: string, body: Fields, at: Server = server) => {
  const answer = await request(at, 'POST', `/api/v1${path}`, { body })
  expect(answer.status).toBe(200)
  return answer.body
}
const create = async (at: Server): Promise<string> =>
  (await post('/agents', { name: 'Ada', systemPrompt: 'You are Ada.' }, at)).id
const agent: string = await create(server)
const open = async (at: Server = server, agentId = agent): Promise<string> => (await post('/chats', { agentId }, at)).id
const send = (chat: string, fields: Fields, at: Server = server) => post(`/chats/${chat}/messages`, fields, at)

const follow = (chat: string, lastEventId?: string, at: Server = server): Promise<EventStream> =>
  openStream(at, `/api/v1/chats/${chat}/events`, { headers: lastEventId ? { 'Last-Event-ID': lastEventId } : {} })

/** Reads events up to one that matches. */
async function until(stream: EventStream, holds: (event: StreamEvent) => boolean): Promise<StreamEvent[]> {
  const events: StreamEvent[] = []
  for (let event = await stream.next(); event; event = await stream.next()) {
    events.push(event)
    if (holds(event)) return events
  }
  throw new Error(`The stream ended after ${JSON.stringify(events)}`)
}

const isStatus = (status: string) => (event: StreamEvent) => event.event === 'status' && event.data.status === status
const nameOf = ({ event, data }: StreamEvent) => (data.status && event === 'status' ? data.status : event)
const wordOf = ({ data }: StreamEvent) => data.delta?.text ?? []

/** A reply whose tokens come one by one, each when its gate is opened. */
function gated(tokens: string[]) {
  const gates = tokens.map(() => Promise.withResolvers<void>())
  model.script({ tokens: tokens.flatMap((token, index) => [gates[index]!.promise, token]) })
  return (index: number) => gates[index]?.resolve()
}

describe('the events of a chat', () => {
  it('are those of its runs from now on, including everything within a run', async () => {
    const chat = await open()
    await send(chat, { message: 'Before' })
    await using stream = await follow(chat)
    expect(nameOf((await stream.next())!)).toBe('done')
    for (const words of [['One ', 'two'], ['Three']]) {
      model.script({ tokens: words })
      const { executionId, sessionId } = await send(chat, { message: 'Hi' })
      const events = await until(stream, isStatus('done'))
      const deltas = words.map(() => 'message')
      expect(events.map(nameOf)).toEqual(['working', 'meta', ...deltas, 'message', 'result', 'done'])
      expect(events.flatMap(wordOf)).toEqual(words)
      expect(events[1]?.data).toEqual({ type: 'meta', executionId, chatId: chat, sessionId })
      for (const { data, event, lastEventId } of events) {
        expect(data).toMatchObject({ type: event, executionId })
        expect(lastEventId).toMatch(new RegExp(`^${executionId}:\\d+$`))
      }
    }
  })

  it('start with the state of an empty chat, and with an active run from its first event', async () => {
    const chat = await open()
    await using first = await follow(chat)
    expect((await first.next())?.data).toMatchObject({ type: 'status', status: 'standby', executionId: null })
    const gate = gated(['One ', 'two'])
    await send(chat, { message: 'Hi', background: true })
    gate(0)
    const begun = await until(first, ({ data }) => data.delta)
    await using second = await follow(chat)
    gate(1)
    const all = [...begun, ...(await until(first, isStatus('done')))].map(({ text }) => text)
    const late = (await until(second, isStatus('done'))).map(({ text }) => text)
    expect(late.slice(1)).toEqual(all.slice(1))
  })

  it('resume after any of them, without gaps or duplicates', async () => {
    const chat = await open()
    await using stream = await follow(chat)
    const start = (await stream.next())!
    const gate = gated(['One ', 'two ', 'three'])
    await send(chat, { message: 'Hi', background: true })
    for (const index of [0, 1]) gate(index)
    const seen = await until(stream, ({ data }) => data.delta?.text === 'two ')
    const early = await Promise.all([start, ...seen].map(({ lastEventId }) => follow(chat, lastEventId)))
    gate(2)
    await until(stream, isStatus('done'))
    await send(chat, { message: 'Again' })
    const rest = await until(stream, isStatus('done'))
    /** Without the other parts of an id, which depend on the active runs. */
    const plain = ({ text }: StreamEvent) => text.replace(/^(id: [^,\n]+)[^\n]*/, '$1')
    const ids = (events: StreamEvent[]) => events.filter(({ event }) => event !== 'status').map(plain)
    const isEnd = (event: StreamEvent) => plain(event) === ids(rest).at(-1)
    await using whole = await follow(chat, start.lastEventId)
    const all = ids(await until(whole, isEnd))
    expect([all.slice(0, seen.length - 1), new Set(all).size]).toEqual([ids(seen), all.length])
    for (const [index, late] of early.entries()) {
      const count = ids([start, ...seen].slice(0, index + 1)).length
      expect(ids(await until(late, isEnd))).toEqual(all.slice(count))
      await late.close()
    }
    for (const { lastEventId } of [start, ...seen]) {
      await using late = await follow(chat, lastEventId)
      const count = ids([start, ...seen]).findIndex((text) => text.startsWith(`id: ${lastEventId}\n`)) + 1
      expect(ids(await until(late, isEnd))).toEqual(all.slice(count))
    }
    await using last = await follow(chat, rest.at(-1)!.lastEventId)
    expect(nameOf((await last.next())!)).toBe('done')
  })

  it('the events of a chat of two concurrent branches also resume after any of them', async () => {
    const chat = await open()
    const one = await send(chat, { message: 'One' })
    const [left, right] = [gated(['l1 ', 'l2']), gated(['r1 ', 'r2'])]
    await using stream = await follow(chat)
    await send(chat, { message: 'Left', sessionId: one.sessionId, background: true })
    await until(stream, ({ event }) => event === 'meta')
    await send(chat, { regenerate: true, background: true })
    await until(stream, ({ event }) => event === 'meta')
    left(0)
    await until(stream, ({ data }) => data.delta?.text === 'l1 ')
    right(0)
    const [middle] = (await until(stream, ({ data }) => data.delta?.text === 'r1 ')).slice(-1)
    await using resumed = await follow(chat, middle!.lastEventId)
    for (const index of [0, 1]) for (const gate of [left, right]) gate(index)
    const rest = await until(resumed, isStatus('done'))
    expect(rest.flatMap(wordOf).sort()).toEqual(['l2', 'r2'])
    expect(rest.filter(({ event }) => event === 'result')).toHaveLength(2)
    const end = await until(stream, isStatus('done'))
    await using after = await follow(chat, end.at(-1)!.lastEventId)
    expect(nameOf((await after.next())!)).toBe('done')
  })

  it('start again with a reset if the given event is gone', async () => {
    const [chat, other] = [await open(), await open()]
    const { executionId } = await send(other, { message: 'Hi' })
    for (const id of ['unknown', 'exec-1-unknown:3', `${executionId}:2`, 'x:1,'.repeat(1_000)]) {
      await using stream = await follow(chat, id)
      expect([(await stream.next())?.event, nameOf((await stream.next())!)]).toEqual(['reset', 'standby'])
    }
  })

  it('show a run of another branch, a requested approval, and a cancelled run', async () => {
    const chat = await open()
    await using stream = await follow(chat)
    const gate = gated(['Never'])
    const { executionId } = await send(chat, { message: 'Hi', background: true })
    await until(stream, ({ event }) => event === 'meta')
    await request(server, 'POST', `/api/v1/executions/${executionId}/cancel`)
    const events = await until(stream, isStatus('standby'))
    expect(events.map(nameOf)).toEqual(['error', 'standby'])
    expect(events[0]?.data).toMatchObject({ executionId, status: 'cancelled' })
    gate(0)
  })

  it('end within 5 s once the chat is deleted or private, or the token revoked', async () => {
    const { token } = await server.member({ organization: 'Other' })
    const chats = await Promise.all([open(), open(), open()])
    const [deleted, hidden, revoked] = chats as [string, string, string]
    expectError(await request(server, 'GET', `/api/v1/chats/${deleted}/events`, { token }), 404, 'Chat not found')
    expectError(await request(server, 'GET', '/api/v1/chats/none/events'), 404, 'Chat not found')
    const { id: spaceId } = await post('/spaces', { name: 'Ours' })
    await server.service.deps.db.chat.update({ where: { id: hidden }, data: { spaceId } })
    const [first, second, third] = await Promise.all([server.member(), server.member(), server.member()])
    const streams = await Promise.all(
      [
        [deleted, first],
        [hidden, second],
        [revoked, third],
      ].map(([chat, member]) =>
        follow(chat as string, undefined, { ...server, token: (member as { token: string }).token }),
      ),
    )
    for (const stream of streams) await stream.next()
    await request(server, 'DELETE', `/api/v1/chats/${deleted}`)
    await request(server, 'PATCH', `/api/v1/spaces/${spaceId}`, { body: { visibility: 'private' } })
    await request({ ...server, token: third.token }, 'DELETE', `/api/v1/keys/${third.tokenId}`)
    expect(await Promise.all(streams.map((stream) => stream.rest()))).toEqual([[], [], []])
  })

  it("hide texts of another member's private agent in the chat", async () => {
    const chat = await open()
    await using stream = await follow(chat)
    const owner = { ...server, token: (await server.member()).token }
    const body = { name: 'Eve', systemPrompt: 'You are Eve.', visibility: 'private' }
    const { id } = await post('/agents', body, owner)
    await post(`/agents/${id}/execute`, { message: 'Secret', chatId: chat }, owner)
    await send(chat, { message: 'Hi' })
    const events = await until(stream, ({ event }) => event === 'result')
    expect(events.filter(({ event }) => event === 'meta')).toHaveLength(1)
  })

  it('wait for a reader that does not read, without delaying others', async () => {
    const chat = await open()
    const tokens = Array.from({ length: 400 }, (_, index) => `${index} `.padEnd(8192, '.'))
    const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
    socket.write(`GET /api/v1/chats/${chat}/events HTTP/1.0\r\nAuthorization: Bearer ${server.token}\r\n\r\n`)
    await new Promise((resolve) => socket.once('readable', resolve))
    await using stream = await follow(chat)
    model.script({ tokens })
    await send(chat, { message: 'Much', background: true })
    expect((await until(stream, isStatus('done'))).flatMap(wordOf)).toEqual(tokens)
    const chunks: string[] = []
    for await (const chunk of socket.setEncoding('utf8')) {
      chunks.push(chunk)
      if (chunks.slice(-2).join('').includes('\nevent: result')) break
    }
    const text = chunks.join('')
    const ids = [...text.matchAll(/^id: exec-\S+:(\d+)\nevent: message$/gm)].map(([, id]) => Number(id))
    expect(ids).toEqual(Array.from({ length: tokens.length + 1 }, (_, index) => index + 2))
  })

  it('resume after a restart of the server in the middle of an answer', async () => {
    const first = await startServer({ ...model.env, DRAIN_TIMEOUT: '0.1' })
    const { token, folder, databaseEnv } = first
    await using cleanup = new AsyncDisposableStack()
    cleanup.defer(() => first[Symbol.asyncDispose]())
    const chat = await open(first, await create(first))
    const stream = await follow(chat, undefined, first)
    const gate = gated(['One ', 'never'])
    const { executionId } = await send(chat, { message: 'Hi', background: true }, first)
    gate(0)
    const [last] = (await until(stream, ({ data }) => data.delta)).slice(-1)
    await first.service.stop()
    const second = await startServer({ ...model.env, ...databaseEnv }, { folder })
    cleanup.defer(() => second[Symbol.asyncDispose]())
    await using resumed = await follow(chat, last!.lastEventId, { url: second.url, token })
    const events = (await until(resumed, ({ event }) => event === 'error')).filter(({ event }) => event !== 'status')
    expect(events.map(({ event, data }) => [event, data.executionId])).toEqual([['error', executionId]])
    gate(1)
  })

  it.runIf(onPostgres)('include those of runs on other servers', async () => {
    await using other = await startServer({ ...model.env, ...server.databaseEnv })
    const at = { url: other.url, token: server.token }
    const chat = await open()
    await using stream = await follow(chat)
    await stream.next()
    model.script({ tokens: ['One ', 'two'] })
    await send(chat, { message: 'Hi' }, at)
    const events = await until(stream, isStatus('done'))
    expect(events.map(nameOf)).toEqual(['working', 'meta', 'message', 'message', 'message', 'result', 'done'])
  })

  it('are the same over tRPC and GraphQL', async () => {
    const chat = await open()
    await send(chat, { message: 'Before' })
    const client = createClient(server)
    const seen: { id: string; data: { event: string } }[] = []
    const ended = Promise.withResolvers<void>()
    const subscription = client.chats.events.subscribe(
      { id: chat },
      {
        onData(event) {
          // The chat's next status may arrive with the result.
          if (seen.at(-1)?.data.event !== 'result') seen.push(event as never)
          if (event.data.event === 'result') ended.resolve()
        },
      },
    )
    const query = `subscription ($id: String!) { chatEvents(id: $id) {
      id type executionId status event { __typename ... on TextDeltaEvent { text } } } }`
    const events = subscribe(server, query.replace('String', 'ID'), { id: chat })
    const followed = [(await events.next()).value.data.chatEvents]
    await expect.poll(() => seen.length).toBe(1)
    model.script({ tokens: ['Hello'] })
    const { executionId } = await send(chat, { message: 'Hi' })
    await ended.promise
    subscription.unsubscribe()
    for await (const { data } of events) {
      followed.push(data.chatEvents)
      if (data.chatEvents.type === 'result') break
    }
    const names = ['status', 'status', 'meta', 'message', 'message', 'result']
    expect(seen.map(({ data }) => data.event)).toEqual(names)
    expect(followed.map(({ type }) => type)).toEqual(names)
    expect(followed.map(({ id }) => id)).toEqual(seen.map(({ id }) => id))
    expect(followed[1]).toMatchObject({ executionId, status: 'working', event: null })
    expect(followed[3]).toMatchObject({ executionId, event: { __typename: 'TextDeltaEvent', text: 'Hello' } })
  })
})
