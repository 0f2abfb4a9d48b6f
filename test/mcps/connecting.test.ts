import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it } from 'vitest'
import { connectMcp } from '../../src/mcps/client/client.ts'
import { envelope, JSON_TYPE, type Message, reply, SSE_TYPE, tool } from '../support/hostile-mcp.ts'
import { use } from '../support/use.ts'
import { GREETING, never, startClientLab, textResult } from './client-lab.ts'

/** MCP servers at connecting: their handshakes, transports and refusals. */

const lab = await use(startClientLab())

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
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'initialize' || !message) return false
    reply(response, message, greeting)
    return true
  }
  expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
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
  lab.otherwise = ({ message }, response) => {
    response.writeHead(status, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id: message?.id, error }))
    return true
  }
  const refused = await lab.using(async () => {}).catch((error: unknown) => error)
  expect(refused).toMatchObject({ messageForPeople: expect.stringContaining(reason) })
  // The message goes to the log.
  expect(String(refused)).not.toContain(error.message)
})

it('a server at another origin, to which a request without credentials is redirected, is named', async () => {
  const other = createServer((_, response) => void response.writeHead(401).end())
  await once(other.listen(0, '127.0.0.1'), 'listening')
  const origin = `http://127.0.0.1:${(other.address() as AddressInfo).port}`
  lab.otherwise = (_, response) => Boolean(response.writeHead(308, { location: `${origin}/mcp` }).end())
  await expect(lab.using(async () => {})).rejects.toThrow(
    `it redirects to ${origin}, where no credentials are sent: give the address there instead`,
  )
  other.close()
})

it('a proxy that does not connect is named', async () => {
  const connection = {
    url: lab.url,
    transport: 'streamable-http',
    headers: new Headers(),
    allowPrivate: true,
    secrets: [],
  }
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
  lab.otherwise = ({ message }, response) => {
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
  expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
})

it('a server without sessions gets the properties in headers that its tool demands there', async () => {
  const q = { type: 'string', 'x-mcp-header': 'Repo' }
  lab.otherwise = ({ message, headers }, response) => {
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
  expect(await lab.using((client) => client.call('act', { q: 'muster' }, never))).toEqual({
    content: 'muster',
    isError: false,
  })
})

it('a server whose handshake states an unknown version of the protocol is refused', async () => {
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== 'initialize' || !message) return false
    reply(response, message, { ...GREETING, protocolVersion: '1.0' })
    return true
  }
  await expect(lab.using((client) => client.call('act', {}, never))).rejects.toThrow('1.0')
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
    lab.otherwise = ({ message }, response) => {
      const offered = message?.method === 'initialize' && message.params.protocolVersion
      if (offered && offered <= '2025-03-26') reply(response, message, { ...GREETING, protocolVersion: offered })
      else if (offered)
        response.writeHead(status, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', ...refusal(message.id, offered) }))
      return Boolean(offered)
    }
    expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
    expect(lab.methodsOf().filter((method) => method === 'initialize')).toHaveLength(2)
  },
)

it.each<[string, object, (message: Message, result: object) => string]>([
  ['in its stream', {}, () => ''],
  ['in the body of each response', JSON_TYPE, envelope],
  ['in an event as the body', SSE_TYPE, (message, result) => `data: ${envelope(message, result)}\n\n`],
])('a server that speaks only the older transport is found, which answers %s', async (_, type, inBody) => {
  let stream: ServerResponse
  lab.otherwise = ({ message, method, path }, response) => {
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
  expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Old', isError: false })
})

it('a server of the older transport that refuses to list its tools is quoted', async () => {
  let stream: ServerResponse
  lab.otherwise = ({ message, method, path }, response) => {
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
  await expect(lab.using(async ({ tools }) => tools)).rejects.toMatchObject({
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
    lab.otherwise = ({ message, method, path }, response) => {
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
    expect(await lab.using(async ({ tools }) => tools, { at: lab.url.replace(/mcp$/, 'sse') })).toMatchObject([
      { name: 'act' },
    ])
    lab.requests = []
    await expect(lab.using(async ({ tools }) => tools)).rejects.toThrow()
    expect(lab.requests).toHaveLength(1)
  },
)

it.each([
  ['405', 405, {}],
  ['a page', 200, { 'content-type': 'text/html' }],
])('a server that has left the older transport is found, which answers GET with %s', async (_, status, headers) => {
  lab.otherwise = ({ method }, response) => {
    if (method === 'GET') response.writeHead(status, headers).end()
    return method === 'GET'
  }
  const called = lab.using((client) => client.call('act', {}, never), { transport: 'sse' })
  expect(await called).toEqual({ content: 'Acted', isError: false })
})

it.each([429, 503])('a server that answers %s at connecting is asked again at the requested time', async (status) => {
  let busy = 2
  lab.otherwise = (_, response) => {
    if (busy > 0) response.writeHead(status, { 'retry-after': '0' }).end()
    return busy-- > 0
  }
  expect(await lab.using(async ({ tools }) => tools.map(({ name }) => name))).toEqual(['act'])
})

it.each([
  ['the call', 'tools/call', 429],
  ['the handshake', 'initialize', 504],
])('a server that is too busy for %s is asked again', async (_, method, status) => {
  let refusals = 0
  lab.otherwise = ({ message }, response) => {
    if (message?.method !== method || refusals++) return false
    response.writeHead(status, { 'retry-after': new Date(0).toUTCString() }).end()
    return true
  }
  expect(await lab.using((client) => client.call('act', {}, never))).toEqual({ content: 'Acted', isError: false })
})

it('a server that is too busy to list its tools before an approved call is asked again', async () => {
  const listed = await lab.using(async (client) => {
    let refusals = 0
    lab.otherwise = (_, response) => {
      if (refusals++) return false
      response.writeHead(503, { 'retry-after': '0' }).end()
      return true
    }
    return client.list(never)
  })
  expect(listed.map(({ name }) => name)).toEqual(['act'])
})

it("a server that asks for an hour's delay fails at once, with its reason", async () => {
  lab.otherwise = (_, response) => {
    response.writeHead(429, { 'retry-after': '3600' }).end()
    return true
  }
  await expect(lab.using(async () => {})).rejects.toThrow('it answered with the status 429: too many requests')
  expect(lab.requests.filter(({ message }) => message?.method === 'initialize')).toHaveLength(1)
})
