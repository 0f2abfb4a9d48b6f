import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openNetwork } from '../src/lib/net/network.ts'

const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'
const OK = 'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n'

let pieces: string[] = []
const server = createServer((socket) => {
  socket.setNoDelay(true)
  socket.on('error', () => {})
  socket.on('data', async (bytes) => {
    // The body of a request is its last piece.
    if (!bytes.toString().endsWith('x')) return
    for (const piece of pieces) {
      await new Promise((resolve) => socket.write(piece, resolve))
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  })
})
const network = openNetwork({ proxyFor: () => null })
beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
})
afterAll(async () => {
  await network.close()
  server.close()
})

describe('a response', () => {
  it.each<[string, string[], string]>([
    ['100 Continue', [CONTINUE, `${OK}content-length: 2\r\n\r\nHi`], 'Hi'],
    ['100 Continue in the same bytes', [`${CONTINUE}${OK}content-length: 2\r\n\r\nHi`], 'Hi'],
    [
      '100 Continue in pieces',
      ['HTT', 'P/1.1 10', '0 Continue\r\nx: y\r', `\n\r\n${OK}content-length: 2\r\n\r\nHi`],
      'Hi',
    ],
    [
      '100 Continue twice, and 103',
      [CONTINUE + CONTINUE, 'HTTP/1.1 103 Early Hints\r\n\r\n', `${OK}content-length: 2\r\n\r\nHi`],
      'Hi',
    ],
    ['a body that says 100 Continue', [`${OK}content-length: ${CONTINUE.length}\r\n\r\n`, CONTINUE], CONTINUE],
    ['a head in pieces', ['H', `${OK.slice(1)}content-length: 2\r\n\r\nHi`], 'Hi'],
  ])('is read with %s, twice in a row', async (_, given, body) => {
    pieces = given
    const { port } = server.address() as AddressInfo
    for (let turn = 0; turn < 2; turn++) {
      const response = await network.fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'x' })
      expect(await response.text()).toBe(body)
    }
  })
})
