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
  SUPPORTED_PROTOCOL_VERSIONS,
  type Transport,
} from '@modelcontextprotocol/client'
import packageJson from '../../package.json' with { type: 'json' }
import { parseJson } from '../lib/json.ts'
import { isObject } from '../lib/unknown.ts'
import { normalize } from './normalize.ts'

/** Maximum number of messages in one connection, against flooding. */
export const MAX_MESSAGES = 10_000
/** Weight of a request by the server, such as a ping, because this service must answer it. */
const REQUEST_WEIGHT = 50
/** Weight of a notification of progress or of a log, which a long call may send often. */
const NOTE_WEIGHT = 0.1
const NOTES: ReadonlySet<string> = new Set(['notifications/progress', 'notifications/message'])

/** Timeout passed to the SDK (ms). The service's own signals limit requests. */
const LONGEST = 24 * 60 * 60 * 1000

/** Marks the error for a missing answer, to distinguish it from errors of the server. */
const GAVE_UP = Symbol('gave up')

/** Returns whether an error is the server's answer rather than a missing one. */
export const isServerError = (error: unknown): error is ProtocolError =>
  error instanceof ProtocolError && error.data !== GAVE_UP

/** Returns whether an error stands for a response that ended without an answer. */
export const isGivenUp = (error: unknown): boolean => error instanceof ProtocolError && error.data === GAVE_UP

export type Address = { url: string; transport: string; headers: Headers }

/** Minimum and maximum delay before a broken stream is resumed, whatever the server asks for (ms). */
const RESUME_AFTER = { least: 50, most: 60_000 }
/** Time for the last answers of an ended standing stream to be read (ms). */
const LAST_ANSWERS = 500
/** Maximum number of consecutive failed resumptions. */
const MAX_RESUMES = 5

/** Context of an outgoing message: the id of its request, and the signal that aborts it. */
const sending = new AsyncLocalStorage<{ id: unknown; signal: AbortSignal }>()

/**
 * Accepts an answer only on the response of its own request. With streamable HTTP each request has its own response,
 * and an answer on another one is ignored, unless that response has announced it.
 */
export class StrictClient extends Client {
  /** Ids of requests that have no answer yet. */
  readonly waiting = new Set<string>()
  /** Ids of those for tools. */
  readonly lists = new Set<string>()
  /** Ids of requests whose answers come on the session's standing stream, as those of some servers do. */
  readonly #elsewhere = new Set<string>()
  /** Answers on the standing stream that came before the response of their request. */
  readonly #early = new Map<string, JSONRPCResponse | JSONRPCErrorResponse>()
  #usesStanding = false
  #hasStandingEnded = false

  /** Whether no request can be answered, because the standing stream with the answers has ended. */
  get isMute(): boolean {
    return this.#usesStanding && this.#hasStandingEnded
  }

  protected override _onresponse(response: JSONRPCResponse | JSONRPCErrorResponse): void {
    const asked = sending.getStore()
    const id = String(response.id)
    const hasOneStream = !(this.transport instanceof StreamableHTTPClientTransport)
    if (hasOneStream || String(asked?.id) === id || this.#elsewhere.delete(id)) this.#accept(response)
    else if (asked?.id === null && this.waiting.has(id)) this.#early.set(id, response)
  }

  #accept(response: JSONRPCResponse | JSONRPCErrorResponse): void {
    const id = String(response.id)
    this.waiting.delete(id)
    this.#early.delete(id)
    const isList = this.lists.delete(id)
    const answer = 'result' in response ? { ...response, result: normalize(response.result, isList) } : response
    super._onresponse(answer as JSONRPCResponse)
  }

  /** Takes the answer to a request from the body of its response, where some servers of the older transport send it. */
  takeAnswer(id: number, body: string): void {
    const lines = body.split('\n').map((line) => parseJson(line.replace(/^data: /, '')))
    const answer = [parseJson(body), ...lines]
      .flat()
      .find((one) => isObject(one) && one.id === id && !('method' in one))
    if (answer) this.transport?.onmessage?.(answer as JSONRPCResponse)
  }

  /** Takes the answer to a request from the session's standing stream. */
  expectElsewhere(id: string): void {
    this.#usesStanding = true
    const early = this.#early.get(id)
    if (early) this.#accept(early)
    else this.#elsewhere.add(id)
    if (this.#hasStandingEnded) this.#giveUpSoon()
  }

  /** Called when the session's standing stream has ended, whose last answers may not have been read yet. */
  endStanding(): void {
    this.#hasStandingEnded = true
    this.#giveUpSoon()
  }

  #giveUpSoon(): void {
    const giveUp = () => {
      for (const id of this.#elsewhere) this.giveUp(id)
      this.#elsewhere.clear()
    }
    setTimeout(giveUp, LAST_ANSWERS).unref()
  }

  /** Fails a request whose response has ended without an answer. */
  giveUp(id: string | number): void {
    this.waiting.delete(String(id))
    super._onresponse({ jsonrpc: '2.0', id, error: { code: -32000, message: 'Closed', data: GAVE_UP } })
  }
}

/** Sends a request to a server and applies the signal. `options` are for the SDK. */
export const asking = <T>(
  signal: AbortSignal,
  ask: (options: { signal: AbortSignal; timeout: number }) => Promise<T>,
): Promise<T> => sending.run({ id: null, signal }, () => ask({ signal, timeout: LONGEST }))

/** Returns whether a stream belongs to a request; a session's standing stream does not. */
const isOfRequest = () => (sending.getStore()?.id ?? null) !== null

/** Limits of a client. */
type Limits = {
  /** Maximum weight of all messages, after which the transport is closed. Default: {@link MAX_MESSAGES}. */
  maxMessages?: number
  /** Maximum time for a notification to be accepted (ms). Default: unlimited. */
  patience?: number
  /** Called before the transport is closed for too many messages. */
  onFlood?: () => void
}

/** A variant of the greeting. */
export type Greeting = {
  /** Whether the latest revision is negotiated. */
  isLatest: boolean
  /** The older revision that is offered; undefined for the newest with this greeting. */
  version?: string | undefined
}

/** Creates an unconnected client. */
export function createClient(transport: Transport, { isLatest, version }: Greeting, limits: Limits = {}) {
  const client = new StrictClient(
    { name: 'muster', version: packageJson.version },
    {
      ...(isLatest && { versionNegotiation: { mode: 'auto' } }),
      ...(version && { supportedProtocolVersions: [version, ...SUPPORTED_PROTOCOL_VERSIONS] }),
    },
  )
  const { settled } = prepare(client, transport, limits)
  return { client, settled }
}

/**
 * Creates a transport without OAuth. It resumes only the streams of requests (SEP-1699), because runs need nothing from
 * other streams.
 */
export function createTransport({ url, transport, headers }: Address, fetch: FetchLike) {
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
 * Prepares the client before it connects: tags outgoing messages with their request and counts incoming ones. `settled`
 * waits until notifications, such as cancellations, have been delivered.
 */
function prepare(
  client: StrictClient,
  transport: Transport,
  { maxMessages = MAX_MESSAGES, patience, onFlood }: Limits,
): { settled: () => Promise<unknown> } {
  let messages = 0
  const notifications = new Set<Promise<void>>()
  const count = (weight: number) => {
    messages += weight
    if (messages <= maxMessages) return
    onFlood?.()
    void transport.close()
  }
  transport.onmessage = (message) => count(weigh(message))
  transport.onerror = (error) => {
    count(1)
    // The only stream of an SSE server has ended.
    if (error instanceof SseError) void transport.close()
  }
  const send = transport.send.bind(transport)
  transport.send = (message, options) => {
    const { signal } = sending.getStore() ?? {}
    if (!('id' in message)) return notify(notifications, send(message, options), patience)
    if (!signal || !('method' in message)) return send(message, options)
    const { id } = message
    client.waiting.add(String(id))
    if (message.method === 'tools/list') client.lists.add(String(id))
    const requestSignal = options?.requestSignal ? AbortSignal.any([signal, options.requestSignal]) : signal
    return sending.run({ id, signal }, () =>
      send(message, { onRequestStreamEnd: () => client.giveUp(id), ...options, requestSignal }),
    )
  }
  return { settled: () => Promise.allSettled(notifications) }
}

/** Returns what a message counts towards the maximum. */
export const weigh = (message: JSONRPCMessage): number => {
  if (!('method' in message)) return 1
  if ('id' in message) return REQUEST_WEIGHT
  return NOTES.has(message.method) ? NOTE_WEIGHT : 1
}

/**
 * Waits until a notification was accepted, for `patience` at most. Its failure is none of the connection: some servers
 * refuse notifications, or never answer them. The next request shows whether the server is there.
 */
async function notify(under: Set<Promise<void>>, sent: Promise<void>, patience: number | undefined): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const enough = new Promise<void>((resolve) => {
    if (patience !== undefined) timer = setTimeout(resolve, patience)
  })
  const way = Promise.race([sent.catch(() => {}), enough])
  under.add(way)
  await way
  under.delete(way)
  clearTimeout(timer)
}
