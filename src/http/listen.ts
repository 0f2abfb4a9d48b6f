import type { RequestListener, Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Logger } from 'pino'
import { createServer } from '../lib/net/http.ts'
import type { Settings } from '../settings.ts'
import { limitConnections } from './connections.ts'
import { REQUEST_TIMEOUT, refuseMalformed } from './malformed.ts'

const CONNECTIONS = {
  // Idle timeout (ms), longer than in proxies, which would otherwise send a request on a closing connection.
  keepAliveTimeout: 150_000,
  requestTimeout: REQUEST_TIMEOUT,
  // TCP's own probes (ms): a router forgets a connection on which a client waits minutes for a whole answer.
  keepAlive: true,
  keepAliveInitialDelay: 60_000,
  // The app handles a missing host or an unknown expectation instead of Node.
  requireHostHeader: false,
}

/**
 * Maximum number of connections that wait to be accepted; Linux allows 4,096. Node's 511 are too few for 3,000 clients
 * that connect at once: the kernel resets some of them.
 */
const BACKLOG = 4_096

/** Maximum time for responses in progress at shutdown (ms). */
const CLOSE_PATIENCE = 3_000

/** Starts an HTTP server. Once `stopping` aborts, each response ends its connection. */
export async function listen(
  app: RequestListener,
  { HOST, PORT }: Settings,
  log: Logger,
  stopping: AbortSignal,
): Promise<Server> {
  const answer: RequestListener = (req, res) => {
    // A kept connection would be closed while its next request may be on the way.
    if (stopping.aborted) res.setHeader('Connection', 'close')
    app(req, res)
  }
  const server = createServer(CONNECTIONS, answer)
  // A client that closes its half after the request, as `nc` does, gets its answer (context.ts).
  Object.assign(server, { httpAllowHalfOpen: true })
  server.on('checkExpectation', answer).on('clientError', refuseMalformed)
  await limitConnections(server, log)
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(PORT, HOST, BACKLOG, () => {
      server.off('error', reject)
      resolve()
    })
  })
  return server
}

/** Returns the port of a server that listens. */
export const portOf = (server: Server): number => (server.address() as AddressInfo).port

/** Returns the address under which clients reach a server that listens. */
export function urlOf(server: Server, { PUBLIC_URL }: Settings): string {
  const { address, family, port } = server.address() as AddressInfo
  const host = address === '0.0.0.0' || address === '::' ? 'localhost' : family === 'IPv6' ? `[${address}]` : address
  return PUBLIC_URL?.replace(/\/$/, '') ?? `http://${host}:${port}`
}

/** Stops accepting connections, and waits a moment for the responses in progress. */
export async function close(server: Server): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve))
  // Connections whose responses have just ended become idle now.
  const idle = setInterval(() => server.closeIdleConnections(), 20)
  const timer = setTimeout(() => server.closeAllConnections(), CLOSE_PATIENCE)
  await closed
  clearTimeout(timer)
  clearInterval(idle)
}
