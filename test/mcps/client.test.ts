import { describe, expect, it } from 'vitest'
import { connectMcp, type McpClient } from '../../src/mcps/client/client.ts'
import { silenceOf } from '../../src/mcps/client/session.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { use } from '../support/use.ts'

const mcp = await use(startMcpServer())

const signal = new AbortController().signal
const TRANSPORTS = ['streamable-http', 'sse'] as const
type Options = { headers?: Record<string, string>; secrets?: string[] }

const connect = (transport: (typeof TRANSPORTS)[number], { headers = {}, secrets = [] }: Options = {}) => {
  const url = transport === 'sse' ? mcp.sseUrl : mcp.url
  const connection = { url, transport, headers: new Headers(headers), allowPrivate: true, toolTimeout: 10_000, secrets }
  return connectMcp(connection, signal)
}

async function using<T>(client: McpClient, use: (client: McpClient) => Promise<T>): Promise<T> {
  try {
    return await use(client)
  } finally {
    await client.close()
  }
}

describe.each(TRANSPORTS)('a server that speaks %s', (transport) => {
  it('lists its tools with their input schemas', async () => {
    const { tools, hasMore } = await using(await connect(transport), async (client) => client)
    expect(tools.map(({ name }) => name)).toEqual(['echo', 'add', 'fail', 'wait', 'much', 'show', 'headers'])
    expect(tools[1]).toMatchObject({
      description: 'The tool add',
      inputSchema: { type: 'object', properties: { a: { type: 'number' } }, required: ['a', 'b'] },
    })
    expect(hasMore).toBe(false)
  })

  it('answers calls, also several at once', async () => {
    await using(await connect(transport), async (client) => {
      const sums = await Promise.all([1, 2, 3, 4].map((a) => client.call('add', { a, b: 10 }, signal)))
      expect(sums).toEqual(['11', '12', '13', '14'].map((content) => ({ content, isError: false })))
    })
  })

  it('fails a call as an error result if the tool fails, its input is wrong, or it is unknown', async () => {
    await using(await connect(transport), async (client) => {
      const error = (pattern: RegExp) => ({ isError: true, content: expect.stringMatching(pattern) })
      expect(await client.call('fail', {}, signal)).toEqual(error(/It does not work/))
      expect(await client.call('add', { a: 'x' }, signal)).toEqual(error(/Invalid/))
      expect(await client.call('nothing', {}, signal)).toEqual(error(/not found/))
      expect(await client.call('echo', { text: 'still here' }, signal)).toMatchObject({ content: 'still here' })
    })
  })

  it('gets the configured headers with every request', async () => {
    mcp.requests.length = 0
    await using(await connect(transport, { headers: { 'X-Key': 'k1' } }), async (client) => {
      await client.call('add', { a: 1, b: 2 }, signal)
    })
    expect(mcp.requests.length).toBeGreaterThan(3)
    expect(mcp.requests.map(({ headers }) => headers['x-key'])).toEqual(mcp.requests.map(() => 'k1'))
  })

  it("loses a call whose signal aborts, with the signal's reason; other calls continue", async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    mcp.hold = promise
    await using(await connect(transport), async (client) => {
      const giveUp = new AbortController()
      const waiting = client.call('wait', {}, giveUp.signal)
      waiting.catch(() => {})
      const other = client.call('wait', {}, signal)
      await expect.poll(() => mcp.calls.filter(({ tool }) => tool === 'wait').length).toBeGreaterThan(1)
      giveUp.abort(new Error('enough'))
      await expect(waiting).rejects.toThrow('enough')
      resolve()
      expect(await other).toEqual({ content: 'Done', isError: false })
    })
    mcp.hold = Promise.resolve()
    mcp.calls.length = 0
  })

  it('has no open session and no connection after it is closed', async () => {
    const client = await connect(transport)
    expect(mcp.sessions).toBe(1)
    await client.close()
    await expect.poll(() => [mcp.sessions, mcp.connections]).toEqual([0, 0])
    expect(await client.call('add', { a: 1, b: 2 }, signal)).toMatchObject({ isError: true })
  })
})

it('A connection may be silent for as long as TOOL_TIMEOUT lets a call last', () => {
  const hour = 60 * 60_000
  expect(silenceOf({ toolTimeout: hour })).toEqual({ headersTimeout: hour, idleTimeout: hour })
  expect(silenceOf({ toolTimeout: 60_000 })).toEqual({ headersTimeout: hour / 6, idleTimeout: hour / 2 })
})

describe('the result of a tool', () => {
  it('has text and the images that models can see; other files become a description', async () => {
    const result = await using(await connect('streamable-http'), (client) => client.call('show', {}, signal))
    expect(result).toEqual({
      content: [
        'A picture',
        '[image 1: image/png, 3 bytes]',
        '[file:///a.txt]\nIts text',
        '[link to b: https://example.com/b]',
      ].join('\n\n'),
      isError: false,
      pictures: [{ mediaType: 'image/png', data: 'AAAA' }],
    })
  })

  it('is cut at the limit, with a note', async () => {
    const { content } = await using(await connect('streamable-http'), (client) =>
      client.call('much', { characters: 300_000 }, signal),
    )
    expect(content).toBe(`${'x'.repeat(256 * 1024)}\n\n[Cut: 300000 characters in all]`)
  })

  it('has no control characters and no hidden characters', async () => {
    const { content } = await using(await connect('sse'), (client) =>
      client.call('echo', { text: 'a\u0000b\u001b[31mc\u202ed\u200be\u{e0041}f\tg\nh\ud800' }, signal),
    )
    expect(content).toBe('abcdef\tg\nh\ufffd')
  })

  it('omits the credentials that the server received', async () => {
    const options = { headers: { Authorization: 'Bearer s3cret-value' }, secrets: ['s3cret-value'] }
    const { content } = await using(await connect('streamable-http', options), (client) =>
      client.call('headers', {}, signal),
    )
    expect(content).toContain('Bearer [removed]')
    expect(content).not.toContain('s3cret')
  })

  it('omits credentials that are prefixes of others or contain characters that JSON escapes', async () => {
    const secrets = ['secret-shared', 'secret-shared-AND-THE-REST-OF-IT', 'pa"ss\\word-long', ' of-blanks-around ']
    const headers = Object.fromEntries(secrets.map((secret, index) => [`x-${index}`, secret]))
    const { content } = await using(await connect('streamable-http', { headers, secrets }), (client) =>
      client.call('headers', {}, signal),
    )
    const sent = Object.keys(headers).map((name) => [name, '[removed]'])
    expect(JSON.parse(content)).toMatchObject(Object.fromEntries(sent))
  })
})
