import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import type { Actor } from '../../src/auth/actor.ts'
import { finish } from '../../src/http/body.ts'
import { limitConnections } from '../../src/http/connections.ts'
import { refuseMalformed } from '../../src/http/malformed.ts'
import { writeEvents } from '../../src/http/sse.ts'
import { createUnreadLimit, type UnreadLimit } from '../../src/http/unread.ts'
import { createLog } from '../../src/lib/log.ts'
import { listen } from '../support/listen.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { stalled, unread } from '../support/unread.ts'

const MIB = 1024 * 1024
const silent = createLog('silent')

const answerWhole = (res: ServerResponse, content: string): void => {
  res.setHeader('Content-Length', content.length)
  finish(res, content)
}

/** Answers with a stream of one event. */
const answerEvent = (res: ServerResponse, content: string) =>
  void writeEvents(
    res,
    (async function* () {
      yield [{ event: 'message', data: { messageType: 'tool_result', content } }]
    })(),
  )

/** A server that answers every request with the number of bytes in its path; the query is the caller's token. */
async function startAnswering(limit: UnreadLimit, answer = answerWhole) {
  const answers: ServerResponse[] = []
  const server = createServer((req, res) => {
    const [, bytes, organizationId, tokenId] = (req.url ?? '').split('/')
    res.on(
      'close',
      limit.watch(res, async () => ({ organizationId, tokenId, userId: '' }) as unknown as Actor),
    )
    answers.push(res)
    answer(res, 'x'.repeat(Number(bytes)))
  })
  const port = await listen(server)
  return {
    port,
    /** A client that asks and reads nothing. */
    async ask(path: string): Promise<{ socket: Socket; res: ServerResponse }> {
      const socket = connect(port, '127.0.0.1').on('error', () => {})
      socket.pause().write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
      await until(() => answers.length > 0)
      const res = answers.shift() as ServerResponse
      await stalled(res)
      return { socket, res }
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

test('a response without a reader is ended, and one that is read slowly arrives whole', async () => {
  await using server = await startAnswering(createUnreadLimit({ MAX_UNSENT_BYTES: 64 * MIB }, silent, 1_500))
  const idle = await server.ask(`/${16 * MIB}/o/t`)
  const slow = await server.ask(`/${16 * MIB}/o/t`)
  let received = 0
  slow.socket.on('data', (chunk) => {
    received += chunk.length
    slow.socket.pause()
    setTimeout(() => slow.socket.resume(), 1)
  })
  slow.socket.resume()
  await until(() => idle.res.destroyed)
  await until(() => received > 16 * MIB)
  slow.socket.destroy()
})

test('beyond the limit of a token the response idle for longest ends first, and others continue', async () => {
  // All three are within the limit of the organization, and two exceed a quarter of it, though the system accepts some.
  const limit = createUnreadLimit({ MAX_UNSENT_BYTES: 61 * MIB }, silent)
  await using server = await startAnswering(limit)
  const first = await server.ask(`/${20 * MIB}/o/t`)
  limit.check()
  const second = await server.ask(`/${20 * MIB}/o/t`)
  const other = await server.ask(`/${20 * MIB}/o/other`)
  limit.check()
  await until(() => first.res.destroyed)
  expect([second.res.destroyed, other.res.destroyed]).toEqual([false, false])
})

test('the rest of a long event that its client does not read counts as unsent', async () => {
  const limit = createUnreadLimit({ MAX_UNSENT_BYTES: 61 * MIB }, silent)
  await using server = await startAnswering(limit, answerEvent)
  const first = await server.ask(`/${20 * MIB}/o/t`)
  limit.check()
  const second = await server.ask(`/${20 * MIB}/o/t`)
  limit.check()
  await until(() => first.res.destroyed)
  expect(second.res.destroyed).toBe(false)
  second.socket.destroy()
})

test("beyond an organization's limit its oldest unread responses end, and others' continue", async () => {
  // Less than any two have unsent, however much the system accepts of each.
  const limit = createUnreadLimit({ MAX_UNSENT_BYTES: MIB }, silent)
  await using server = await startAnswering(limit)
  const asked: { res: ServerResponse }[] = []
  for (let token = 0; token < 6; token++) asked.push(await server.ask(`/${12 * MIB}/o/${token}`))
  const foreign = await server.ask(`/${12 * MIB}/p/t`)
  limit.check()
  const left = () => asked.filter(({ res }) => !res.destroyed).length
  await until(() => left() <= 1)
  expect(left()).toBe(1)
  expect(foreign.res.destroyed).toBe(false)
})

test('the only unread response of a caller survives, whatever its size', async () => {
  const limit = createUnreadLimit({ MAX_UNSENT_BYTES: MIB }, silent)
  await using server = await startAnswering(limit)
  const response = await fetch(`http://127.0.0.1:${server.port}/${40 * MIB}/o/t`)
  limit.check()
  expect((await response.arrayBuffer()).byteLength).toBe(40 * MIB)
})

test('unread responses of one token end until they are within its limit, and one survives', async () => {
  await using server = await startServer({ MAX_UNSENT_BYTES: String(16 * MIB) })
  for (let count = 0; count < 12; count++) {
    await request(server, 'POST', '/api/v1/agents', { body: { name: 'A', systemPrompt: '…'.repeat(100_000) } })
  }
  const lists = ['a', 'b', 'c', 'd'].map((alias) => `${alias}: agents(first: 12) { nodes { systemPrompt } }`)
  const asked = { method: 'POST', path: '/graphql', body: JSON.stringify({ query: `{ ${lists.join(' ')} }` }) }
  const clients: { socket: Socket; res: ServerResponse }[] = []
  for (let count = 0; count < 8; count++) {
    const client = await unread(server, asked, server.token)
    client.socket.pause()
    clients.push(client)
    await until(() => client.res.writableLength > 0 || client.res.closed)
  }
  const ended = () => clients.filter(({ res }) => res.closed).length
  await until(() => ended() >= 7)
  // The survivor depends on the system, which may still accept bytes of an older one.
  expect(ended()).toBe(7)
  for (const { socket } of clients) socket.destroy()
})

test.each([
  ['nonsense\r\n\r\n', 'HTTP/1.1 400'],
  ['POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbegin', 'the whole request within 30 minutes'],
])('a connection with a malformed or slow request is closed, whether its client reads or not', async (sent, answer) => {
  const server = createServer({ requestTimeout: 100, headersTimeout: 100, connectionsCheckingInterval: 20 })
  server.on('clientError', refuseMalformed)
  const port = await listen(server)
  const opened = once(server, 'connection')
  // Half-open: the client never ends its side.
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {})
  socket.write(sent)
  const [theirs] = (await opened) as [Socket]
  await once(theirs, 'close')
  expect(await text(socket)).toContain(answer)
  socket.destroy()
  await new Promise((resolve) => server.close(resolve))
})

test('a server accepts fewer connections than the process may open files', async () => {
  const server = createServer()
  await limitConnections(server, silent)
  if (process.platform === 'linux') expect(server.maxConnections).toBeGreaterThan(0)
})

/** The server has no timer of its own. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5))
}
