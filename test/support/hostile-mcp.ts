import { createServer, type ServerResponse } from 'node:http'
import { listen } from './listen.ts'

export type Message = { id?: number; method: string }
export type Answer = (response: ServerResponse, message: Message) => void

export type HostileMcp = AsyncDisposable & {
  readonly url: string
  /** The answer to requests after the handshake. */
  answer: Answer
  /** Connections that are open. */
  readonly connections: number
  /** Bytes that it sent on connections that have ended. Set it to 0 to restart the count. */
  sent: number
}

export const MEBIBYTE = 1024 * 1024
export const JSON_TYPE = { 'content-type': 'application/json' }
export const SSE_TYPE = { 'content-type': 'text/event-stream' }

export const envelope = ({ id }: Message, result: unknown) => JSON.stringify({ jsonrpc: '2.0', id, result })

export const reply = (response: ServerResponse, message: Message, result: unknown) =>
  void response.writeHead(200, JSON_TYPE).end(envelope(message, result))

export const tool = (name: string, more: object = {}) => ({ name, inputSchema: { type: 'object' }, ...more })

/** Lists these tools correctly, and answers calls by the given function. */
export const calling =
  (names: readonly string[], call: Answer): Answer =>
  (response, message) => {
    if (message.method !== 'tools/list') return call(response, message)
    reply(response, message, { tools: names.map((name) => tool(name)) })
  }

/** Writes for as long as the client reads. */
export function pour(response: ServerResponse, chunk: Buffer | string): void {
  const write = () => {
    while (!response.destroyed && response.write(chunk));
    if (!response.destroyed) response.once('drain', write)
  }
  write()
}

/** Writes a little, again and again. */
export function drip(response: ServerResponse, chunk: string): void {
  const timer = setInterval(() => response.write(chunk), 5)
  response.on('close', () => clearInterval(timer))
}

/** An MCP server (streamable HTTP) with a correct handshake and scripted behavior afterwards. */
export async function startHostileMcp(): Promise<HostileMcp> {
  let connections = 0
  const http = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    if (request.method !== 'POST') return void response.writeHead(405).end()
    const message: Message = JSON.parse(Buffer.concat(chunks).toString())
    const serverInfo = { name: 'x', version: '1' }
    const greeting = { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo }
    if (message.method === 'initialize') return reply(response, message, greeting)
    if (message.id === undefined) return void response.writeHead(202).end()
    server.answer(response, message)
  })
  http.on('connection', (socket) => {
    connections++
    socket.on('close', () => {
      connections--
      server.sent += socket.bytesWritten
    })
  })
  const port = await listen(http)
  const server: HostileMcp = {
    url: `http://127.0.0.1:${port}/`,
    answer: () => {},
    get connections() {
      return connections
    },
    sent: 0,
    async [Symbol.asyncDispose]() {
      http.closeAllConnections()
      await new Promise((resolve) => http.close(resolve))
    },
  }
  return server
}
