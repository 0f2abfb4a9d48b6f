import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage, type Server } from 'node:http'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { afterEach, describe, expect, it } from 'vitest'
import { readJson } from '../../src/http/body.ts'
import { expectError, invalid, missing } from '../support/api.ts'
import { listen } from '../support/listen.ts'
import { type Answer, request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const server = await use(startServer())
afterEach(async () => {
  expect((await request(server, 'GET', '/api/v1/agents?limit=1')).status).toBe(200)
})

const valid = { name: 'Ada', systemPrompt: 'You are Ada.' }
const agentId: string = (await request(server, 'POST', '/api/v1/agents', { body: valid })).body.id

describe('a body', () => {
  it.each([
    ['{', 400, 'Invalid JSON in request body'],
    ['{"name":}', 400, 'Invalid JSON in request body'],
    ["{'name': 'Ada'}", 400, 'Invalid JSON in request body'],
    ['{"name": "Ada"} x', 400, 'Invalid JSON in request body'],
    ['undefined', 400, 'Invalid JSON in request body'],
    ['\n', 400, 'Invalid JSON in request body'],
    ['null', 400, invalid('body', 'object')],
    ['[]', 400, invalid('body', 'object')],
    [`[${JSON.stringify(valid)}]`, 400, invalid('body', 'object')],
    ['"Ada"', 400, invalid('body', 'object')],
    ['true', 400, invalid('body', 'object')],
    ['1', 400, invalid('body', 'object')],
    ['', 400, missing('name')],
  ])('%j over REST: %i %s', async (body, status, message) => {
    for (const [method, path] of [
      ['POST', '/api/v1/agents'],
      ['PATCH', `/api/v1/agents/${agentId}`],
      ['POST', `/api/v1/agents/${agentId}/execute`],
    ] as const) {
      if (body === '' && path !== '/api/v1/agents') continue
      expectError(await request(server, method, path, { body }), status, message)
    }
  })

  it.each([
    ['POST', '/trpc/agents.create', '{', 400, 'Invalid JSON in request body'],
    ['POST', '/trpc/agents.create', '[]', 400, invalid('body', 'object')],
    ['POST', '/trpc/agents.create', '"Ada"', 400, invalid('body', 'object')],
    ['GET', '/trpc/agents.list?input={', undefined, 400, 'Invalid JSON in request body'],
    ['GET', '/trpc/agents.list?input=[]', undefined, 400, invalid('body', 'object')],
  ])('a body over tRPC: %s %s %s: %i %s', async (method, path, body, status, message) => {
    const answer = await request(server, method, path, { body })
    expectError({ ...answer, body: answer.body.error.data }, status, message)
    expect(answer.body.error.message).toBe(message)
  })

  it('a body that is not UTF-8 gives a 400', async () => {
    const answer = await send('POST', '/api/v1/agents', [Buffer.from('{"name":"\xff","systemPrompt":"x"}', 'latin1')])
    expectError(answer, 400, 'Invalid JSON in request body')
  })

  it.each(['/api/v1/agents', '/trpc/agents.create'])('a body of 1 MiB is accepted by %s', async (path) => {
    const body = Buffer.alloc(1024 * 1024, ' ')
    body.write(JSON.stringify(valid))
    expect((await send('POST', path, [body])).status).toBe(200)
  })

  it.each([
    ['/api/v1/agents', 1, true],
    ['/api/v1/agents', 1, false],
    ['/api/v1/agents', 8 * 1024 * 1024, true],
    ['/api/v1/agents', 8 * 1024 * 1024, false],
    ['/trpc/agents.create', 1, true],
    ['/trpc/agents.create', 1, false],
  ])('a body at %s with %i bytes more than 1 MiB, its length given: %s, gives a 413', async (path, more, hasLength) => {
    const body = Buffer.alloc(1024 * 1024 + more, ' ')
    body.write(JSON.stringify(valid))
    const headers = hasLength ? { 'Content-Length': String(body.length) } : {}
    const half = body.length / 2
    const answer = await send('POST', path, [body.subarray(0, half), body.subarray(half)], headers)
    const data = answer.body.error?.data ?? answer.body
    expectError({ ...answer, body: data }, 413, 'Request body too large')
  })

  it.each([
    ['/api/v1/agents', 'application/json'],
    ['/graphql', 'application/json'],
    ['/api/v1/media', 'multipart/form-data; boundary=x'],
  ])('a body at %s is read to its end after a refusal, also on a connection that then ends', async (path, type) => {
    for (const connection of ['keep-alive', 'close']) {
      const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
      const length = 30 * 1024 * 1024
      const head = ['Host: localhost', `Authorization: Bearer ${server.token}`, `Content-Type: ${type}`]
      const lines = [`POST ${path} HTTP/1.1`, ...head, `Content-Length: ${length}`, `Connection: ${connection}`]
      socket.write(`${lines.join('\r\n')}\r\n\r\n`)
      const [first] = await once(socket, 'data')
      expect(String(first)).toMatch(/^HTTP\/1\.1 413 /)
      socket.write(Buffer.alloc(length, ' '))
      const next = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'
      if (connection === 'keep-alive') socket.write(next)
      const rest = await text(socket)
      expect(rest.includes('HTTP/1.1 200 ')).toBe(connection === 'keep-alive')
    }
  })

  it('is answered to a client that closes its half, unless the request waits for a run', async () => {
    const { body: agent } = await request(server, 'POST', '/api/v1/agents', { body: valid })
    const message = JSON.stringify({ message: 'Hello' })
    for (const [line, sent, status] of [
      ['GET /api/v1/agents', '', '200'],
      ['POST /api/v1/agents', '{', '400'],
      // Checking a password takes so long that the end is seen first.
      ['POST /api/auth/login', JSON.stringify({ email: 'nobody@example.com', password: 'a long password' }), '401'],
      [`POST /api/v1/agents/${agent.id}/execute`, message, undefined],
    ] as const) {
      const socket = connect({ port: Number(new URL(server.url).port), host: '127.0.0.1', allowHalfOpen: true })
      const { host } = new URL(server.url)
      const own = [`Host: ${host}`, `Origin: ${server.url}`, 'X-Muster-Request: 1']
      const head = [...own, `Authorization: Bearer ${server.token}`, 'Content-Type: application/json']
      socket.end([`${line} HTTP/1.1`, ...head, `Content-Length: ${sent.length}`, '', sent].join('\r\n'))
      const [, found] = /^HTTP\/1\.1 (\d+)/.exec(await text(socket)) ?? []
      expect(found).toBe(status)
    }
  })

  it('has half an hour to arrive, and a minute for its headers', async () => {
    let limits: Pick<Server, 'requestTimeout' | 'headersTimeout'> | undefined
    const note = (message: unknown) => {
      limits = (message as { server: Server }).server
    }
    subscribe('http.server.request.start', note)
    await fetch(`${server.url}/healthz`)
    unsubscribe('http.server.request.start', note)
    expect(limits).toMatchObject({ requestTimeout: 30 * 60_000, headersTimeout: 60_000 })
  })

  it('a body without an end is refused, and its sender is disconnected', async () => {
    const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
    const head = ['Host: localhost', `Authorization: Bearer ${server.token}`, 'Content-Type: application/json']
    const lines = ['POST /api/v1/agents HTTP/1.1', ...head, 'Transfer-Encoding: chunked']
    socket.write(`${lines.join('\r\n')}\r\n\r\n`)
    const refused = once(socket, 'data')
    const closed = new Promise((resolve) => socket.on('error', () => {}).on('close', resolve))
    const chunk = `100000\r\n${' '.repeat(1024 * 1024)}\r\n`
    const pour = () => {
      while (!socket.destroyed && socket.write(chunk));
    }
    socket.on('drain', pour)
    pour()
    expect(String(await refused)).toMatch(/^HTTP\/1\.1 413 /)
    await closed
  })

  it.each([
    ['text/plain', 415],
    ['application/json; charset=utf-16', 415],
    ['application/json; charset="iso-8859-1"', 415],
    ['application/x-www-form-urlencoded', 415],
    ['multipart/form-data; boundary=x', 415],
    ['application/jsonp', 415],
    ['application/xml', 415],
    ['json', 415],
    ['application/json', 200],
    ['application/json; charset=utf-8', 200],
    ['application/json;charset=UTF-8', 200],
    ['Application/JSON', 200],
  ])('a body of type %s gives a %i', async (type, status) => {
    for (const path of ['/api/v1/agents', '/trpc/agents.create']) {
      const answer = await send('POST', path, [Buffer.from(JSON.stringify(valid))], { 'Content-Type': type })
      const data = answer.body.error?.data ?? answer.body
      if (status === 200) expect(answer.status).toBe(200)
      else expectError({ ...answer, body: data }, 415, 'Unsupported content type')
    }
  })

  it('a body that is compressed gives a 415', async () => {
    const headers = { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' }
    expectError(
      await send('POST', '/api/v1/agents', [gzipSync(JSON.stringify(valid))], headers),
      415,
      'Unsupported content type',
    )
  })

  it('a body without a type gives a 415', async () => {
    const body = Buffer.from(JSON.stringify(valid))
    for (const length of [null, String(body.length)]) {
      const headers = { 'Content-Type': null, 'Content-Length': length }
      expectError(await send('POST', '/api/v1/agents', [body], headers), 415, 'Unsupported content type')
    }
  })

  it('a body and its content type are optional if no field is required', async () => {
    const path = `/api/v1/agents/${agentId}/execute`
    const { executionId } = (await request(server, 'POST', path, { body: { message: 'Hi' } })).body
    for (const chunked of [{}, { 'Transfer-Encoding': 'chunked' }]) {
      const headers = { 'Content-Type': null, ...chunked }
      const answer = await send('POST', `/api/v1/executions/${executionId}/cancel`, [], headers)
      expectError(answer, 400, 'Cannot cancel execution with status: completed')
      expect((await send('POST', '/api/v1/chats', [], headers)).status).toBe(200)
    }
  })

  it('is the only place for fields: fields in the query are unknown parameters', async () => {
    const query = '?visibility=public&name=Q&description=D&system_message=x&message=No&spaceId=unknown'
    const refused = await request(server, 'POST', `/api/v1/agents${query}`, { body: valid })
    expectError(refused, 400, 'Unknown parameter: visibility')
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body: valid })).body
    const path = `/api/v1/agents/${id}`
    const patched = await request(server, 'PATCH', `${path}${query}`, { body: { role: 'no' } })
    expectError(patched, 400, 'Unknown parameter: visibility')
    expect((await request(server, 'PATCH', path, { body: { role: 'r' } })).status).toBe(200)
    const agent = { ...valid, role: 'r', visibility: 'organization', description: null, version: 2 }
    expect((await request(server, 'GET', path)).body.agent).toMatchObject(agent)
    const { body } = await request(server, 'POST', `${path}/execute`, { body: { message: 'Hello' } })
    expect(body.result).toContain('You said: Hello')
    const [space] = (await request(server, 'GET', '/api/v1/spaces')).body.spaces
    const file = `/api/v1/spaces/${space.id}/files/content?path=a.md`
    const written = await request(server, 'PUT', `${file}`, { body: { content: 'text' } })
    expect(written.body).toMatchObject({ path: 'a.md', content: 'text', encoding: 'utf8' })
    for (const options of [{}, { body: {} }]) {
      expectError(await request(server, 'POST', '/api/v1/agents', options), 400, missing('name'))
      expectError(await request(server, 'POST', `${path}/execute`, options), 400, missing('message'))
    }
  })

  it('is not read before the caller is authorized', async () => {
    for (const body of ['{', 'null', '{}']) {
      const answer = await request(server, 'POST', '/api/v1/agents', { body, token: null })
      expectError(answer, 401, 'Authorization header required')
    }
  })
})

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

/** A request whose body is written piece by piece, independently of the server. A null header is left out. */
function send(method: string, path: string, pieces: Buffer[], headers: Record<string, string | null> = {}) {
  const all = { Authorization: `Bearer ${server.token}`, 'Content-Type': 'application/json', ...headers }
  const given = Object.entries(all).filter((entry): entry is [string, string] => entry[1] !== null)
  return new Promise<Answer>((resolve, reject) => {
    const outgoing = httpRequest(
      server.url + path,
      { method, headers: Object.fromEntries(given) },
      async (incoming) => {
        const body = JSON.parse(await text(incoming))
        const received = new Headers(incoming.headers as Record<string, string>)
        resolve({ status: incoming.statusCode ?? 0, headers: received, body })
      },
    )
    outgoing.on('error', reject)
    for (const piece of pieces) outgoing.write(piece)
    outgoing.end()
  })
}
