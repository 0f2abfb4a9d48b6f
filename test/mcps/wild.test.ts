import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { promisify } from 'node:util'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { connectMcp, type McpClient } from '../../src/mcps/client/client.ts'
import type { IsWanted } from '../../src/mcps/client/listing.ts'
import { mend } from '../../src/mcps/client/mend.ts'
import { createMeter } from '../../src/mcps/client/message-rate.ts'
import { freePort } from '../support/free-port.ts'
import { envelope, JSON_TYPE, type Message, reply, SSE_TYPE, tool } from '../support/hostile-mcp.ts'
import { listen } from '../support/listen.ts'

/** MCP servers as people run them: they restart, drop streams, are busy, or speak only an older transport. */

type Request = {
  message: (Message & { params?: any }) | null
  method: string
  path: string
  headers: IncomingHttpHeaders
}
type Handle = (request: Request, response: ServerResponse) => boolean | undefined

let url: string
let requests: Request[]
/** The connection of each request. */
let sockets: Socket[]
let sessions: number
/** Answers a request instead of the plain server. Returns false if the plain server should answer. */
let otherwise: Handle
const http = createServer(async (incoming, response) => {
  const chunks: Buffer[] = []
  for await (const chunk of incoming) chunks.push(chunk)
  const message = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : null
  const { method = '', url: path = '', headers } = incoming
  const request = { message, method, path, headers }
  requests.push(request)
  sockets.push(incoming.socket)
  if (!otherwise(request, response)) plainly(request, response)
})
beforeAll(async () => {
  await once(http.listen(0, '127.0.0.1'), 'listening')
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
})
afterAll(() => {
  http.closeAllConnections()
  http.close()
})
beforeEach(() => {
  requests = []
  sockets = []
  sessions = 0
  otherwise = () => false
})

const GREETING = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } }

function plainly({ message, method }: Request, response: ServerResponse) {
  if (method !== 'POST' || !message) return void response.writeHead(method === 'DELETE' ? 200 : 405).end()
  if (message.method === 'initialize') {
    response.setHeader('mcp-session-id', `session-${++sessions}`)
    return reply(response, message, GREETING)
  }
  if (message.id === undefined) return void response.writeHead(202).end()
  if (message.method === 'tools/list') return reply(response, message, { tools: [tool('act')] })
  reply(response, message, textResult('Acted'))
}

const textResult = (text: string) => ({ content: [{ type: 'text', text }] })
const methodsOf = () => requests.flatMap(({ message }) => message?.method ?? [])
const isCall = ({ message }: Request) => message?.method === 'tools/call'
const never = new AbortController().signal

async function using<T>(
  use: (client: McpClient) => Promise<T>,
  { toolTimeout = 20_000, transport = 'streamable-http', at = url, isWanted = undefined as IsWanted } = {},
): Promise<T> {
  const connection = { url: at, transport, headers: new Headers(), allowPrivate: true, secrets: [] }
  const client = await connectMcp({ ...connection, toolTimeout, isWanted }, never)
  try {
    return await use(client)
  } finally {
    await client.close()
  }
}

describe('a session that the server has lost', () => {
  it.each([
    ['404', 404, {}],
    ['410', 410, {}],
    ['400 that names the session', 400, { error: { code: -32000, message: 'Bad Request: No valid session ID' } }],
    ['400 of a restarted server', 400, { error: { code: -32000, message: 'Bad Request: Server not initialized' } }],
    ['200 with an error', 200, { error: { code: -32001, message: 'Session not found' } }],
    ['200 that does not know the session', 200, { error: { code: -32600, message: 'Session terminated' } }],
    ['200 of a restarted server', 200, { error: { code: -32602, message: 'Received request before initialization' } }],
    ['401 about the session', 401, { error: { code: -32000, message: 'Invalid session' } }],
    ['422 that expects a handshake', 422, { error: { code: -32000, message: 'expect initialize request' } }],
    ['503 about the session', 503, { error: { code: -32000, message: 'Unknown MCP session' } }],
    ['409 about the session', 409, { error: { code: -32000, message: 'Stale session' } }],
    ['400 that cannot find the session', 400, { error: { code: -32000, message: 'Could not find session' } }],
    ['403 of an ended session', 403, { error: { code: -32000, message: 'The session has ended' } }],
    ['400 without a transport', 400, { error: { code: -32000, message: 'No transport found' } }],
    ['500 about the session', 500, { error: { code: -32603, message: 'No transport found for sessionId' } }],
  ])('is renewed after a %s, and the call is made once more', async (_, status, body) => {
    otherwise = (request, response) => {
      const isLost = isCall(request) && request.headers['mcp-session-id'] === 'session-1'
      const id = status === 200 ? request.message?.id : null
      if (isLost) response.writeHead(status, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id, ...body }))
      return isLost
    }
    const answers = await using((client) => Promise.all([1, 2, 3].map(() => client.call('act', {}, never))))
    expect(answers).toEqual(answers.map(() => ({ content: 'Acted', isError: false })))
    expect(sessions).toBe(2)
  })

  it('still answers its other call, because only one instance of the server has lost it', async () => {
    const first = Promise.withResolvers<() => void>()
    otherwise = ({ message, headers }, response) => {
      if (message?.method !== 'tools/call' || headers['mcp-session-id'] !== 'session-1') return false
      const isFirst = requests.filter(isCall).length === 1
      if (isFirst) first.resolve(() => reply(response, message, textResult('Acted at length')))
      else response.writeHead(404).end()
      return true
    }
    const answers = await using(async (client) => {
      const slow = client.call('act', {}, never)
      const answerFirst = await first.promise
      const quick = await client.call('act', {}, never)
      answerFirst()
      return [quick.content, (await slow).content]
    })
    expect(answers).toEqual(['Acted', 'Acted at length'])
    expect(requests.filter(isCall)).toHaveLength(3)
  })

  it('is renewed with the tools that the server has by then, which are announced once', async () => {
    otherwise = ({ message, headers }, response) => {
      const { method } = message ?? {}
      const isLost = message && headers['mcp-session-id'] === 'session-1' && method === 'tools/call'
      if (isLost) response.writeHead(404).end()
      if (!message || isLost || sessions < 2 || method !== 'tools/list') return Boolean(isLost)
      reply(response, message, { tools: [tool('act'), tool('later')] })
      return true
    }
    const seen = await using(async (client) => {
      await client.call('act', {}, never)
      const announced = [await client.refresh(never), await client.refresh(never)]
      return [announced, client.tools.map(({ name }) => name)]
    })
    expect(seen).toEqual([
      [true, false],
      ['act', 'later'],
    ])
  })

  it('is renewed once: a server that loses each session fails its call', async () => {
    otherwise = (request, response) => {
      if (isCall(request)) response.writeHead(404).end()
      return isCall(request)
    }
    expect(await using((client) => client.call('act', {}, never))).toMatchObject({ isError: true })
    expect([sessions, requests.filter(isCall).length]).toEqual([2, 2])
  })

  it.each(['initialize', 'tools/list'])('is renewed by a server that is still starting at its %s', async (method) => {
    let refusals = 0
    otherwise = ({ message, headers }, response) => {
      const isLost = message?.method === 'tools/call' && headers['mcp-session-id'] === 'session-1'
      const isStarting = message?.method === method && sessions > 0 && requests.some(isCall) && !refusals++
      if (isLost || isStarting) response.writeHead(isLost ? 404 : 503, { 'retry-after': '0' }).end()
      return isLost || isStarting
    }
    expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
    expect([refusals > 0, requests.filter(isCall).length]).toEqual([true, 2])
  })

  it('fails a call that was not made if it cannot be renewed', async () => {
    otherwise = ({ message }, response) => {
      const isLost = message?.method === 'tools/call'
      const isBroken = message?.method === 'initialize' && sessions > 0
      if (isLost || isBroken) response.writeHead(isLost ? 404 : 500).end()
      return isLost || isBroken
    }
    const { content } = await using((client) => client.call('act', {}, never))
    expect(content).toBe('The call failed: it answered with the status 500')
  })

  it.each<[string, (request: Request, response: ServerResponse) => void]>([
    ['lost', (_, response) => void response.destroy()],
    [
      'failed by the tool with a session of its own',
      ({ message }, response) => {
        const error = { code: -32603, message: 'Browser session not found' }
        response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message?.id, error }))
      },
    ],
    ['answered 503', (_, response) => void response.writeHead(503, { 'retry-after': '0' }).end()],
  ])('repeats no call that the server may have executed: one that was %s', async (_, answer) => {
    otherwise = (request, response) => {
      if (isCall(request)) answer(request, response)
      return isCall(request)
    }
    expect(await using((client) => client.call('act', {}, never))).toMatchObject({ isError: true })
    expect(requests.filter(isCall)).toHaveLength(1)
  })
})

it('a server that refuses connections while it restarts is asked again shortly', async () => {
  const port = await freePort()
  const restarted = createServer((incoming, response) => void http.emit('request', incoming, response))
  const begin = () => {
    unsubscribe('undici:client:connectError', begin)
    restarted.listen(port, '127.0.0.1')
  }
  subscribe('undici:client:connectError', begin)
  const at = `http://127.0.0.1:${port}/mcp`
  expect(await using(async (client) => client.tools.map(({ name }) => name), { at })).toEqual(['act'])
  restarted.closeAllConnections()
  await promisify(restarted.close.bind(restarted))()
})

describe('an answer in another form', () => {
  const fileOf = (mimeType: string, content: string | Buffer) => {
    const blob = Buffer.from(content).toString('base64')
    return { type: 'resource', resource: { uri: 'x:/f', mimeType, blob } }
  }
  const whole = (message: Message) => envelope(message, textResult('Acted'))
  const note = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'x' } })
  it.each<[string, object, (message: Message) => string | Buffer]>([
    ['JSON in UTF-16', { 'content-type': 'application/json; charset=utf-16' }, (m) => Buffer.from(whole(m), 'utf16le')],
    ['an event of another name', SSE_TYPE, (message) => `event: result\ndata: ${whole(message)}\n\n`],
    ['an event with two messages', SSE_TYPE, (message) => `data: ${note}\ndata: ${whole(message)}\n\n`],
    ['a repeated prefix', SSE_TYPE, (message) => `data: data: ${whole(message)}\n\n`],
    ['an error that is null', JSON_TYPE, (message) => whole(message).replace(/}$/, ',"error":null}')],
    ['an error that is null in an event', SSE_TYPE, (m) => `data: ${whole(m).replace(/}$/, ',"error":null}')}\n\n`],
    ['an error that is empty', JSON_TYPE, (message) => whole(message).replace(/}$/, ',"error":{}}')],
    ['an error that is an empty text', JSON_TYPE, (message) => whole(message).replace(/}$/, ',"error":""}')],
    ['colours of a terminal', JSON_TYPE, (m) => envelope(m, textResult('\u001b[1;31mActed\u001b[0m'))],
    ['metadata that are null', JSON_TYPE, (m) => envelope(m, { ...textResult('Acted'), _meta: null })],
    ['a batch in an event', SSE_TYPE, (message) => `data: [${note},${whole(message)}]\n\n`],
    ['a message without its version', JSON_TYPE, (m) => JSON.stringify({ id: m.id, result: textResult('Acted') })],
    ['a message with other fields', JSON_TYPE, (m) => whole(m).replace(/}$/, ',"method":null,"trace":"x"}')],
    ['a message with an object at its end', JSON_TYPE, (m) => whole(m).replace(/}$/, ',"trace":{}}')],
    [
      'a message with an object at its end, in an event',
      SSE_TYPE,
      (m) => `data: ${whole(m).replace(/}$/, ',"x":{}}')}\n\n`,
    ],
    ['JSON that is encoded twice', JSON_TYPE, (message) => JSON.stringify(whole(message))],
    ['a result that is a text', JSON_TYPE, ({ id }) => JSON.stringify({ jsonrpc: '2.0', id, result: 'Acted' })],
    ['a list as a result', JSON_TYPE, ({ id }) => JSON.stringify({ jsonrpc: '2.0', id, result: ['Acted'] })],
    ['messages line by line', JSON_TYPE, (message) => `${note}\n${whole(message)}\n`],
    ['another type of JSON', { 'content-type': 'application/json-rpc' }, whole],
    ['two types at once', { 'content-type': 'application/json, text/event-stream' }, whole],
    ['JSON that is declared as a page', { 'content-type': 'text/html' }, whole],
    ['JSON that is declared as an event stream', SSE_TYPE, (message) => ` \n${whole(message)}`],
    ['an event stream that is declared as JSON', JSON_TYPE, (message) => `event: message\ndata: ${whole(message)}\n\n`],
    ['a warning before it', JSON_TYPE, (message) => `<b>Warning</b>: {x}\n${whole(message)}`],
    ['a comma too much', JSON_TYPE, (message) => whole(message).replace('}]', '},]')],
    ['no id', JSON_TYPE, () => JSON.stringify({ jsonrpc: '2.0', result: textResult('Acted') })],
    ['an id that is null, in an event', SSE_TYPE, (m) => `data: ${whole({ ...m, id: null as never })}\n\n`],
    ['the status 202', { ...JSON_TYPE, status: 202 }, whole],
    ['a result alone', JSON_TYPE, () => JSON.stringify(textResult('Acted'))],
    ['the same id always', JSON_TYPE, () => envelope({ id: 1 } as Message, textResult('Acted'))],
    ['two messages without a line break', JSON_TYPE, (message) => `${note}${whole(message)}`],
    ['metadata of PHP', JSON_TYPE, (m) => envelope(m, { ...textResult('Acted'), _meta: [] })],
    ['a list in a list', JSON_TYPE, (m) => envelope(m, { content: [textResult('Acted').content] })],
  ])('is read: %s', async (_, head, body) => {
    const { status = 200, ...type } = head as { status?: number }
    otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      response.writeHead(status, { ...type }).end(body(message))
      return true
    }
    expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
  })

  const refusal = '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Rate limit exceeded"}}'
  it.each([
    ['Rate limit exceeded', 'text/plain', 'application/json', refusal],
    [` ${refusal}`, '', 'application/json', refusal],
    ['event: x\ndata: 1\n\n', 'text/html', 'text/event-stream', 'event: x\ndata: 1\n\n'],
    ['<p>No</p>', 'text/html', 'text/html', '<p>No</p>'],
  ])('is read in pieces of one byte: %j', async (body, type, mendedType, expected) => {
    const stream = new ReadableStream({
      start(controller) {
        for (const byte of Buffer.from(body)) controller.enqueue(Uint8Array.of(byte))
        controller.close()
      },
    })
    const response = new Response(stream, { headers: { 'content-type': type } })
    const mended = await mend(response, { id: 1, onError: () => {} })
    expect([mended.headers.get('content-type'), await mended.text()]).toEqual([mendedType, expected])
  })

  it.each<[string, unknown]>([
    ['a text', 'No space left'],
    ['an object without a code', { message: 'No space left' }],
    ['an object with a code that is a word', { code: 'ENOSPC', message: 'No space left' }],
  ])('is read: an error that is %s', async (_, error) => {
    otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }))
      return true
    }
    const failed = { content: 'The call failed: No space left', isError: true }
    expect(await using((client) => client.call('act', {}, never))).toEqual(failed)
  })

  it.each<[string, string, string]>([
    [
      'a file of text in base64',
      JSON.stringify({
        content: ['text/csv', 'application/ld+json', 'image/svg+xml'].map((type) => fileOf(type, 'ab')),
      }),
      '[x:/f]\nab\n\n[x:/f]\nab\n\n[x:/f]\nab',
    ],
    [
      'files in base64 that are not text',
      JSON.stringify({ content: [fileOf('text/plain', Buffer.from([0xff])), fileOf('application/zip', 'PK')] }),
      '[x:/f, text/plain, 3 bytes: not shown]\n\n[x:/f, application/zip, 3 bytes: not shown]',
    ],
    [
      'a link with its title and description',
      '{"content":[{"type":"resource_link","name":"n","title":"T","uri":"x:/y","description":"All of it"}]}',
      '[link to T: x:/y: All of it]',
    ],
    [
      'a summary beside structured content',
      '{"content":[{"type":"text","text":"2 items"}],"structuredContent":{"items":[{"id":"a","n":7},{"id":"b","n":8}]}}',
      '2 items\n\n{"items":[{"id":"a","n":7},{"id":"b","n":8}]}',
    ],
    [
      'structured content that the text repeats as JSON',
      '{"content":[{"type":"text","text":"{\\"caf\\\\u00e9\\": \\"\\\\u00e9t\\\\u00e9\\\\n\\"}"}],"structuredContent":{"café":"été"}}',
      '{"caf\\u00e9": "\\u00e9t\\u00e9\\n"}',
    ],
    [
      'structured content that the text repeats in words',
      '{"content":[{"type":"text","text":"Sunny, 20 °C"}],"structuredContent":{"sky":"Sunny","degrees":20,"isDay":true}}',
      'Sunny, 20 °C',
    ],
    ['a text under another name', '{"content":[{"type":"text","value":"x"}]}', '{"type":"text","value":"x"}'],
    [
      'numbers that JSON does not have',
      '{"structuredContent":{"x":NaN,"y":[-Infinity],"z":"NaN"}}',
      '{"x":null,"y":[null],"z":"NaN"}',
    ],
    [
      'structured content with a file in base64',
      JSON.stringify({
        structuredContent: { type: 'image', data: 'A'.repeat(8000), url: `data:a/b;base64,${'A'.repeat(8000)}` },
      }),
      '{"type":"image","data":"[6000 bytes in base64: not shown]","url":"[6000 bytes in base64: not shown]"}',
    ],
    [
      'whole numbers that a parser would round',
      '{"structuredContent":{"id":1234567890123456789,"n":[-9007199254740993,7, 1e20]}}',
      '{"id":"1234567890123456789","n":["-9007199254740993",7,100000000000000000000]}',
    ],
    ['a text with line breaks', '{"content":[{"type":"text","text":"a\nb \\"c\\""}]}', 'a\nb "c"'],
  ])('is read: %s', async (_, result, content) => {
    otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      response.writeHead(200, JSON_TYPE).end(`{"jsonrpc":"2.0","id":${message.id},"result":${result}}`)
      return true
    }
    expect(await using((client) => client.call('act', {}, never))).toEqual({ content, isError: false })
  })

  it.each<[string, object, string]>([
    ['an error under another name', { content: [{ type: 'text', text: 'No space' }], is_error: true }, 'No space'],
    ['an error as a text', { content: [{ type: 'text', text: 'No space' }], isError: 'true' }, 'No space'],
    ['an error without a text', { content: [], isError: true }, 'The tool failed, and did not say why.'],
  ])('is an error of the tool: %s', async (_, result, content) => {
    otherwise = ({ message }, response) => {
      if (message?.method === 'tools/call') reply(response, message, result)
      return message?.method === 'tools/call'
    }
    expect(await using((client) => client.call('act', {}, never))).toEqual({ content, isError: true })
  })

  const DOUBT = '. The tool may have acted: check before you call it again'
  it.each<[string, (response: ServerResponse) => void, string]>([
    ['a status for notifications', (response) => response.writeHead(202).end(), `its answer is empty${DOUBT}`],
    ['no body', (response) => response.writeHead(200, JSON_TYPE).end(), `its answer is empty${DOUBT}`],
    [
      'no event',
      (response) => response.writeHead(200, SSE_TYPE).end(': hi\n\n'),
      `its answer ended without a result${DOUBT}`,
    ],
    [
      'too much for a stream',
      (response) => response.writeHead(200, SSE_TYPE).end(`data: "${'x'.repeat(9 * 1024 * 1024)}"\n\n`),
      `its answer is too large${DOUBT}`,
    ],
    [
      'a false encoding',
      (response) => response.writeHead(200, { ...JSON_TYPE, 'content-encoding': 'gzip' }).end('{}'),
      'its answer is not compressed as its headers state',
    ],
    [
      'an error without an id',
      (response) =>
        response.writeHead(200, JSON_TYPE).end('{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"No"}}'),
      'No',
    ],
    [
      'an error of a web framework',
      (response) => response.writeHead(422, JSON_TYPE).end('{"detail":[{"loc":["city"],"msg":"field required"}]}'),
      '422: [{"loc":["city"],"msg":"field required"}]',
    ],
    [
      'a result with the status of an error',
      (response) => response.writeHead(400, JSON_TYPE).end('{"result":{"content":[{"type":"text","text":"No city"}]}}'),
      'No city',
    ],
    [
      'an error of OAuth',
      (response) => response.writeHead(401, JSON_TYPE).end('{"error":"invalid","error_description":"It has expired"}'),
      '401: It has expired',
    ],
    [
      'a refusal of a firewall',
      (response) => response.writeHead(403, { 'content-type': 'text/html' }).end('<title>Just a moment...</title>'),
      'it answered with the status 403 and a web page: a firewall may have refused it',
    ],
    [
      'a sentence with the status of a success',
      (response) => response.writeHead(200, { 'content-type': 'text/plain' }).end('Rate limit exceeded\n'),
      'Rate limit exceeded',
    ],
    [
      'an error of a gateway with the status of a success',
      (response) => response.writeHead(200, JSON_TYPE).end('{"success":false,"message":"No workflow"}'),
      'No workflow',
    ],
    [
      'an error of a gateway in its own field',
      (response) => response.writeHead(200, JSON_TYPE).end('{"code":401,"msg":"No tenant"}'),
      'No tenant',
    ],
    [
      'an error of a gateway in its own field, with a status',
      (response) => response.writeHead(400, JSON_TYPE).end('{"code":401,"msg":"No tenant"}'),
      '400: No tenant',
    ],
    [
      'an error without words',
      (response) => response.writeHead(200, JSON_TYPE).end('{"jsonrpc":"2.0","id":2,"error":{"code":7,"message":""}}'),
      'it answered with the error 7',
    ],
    [
      'an error of a web framework with its name',
      (response) => response.writeHead(402, JSON_TYPE).end('{"error":"Payment Required","message":"Top up"}'),
      '402: Payment Required: Top up',
    ],
    [
      'a scope that its token lacks',
      (response) =>
        response.writeHead(403, { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' }).end(),
      'it answered with the status 403: authorization (Bearer: error=insufficient_scope, scope=write)',
    ],
    [
      'an error event that is no JSON',
      (response) => response.writeHead(200, SSE_TYPE).end('event: error\ndata: Out of memory\n\n'),
      'Out of memory',
    ],
    [
      'a sentence of a web framework',
      (response) => response.writeHead(400, { 'content-type': 'text/plain' }).end('city is required\n'),
      '400: city is required',
    ],
    [
      'a page of Cloudflare for a server that did not answer in time',
      (response) => response.writeHead(524, { 'content-type': 'text/html' }).end('<title>A timeout occurred</title>'),
      `it answered with the status 524: its gateway cannot reach it now, or waits no longer${DOUBT}`,
    ],
    [
      'a page for an input that is too large',
      (response) => response.writeHead(413, { 'content-type': 'text/html' }).end('<title>413</title>'),
      'it answered with the status 413: its gateway does not take a request of this size',
    ],
    ['a time limit', (response) => response.writeHead(408).end(), `it answered with the status 408${DOUBT}`],
    [
      'an error of a gateway',
      (response) => response.writeHead(502, JSON_TYPE).end('{"message":"The upstream is away"}'),
      `502: The upstream is away${DOUBT}`,
    ],
  ])('fails a call at once, with the reason: %s', async (_, answer, reason) => {
    otherwise = (request, response) => {
      if (isCall(request)) answer(response)
      return isCall(request)
    }
    const failed = { content: `The call failed: ${reason}`, isError: true }
    expect(await using((client) => client.call('act', {}, never))).toEqual(failed)
    expect(requests.filter(isCall)).toHaveLength(1)
  })

  it('brings the details of an error to the model', async () => {
    otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      const error = { code: -32602, message: 'Invalid params', data: { q: 'must be a number' } }
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }))
      return true
    }
    const { content } = await using((client) => client.call('act', {}, never))
    expect(content).toBe('The call failed: Invalid params: {"q":"must be a number"}')
  })

  it('brings the credentials that a tool demands in its result to the model', async () => {
    const challenge = 'Bearer resource_metadata="https://a.test/m", error="invalid_token"'
    otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      const refused = { ...textResult('Log in.'), isError: true, _meta: { 'mcp/www_authenticate': [challenge] } }
      response.writeHead(200, JSON_TYPE).end(envelope(message, refused))
      return true
    }
    const { content } = await using((client) => client.call('act', {}, never))
    expect(content).toMatch(/^Log in\.\n\n\[The server refused the call: it wants authorization .*set `auth: oauth`\]$/)
  })

  it('is read: an answer to initialize with null in each field that it does not use', async () => {
    otherwise = ({ message }, response) => {
      if (message?.method !== 'initialize') return false
      const capabilities = { tools: { listChanged: null }, prompts: null }
      reply(response, message, { ...GREETING, capabilities, serverInfo: { ...GREETING.serverInfo, title: null } })
      return true
    }
    expect(await using((client) => client.call('act', {}, never))).toMatchObject({ isError: false })
  })
})

it.each<[string, unknown, string[]]>([
  ['null', { tools: null }, []],
  ['nothing', {}, []],
  ['null as a whole', null, []],
  ['left out as a whole (C#)', undefined, []],
  ['the list alone', [tool('act')], ['act']],
  ['an object by names', { tools: { act: { inputSchema: { type: 'object' } } } }, ['act']],
  ['tools without inputs', { tools: [tool('act', { inputSchema: { type: 'null' } })] }, ['act']],
  ['functions of OpenAI', { tools: [{ type: 'function', function: { name: 'act', parameters: {} } }] }, ['act']],
])('a list of tools may be %s', async (_, result, names) => {
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list' || !message) return false
    response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }))
    return true
  }
  expect(await using(async ({ tools }) => tools.map(({ name }) => name))).toEqual(names)
})

it.each<[string, object]>([
  ['no name and no capabilities', { protocolVersion: '2025-06-18' }],
  ['capabilities alone', { capabilities: { tools: {} } }],
  ['no version of the protocol', { serverInfo: { name: 'x', version: 1 }, capabilities: { tools: true } }],
  ['lists for empty objects (PHP)', { ...GREETING, capabilities: { tools: [], logging: null } }],
  ['icons and a title in another form', { ...GREETING, serverInfo: { name: 'x', title: 5, icons: ['x'] } }],
  ['a version with a prefix', { ...GREETING, protocolVersion: ' v2025-06-18 ' }],
  ['a version with a time', { ...GREETING, protocolVersion: '2025-06-18T00:00:00Z' }],
  ['an empty version', { ...GREETING, protocolVersion: '' }],
  ['flags that are texts', { ...GREETING, capabilities: { tools: { listChanged: 'yes' } }, instructions: { a: 1 } }],
])('a server whose handshake has %s can be used', async (_, greeting) => {
  otherwise = ({ message }, response) => {
    if (message?.method !== 'initialize' || !message) return false
    reply(response, message, greeting)
    return true
  }
  expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
})

it('a tool whose schema consists of its properties alone has these', async () => {
  const properties = { q: { type: 'string' }, n: { type: 'number' } }
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    reply(response, message, { tools: [tool('act', { inputSchema: properties })] })
    return true
  }
  const inputSchema = { type: 'object', properties }
  expect(await using(async ({ tools }) => tools)).toMatchObject([{ name: 'act', inputSchema }])
})

it('a tool with a large schema has shorter descriptions, or is named as unusable', async () => {
  const described = (length: number) => ({ type: 'string', title: 'T', description: 'd'.repeat(length) })
  const inputSchema = {
    type: 'object',
    properties: { description: described(20_000), list: { type: 'array', items: described(15_000) } },
  }
  const huge = { type: 'object', properties: { p: { enum: ['x'.repeat(33_000)] } } }
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    reply(response, message, { tools: [tool('act', { inputSchema }), tool('huge', { inputSchema: huge })] })
    return true
  }
  const [tools, omitted] = await using(async (client) => [client.tools, client.omitted] as const)
  const shorter = { type: 'string', description: expect.stringMatching(/^d{50,300}…?$/) }
  const properties = { description: shorter, list: { type: 'array', items: shorter } }
  expect(tools).toEqual([{ name: 'act', description: '', inputSchema: { type: 'object', properties } }])
  expect(omitted).toEqual(['huge'])
})

it('a tool without a description has its title', async () => {
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    reply(response, message, {
      tools: [
        { name: 'a', title: 'Do it' },
        { name: 'b', annotations: { title: 'Or not' } },
      ],
    })
    return true
  }
  const descriptions = await using(async ({ tools }) => tools.map(({ description }) => description))
  expect(descriptions).toEqual(['Do it', 'Or not'])
})

it('a page for people in a result is named to the model, and an address of one is shown', async () => {
  const page = (uri: string, mimeType: string, text: string) => ({
    type: 'resource',
    resource: { uri, mimeType, text },
  })
  const content = [
    { type: 'text', text: 'Two carts' },
    page('ui://cart/1', 'text/html;profile=mcp-app', '<html>'.repeat(1000)),
    page('ui://cart/2', 'text/uri-list', 'https://shop.example/cart'),
    page('file:///a.html', 'text/html', '<p>Read me</p>'),
  ]
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/call') return false
    reply(response, message, { content })
    return true
  }
  const result = await using((client) => client.call('act', {}, never))
  expect(result.content).toBe(
    [
      'Two carts',
      '[ui://cart/1, a page for people: not shown]',
      '[ui://cart/2]\nhttps://shop.example/cart',
      '[file:///a.html]\n<p>Read me</p>',
    ].join('\n\n'),
  )
})

it('a tool that is for the page of its server alone is no tool of the model', async () => {
  const ui = (...visibility: string[]) => ({ _meta: { ui: { resourceUri: 'ui://page', visibility } } })
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    const pages = [tool('poll', ui('app')), tool('save', { _meta: { 'openai/visibility': 'private' } })]
    reply(response, message, { tools: [tool('show', ui()), ...pages, tool('both', ui('model', 'app'))] })
    return true
  }
  expect(await using(async ({ tools }) => tools.map(({ name }) => name))).toEqual(['show', 'both'])
})

it('a server that sends a request each second does not send too many', () => {
  let now = 0
  const isTooMuch = createMeter(10_000, () => now)
  const floods = Array.from({ length: 3600 }, () => {
    now += 1000
    return isTooMuch(50)
  })
  expect(floods).not.toContain(true)
  expect(Array.from({ length: 201 }, () => isTooMuch(50)).at(-1)).toBe(true)
})

it.each<[string, unknown]>([
  ['the result of a call', { content: [{ type: 'text', text: 'No workspace is chosen' }], isError: true }],
  ['a text', 'No workspace is chosen'],
])('a server that refuses to list its tools with %s is quoted', async (_, result) => {
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }))
    return true
  }
  const refused = await using(async () => {}).catch((error: unknown) => error)
  expect(refused).toMatchObject({ messageForPeople: 'it answered with the error -32603: No workspace is chosen' })
})

it.each([200, 400, 500])('a list of tools ends at a page that the server refuses to show with %s', async (status) => {
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list' || !message) return false
    const answer = message.params?.cursor
      ? { error: { code: -32602, message: 'Invalid cursor' } }
      : { result: { tools: [tool('act')], nextCursor: 'p2' } }
    response.writeHead(message.params?.cursor ? status : 200, JSON_TYPE)
    response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...answer }))
    return true
  }
  expect(await using(async ({ tools, hasMore }) => [tools.length, hasMore])).toEqual([1, true])
})

it('a list of more tools than a run can have keeps the wanted ones', async () => {
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list') return false
    const from = Number(message.params?.cursor ?? 0)
    const tools = Array.from({ length: 150 }, (_, index) => tool(`t${from + index}`))
    reply(response, message, { tools, nextCursor: from < 300 ? String(from + 150) : undefined })
    return true
  }
  const seen = ({ tools, hasMore }: McpClient) => [tools.length, tools.at(-1)?.name, hasMore]
  expect(await using(async (client) => seen(client))).toEqual([200, 't199', true])
  const isWanted = (name: string) => /^t44\d$|^t7$/.test(name)
  const wanted = using(async (client) => [...seen(client), (await client.list(never)).length], { isWanted })
  expect(await wanted).toEqual([11, 't449', false, 11])
})

it.each<[string, number, { code: number; message: string }, string]>([
  ['an error', 200, { code: -32000, message: 'The key has expired' }, 'the error -32000: The key has expired'],
  ['a status', 403, { code: -32001, message: 'Not on weekends' }, 'its credentials do not allow this: Not on weekends'],
  [
    'a host',
    403,
    { code: -32000, message: 'Invalid Host: mcp' },
    '(add it to the allowed hosts of the server): Invalid Host: mcp',
  ],
  [
    'the host of Playwright',
    403,
    { code: -32000, message: 'Access is only allowed at localhost:1' },
    '(add it to the allowed hosts of the server): Access is only',
  ],
])('a server that refuses the handshake with %s is quoted', async (_, status, error, reason) => {
  otherwise = ({ message }, response) => {
    response.writeHead(status, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message?.id, error }))
    return true
  }
  const refused = await using(async () => {}).catch((error: unknown) => error)
  expect(refused).toMatchObject({ messageForPeople: expect.stringContaining(reason) })
  // The message goes to the log.
  expect(String(refused)).not.toContain(error.message)
})

it('a server at another origin, to which a request without credentials is redirected, is named', async () => {
  const other = createServer((_, response) => void response.writeHead(401).end())
  await once(other.listen(0, '127.0.0.1'), 'listening')
  const origin = `http://127.0.0.1:${(other.address() as AddressInfo).port}`
  otherwise = (_, response) => Boolean(response.writeHead(308, { location: `${origin}/mcp` }).end())
  await expect(using(async () => {})).rejects.toThrow(
    `it redirects to ${origin}, where no credentials are sent: give the address there instead`,
  )
  other.close()
})

it('a proxy that does not connect is named', async () => {
  const connection = { url, transport: 'streamable-http', headers: new Headers(), allowPrivate: true, secrets: [] }
  await expect(
    connectMcp({ ...connection, toolTimeout: 20_000, proxyFor: () => 'http://127.0.0.1:9' }, never),
  ).rejects.toThrow('the proxy 127.0.0.1:9 did not connect: connect ECONNREFUSED 127.0.0.1:9')
})

it.each<[string, number, number]>([
  ['the code of its revision', 400, -32022],
  ['that of a draft', 200, -32004],
  ['that of an invalid request', 200, -32600],
  ['a status of web frameworks', 422, -32603],
])('a server without sessions is used that refuses initialize with %s', async (_, status, code) => {
  otherwise = ({ message }, response) => {
    if (message?.method === 'initialize') {
      const error = { code, message: 'Unsupported' }
      response.writeHead(status, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }))
      return true
    }
    if (message?.method === 'server/discover') {
      const { protocolVersion, ...about } = GREETING
      reply(response, message, { ...about, supportedVersions: ['2026-07-28'] })
    }
    return message?.method === 'server/discover'
  }
  // Neither the list nor the result has the fields that the revision demands.
  expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
})

it('a server without sessions gets the properties in headers that its tool demands there', async () => {
  const q = { type: 'string', 'x-mcp-header': 'Repo' }
  otherwise = ({ message, headers }, response) => {
    const results: Record<string, object> = {
      'server/discover': { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } },
      'tools/list': { tools: [tool('act', { inputSchema: { type: 'object', properties: { q } } })] },
      'tools/call': textResult(String(headers['mcp-param-repo'])),
    }
    const result = message && results[message.method]
    if (message?.method === 'initialize') response.writeHead(404).end()
    else if (result) reply(response, message, result)
    return Boolean(result) || message?.method === 'initialize'
  }
  expect(await using((client) => client.call('act', { q: 'muster' }, never))).toEqual({
    content: 'muster',
    isError: false,
  })
})

it.each([
  ['without sessions', (response: ServerResponse) => void response.writeHead(404).end()],
  ['of an earlier revision', null],
])('a server %s that asks for input first fails the call with this reason', async (_, refuse) => {
  otherwise = ({ message }, response) => {
    const params = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } }
    const results: Record<string, object> = {
      'server/discover': { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } },
      'tools/call': { resultType: 'input_required', inputRequests: { a: { method: 'elicitation/create', params } } },
    }
    const result = message && results[message.method]
    if (message?.method === 'initialize') refuse?.(response)
    else if (result) reply(response, message, result)
    return Boolean(result) || (message?.method === 'initialize' && refuse !== null)
  }
  const { content, isError } = await using((client) => client.call('act', {}, never))
  expect([content, isError]).toEqual([expect.stringMatching(/it asks for something else first.*: Sure\?$/), true])
})

// As FastMCP does for `ctx.elicit` and `ctx.sample`, without a look at the capabilities of the client.
it.each(['elicitation/create', 'sampling/createMessage', 'roots/list'])(
  'a tool that requests %s reads why it gets no answer',
  async (method) => {
    let open: [Message, ServerResponse] | undefined
    otherwise = (request, response) => {
      const { message } = request
      if (message && isCall(request)) {
        open = [message, response.writeHead(200, SSE_TYPE)]
        response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id: 'own', method, params: {} })}\n\n`)
      } else if (String(message?.id) === 'own' && open) {
        response.writeHead(202).end()
        const [call, stream] = open
        const { error } = message as { error?: { message: string } }
        stream.end(
          `data: ${envelope(call, { isError: true, ...textResult(`Error calling tool: ${error?.message}`) })}\n\n`,
        )
      } else return false
      return true
    }
    expect(await using((client) => client.call('act', {}, never))).toEqual({
      content: `Error calling tool: Method not found: ${method}. The caller is a run of an agent, which answers no requests of servers`,
      isError: true,
    })
  },
)

it('a server whose handshake states an unknown version of the protocol is refused', async () => {
  otherwise = ({ message }, response) => {
    if (message?.method !== 'initialize' || !message) return false
    reply(response, message, { ...GREETING, protocolVersion: '1.0' })
    return true
  }
  await expect(using((client) => client.call('act', {}, never))).rejects.toThrow('1.0')
})

it.each<[string, (id: unknown, offered: string) => object, number]>([
  [
    'names older ones',
    (id, offered) => ({
      id,
      error: {
        code: -32602,
        message: 'Unsupported protocol version',
        data: { supported: ['2025-03-26'], requested: offered },
      },
    }),
    200,
  ],
  [
    'names none',
    (_, offered) => ({ id: null, error: { code: -32000, message: `Bad protocolVersion ${offered}` } }),
    400,
  ],
])(
  'a server that refuses the newest version of the protocol and %s is offered an older one',
  async (_, refusal, status) => {
    otherwise = ({ message }, response) => {
      const offered = message?.method === 'initialize' && message.params.protocolVersion
      if (offered && offered <= '2025-03-26') reply(response, message, { ...GREETING, protocolVersion: offered })
      else if (offered)
        response.writeHead(status, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', ...refusal(message.id, offered) }))
      return Boolean(offered)
    }
    expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
    expect(methodsOf().filter((method) => method === 'initialize')).toHaveLength(2)
  },
)

it("a server that answers on the session's standalone stream can be used", async () => {
  let standing: ServerResponse | undefined
  otherwise = ({ message, method }, response) => {
    if (method === 'GET') {
      standing = response.writeHead(200, SSE_TYPE)
      response.flushHeaders()
    }
    if (!message?.id || message.method === 'initialize') return method === 'GET'
    response.writeHead(202).end()
    const result = message.method === 'tools/list' ? { tools: [tool('act')] } : textResult('Acted')
    const answer = () => (standing ? standing.write(`data: ${envelope(message, result)}\n\n`) : setImmediate(answer))
    answer()
    return true
  }
  expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
})

it('a call fails if the standalone stream ends first, and the next call has a new session', async () => {
  let standing: ServerResponse | undefined
  otherwise = ({ message, method }, response) => {
    if (method === 'GET') {
      standing = response.writeHead(200, SSE_TYPE)
      response.flushHeaders()
    }
    if (message?.method !== 'tools/call') return method === 'GET'
    response.writeHead(202).end()
    const first = sessions === 1
    const answer = () => {
      if (!standing) return setImmediate(answer)
      if (first) standing.end()
      else standing.write(`data: ${envelope(message, textResult('Acted'))}\n\n`)
      standing = undefined
    }
    answer()
    return true
  }
  await using(async (client) => {
    const failure = { content: expect.stringContaining('The tool may have acted'), isError: true }
    expect(await client.call('act', {}, never)).toEqual(failure)
    expect(await client.call('act', {}, never)).toEqual({ content: 'Acted', isError: false })
  })
})

it('a server that closes its connection instead of a first answer is asked again', async () => {
  let isClosed = false
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/list' || isClosed) return false
    isClosed = true
    response.destroy()
    return true
  }
  expect(await using((client) => client.call('act', {}, never))).toMatchObject({ isError: false })
})

it('a call whose connection was reset before anything was written is made again', async () => {
  await using(async (client) => {
    // After the client has looked at the connection for the last time, and before it writes.
    const reset = () => {
      unsubscribe('undici:request:create', reset)
      setImmediate(() => sockets.map((socket) => socket.resetAndDestroy()))
    }
    subscribe('undici:request:create', reset)
    expect(await client.call('act', {}, never)).toEqual({ content: 'Acted', isError: false })
  })
  expect(requests.filter(isCall)).toHaveLength(1)
})

it.each<[string, (response: ServerResponse) => void]>([
  ['refuses', (response) => void response.writeHead(404).end()],
  ['drops', (response) => void response.destroy()],
  ['never answers', () => {}],
])('a server that %s notifications can be used', async (_, answer) => {
  otherwise = ({ message }, response) => {
    if (message?.method !== 'notifications/initialized') return false
    answer(response)
    return true
  }
  const acted = { content: 'Acted', isError: false }
  expect(await using((client) => client.call('act', {}, never), { toolTimeout: 2_000 })).toEqual(acted)
})

it('a stream that breaks after an event with an id resumes there and brings the answer', async () => {
  let asked: Message | null = null
  otherwise = ({ message, method, headers }, response) => {
    if (method === 'GET' && headers['last-event-id'] === 'e-1' && asked) {
      response.writeHead(200, SSE_TYPE).end(`id: e-2\ndata: ${envelope(asked, textResult('Resumed'))}\n\n`)
      return true
    }
    if (message?.method !== 'tools/call') return false
    asked = message
    response.writeHead(200, SSE_TYPE).end('id: e-1\nretry: 50\ndata:\n\n')
    return true
  }
  expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Resumed', isError: false })
  expect(requests.filter(isCall)).toHaveLength(1)
})

it('a tool may have acted if its server is gone once the stream of its call has begun', async () => {
  const leaving = createServer((incoming, response) => void http.emit('request', incoming, response))
  const at = `http://127.0.0.1:${await listen(leaving)}/mcp`
  otherwise = ({ message }, response) => {
    if (message?.method !== 'tools/call') return false
    leaving.close()
    response.writeHead(200, SSE_TYPE).end('id: e-1\nretry: 50\ndata:\n\n', () => leaving.closeAllConnections())
    return true
  }
  const { content } = await using((client) => client.call('act', {}, never), { at })
  expect(content).toMatch(/^The call failed: the connection was refused.*\. The tool may have acted: check before/)
})

it('a stream that ends without an event is resumed there, and may then answer with JSON', async () => {
  let asked: Message | null = null
  let polls = 0
  otherwise = ({ message, method, headers }, response) => {
    if (method === 'GET' && headers['last-event-id'] === 'e-1' && asked) {
      if (++polls < 3) response.writeHead(200, SSE_TYPE).end(': nothing yet\n\n')
      else response.writeHead(200, JSON_TYPE).end(envelope(asked, textResult('Late')))
      return true
    }
    if (message?.method !== 'tools/call') return false
    asked = message
    response.writeHead(200, SSE_TYPE).end('id: e-1\nretry: 50\ndata:\n\n')
    return true
  }
  expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Late', isError: false })
})

it.each<[string, object, (message: Message, result: object) => string]>([
  ['in its stream', {}, () => ''],
  ['in the body of each response', JSON_TYPE, envelope],
  ['in an event as the body', SSE_TYPE, (message, result) => `data: ${envelope(message, result)}\n\n`],
])('a server that speaks only the older transport is found, which answers %s', async (_, type, inBody) => {
  let stream: ServerResponse
  otherwise = ({ message, method, path }, response) => {
    if (method === 'GET') stream = response.writeHead(200, SSE_TYPE)
    if (method === 'GET') stream.write('event: endpoint\ndata: /messages\n\n')
    else if (path !== '/messages' || !message) response.writeHead(404).end()
    else {
      const results: Record<string, object> = {
        initialize: { ...GREETING, protocolVersion: '2024-11-05' },
        'tools/list': { tools: [tool('act')] },
        'tools/call': textResult('Old'),
      }
      const result = results[message.method]
      const body = result ? inBody(message, result) : ''
      response.writeHead(body ? 200 : 202, type as never).end(body)
      if (result && !body) stream.write(`event: message\ndata: ${envelope(message, result)}\n\n`)
    }
    return true
  }
  expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Old', isError: false })
})

it('a server of the older transport that refuses to list its tools is quoted', async () => {
  let stream: ServerResponse
  otherwise = ({ message, method, path }, response) => {
    if (method === 'GET') stream = response.writeHead(200, SSE_TYPE)
    if (method === 'GET') stream.write('event: endpoint\ndata: /messages\n\n')
    else response.writeHead(path === '/messages' ? 202 : 405).end()
    if (path !== '/messages' || message?.id === undefined) return true
    const error = { code: 1, message: 'The vault is sealed' }
    const answer =
      message.method === 'tools/list' ? { error } : { result: { ...GREETING, protocolVersion: '2024-11-05' } }
    stream.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id: message.id, ...answer })}\n\n`)
    return true
  }
  await expect(using(async ({ tools }) => tools)).rejects.toMatchObject({
    messageForPeople: 'it answered with the error 1: The vault is sealed',
  })
})

it.each<[string, number, string]>([
  ['403', 403, ''],
  ['500', 500, 'Internal Server Error'],
  ['200 and a message of its own', 200, '{"code":500,"msg":"POST is not supported"}'],
  ['200 and another one', 200, '{"success":false,"message":"POST is not supported"}'],
])(
  'a server of the older transport is found at its usual address if it answers POST with %s',
  async (_, status, body) => {
    let stream: ServerResponse
    otherwise = ({ message, method, path }, response) => {
      const results = {
        initialize: { ...GREETING, protocolVersion: '2024-11-05' },
        'tools/list': { tools: [tool('act')] },
      }
      const result = results[message?.method as keyof typeof results]
      if (method === 'GET') stream = response.writeHead(200, SSE_TYPE)
      if (method === 'GET') stream.write('event: endpoint\ndata: /messages\n\n')
      else response.writeHead(path === '/messages' ? 202 : status, JSON_TYPE).end(path === '/messages' ? '' : body)
      if (path === '/messages' && message && result) stream.write(`data: ${envelope(message, result)}\n\n`)
      return true
    }
    expect(await using(async ({ tools }) => tools, { at: url.replace(/mcp$/, 'sse') })).toMatchObject([{ name: 'act' }])
    requests = []
    await expect(using(async ({ tools }) => tools)).rejects.toThrow()
    expect(requests).toHaveLength(1)
  },
)

it.each([
  ['405', 405, {}],
  ['a page', 200, { 'content-type': 'text/html' }],
])('a server that has left the older transport is found, which answers GET with %s', async (_, status, headers) => {
  otherwise = ({ method }, response) => {
    if (method === 'GET') response.writeHead(status, headers).end()
    return method === 'GET'
  }
  const called = using((client) => client.call('act', {}, never), { transport: 'sse' })
  expect(await called).toEqual({ content: 'Acted', isError: false })
})

it('a load balancer gets its cookies back, in the same session alone', async () => {
  const sent: (string | undefined)[] = []
  otherwise = ({ message, headers }, response) => {
    sent.push(headers.cookie)
    if (message?.method === 'initialize') response.setHeader('set-cookie', ['lb=1; Path=/', 'old=x', 'a=b; HttpOnly'])
    if (message?.method === 'tools/list') response.setHeader('set-cookie', ['lb=2; Path=/', 'old=; Max-Age=0'])
    return false
  }
  await using((client) => client.call('act', {}, never))
  expect(sent.at(0)).toBeUndefined()
  expect(sent).toContain('lb=1; old=x; a=b')
  expect(requests.flatMap((request, index) => (isCall(request) ? [sent[index]] : []))).toEqual(['lb=2; a=b'])
  await using(async () => {})
  expect(sent.filter((cookie) => cookie === undefined)).toHaveLength(2)
})

it('a cookie of a session is removed from the results of tools', async () => {
  otherwise = ({ message, headers }, response) => {
    response.setHeader('set-cookie', 'session=0123456789abcdef; HttpOnly')
    if (message?.method !== 'tools/call' || !message) return false
    reply(response, message, textResult(`You sent ${headers.cookie}`))
    return true
  }
  expect(await using((client) => client.call('act', {}, never))).toMatchObject({
    content: 'You sent session=[removed]',
  })
})

it.each([429, 503])('a server that answers %s at connecting is asked again at the requested time', async (status) => {
  let busy = 2
  otherwise = (_, response) => {
    if (busy > 0) response.writeHead(status, { 'retry-after': '0' }).end()
    return busy-- > 0
  }
  expect(await using(async ({ tools }) => tools.map(({ name }) => name))).toEqual(['act'])
})

it.each([
  ['the call', 'tools/call', 429],
  ['the handshake', 'initialize', 504],
])('a server that is too busy for %s is asked again', async (_, method, status) => {
  let refusals = 0
  otherwise = ({ message }, response) => {
    if (message?.method !== method || refusals++) return false
    response.writeHead(status, { 'retry-after': new Date(0).toUTCString() }).end()
    return true
  }
  expect(await using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
})

it('a server that is too busy to list its tools before an approved call is asked again', async () => {
  const listed = await using(async (client) => {
    let refusals = 0
    otherwise = (_, response) => {
      if (refusals++) return false
      response.writeHead(503, { 'retry-after': '0' }).end()
      return true
    }
    return client.list(never)
  })
  expect(listed.map(({ name }) => name)).toEqual(['act'])
})

it("a server that asks for an hour's delay fails at once, with its reason", async () => {
  otherwise = (_, response) => {
    response.writeHead(429, { 'retry-after': '3600' }).end()
    return true
  }
  await expect(using(async () => {})).rejects.toThrow('it answered with the status 429: too many requests')
  expect(requests.filter(({ message }) => message?.method === 'initialize')).toHaveLength(1)
})

describe('a slow call', () => {
  it('a slow call whose caller gives up is cancelled on the server', async () => {
    const controller = new AbortController()
    otherwise = (request, response) => {
      if (!isCall(request)) return false
      response.writeHead(200, SSE_TYPE).flushHeaders()
      controller.abort(new Error('enough'))
      return true
    }
    await using(async (client) => {
      await expect(client.call('act', {}, controller.signal)).rejects.toThrow('enough')
    })
    expect(methodsOf()).toContain('notifications/cancelled')
    const [call] = requests.filter(isCall)
    const given = requests.find(({ message }) => message?.method === 'notifications/cancelled')
    expect(given?.message?.params.requestId).toBe(call?.message?.id)
  })

  it('sends a progress token, and reports the progress for it', async () => {
    otherwise = ({ message }, response) => {
      if (message?.method !== 'tools/call') return false
      const { progressToken } = message.params._meta
      response.writeHead(200, SSE_TYPE)
      for (const stated of [
        { progress: 1, total: 4 },
        { progress: 2, total: null },
        { message: 'x' },
        { progress: '99 %' },
      ]) {
        const params = { progressToken, ...stated }
        response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params })}\n\n`)
      }
      response.end(`data: ${envelope(message, textResult('Slow'))}\n\n`)
      return true
    }
    let calls = 0
    expect(await using((client) => client.call('act', {}, never, () => calls++))).toMatchObject({ content: 'Slow' })
    expect(calls).toBe(4)
  })
})

describe('a tool that only runs as a task', () => {
  const working = { taskId: 't1', status: 'working', pollInterval: 1 }
  /** Answers like a server with such a tool, whose task has these states. `answers` replaces its results. */
  const tasking = (states: string[], answers: Record<string, object> = {}): Handle => {
    const results: Record<string, () => object> = {
      'tools/list': () => ({ tools: [tool('act', { execution: { taskSupport: 'required' } })] }),
      'tasks/get': () => ({ ...working, status: states.shift() }),
      'tasks/result': () => textResult('Done'),
      'tasks/cancel': () => ({ ...working, status: 'cancelled' }),
    }
    return ({ message }, response) => {
      if (!message?.id || message.method === 'initialize') return false
      const isPlain = message.method === 'tools/call' && !message.params.task
      const result = answers[message.method] ?? results[message.method]?.() ?? { task: working }
      const error = isPlain ? { code: -32601, message: 'It requires a task' } : 'code' in result && result
      response.writeHead(200, JSON_TYPE)
      response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...(error ? { error } : { result }) }))
      return true
    }
  }

  it('is called as one, and its work is progress', async () => {
    otherwise = tasking(['working', 'working', 'completed'])
    let calls = 0
    const called = await using((client) => client.call('act', {}, never, () => calls++))
    expect([called, calls]).toEqual([{ content: 'Done', isError: false }, 3])
  })

  it.each<[string, string[], Record<string, object>, object]>([
    ['that waits for an answer', ['input_required'], {}, { content: 'Done', isError: false }],
    ['whose server answers at once', [], { 'tools/call': textResult('Now') }, { content: 'Now', isError: false }],
    [
      'that fails',
      ['failed'],
      { 'tasks/result': { code: -32603, message: 'No space' } },
      { content: 'The task of the tool failed: No space', isError: true },
    ],
    [
      'whose session is lost',
      [],
      { 'tasks/get': { code: -32001, message: 'Session not found' } },
      { content: 'The task of the tool failed: Session not found', isError: true },
    ],
  ])('is called once, also one %s', async (_, states, answers, result) => {
    otherwise = tasking(states, answers)
    expect(await using((client) => client.call('act', {}, never))).toEqual(result)
    expect(requests.filter(isCall)).toHaveLength(1)
  })

  it('may have acted if its server is gone', async () => {
    const answer = tasking(['working'])
    otherwise = (request, response) => {
      if (request.message?.method !== 'tasks/result') return answer(request, response)
      response.destroy()
      return true
    }
    const { content, isError } = await using((client) => client.call('act', {}, never))
    expect([isError, content]).toEqual([true, expect.stringContaining('The tool may have acted')])
  })

  it('is cancelled on the server if its caller gives up', async () => {
    const controller = new AbortController()
    otherwise = tasking(Array(1_000).fill('working'))
    await using(async (client) => {
      const giveUp = () => controller.abort(new Error('enough'))
      await expect(client.call('act', {}, controller.signal, giveUp)).rejects.toThrow('enough')
      await expect.poll(methodsOf).toContain('tasks/cancel')
    })
  })
})
