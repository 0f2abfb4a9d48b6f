import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { attend, type ServerSentEvent, writeEvents } from '../../src/http/sse.ts'
import { createUnreadLimit } from '../../src/http/unread.ts'
import { createLog } from '../../src/lib/log.ts'
import { readers } from '../soak/readers.ts'
import { listen } from '../support/listen.ts'
import { stalled } from '../support/unread.ts'

// The real process, in short. `npm run test:soak` has 20 readers and 20 MiB for each.
test('readers that never read delay no run and no other stream, and use no memory', async () => {
  const count = 3
  const { grownBy } = await readers(count, 6, false)
  expect(grownBy).toBeLessThan((32 / 20) * count)
})

test('a client that reads nothing is disconnected, and one that reads a little at times is not', async () => {
  const limit = createUnreadLimit({ MAX_UNSENT_BYTES: 2 ** 30 }, createLog('silent'), 2_000)
  const responses: ServerResponse[] = []
  let ended = 0
  const server = createServer((_, res) => {
    responses.push(res)
    res.on(
      'close',
      limit.watch(res, () => Promise.reject(new Error('nobody'))),
    )
    attend(res, new AbortController().signal)
    writeEvents(res, endless()).finally(() => ended++)
  })
  const port = await listen(server)
  const open = async () => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
    await until(() => responses.length > 0)
    return { socket, res: responses.shift()! }
  }
  const idle = await open()
  const slow = await open()
  while (!idle.res.destroyed) {
    slow.socket.resume()
    await once(slow.res.socket as Socket, 'drain')
    slow.socket.pause()
    await stalled(slow.res)
  }
  expect(slow.res.destroyed).toBe(false)
  await until(() => ended === 1)
  slow.socket.destroy()
  await until(() => ended === 2)
  idle.socket.destroy()
  server.close()
})

test('a reader that leaves while its next events are read is forgotten', async () => {
  const left = Promise.withResolvers<void>()
  let ended = false
  const late = async function* () {
    try {
      yield [{ seq: 1, event: 'message', data: { text: 'in time' } }]
      await left.promise
      yield [{ seq: 2, event: 'message', data: { text: 'late' } }]
      yield [{ seq: 3, event: 'message', data: { text: 'for nobody' } }]
    } finally {
      ended = true
    }
  }
  const server = createServer((_, res) => {
    res.on('close', () => left.resolve())
    void writeEvents(res, late())
  })
  const port = await listen(server)
  const socket = connect(port, '127.0.0.1')
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
  await once(socket, 'data')
  socket.destroy()
  await until(() => ended)
  server.close()
})

test('an empty batch is not the end of a stream', async () => {
  const event = (seq: number): ServerSentEvent => ({ seq, event: 'message', data: { seq } })
  const batches = async function* () {
    yield* [[event(1)], [], [event(2)]]
  }
  const server = createServer((_, res) => void writeEvents(res, batches()))
  const port = await listen(server)
  const answer = await fetch(`http://127.0.0.1:${port}`)
  expect((await answer.text()).match(/^id: .$/gm)).toEqual(['id: 1', 'id: 2'])
  server.close()
})

/** The fake clock stands still, so no timer fires. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve))
}

async function* endless(): AsyncGenerator<ServerSentEvent[]> {
  for (let seq = 1; ; seq++) yield [{ seq, event: 'message', data: { text: 'x'.repeat(64 * 1024) } }]
}
