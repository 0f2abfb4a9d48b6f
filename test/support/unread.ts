import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'

export type StreamRequest = { method: string; path: string; body?: string }

/** The streams of an execution's events, by API. */
export const STREAMS: Readonly<Record<string, (executionId: string) => StreamRequest>> = {
  REST: (id) => ({ method: 'GET', path: `/api/v1/executions/${id}/events` }),
  tRPC: (executionId) => ({
    method: 'GET',
    path: `/trpc/executions.events?input=${encodeURIComponent(JSON.stringify({ executionId }))}`,
  }),
  GraphQL: (id) => ({
    method: 'POST',
    path: '/graphql',
    body: JSON.stringify({
      query: 'subscription ($id: ID!) { executionEvents(executionId: $id) { seq ... on TextDeltaEvent { text } } }',
      variables: { id },
    }),
  }),
}

/** A client of a server in this process that requests a stream and reads nothing of it, with the server's response. */
export async function unread(
  { url }: { url: string },
  { method, path, body = '' }: StreamRequest,
  token: string,
): Promise<{ socket: Socket; res: ServerResponse }> {
  const { hostname, port } = new URL(url)
  const head = [
    `${method} ${path} HTTP/1.1`,
    `Host: ${hostname}`,
    `Authorization: Bearer ${token}`,
    'Accept: text/event-stream',
    ...(body && ['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`]),
  ]
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {})
  const { promise, resolve } = Promise.withResolvers<ServerResponse>()
  const begun = (message: unknown) => {
    const { response, socket: theirs } = message as { response: ServerResponse; socket: Socket }
    if (theirs.remotePort === socket.localPort) resolve(response)
  }
  subscribe('http.server.request.start', begun)
  socket.write(`${head.join('\r\n')}\r\n\r\n${body}`)
  const res = await promise
  unsubscribe('http.server.request.start', begun)
  return { socket, res }
}

/** Waits until all buffers on the way to the reader are full, or the server has ended the response. */
export async function stalled(res: ServerResponse): Promise<void> {
  for (let [turns, written] = [0, 0]; turns < 500 && !res.destroyed; turns++) {
    await new Promise((resolve) => setImmediate(resolve))
    const now = res.socket?.bytesWritten ?? 0
    if (now !== written || !res.socket?.writableNeedDrain) turns = 0
    written = now
  }
}
