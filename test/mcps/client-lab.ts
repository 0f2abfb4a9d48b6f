import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { beforeEach } from 'vitest'
import { connectMcp, type McpClient } from '../../src/mcps/client/client.ts'
import type { IsWanted } from '../../src/mcps/client/listing.ts'
import { type Message, reply, tool } from '../support/hostile-mcp.ts'
import { listen } from '../support/listen.ts'

export type Request = {
  message: (Message & { params?: any }) | null
  method: string
  path: string
  headers: IncomingHttpHeaders
}
/** Answers a request instead of the plain server. Returns false if the plain server should answer. */
export type Handle = (request: Request, response: ServerResponse) => boolean | undefined

export const GREETING = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: {} },
  serverInfo: { name: 'x', version: '1' },
}

export const textResult = (text: string) => ({ content: [{ type: 'text', text }] })
export const isCall = ({ message }: Request) => message?.method === 'tools/call'
export const never = new AbortController().signal

/**
 * Starts an MCP server with one tool, as people run them: a test decides what it does `otherwise`. Each test begins with
 * the plain server, without requests.
 */
export async function startClientLab() {
  const http = createServer(async (incoming, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of incoming) chunks.push(chunk)
    const message = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : null
    const { method = '', url: path = '', headers } = incoming
    const request = { message, method, path, headers }
    lab.requests.push(request)
    lab.sockets.push(incoming.socket)
    if (!lab.otherwise(request, response)) plainly(request, response)
  })

  function plainly({ message, method }: Request, response: ServerResponse) {
    if (method !== 'POST' || !message) return void response.writeHead(method === 'DELETE' ? 200 : 405).end()
    if (message.method === 'initialize') {
      response.setHeader('mcp-session-id', `session-${++lab.sessions}`)
      return reply(response, message, GREETING)
    }
    if (message.id === undefined) return void response.writeHead(202).end()
    if (message.method === 'tools/list') return reply(response, message, { tools: [tool('act')] })
    reply(response, message, textResult('Acted'))
  }

  const plain = () => ({
    requests: [] as Request[],
    /** The connection of each request. */
    sockets: [] as Socket[],
    sessions: 0,
    otherwise: (() => false) as Handle,
  })
  const url = `http://127.0.0.1:${await listen(http)}/mcp`
  const lab = {
    ...plain(),
    http,
    url,
    methodsOf: () => lab.requests.flatMap(({ message }) => message?.method ?? []),
    /** Connects a client, and closes it after its use. */
    async using<T>(
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
    },
    async [Symbol.asyncDispose]() {
      http.closeAllConnections()
      http.close()
    },
  }
  beforeEach(() => void Object.assign(lab, plain()))
  return lab
}
