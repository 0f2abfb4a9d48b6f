import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { connectMcp } from '../../src/mcps/client/client.ts'

type Message = { id?: number; method: string }

/** The first events of the stream, and the reaction to a message. */
let begin: (stream: ServerResponse) => void
let receive: (message: Message, stream: ServerResponse) => void
let streams: number
let stream: ServerResponse
let url: string
let elsewhere: { url: string; requests: number }
const http = createServer(async (request, response) => {
  if (request.method === 'GET') {
    streams++
    stream = response.writeHead(200, { 'content-type': 'text/event-stream' })
    return begin(stream)
  }
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  response.writeHead(202).end()
  receive(JSON.parse(Buffer.concat(chunks).toString()), stream)
})
const other = createServer((_, response) => {
  elsewhere.requests++
  response.end()
})
beforeAll(async () => {
  for (const server of [http, other]) await once(server.listen(0, '127.0.0.1'), 'listening')
  const at = (server: typeof http) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  url = `${at(http)}/sse`
  elsewhere = { url: at(other), requests: 0 }
})
afterAll(() => {
  for (const server of [http, other]) {
    server.closeAllConnections()
    server.close()
  }
})

const say = (to: ServerResponse, { id }: Message, result: unknown) =>
  void to.write(`event: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', id, result })}\n\n`)
const endpoint = (to: ServerResponse, path = '/messages') =>
  void to.write(`retry: 1\nevent: endpoint\ndata: ${path}\n\n`)

/** Behaves as a server should, except for calls. */
const answering =
  (call: typeof receive): typeof receive =>
  (message, to) => {
    const greeting = {
      protocolVersion: '2024-11-05',
      capabilities: { tools: {} },
      serverInfo: { name: 'x', version: '1' },
    }
    if (message.method === 'initialize') say(to, message, greeting)
    else if (message.method === 'tools/list')
      say(to, message, { tools: [{ name: 'a', inputSchema: { type: 'object' } }] })
    else if (message.method === 'tools/call') call(message, to)
  }

const signal = new AbortController().signal
function connect(toolTimeout = 20_000) {
  streams = 0
  const headers = new Headers({ 'X-Key': 'secret' })
  return connectMcp({ url, transport: 'sse', headers, allowPrivate: true, toolTimeout, secrets: [] }, signal)
}

it.each<[string, typeof begin, string]>([
  ['never says where to post to', () => {}, 'it takes too long'],
  ['ends at once', (to) => void to.end(), 'the connection failed'],
  ['says a place on another server', (to) => endpoint(to, `${elsewhere.url}/messages`), 'it takes too long'],
  [
    'says nothing but garbage',
    (to) => {
      endpoint(to)
      const write = () => {
        while (!to.destroyed && to.write('data: {}\n\n'.repeat(1000)));
        if (!to.destroyed) to.once('drain', write)
      }
      write()
    },
    'it sent too many messages',
  ],
])('a stream that %s is no server, and the client stops reconnecting', async (_, beginning, reason) => {
  begin = beginning
  receive = () => {}
  await expect(connect(reason.includes('long') ? 1_500 : 20_000)).rejects.toThrow(reason)
  expect([streams, elsewhere.requests]).toEqual([1, 0])
})

it('the end of a stream fails its pending calls, and the next call reconnects', async () => {
  begin = (to) => endpoint(to)
  receive = answering((_, to) => void to.end())
  const client = await connect()
  const content = expect.stringMatching(/its answer ended without a result. The tool may have acted/)
  expect(await client.call('a', {}, signal)).toEqual({ isError: true, content })
  expect(streams).toBe(1)
  receive = answering((message, to) => say(to, message, { content: [{ type: 'text', text: 'Here' }] }))
  expect(await client.call('a', {}, signal)).toEqual({ isError: false, content: 'Here' })
  expect(streams).toBe(2)
  await client.close()
})

it('an endpoint event that names another origin, as behind a proxy, leads to the own one', async () => {
  const here = { content: [{ type: 'text', text: 'Here' }] }
  const { port } = new URL(url)
  begin = (to) => endpoint(to, `https://localhost:${port}/messages?session=1`)
  receive = answering((message, to) => {
    endpoint(to, `${elsewhere.url}/messages`)
    say(to, message, here)
  })
  const client = await connect()
  for (const _ of [1, 2]) expect(await client.call('a', {}, signal)).toEqual({ isError: false, content: 'Here' })
  expect(elsewhere.requests).toBe(0)
  await client.close()
})
