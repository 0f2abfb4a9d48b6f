import type { ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { describe, expect, it, vi } from 'vitest'
import { connectMcp, type McpClient } from '../../src/mcps/client/client.ts'
import {
  type Answer,
  calling,
  drip,
  envelope,
  JSON_TYPE,
  MEBIBYTE,
  type Message,
  pour,
  reply,
  SSE_TYPE,
  startHostileMcp,
  tool,
} from '../support/hostile-mcp.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { use } from '../support/use.ts'

const hostile = await use(startHostileMcp())
const good = await use(startMcpServer())

const signal = new AbortController().signal
/** 200 MiB of blanks. */
const PACKED = gzipSync(Buffer.alloc(200 * MEBIBYTE, ' '))

const connect = (url = hostile.url, toolTimeout = 60_000, secrets: string[] = []) =>
  connectMcp(
    { url, transport: 'streamable-http', headers: new Headers(), allowPrivate: true, toolTimeout, secrets },
    signal,
  )

/**
 * Returns the outcome of listing its tools. Checks that no connection is left and that another server was not delayed.
 */
async function list(answering: Answer, toolTimeout?: number): Promise<McpClient['tools'] | string> {
  // A busy machine needs longer than the limit of a connection to read an answer that is too large.
  const { timeout } = AbortSignal
  using _ = vi.spyOn(AbortSignal, 'timeout').mockImplementation((ms) => timeout(ms === 20_000 ? 170_000 : ms))
  hostile.answer = answering
  hostile.sent = 0
  const outcome = connect(hostile.url, toolTimeout).then(
    async (client) => {
      await client.close()
      return client.tools
    },
    (error: Error) => error.message,
  )
  const other = await connect(good.url)
  expect(await other.call('add', { a: 1, b: 2 }, signal)).toEqual({ content: '3', isError: false })
  await other.close()
  const result = await outcome
  await expect.poll(() => hostile.connections).toBe(0)
  return result
}

describe('a server whose list of tools', () => {
  it.each<[string, string, Answer]>([
    [
      'is a gigabyte of JSON',
      'its answer is too large',
      (response) => pour(response.writeHead(200, JSON_TYPE), ' '.repeat(MEBIBYTE)),
    ],
    [
      'is one endless line of a stream',
      'its answer is too large',
      (response) => pour(response.writeHead(200, SSE_TYPE), `data: ${'x'.repeat(MEBIBYTE)}`),
    ],
    [
      'is a stream of garbage',
      'it sent too many messages',
      (response) => pour(response.writeHead(200, SSE_TYPE), 'data: {}\n\n'.repeat(10_000)),
    ],
    [
      'is a stream of comments',
      'its answer is too large',
      (response) => pour(response.writeHead(200, SSE_TYPE), ': x\n'.repeat(100_000)),
    ],
    [
      'is a stream of pings, each to be answered',
      'it sent too many messages',
      (response) =>
        pour(response.writeHead(200, SSE_TYPE), 'data: {"jsonrpc":"2.0","id":7,"method":"ping"}\n\n'.repeat(1000)),
    ],
    [
      'is small, and large when it is unpacked',
      'its answer is too large',
      (response) => void response.writeHead(200, { ...JSON_TYPE, 'content-encoding': 'gzip' }).end(PACKED),
    ],
    [
      'comes with huge headers',
      'the headers of its answer are too large',
      (response) => void response.writeHead(200, { ...JSON_TYPE, x: 'y'.repeat(100_000) }).end('{}'),
    ],
    [
      'is HTTP/2',
      'its answer is not HTTP/1.1: is this its port?',
      (response) => void response.socket?.end(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])),
    ],
    [
      'is an empty batch',
      'its answer ended without a result',
      (response) => void response.writeHead(200, JSON_TYPE).end('[]'),
    ],
    [
      'is a message to the service alone',
      'its answer ended without a result',
      (response) => void response.writeHead(200, JSON_TYPE).end('{"jsonrpc":"2.0","id":"x","method":"roots/list"}'),
    ],
    [
      'is no JSON',
      'its answer is not a message of the protocol',
      (response) => void response.writeHead(200, JSON_TYPE).end('{nope'),
    ],
    [
      'is a page',
      'it answered with a web page (text/html): is this the address of an MCP server?',
      (response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'),
    ],
    [
      'breaks off',
      'it closed the connection before its answer was complete',
      (response) =>
        void response.writeHead(200, { ...JSON_TYPE, 'content-length': 999 }).write('{', () => response.destroy()),
    ],
    [
      'breaks off in a stream',
      'it closed the connection before its answer was complete',
      (response) => void response.writeHead(200, SSE_TYPE).write('id: 1\ndata: {', () => response.destroy()),
    ],
    [
      'ends without an answer',
      'its answer ended without a result',
      (response) => void response.writeHead(200, SSE_TYPE).end(),
    ],
    [
      'is an error',
      'it answered with the error -32603',
      (response, { id }) =>
        void response
          .writeHead(200, JSON_TYPE)
          .end(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32603, message: 'Secret!' } })),
    ],
    ['is a status', 'it answered with the status 500', (response) => void response.writeHead(500).end('Secret!')],
    [
      'asks to sign in',
      'it answered with the status 401: it wants authorization (Bearer: resource_metadata=http://127.0.0.1:1/): give it credentials, or set `auth: oauth`',
      (response) =>
        void response.writeHead(401, { 'www-authenticate': 'Bearer resource_metadata="http://127.0.0.1:1/"' }).end(),
    ],
    [
      'is of another form',
      'its answer is not a message of the protocol',
      (response, message) => reply(response, message, { tools: 'all' }),
    ],
  ])('%s cannot be used: %s', async (_, reason, answering) => {
    expect(await list(answering)).toBe(reason)
    expect(hostile.sent).toBeLessThan(64 * MEBIBYTE)
  })

  it.each<[string, Answer]>([
    ['never comes', () => {}],
    [
      'drips',
      (response) => {
        drip(response.writeHead(200, JSON_TYPE), ' ')
      },
    ],
    [
      'is an endless stream of answers to something else',
      (response, message) => {
        drip(response.writeHead(200, SSE_TYPE), `data: ${envelope({ ...message, id: 99 }, {})}\n\n`)
      },
    ],
  ])('%s fails after a time limit', async (_, answering) => {
    expect(await list(answering, 500)).toBe('it takes too long')
  })

  it('has names in other letters describes its tools by them', async () => {
    hostile.answer = calling(['天气', 'b'], () => {})
    const client = await connect()
    expect(client.tools.map(({ description }) => description.slice(0, 3))).toEqual([
      '天气:',
      expect.not.stringMatching(/^b:/),
    ])
    await client.close()
  })

  it('has ten thousand tools offers two hundred', async () => {
    const tools = Array.from({ length: 10_000 }, (_, index) => tool(`t${index}`))
    const listed = await list((response, message) => reply(response, message, { tools }))
    expect(listed).toHaveLength(200)
  })

  it('repeats itself under new cursors is read until a page has nothing new', async () => {
    let pages = 0
    const listed = await list((response, message) =>
      reply(response, message, { tools: [tool('same')], nextCursor: `on ${++pages}` }),
    )
    expect(listed).toHaveLength(1)
    expect(pages).toBe(2)
  })

  it('never ends is read for twenty pages', async () => {
    let pages = 0
    const listed = await list((response, message) =>
      reply(response, message, { tools: [tool(`t${++pages}`)], nextCursor: `on ${pages}` }),
    )
    expect(listed).toHaveLength(20)
    expect(pages).toBe(20)
  })

  it('has unsafe names and schemas gets names cleaned, and huge or endless schemas dropped', async () => {
    const deep = JSON.parse(`${'{"items":'.repeat(1000)}{}${'}'.repeat(1000)}`)
    const tools = [
      tool('a\u0000b\u001b[2J\u202e\u200b c', { description: 'x\u0007y\u{e0041}z\nnext' }),
      tool('del\u200cete', { description: 'd'.repeat(10_000) }),
      tool('schema', {
        inputSchema: { type: 'object', properties: { p: { type: 'string', description: 'q\u0000r' } } },
      }),
      tool('', {}),
      tool('\u200b\u0000'),
      tool('huge', {
        inputSchema: { type: 'object', properties: { p: { type: 'string', pattern: 'x'.repeat(40_000) } } },
      }),
      tool('schema', { description: 'once more' }),
    ]
    const listed = (await list((response, message) => reply(response, message, { tools }))) as McpClient['tools']
    expect(listed.map(({ name }) => name)).toEqual(['ab c', 'del ete', 'schema'])
    expect(listed.map(({ description }) => description)).toEqual(['xyz\nnext', 'd'.repeat(4000), ''])
    expect(listed[2]!.inputSchema).toEqual({ type: 'object', properties: { p: { type: 'string', description: 'qr' } } })
    const endless = '['.repeat(20_000) + ']'.repeat(20_000)
    const bottomless = [
      tool('endless', { inputSchema: { type: 'object', properties: { endless: 0 } } }),
      tool('deep', { inputSchema: { type: 'object', properties: { deep } } }),
      tool('plain'),
    ]
    const listing: Answer = (response, message) =>
      void response
        .writeHead(200, JSON_TYPE)
        .end(envelope(message, { tools: bottomless }).replace('"endless":0', `"endless":${endless}`))
    expect(await list(listing)).toHaveLength(1)
  })
})

it.each<[string, object]>([
  ['has no schema', { name: 'a' }],
  ['has a schema without a type', { name: 'a', inputSchema: {} }],
  ['has null in its optional fields', { name: 'a', description: null, inputSchema: null, title: null }],
  [
    'has null within its schema',
    { name: 'a', inputSchema: { type: 'object', properties: null, required: null, additionalProperties: null } },
  ],
  ['has empty lists for empty objects (PHP)', { name: 'a', inputSchema: { type: ['object'], properties: [] } }],
  ['has an empty list as its schema', { name: 'a', inputSchema: [] }],
  ['has no list where its schema must have one', { name: 'a', inputSchema: { type: 'OBJECT', required: true } }],
  ['has its schema as a text', { name: 'a', inputSchema: '{"type":"object"}' }],
  ["has its schema in Anthropic's field", { name: 'a', input_schema: { type: 'object' } }],
])('a tool that %s takes an object, and has no description', async (_, described) => {
  const listed = await list((response, message) => reply(response, message, { tools: [described] }))
  expect(listed).toEqual([{ name: 'a', description: '', inputSchema: { type: 'object' } }])
})

it.each<[string, unknown]>([
  ['is no object', 5],
  ['has no name', { inputSchema: { type: 'object' } }],
  ['takes a text', tool('bad', { inputSchema: { type: 'string' } })],
  ['has a list as its schema', tool('bad', { inputSchema: [1] })],
  ['has no objects where its schema must have them', tool('bad', { inputSchema: { type: 'object', properties: [1] } })],
])('a tool that %s is dropped, and no other', async (_, bad) => {
  const tools = [tool('first'), bad, tool('last', { annotations: 5, outputSchema: 'x', icons: [1] })]
  const listed = await list((response, message) => reply(response, message, { tools }))
  expect((listed as McpClient['tools']).map(({ name }) => name)).toEqual(['first', 'last'])
})

it.each([null, false, {}])('a list of tools whose next page is %j ends there', async (nextCursor) => {
  const listed = await list((response, message) => {
    const isNext = JSON.stringify(message).includes('cursor')
    reply(response, message, { tools: [tool(isNext ? 'second' : 'first')], nextCursor })
  })
  expect((listed as McpClient['tools']).map(({ name }) => name)).toEqual(['first'])
})

describe('a call', () => {
  it('ignores an answer sent for another call', async () => {
    const waiting: { response: ServerResponse; message: Message }[] = []
    hostile.answer = calling(['a', 'b'], (response, message) => {
      response.writeHead(200, SSE_TYPE)
      waiting.push({ response, message })
    })
    const client = await connect()
    const [a, b] = [client.call('a', {}, signal), client.call('b', {}, signal)]
    await expect.poll(() => waiting.length).toBe(2)
    const [first, second] = waiting as [(typeof waiting)[0], (typeof waiting)[0]]
    const says = (text: string) => ({ content: [{ type: 'text', text }] })
    first.response.write(`data: ${envelope(second.message, says('forged'))}\n\n`)
    first.response.write(
      `data: ${envelope({ ...second.message, id: String(second.message.id) as never }, says('forged'))}\n\n`,
    )
    first.response.end(`data: ${envelope(first.message, says('own'))}\n\n`)
    expect(await a).toEqual({ content: 'own', isError: false })
    second.response.end(`data: ${envelope(second.message, says('true'))}\n\n`)
    expect(await b).toEqual({ content: 'true', isError: false })
    await client.close()
  })

  it.each<[string, Answer]>([
    ['a gigabyte', (response) => pour(response.writeHead(200, SSE_TYPE), `data: ${'x'.repeat(MEBIBYTE)}`)],
    ['nothing, and hangs up', (response) => void response.destroy()],
    ['half an answer', (response) => void response.writeHead(200, SSE_TYPE).end('data: {"jsonrpc":')],
    ['something of another form', (response, message) => reply(response, message, 5)],
    ['a status', (response) => void response.writeHead(503).end()],
    ['a redirect to elsewhere as a GET', (response) => void response.writeHead(302, { location: good.url }).end()],
  ])('a call with the answer %s is an error result', async (_, call) => {
    hostile.answer = calling(['a', 'b'], call)
    const client = await connect()
    expect(await client.call('a', {}, signal)).toEqual({
      isError: true,
      content: expect.stringMatching(/^The call failed: /),
    })
    await client.close()
  })

  it.each<[string, (response: ServerResponse, json: string) => void]>([
    ['JSON', (response, json) => void response.writeHead(200, JSON_TYPE).end(json)],
    ['an event', (response, json) => void response.writeHead(200, SSE_TYPE).end(`: "\n\ndata: ${json}\n\n`)],
    [
      'an event of many lines',
      (response, json) =>
        void response
          .writeHead(200, SSE_TYPE)
          .end(`data:${json.replace('"result":', '\r\ndata:"result":\r\ndata: ')}\r\n\r\n`),
    ],
  ])('an answer %s of 50,000 values is an error result, unless the values stand in a text', async (_, say) => {
    const called = async (result: string) => {
      hostile.answer = calling(['a'], (response, message) =>
        say(response, envelope(message, 0).replace(/0}$/, `${result}}`)),
      )
      const client = await connect()
      const answer = await client.call('a', {}, signal)
      await client.close()
      return answer
    }
    const named = (count: number) =>
      JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, at) => [at, 1])))
    const nested = `{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}}`
    for (const structured of [named(50_000), nested, `{"a":[{}${',{}'.repeat(25_000)}]}`]) {
      const { content, isError } = await called(`{"content":[],"structuredContent":${structured}}`)
      expect([isError, content.length < 200 && content]).toEqual([true, expect.stringMatching(/^The call failed: /)])
    }
    expect((await called(`{"content":[0${',0'.repeat(50_000)}]}`)).isError).toBe(true)
    const content = named(10_000)
    expect(await called(`{"content":[],"structuredContent":${content}}`)).toEqual({ content, isError: false })
    const text = '\\",[{'.repeat(20_000)
    const json = JSON.stringify([{ type: 'text', text }])
    expect(await called(`{"content":${json}}`)).toEqual({ content: text, isError: false })
  })

  it('gets the readable parts of its answer, and a note about the others', async () => {
    const parts = [
      { type: 'text', text: 'one' },
      1,
      { type: 'text' },
      { type: 'image', data: 'AAAA', mimeType: { toString: 1 } },
      { type: 'resource', resource: { uri: 'file:///x' } },
      { type: 'text', text: 'two', annotations: 'x' },
    ]
    hostile.answer = calling(['a'], (response, message) => reply(response, message, { content: parts }))
    const client = await connect()
    const unknown = '[unsupported content]'
    const contents = ['one', unknown, unknown, '[image, without a type, 3 bytes: not shown]', unknown, 'two']
    expect(await client.call('a', {}, signal)).toEqual({ content: contents.join('\n\n'), isError: false })
    await client.close()
  })

  it.each<[string, object, string]>([
    ['a data URL', { type: 'image', data: 'data:image/png;base64,iVBORw0KGgo=' }, 'image/png'],
    ['the type image/jpg', { type: 'image', data: '/9j/4A==', mimeType: 'image/jpg' }, 'image/jpeg'],
    ['the type of another picture', { type: 'image', data: 'R0lGODlh', mimeType: 'image/png' }, 'image/gif'],
    ['letters of URLs', { type: 'image', data: 'iVBORw0KGgr_-A==', mime_type: 'image/png' }, 'image/png'],
    ['a data URL as a text', { type: 'text', text: '\ndata:image/png;base64,iVBORw0KGgo=\n' }, 'image/png'],
    ["Anthropic's fields", { type: 'image', source: { media_type: 'image/webp', data: 'UklGRgAA' } }, 'image/webp'],
  ])('gets a picture with %s', async (_, part, mediaType) => {
    hostile.answer = calling(['a'], (response, message) => reply(response, message, { content: [part] }))
    const client = await connect()
    const { pictures } = await client.call('a', {}, signal)
    expect(pictures).toEqual([{ mediaType, data: expect.stringMatching(/^[A-Za-z0-9+/]+=*$/) }])
    await client.close()
  })

  it.each([
    { type: 'image', url: 'https://x.y/z.png' },
    { type: 'image_url', image_url: { url: 'https://x.y/z.png' } },
    { type: 'image', source: { type: 'url', url: 'https://x.y/z.png' } },
  ])('gets the address of a picture: %o', async (part) => {
    hostile.answer = calling(['a'], (response, message) => reply(response, message, { content: [part] }))
    const client = await connect()
    expect(await client.call('a', {}, signal)).toMatchObject({ content: `[link to ${part.type}: https://x.y/z.png]` })
    await client.close()
  })

  const FILE = '{"type":"file","data":"[6000 bytes in base64: not shown]"}'
  it.each<[string, object, string]>([
    ['of a later revision', { content: [{ type: 'table', rows: [1] }] }, '{"type":"table","rows":[1]}'],
    ['whose text is an object', { content: [{ type: 'text', text: { a: 1 } }] }, '{"a":1}'],
    ['whose file is in base64', { content: [{ type: 'file', data: 'A'.repeat(8000) }] }, FILE],
    ['beside the content', { output: 'yes' }, '{"output":"yes"}'],
  ])('gets the JSON of a part %s', async (_, result, content) => {
    hostile.answer = calling(['a'], (response, message) => reply(response, message, result))
    const client = await connect()
    expect(await client.call('a', {}, signal)).toEqual({ content, isError: false })
    await client.close()
  })

  it.each<[string, object]>([
    ['null', { isError: null, structuredContent: null }],
    ['of another form', { isError: 'no', structuredContent: ['one'] }],
  ])('a call whose answer has more parts that are %s gets a note about them', async (_, more) => {
    hostile.answer = calling(['a'], (response, message) => {
      reply(response, message, { content: [{ type: 'text', text: 'one' }], ...more })
    })
    const client = await connect()
    expect(await client.call('a', {}, signal)).toEqual({ content: 'one', isError: false })
    await client.close()
  })

  it('is not repeated', async () => {
    let calls = 0
    hostile.answer = calling(['a', 'b'], (response) => {
      calls++
      response.writeHead(200, SSE_TYPE).write('retry: 1\nid: 1\n\n', () => response.destroy())
    })
    const client = await connect()
    expect(await client.call('a', {}, signal)).toMatchObject({ isError: true })
    await client.close()
    expect(calls).toBe(1)
  })
})

describe('a server that repeats the secrets that it received', () => {
  const [short, long, quoted] = ['secret-shared', 'secret-shared-AND-THE-REST-OF-IT', 'pa"ss\\word-long']
  const secrets = [short, long, quoted] as [string, string, string]
  const says = (what: object): Answer => {
    return (response, message) => reply(response, message, what)
  }
  const listed = async (tools: object[], sent: string[] = secrets) => {
    hostile.answer = says({ tools })
    const client = await connect(hostile.url, undefined, sent)
    await client.close()
    return client.tools
  }
  const called = async (call: Answer) => {
    hostile.answer = calling(['a'], call)
    const client = await connect(hostile.url, undefined, secrets)
    const { content } = await client.call('a', {}, signal)
    await client.close()
    return content
  }

  it('shows none of them in names, descriptions and schemas', async () => {
    const inputSchema = { type: 'object', properties: { p: { default: quoted, enum: [long], pattern: `^${short}$` } } }
    const [named, ...more] = await listed([
      tool(`a ${long}`, { description: `${quoted}, ${short}${long}`, inputSchema }),
    ])
    expect(more).toEqual([])
    expect(named).toEqual({
      name: 'a [removed]',
      description: '[removed], [removed]',
      inputSchema: {
        type: 'object',
        properties: { p: { default: '[removed]', enum: ['[removed]'], pattern: '^[removed]$' } },
      },
    })
  })

  it.each(secrets)('has no tool that names a property %s', async (secret) => {
    const inputSchema = { type: 'object', properties: { [secret]: { type: 'string' } } }
    expect((await listed([tool('a', { inputSchema }), tool('b')])).map(({ name }) => name)).toEqual(['b'])
  })

  it('shows no prefix of them where a text is cut', async () => {
    const key = `key-${'0123456789'.repeat(800)}`
    const lengths = [3990, 4000, 7990]
    const tools = lengths.map((length) => tool(`t${length}`, { description: `${'x'.repeat(length)}${key}` }))
    const sent = 'y'.repeat(7_000)
    const descriptions = (await listed([...tools, tool('t', { description: sent + key })], [key, sent])).map(
      ({ description }) => description,
    )
    expect(descriptions).toEqual([`${'x'.repeat(3990)}[removed]`, 'x'.repeat(4000), 'x'.repeat(4000), '[removed]'])
    const error = { code: -32000, message: `${'x'.repeat(3960)}${long}` }
    const content = await called(
      (response, { id }) => void response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id, error })),
    )
    expect(content).toMatch(/^The call failed: .*x\[remove/)
  })

  it.each<[string, object]>([
    ['a text', { type: 'text', text: secrets.join() }],
    ['JSON', { type: 'text', text: JSON.stringify(secrets) }],
    ['JSON in JSON', { type: 'text', text: JSON.stringify([JSON.stringify(secrets)]) }],
    ['JSON that escapes more than it must', { type: 'text', text: '"pa\\u0022ss\\u005Cw\\u006frd\\u002dlong"' }],
    ['a text that hides it', { type: 'text', text: 'secret\u200b-shared' }],
    ['a type', { type: 'image', mimeType: long, data: 'AAAA' }],
    ['a link', { type: 'resource_link', name: quoted, uri: `https://example.com/${short}` }],
    ['a resource', { type: 'resource', resource: { uri: `file:///${short}`, text: long } }],
    [
      'a picture of another kind',
      { type: 'resource', resource: { uri: `file:///${short}`, mimeType: long, blob: 'AAAA' } },
    ],
  ])('shows none of them in %s', async (_, block) => {
    const content = await called(says({ content: [block] }))
    expect(content).toContain('[removed]')
    expect(content).not.toMatch(/secret|AND|pa|w.{0,6}rd/)
  })

  it('shows none of them in structured content, including property names and numbers', async () => {
    const structuredContent = { [quoted]: { [long]: [quoted, JSON.stringify({ quoted })] } }
    const content = await called(says({ content: [], structuredContent }))
    expect(content).toBe('{"[removed]":{"[removed]":["[removed]","{\\"quoted\\":\\"[removed]\\"}"]}}')
    const [pin] = await listed([tool('a', { inputSchema: { type: 'object', maxProperties: 123456 } })], ['123456'])
    expect(pin).toBeUndefined()
  })
})
