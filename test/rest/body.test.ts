import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { expect, it } from 'vitest'
import { readJson } from '../../src/http/body.ts'
import { listen } from '../support/listen.ts'

it.each([
  ['before its body is asked for', true],
  ['while it is waited for', false],
])('a request whose sender leaves %s fails without a wait for the rest', async (_, left) => {
  const coming = Promise.withResolvers<IncomingMessage>()
  const server = createServer((req) => coming.resolve(req))
  const port = await listen(server)
  const socket = connect(port, '127.0.0.1')
  const head = ['POST / HTTP/1.1', 'Host: localhost', 'Content-Type: application/json', 'Content-Length: 100']
  socket.write(`${head.join('\r\n')}\r\n\r\n{"message":`)
  const req = await coming.promise
  const closed = once(req, 'close').catch(() => {})
  const early = left ? null : readJson(req)
  socket.destroy()
  if (left) await closed
  await expect(early ?? readJson(req)).rejects.toThrow('Malformed HTTP request')
  server.close()
})
