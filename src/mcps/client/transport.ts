import { AsyncLocalStorage } from 'node:async_hooks'
import {
  Client,
  type FetchLike,
  type JSONRPCErrorResponse,
  type JSONRPCMessage,
  type JSONRPCResponse,
  type JSONRPCResultResponse,
  ProtocolError,
  ProtocolErrorCode,
  SSEClientTransport,
  SseError,
  StreamableHTTPClientTransport,
  SUPPORTED_PROTOCOL_VERSIONS,
  type Transport,
} from '@modelcontextprotocol/client'
import packageJson from '../../../package.json' with { type: 'json' }
import { parseJson } from '../../lib/json.ts'
import { abortable, raceTimeout } from '../../lib/race-abort.ts'
import { isObject } from '../../lib/unknown.ts'
import { NO_CODE } from './mend-message.ts'
import { createMeter } from './message-rate.ts'
import { normalize, refusalIn } from './normalize.ts'

/** Maximum number of messages at once, against flooding. */
export const MAX_MESSAGES = 10_000
/** Weight of a request by the server, such as a ping, because this service must answer it. */
const REQUEST_WEIGHT = 50
/** Weight of a notification of progress or of a log, which a long call may send often. */
const LIGHT_WEIGHT = 0.1
const LIGHT_NOTIFICATIONS: ReadonlySet<string> = new Set(['notifications/progress', 'notifications/message'])

/** Timeout for the SDK (ms), which never applies: the service's own signals limit requests. */
const SDK_TIMEOUT = 24 * 60 * 60 * 1000

/** Marks the error for a missing answer, to distinguish it from errors of the server. */
const NO_ANSWER = Symbol('no answer')

/** Returns whether an error is the server's answer rather than a missing one. */
export const isServerError = (error: unknown): error is ProtocolError =>
  error instanceof ProtocolError && error.data !== NO_ANSWER

/** Returns whether an error stands for a response that ended without an answer. */
export const isUnanswered = (error: unknown): boolean => error instanceof ProtocolError && error.data === NO_ANSWER

export type Address = { url: string; transport: string; headers: Headers }

/** Minimum and maximum delay before a broken stream is resumed, whatever the server asks for (ms). */
const RESUME_AFTER = { least: 50, most: 60_000 }
/** Time for the last answers of an ended standalone stream to be read (ms). */
const DRAIN_TIME = 500
/** Maximum number of consecutive failed resumptions. */
const MAX_RESUMES = 5

/** Context of an outgoing message: the id of its request, and the signal that aborts it. */
const outgoing = new AsyncLocalStorage<{ id: unknown; signal: AbortSignal }>()

/**
 * Accepts an answer only on the response of its own request. With streamable HTTP each request has its own response,
 * and an answer on another one is ignored, unless that response has announced it.
 */
export class StrictClient extends Client {
  /** Ids of requests that have no answer yet. */
  readonly waiting = new Set<string>()
  /** Ids of requests for tool lists that have no answer yet. */
  readonly lists = new Set<string>()
  /** Ids of requests whose answers come on the session's standalone stream, as those of some servers do. */
  readonly #onStandalone = new Set<string>()
  /** Answers on the standalone stream that came before the response of their request. */
  readonly #early = new Map<string, JSONRPCResponse | JSONRPCErrorResponse>()
  /** Number of times that the server has announced other tools. */
  toolChanges = 0
  #usesStandalone = false
  #hasStandaloneEnded = false

  /** Whether no request can be answered, because the standalone stream with the answers has ended. */
  get isUnanswerable(): boolean {
    return this.#usesStandalone && this.#hasStandaloneEnded
  }

  protected override _onresponse(given: JSONRPCResponse | JSONRPCErrorResponse): void {
    const asked = outgoing.getStore()
    const hasOneStream = !(this.transport instanceof StreamableHTTPClientTransport)
    const response = hasOneStream ? this.#withId(given) : given
    const id = String(response.id)
    if (hasOneStream || String(asked?.id) === id || this.#onStandalone.delete(id)) this.#accept(response)
    else if (asked?.id === null && this.waiting.has(id)) this.#early.set(id, response)
  }

  /** Gives an answer without an id that of the only request: a server that has not understood it does not know the id. */
  #withId(response: JSONRPCResponse | JSONRPCErrorResponse) {
    const [only] = this.waiting.size === 1 ? this.waiting : []
    return response.id === undefined && only !== undefined ? { ...response, id: Number(only) } : response
  }

  #accept(response: JSONRPCResponse | JSONRPCErrorResponse): void {
    const id = String(response.id)
    this.waiting.delete(id)
    this.#early.delete(id)
    const isList = this.lists.delete(id)
    super._onresponse('result' in response ? normalized(response, isList) : response)
  }

  /** Takes the answer to a request from the body of its response, where some servers of the older transport send it. */
  takeAnswer(id: number, body: string): void {
    const lines = body.split('\n').map((line) => parseJson(line.replace(/^data: /, '')))
    const answer = [parseJson(body), ...lines]
      .flat()
      .find((one) => isObject(one) && one.id === id && !('method' in one))
    if (answer) this.transport?.onmessage?.(answer as JSONRPCResponse)
  }

  /** Takes the answer to a request from the session's standalone stream. */
  expectOnStandalone(id: string): void {
    this.#usesStandalone = true
    const early = this.#early.get(id)
    if (early) this.#accept(early)
    else this.#onStandalone.add(id)
    if (this.#hasStandaloneEnded) this.#failRestSoon()
  }

  /** Fails the requests that the session's standalone stream was to answer, once its last answers are read. */
  endStandalone(): void {
    this.#hasStandaloneEnded = true
    this.#failRestSoon()
  }

  #failRestSoon(): void {
    const failRest = () => {
      for (const id of this.#onStandalone) this.failUnanswered(id)
      this.#onStandalone.clear()
    }
    setTimeout(failRest, DRAIN_TIME).unref()
  }

  /** Fails a request whose response has ended without an answer. */
  failUnanswered(id: string | number): void {
    this.waiting.delete(String(id))
    super._onresponse({ jsonrpc: '2.0', id, error: { code: -32000, message: 'Closed', data: NO_ANSWER } })
  }
}

/** Normalizes an answer: that to a request for tools may be a refusal in the form of a result. */
function normalized({ jsonrpc, id, result }: JSONRPCResultResponse, isList: boolean): JSONRPCResponse {
  const refusal = isList ? refusalIn(result) : null
  if (refusal !== null) return { jsonrpc, id, error: { code: NO_CODE, message: refusal } }
  return { jsonrpc, id, result: normalize(result, isList) as JSONRPCResultResponse['result'] }
}

/** Sends a request to a server. Rejects with the signal's reason. `options` are for the SDK. */
export const requestWithSignal = <T>(
  signal: AbortSignal,
  ask: (options: { signal: AbortSignal; timeout: number }) => Promise<T>,
): Promise<T> =>
  abortable(
    outgoing.run({ id: null, signal }, () => ask({ signal, timeout: SDK_TIMEOUT })),
    signal,
  )

/** Returns whether a stream belongs to a request; a session's standalone stream does not. */
const isOfRequest = () => (outgoing.getStore()?.id ?? null) !== null

/** Limits of a client. */
type Limits = {
  /** Maximum weight of all messages, after which the transport is closed. Default: {@link MAX_MESSAGES}. */
  maxMessages?: number
  /** Maximum time that a server has to accept a notification (ms). Default: unlimited. */
  notificationTimeout?: number
  /** Called before the transport is closed for too many messages. */
  onFlood?: () => void
}

/** A variant of the `initialize` handshake. */
export type Handshake = {
  /** Whether the latest revision is negotiated. */
  isLatest: boolean
  /** The older revision that is offered; undefined for the newest with this handshake. */
  version?: string | undefined
}

/** Creates an unconnected client. */
export function createClient(transport: Transport, { isLatest, version }: Handshake, limits: Limits = {}) {
  const client = new StrictClient(
    { name: 'muster', version: packageJson.version },
    {
      ...(isLatest && { versionNegotiation: { mode: 'auto' } }),
      ...(version && { supportedProtocolVersions: [version, ...SUPPORTED_PROTOCOL_VERSIONS] }),
    },
  )
  client.setNotificationHandler('notifications/tools/list_changed', () => {
    client.toolChanges++
  })
  // Tools that ask a person or a model pass this message on.
  client.fallbackRequestHandler = async ({ method }) => {
    const reason = 'The caller is a run of an agent, which answers no requests of servers'
    throw new ProtocolError(ProtocolErrorCode.MethodNotFound, `Method not found: ${method}. ${reason}`)
  }
  const { settled } = prepare(client, transport, limits)
  return { client, settled }
}

/**
 * Creates a transport without OAuth. It resumes only the streams of requests (SEP-1699), because runs need nothing from
 * other streams.
 */
export function createTransport({ url, transport, headers: given }: Address, fetch: FetchLike) {
  // Firewalls refuse requests without a client's name.
  const headers = new Headers({ 'user-agent': `Muster/${packageJson.version}` })
  for (const [name, value] of given) headers.set(name, value)
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
  { maxMessages = MAX_MESSAGES, notificationTimeout, onFlood }: Limits,
): { settled: () => Promise<unknown> } {
  const isTooMuch = createMeter(maxMessages)
  const notifications = new Set<Promise<void>>()
  const count = (weight: number) => {
    if (!isTooMuch(weight)) return
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
    const { signal } = outgoing.getStore() ?? {}
    if (!('id' in message)) return notify(notifications, send(message, options), notificationTimeout)
    if (!signal || !('method' in message)) return send(message, options)
    const { id } = message
    client.waiting.add(String(id))
    if (message.method === 'tools/list') client.lists.add(String(id))
    const requestSignal = options?.requestSignal ? AbortSignal.any([signal, options.requestSignal]) : signal
    return outgoing.run({ id, signal }, () =>
      send(message, { onRequestStreamEnd: () => client.failUnanswered(id), ...options, requestSignal }),
    )
  }
  return { settled: () => Promise.allSettled(notifications) }
}

/** Returns what a message counts towards the maximum. */
export const weigh = (message: JSONRPCMessage): number => {
  if (!('method' in message)) return 1
  if ('id' in message) return REQUEST_WEIGHT
  return LIGHT_NOTIFICATIONS.has(message.method) ? LIGHT_WEIGHT : 1
}

/**
 * Waits until a server has accepted a notification, for at most `timeout` (ms). Adds it to `pending` meanwhile. Ignores
 * a failure, because some servers refuse notifications or never answer them. The next request shows whether the server
 * is there.
 */
async function notify(pending: Set<Promise<void>>, sent: Promise<void>, timeout: number | undefined): Promise<void> {
  const accepted = sent.catch(() => {})
  const notified = timeout === undefined ? accepted : raceTimeout(accepted, timeout)
  pending.add(notified)
  await notified
  pending.delete(notified)
}
