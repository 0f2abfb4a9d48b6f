import { AsyncLocalStorage } from 'node:async_hooks'
import {
  Client,
  type FetchLike,
  type JSONRPCErrorResponse,
  type JSONRPCResponse,
  SSEClientTransport,
  SseError,
  StreamableHTTPClientTransport,
  type Transport,
} from '@modelcontextprotocol/client'
import packageJson from '../../package.json' with { type: 'json' }
import { normalize } from './normalize.ts'

/** In one connection: a server that says more has nothing to say. */
const MAX_MESSAGES = 10_000
/** A request of the server's, such as a ping, is answered by a request of ours. */
const REQUEST_WEIGHT = 50

/** The requests of this service have signals of their own; the SDK wants a number of milliseconds too. */
const LONGEST = 24 * 60 * 60 * 1000

/** As the SDK has it: of the errors that no server gave. */
export const CLOSED = -32000

export type Address = { url: string; transport: string; headers: Headers }

/** What a message is sent for: the request, once it has an id, and what gives it up. */
const sending = new AsyncLocalStorage<{ id: unknown; signal: AbortSignal }>()

/**
 * Takes an answer only where its question was asked: with streamable HTTP each request has its answer in a response of
 * its own, and one that claims to be another's is none.
 */
class StrictClient extends Client {
  protected override _onresponse(response: JSONRPCResponse | JSONRPCErrorResponse): void {
    const asked = sending.getStore()
    const isOwn = this.transport instanceof SSEClientTransport || String(asked?.id) === String(response.id)
    if (!isOwn) return
    const answer = 'result' in response ? { ...response, result: normalize(response.result) } : response
    super._onresponse(answer as JSONRPCResponse)
  }

  /** The request's response has ended. If its answer was not in it, there is none. */
  giveUp(id: string | number): void {
    super._onresponse({ jsonrpc: '2.0', id, error: { code: CLOSED, message: 'The connection was closed' } })
  }
}

/** Asks something of a server, until the signal: `options` are for the SDK. */
export const asking = <T>(
  signal: AbortSignal,
  ask: (options: { signal: AbortSignal; timeout: number }) => Promise<T>,
): Promise<T> => sending.run({ id: null, signal }, () => ask({ signal, timeout: LONGEST }))

/** A client for the address, not connected yet. `isLatest`: it finds out whether the server speaks the latest revision. */
export function createClient(address: Address, fetch: FetchLike, isLatest: boolean) {
  const transport = createTransport(address, fetch)
  const client = new StrictClient(
    { name: 'muster', version: packageJson.version },
    isLatest ? { versionNegotiation: { mode: 'auto' } } : {},
  )
  prepare(client, transport)
  return { client, transport }
}

/** No reconnecting, no signing in: a run that loses its server goes on without it. */
function createTransport({ url, transport, headers }: Address, fetch: FetchLike) {
  const options = { fetch, requestInit: { headers }, redirectPolicy: 'follow' as const }
  if (transport === 'sse') return new SSEClientTransport(new URL(url), options)
  return new StreamableHTTPClientTransport(new URL(url), {
    ...options,
    reconnectionOptions: {
      maxRetries: 0,
      initialReconnectionDelay: 0,
      maxReconnectionDelay: 0,
      reconnectionDelayGrowFactor: 1,
    },
  })
}

/** Before it is connected: what goes out says for which request, and what comes in is counted. */
function prepare(client: StrictClient, transport: Transport): void {
  let messages = 0
  const count = (weight: number) => {
    messages += weight
    if (messages > MAX_MESSAGES) void transport.close()
  }
  transport.onmessage = (message) => count('method' in message && 'id' in message ? REQUEST_WEIGHT : 1)
  transport.onerror = (error) => {
    count(1)
    // The one stream of an SSE server has ended.
    if (error instanceof SseError) void transport.close()
  }
  const send = transport.send.bind(transport)
  transport.send = (message, options) => {
    const { signal } = sending.getStore() ?? {}
    if (!signal || !('id' in message) || !('method' in message)) return send(message, options)
    const { id } = message
    const requestSignal = options?.requestSignal ? AbortSignal.any([signal, options.requestSignal]) : signal
    return sending.run({ id, signal }, () =>
      send(message, { onRequestStreamEnd: () => client.giveUp(id), ...options, requestSignal }),
    )
  }
}
