import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import { listen } from './listen.ts'

/** A request that a receiver of webhooks got. */
export type Received = { path: string; headers: IncomingHttpHeaders; text: string; body: any }

export type Receiver = AsyncDisposable & {
  readonly url: string
  /** The requests so far. */
  readonly received: Received[]
  /** Answers requests in place of the usual 204. */
  answer: ((response: ServerResponse, request: Received) => void) | null
  /** The requests of one path. */
  at(path: string): Received[]
}

/** Starts a receiver of webhooks on loopback. */
export async function startReceiver(): Promise<Receiver> {
  const received: Received[] = []
  const http = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const text = Buffer.concat(chunks).toString()
    const one = { path: request.url ?? '', headers: request.headers, text, body: text && JSON.parse(text) }
    received.push(one)
    if (receiver.answer) receiver.answer(response, one)
    else response.writeHead(204).end()
  })
  const port = await listen(http)
  const receiver: Receiver = {
    url: `http://127.0.0.1:${port}`,
    received,
    answer: null,
    at: (path) => received.filter((one) => one.path === path),
    async [Symbol.asyncDispose]() {
      http.closeAllConnections()
      await new Promise((resolve) => http.close(resolve))
    },
  }
  return receiver
}
