import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect, Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, expect, test, vi } from 'vitest'
import { type ServerSentEvent, writeEvents } from '../../src/http/sse.ts'
import { listen } from '../support/listen.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'

const MIB = 1024 * 1024
/** Characters that JSON lengthens, with surrogate pairs at every place of a possible cut. */
const PART = 'A long "reply" \u2028 of the model 😀.\n'.repeat(1_000)
const COUNT = 60
const REPLY = PART.repeat(COUNT)

afterEach(() => {
  vi.restoreAllMocks()
  vi.useRealTimers()
})

/** Records the longest text that is written to a connection, and the longest that is serialized, during some work. */
async function longestOf(work: () => Promise<unknown>): Promise<{ written: number; json: number }> {
  const longest = { written: 0, json: 0 }
  const { write } = Socket.prototype
  vi.spyOn(Socket.prototype, 'write').mockImplementation(function (this: Socket, ...given: unknown[]) {
    longest.written = Math.max(longest.written, (given[0] as string | Buffer).length)
    return Reflect.apply(write, this, given)
  })
  const { stringify } = JSON
  vi.spyOn(JSON, 'stringify').mockImplementation((...given: unknown[]) => {
    const json = Reflect.apply(stringify, JSON, given)
    longest.json = Math.max(longest.json, json?.length ?? 0)
    return json
  })
  await work()
  vi.restoreAllMocks()
  return longest
}

test('a reply of megabytes is replayed and read in pieces, without any change', async () => {
  await using model = await startModelServer()
  await using server = await startServer(model.env)
  model.script({ tokens: Array.from({ length: COUNT }, () => PART) })
  const { id } = (await request(server, 'POST', '/api/v1/agents', { body: { name: 'Ada', systemPrompt: 'S' } })).body
  const executed = await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi' } })
  expect(executed.body.result === REPLY).toBe(true)
  const path = `/api/v1/executions/${executed.body.executionId}`

  const read: string[] = []
  const ofRead = await longestOf(async () => {
    const headers = { authorization: `Bearer ${server.token}`, 'accept-encoding': 'identity' }
    const response = await fetch(`${server.url}${path}`, { headers })
    read.push(response.headers.get('content-length') ?? '', response.headers.get('etag') ?? '', await response.text())
  })
  const [length, etag = '', json = ''] = read
  const answer = JSON.parse(json)
  expect([Number(length), answer.execution.result === REPLY, json === JSON.stringify(answer)]).toEqual([
    Buffer.byteLength(json),
    true,
    true,
  ])
  expect((await request(server, 'GET', path, { headers: { 'If-None-Match': etag } })).status).toBe(304)
  expect([ofRead.written < MIB, ofRead.json < MIB]).toEqual([true, true])

  const events: { id: number; data: any; text: string }[] = []
  const ofReplay = await longestOf(async () => {
    await using stream = await openStream(server, `${path}/events`)
    events.push(...(await stream.rest()))
  })
  const deltas = events.flatMap(({ data }) => (data.messageType === 'stream_event' ? data.delta.text : []))
  const whole = events.find(({ data }) => data.messageType === 'assistant')
  expect([deltas.join('') === REPLY, whole?.data.text === REPLY, whole?.data.content[0].text === REPLY]).toEqual([
    true,
    true,
    true,
  ])
  expect(/[\u0085\u2028\u2029]/.test(whole?.text ?? '')).toBe(false)
  expect([ofReplay.written < MIB, ofReplay.json < MIB]).toEqual([true, true])

  // A reader that resumes after any fragment gets the whole event, and nothing before it.
  const from = async (after: number) => {
    await using stream = await openStream(server, `${path}/events`, { headers: { 'Last-Event-ID': String(after) } })
    return (await stream.rest()).map((event) => event.text)
  }
  const before = whole?.id ?? 0
  const texts = events.map((event) => event.text)
  expect((await from(before - 1)).every((each, index) => each === texts.slice(-2)[index])).toBe(true)
  expect(await from(before)).toEqual(texts.slice(-1))
})

test('no heartbeat interrupts an event that a slow reader receives', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  const data = { messageType: 'tool_result', toolUseId: 't', content: 'x'.repeat(16 * MIB), isError: false }
  const batches = async function* (): AsyncGenerator<ServerSentEvent[]> {
    yield [{ seq: 2, event: 'message', data }]
  }
  await using server = createServer((_, res) => void writeEvents(res, batches()))
  const port = await listen(server)
  const socket = connect(port, '127.0.0.1')
  socket.write('GET / HTTP/1.0\r\n\r\n')
  await once(socket, 'readable')
  for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve))
  vi.advanceTimersByTime(60_000)
  const answer = await text(socket)
  const body = answer.slice(answer.indexOf('\r\n\r\n') + 4)
  const event = `id: 2\nevent: message\ndata: {"type":"message",${JSON.stringify(data).slice(1)}\n\n`
  expect(body.replace(/: ping\n\n/g, '') === event).toBe(true)
  expect(body.includes(event)).toBe(true)
})

test('headers and the first events of a stream leave in one write', async () => {
  const rest = Promise.withResolvers<void>()
  const batches = async function* (): AsyncGenerator<ServerSentEvent[]> {
    yield [{ seq: 1, event: 'meta', data: { executionId: 'exec-1' } }]
    await rest.promise
  }
  let writes = 0
  await using server = createServer((_, res) => {
    // A socket writes one chunk with the first method, and several with the second.
    for (const name of ['_write', '_writev'] as const) {
      const write = res.socket![name]
      res.socket![name] = function (this: Socket, ...given: unknown[]) {
        writes++
        return Reflect.apply(write!, this, given)
      }
    }
    void writeEvents(res, batches())
  })
  const port = await listen(server)
  const answer = await fetch(`http://127.0.0.1:${port}/`)
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  expect((await reader.read()).value).toBe('id: 1\nevent: meta\ndata: {"type":"meta","executionId":"exec-1"}\n\n')
  expect(writes).toBe(1)
  rest.resolve()
  expect((await reader.read()).done).toBe(true)
})
