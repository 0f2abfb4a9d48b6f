import { AsyncLocalStorage } from 'node:async_hooks'
import {
  Client,
  type FetchLike,
  type JSONRPCErrorResponse,
  type JSONRPCMessage,
  type JSONRPCResponse,
  ProtocolError,
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
/** A long call may tell of its progress very often. */
const PROGRESS_WEIGHT = 0.1

/** The requests of this service have signals of their own; the SDK wants a number of milliseconds too. */
const LONGEST = 24 * 60 * 60 * 1000

/** Tells the error that stands for a missing answer from those that servers give, whatever their code. */
const GAVE_UP = Symbol('gave up')

/** Whether a server's answer is an error, rather than none. */
export const isServerError = (error: unknown): error is ProtocolError =>
  error instanceof ProtocolError && error.data !== GAVE_UP

export type Address = { url: string; transport: string; headers: Headers }

/** How long to wait before a stream that broke off is asked for again, whatever the server says (ms). */
const RESUME_AFTER = { least: 50, most: 60_000 }
/** How often that may fail in a row. */
const MAX_RESUMES = 5

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
    super._onresponse({ jsonrpc: '2.0', id, error: { code: -32000, message: 'Closed', data: GAVE_UP } })
  }
}

/** Asks something of a server, until the signal: `options` are for the SDK. */
export const asking = <T>(
  signal: AbortSignal,
  ask: (options: { signal: AbortSignal; timeout: number }) => Promise<T>,
): Promise<T> => sending.run({ id: null, signal }, () => ask({ signal, timeout: LONGEST }))

/** Whether a request is under way here that a stream belongs to: the standing stream of a session has none. */
const isOfRequest = () => (sending.getStore()?.id ?? null) !== null

/** A client for the address, not connected yet. `isLatest`: it finds out whether the server speaks the latest revision. */
export function createClient(address: Address, fetch: FetchLike, isLatest: boolean) {
  const transport = createTransport(address, fetch)
  const client = new StrictClient(
    { name: 'muster', version: packageJson.version },
    isLatest ? { versionNegotiation: { mode: 'auto' } } : {},
  )
  const { settled } = prepare(client, transport)
  return { client, transport, settled }
}

/** Signs in nowhere. Resumes the streams of requests alone (SEP-1699): nothing that a run needs comes by another. */
function createTransport({ url, transport, headers }: Address, fetch: FetchLike) {
  const options = { fetch, requestInit: { headers }, redirectPolicy: 'follow' as const }
  if (transport === 'sse') return new SSEClientTransport(new URL(url), options)
  return new StreamableHTTPClientTransport(new URL(url), {
    ...options,
    reconnectionOptions: {
      maxRetries: MAX_RESUMES,
      initialReconnectionDelay: 500,
      maxReconnectionDelay: 10_000,
      reconnectionDelayGrowFactor: 2,
    },
    reconnectionScheduler(reconnect, delay) {
      if (!isOfRequest()) return
      const { least, most } = RESUME_AFTER
      const timer = setTimeout(reconnect, Math.min(Math.max(delay, least), most))
      return () => clearTimeout(timer)
    },
  })
}

/**
 * Before it is connected: what goes out says for which request, and what comes in is counted. `settled` waits until
 * what was sent without a question, such as that a call is given up, has arrived.
 */
function prepare(client: StrictClient, transport: Transport): { settled: () => Promise<unknown> } {
  let messages = 0
  const told = new Set<Promise<void>>()
  const count = (weight: number) => {
    messages += weight
    if (messages > MAX_MESSAGES) void transport.close()
  }
  transport.onmessage = (message) => count(weigh(message))
  transport.onerror = (error) => {
    count(1)
    // The one stream of an SSE server has ended.
    if (error instanceof SseError) void transport.close()
  }
  const send = transport.send.bind(transport)
  transport.send = (message, options) => {
    const { signal } = sending.getStore() ?? {}
    if (!('id' in message)) return remember(told, send(message, options))
    if (!signal || !('method' in message)) return send(message, options)
    const { id } = message
    const requestSignal = options?.requestSignal ? AbortSignal.any([signal, options.requestSignal]) : signal
    return sending.run({ id, signal }, () =>
      send(message, { onRequestStreamEnd: () => client.giveUp(id), ...options, requestSignal }),
    )
  }
  return { settled: () => Promise.allSettled(told) }
}

const weigh = (message: JSONRPCMessage): number => {
  if (!('method' in message)) return 1
  if ('id' in message) return REQUEST_WEIGHT
  return message.method === 'notifications/progress' ? PROGRESS_WEIGHT : 1
}

function remember(under: Set<Promise<void>>, way: Promise<void>): Promise<void> {
  under.add(way)
  const forget = () => under.delete(way)
  way.then(forget, forget)
  return way
}
