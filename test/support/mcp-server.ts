import { randomUUID } from 'node:crypto'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node'
import { type JSONRPCMessage, McpServer, type Transport } from '@modelcontextprotocol/server'
import { z } from 'zod'
import { listen } from './listen.ts'

export type McpTestServer = AsyncDisposable & {
  /** Streamable HTTP, with sessions. */
  readonly url: string
  /** The older transport: one event stream, with messages by POST. */
  readonly sseUrl: string
  /** Every request so far. */
  readonly requests: { method: string; path: string; headers: IncomingHttpHeaders }[]
  /** The bodies of the streamable transport so far, byte for byte. */
  readonly bodies: string[]
  /** Every tool call so far. */
  readonly calls: { tool: string; input: unknown }[]
  /** Sessions that have not ended. */
  readonly sessions: number
  /** Connections that are open. */
  readonly connections: number
  /** Answers a request before the MCP server sees it. Returns false for the others. */
  guard: ((request: IncomingMessage, response: ServerResponse) => boolean) | null
  /** The tool `wait` answers when it resolves. */
  hold: Promise<unknown>
}

/** A real MCP server of the official SDK on loopback, with tools that answer, fail, wait, and answer much. */
export async function startMcpServer(name = 'test'): Promise<McpTestServer> {
  const requests: McpTestServer['requests'] = []
  const bodies: string[] = []
  const calls: McpTestServer['calls'] = []
  const sessions = new Map<string, NodeStreamableHTTPServerTransport>()
  const streams = new Map<string, Transport>()
  const sockets = new Set<Socket>()

  const text = (content: string) => ({ content: [{ type: 'text' as const, text: content }] })

  function createMcp(headers: IncomingHttpHeaders): McpServer {
    const mcp = new McpServer({ name, version: '1.0.0' })
    const tool = <Shape extends z.ZodRawShape>(
      tool: string,
      shape: Shape,
      answer: (input: z.output<z.ZodObject<Shape>>) => unknown,
    ) =>
      mcp.registerTool(tool, { description: `The tool ${tool}`, inputSchema: z.object(shape) }, (async (
        input: z.output<z.ZodObject<Shape>>,
      ) => {
        calls.push({ tool, input })
        return answer(input)
      }) as never)
    tool('echo', { text: z.string() }, (input) => text(input.text))
    tool('add', { a: z.number(), b: z.number() }, ({ a, b }) => text(String(a + b)))
    tool('fail', {}, () => {
      throw new Error('It does not work')
    })
    tool('wait', {}, async () => {
      await server.hold
      return text('Done')
    })
    tool('much', { characters: z.number() }, ({ characters }) => text('x'.repeat(characters)))
    tool('show', {}, () => ({
      content: [
        { type: 'text', text: 'A picture' },
        { type: 'image', mimeType: 'image/png', data: 'AAAA' },
        { type: 'resource', resource: { uri: 'file:///a.txt', text: 'Its text' } },
        { type: 'resource_link', uri: 'https://example.com/b', name: 'b' },
      ],
    }))
    tool('headers', {}, () => text(JSON.stringify(headers)))
    return mcp
  }

  async function streamable(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const known = sessions.get(String(request.headers['mcp-session-id']))
    const body = request.method === 'POST' ? await read(request) : undefined
    if (body !== undefined) bodies.push(body)
    const message = body === undefined ? undefined : (JSON.parse(body) as unknown)
    if (known) return known.handleRequest(request, response, message)
    const transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, transport),
      onsessionclosed: (id) => void sessions.delete(id),
    })
    await createMcp(request.headers).connect(transport)
    await transport.handleRequest(request, response, message)
  }

  async function sse(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const id = randomUUID()
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(`event: endpoint\ndata: /messages?sessionId=${id}\n\n`)
    const transport: Transport = {
      start: async () => {},
      send: async (message) => void response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`),
      close: async () => void response.end(),
    }
    streams.set(id, transport)
    response.on('close', () => streams.delete(id))
    await createMcp(request.headers).connect(transport)
  }

  async function post(request: IncomingMessage, response: ServerResponse, id: string): Promise<void> {
    const message = await read(request)
    response.writeHead(202).end()
    streams.get(id)?.onmessage?.(JSON.parse(message) as JSONRPCMessage)
  }

  const http = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost')
    requests.push({ method: request.method ?? '', path: pathname, headers: request.headers })
    if (server.guard?.(request, response)) return
    const answered =
      pathname === '/sse'
        ? sse(request, response)
        : pathname === '/messages'
          ? post(request, response, searchParams.get('sessionId') ?? '')
          : streamable(request, response)
    answered.catch(() => response.destroy())
  })
  // A busy test may block the loop for longer than the five seconds after which an idle connection would be closed.
  http.keepAliveTimeout = 60_000
  http.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  const port = await listen(http)
  const base = `http://127.0.0.1:${port}`
  const server: McpTestServer = {
    url: `${base}/mcp`,
    sseUrl: `${base}/sse`,
    requests,
    bodies,
    calls,
    get sessions() {
      return sessions.size + streams.size
    },
    get connections() {
      return sockets.size
    },
    guard: null,
    hold: Promise.resolve(),
    async [Symbol.asyncDispose]() {
      http.closeAllConnections()
      await new Promise((resolve) => http.close(resolve))
    },
  }
  return server
}

async function read(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}
