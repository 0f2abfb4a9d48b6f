import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import { listen } from './listen.ts'

/** An answer, byte for byte. */
export type Bytes = {
  status?: number
  headers?: Record<string, string>
  /** The pieces of the answer, in order. */
  body?: string | Uint8Array | readonly (string | Uint8Array)[]
  /** The end of its connection: after the answer, by a reset, by a reset before the first byte, or never. */
  ends?: 'in order' | 'reset' | 'unanswered' | 'never'
}

export type ByteRequest = { path: string; headers: IncomingHttpHeaders; body: any; text: string }

export type ByteServer = AsyncDisposable & {
  readonly origin: string
  /** The POSTs so far. */
  readonly requests: readonly ByteRequest[]
  /** Scripts the answers to the next POSTs, and drops unused ones. */
  script(...answers: (Bytes | string)[]): void
}

/** Starts an HTTP server on loopback that answers each POST with scripted bytes, and any GET with an empty list. */
export async function startByteServer(): Promise<ByteServer> {
  const requests: ByteRequest[] = []
  const scripted: Bytes[] = []
  const http = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const bytes of request) chunks.push(bytes)
    if (request.method === 'GET') return void response.end('{"data":[]}')
    const text = Buffer.concat(chunks).toString()
    requests.push({ path: request.url ?? '', headers: request.headers, body: JSON.parse(text), text })
    answer(response, scripted.shift() ?? { status: 500, body: '{"error":{"message":"Nothing is scripted"}}' })
  })
  const port = await listen(http)
  return {
    origin: `http://127.0.0.1:${port}`,
    requests,
    script: (...answers) =>
      void scripted.splice(0, Infinity, ...answers.map((one) => (typeof one === 'string' ? { body: one } : one))),
    async [Symbol.asyncDispose]() {
      http.closeAllConnections()
      await new Promise((resolve) => http.close(resolve))
    },
  }
}

function answer(response: ServerResponse, { status = 200, headers, body = '', ends = 'in order' }: Bytes): void {
  if (ends === 'unanswered') return void response.socket?.resetAndDestroy()
  const type = status === 200 ? 'text/event-stream' : 'application/json'
  response.writeHead(status, { 'content-type': type, ...headers })
  for (const piece of [body].flat()) response.write(piece)
  if (ends === 'in order') response.end()
  // The callback comes after all earlier data was sent.
  else if (ends === 'reset') response.write(' ', () => setImmediate(() => response.socket?.resetAndDestroy()))
}
