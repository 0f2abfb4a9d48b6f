import { setTimeout as sleep } from 'node:timers/promises'
import {
  type Client,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  SUPPORTED_PROTOCOL_VERSIONS,
} from '@modelcontextprotocol/client'
import type { ToolResult } from '../executions/engine/run/tools.ts'
import { isPublicAddress } from '../lib/addresses.ts'
import type { ProxyFor } from '../lib/proxies.ts'
import { BadAnswer, createSafeFetch } from '../lib/safe-fetch.ts'
import { asObject, asText } from '../lib/unknown.ts'
import { authorized } from './bearer.ts'
import type { Bearer } from './connections.ts'
import { type Clean, cleaner, toToolResult } from './content.ts'
import { listTools, type McpTool } from './listing.ts'
import { isEventStream, mend } from './mend.ts'
import { checkSize } from './message-size.ts'
import { isUnwritten, mayHaveActed, reasonOf, type Seen, statusOf, waitOf, watching } from './reasons.ts'
import { type Address, asking, createClient, createTransport, type Greeting, isServerError } from './transport.ts'
import { UnreachableServer } from './unreachable.ts'

const MINUTE = 60_000
const MEBIBYTE = 1024 * 1024

/** Maximum time to connect and list the tools (ms). A call may take longer. */
export const CONNECT_TIMEOUT = 20_000
/**
 * Time that an idle connection is reused (ms), if the server states none: shorter than that of any server in use
 * (gunicorn: 2 s), so that a call rarely meets a connection that is being closed.
 */
const KEEP_ALIVE = 1500
/** Maximum silence on a connection (ms). A standing stream may be silent while the model works. */
const SILENCE = { headersTimeout: 10 * MINUTE, idleTimeout: 30 * MINUTE }
/** Maximum size of an answer (bytes). SSE has one stream for all answers of a run. */
const MAX_RESPONSE = { one: 8 * MEBIBYTE, all: 32 * MEBIBYTE }
const GOODBYE_TIMEOUT = 1000
/** Maximum time for a server to accept a notification (ms). */
const MAX_PATIENCE = 3000
/** Maximum size of an input whose request is written in one piece (characters). */
const MAX_PIECE = 8 * 1024
/** Maximum length of a server's error message (characters). */
export const MAX_MESSAGE = 4000
/** Maximum length of an error that is not of the protocol (characters). */
const MAX_FOREIGN = 500
/** Number of retries for an overloaded server, and the longest delay that it may ask for (ms). */
const PATIENCE = { retries: 2, most: 10_000 }

/** A connection to an MCP server, for one run. */
export type McpClient = {
  readonly tools: readonly McpTool[]
  /** Whether the server has more tools than can be used. */
  readonly hasMore: boolean
  /**
   * Calls a tool by its name. Failures are error results; rejects with the signal's reason, or with an
   * {@link AuthorizationNeeded} if the user must connect first. If the server has lost
   * the session, starts a new one and repeats the rejected call once. Calls `onProgress` for each progress
   * notification.
   */
  call(name: string, input: unknown, signal: AbortSignal, onProgress?: () => void): Promise<ToolResult>
  /** Lists the current tools. Throws an {@link UnreachableServer} or the signal's reason. */
  list(signal: AbortSignal): Promise<readonly McpTool[]>
  /**
   * Closes the connection. Without `goodbye` nothing is sent to the server, including the credentials in its headers.
   */
  close(goodbye?: boolean): Promise<void>
}

export type Connection = Address & {
  /** Whether private addresses are allowed. */
  allowPrivate: boolean
  /** Selects the proxy; none if absent. */
  proxyFor?: ProxyFor | undefined
  /** Maximum duration of a call (ms). */
  toolTimeout: number
  /** Secrets sent to the server, which are removed from everything it returns. */
  secrets: readonly string[]
  /** Gives each request its token, for a server with OAuth. */
  bearer?: Bearer | undefined
  /** Whether redirects are followed. Default: true. */
  mayRedirect?: boolean
  /** Whether redirects to another origin are refused. Default: false. */
  staysOnOrigin?: boolean
  /** Called with the reason if the server did not answer a tool call. */
  onFailure?: (tool: string, reason: string) => void
}

/** A protocol variant. */
type Way = Greeting & { transport: string }

const HTTP: Way = { transport: 'streamable-http', isLatest: false }
const SSE: Way = { transport: 'sse', isLatest: false }
/**
 * Variants in order of preference. Most servers support older revisions, alone or beside the latest, without
 * negotiation. Servers without the transport may support its predecessor, as the specification says ("Backwards
 * Compatibility").
 */
const WAYS: readonly Way[] = [HTTP, { ...HTTP, isLatest: true }, SSE]

/** The oldest revision, which most servers still accept. */
const OLDEST = '2024-11-05'

/** Answers to a greeting that a server does not understand, after which the next variant is tried. */
const NOT_UNDERSTOOD: ReadonlySet<number | undefined> = new Set([400, 404, 405, 406, 415, 501, -32601, -32602, -32022])

/** Returns whether a server does not understand the greeting of a protocol variant. */
export const isRefusal = (error: unknown) => NOT_UNDERSTOOD.has(isServerError(error) ? error.code : statusOf(error))

/**
 * Returns the revision to offer to a server that refuses the newest one: the latest that it names, or the oldest. Returns null
 * for any other error.
 */
export function olderVersionIn(error: unknown): string | null {
  const text = isServerError(error) ? `${error.message} ${JSON.stringify(error.data)}` : bodyOf(error)
  if (!text || !/protocol.?version/i.test(text)) return null
  const [, ...older] = SUPPORTED_PROTOCOL_VERSIONS
  return older.find((version) => text.includes(version)) ?? OLDEST
}

/** A connection that is being opened. */
type Opening = Connection & { clean: Clean; onToken: (token: string) => void }

type Live = Awaited<ReturnType<typeof open>>

/**
 * Connects to an MCP server and lists its tools. Throws an {@link UnreachableServer}, also on a timeout, or the
 * signal's reason.
 */
export async function connectMcp(connection: Connection, signal: AbortSignal): Promise<McpClient> {
  const until = AbortSignal.any([signal, AbortSignal.timeout(Math.min(CONNECT_TIMEOUT, connection.toolTimeout))])
  const secrets = new Set(connection.secrets)
  let scrub = cleaner(connection.secrets)
  const clean: Clean = (text, max) => scrub(text, max)
  /** Adds a token to the secrets that are removed. */
  const onToken = (token: string) => {
    if (!secrets.has(token)) scrub = cleaner([...secrets.add(token)])
  }
  const opening = { ...connection, clean, onToken }
  const ways = connection.transport === 'sse' ? [SSE] : [...WAYS]
  let reason = ''
  for (let way = ways.shift(); way; way = ways.shift()) {
    const seen: Seen = { refusal: null, error: null, needed: null }
    try {
      const tryOpen = () => open(opening, way, seen, until)
      return toClient(opening, way, await patiently(tryOpen, (error) => waitOf(error, seen), until))
    } catch (error) {
      signal.throwIfAborted()
      throwNeeded(seen)
      // If the server supports neither transport, the older one's error is less informative.
      if (!reason || way !== SSE) reason = until.aborted ? 'it takes too long' : reasonOf(error, seen, clean)
      const version = way.version ? null : olderVersionIn(error)
      if (version) ways.unshift({ ...way, version })
      if (until.aborted || !(version || isRefusal(error))) break
    }
  }
  throw new UnreachableServer(reason)
}

/** Retries a task after the delay that `waitOf` gives, if it gives one. */
async function patiently<T>(
  task: () => Promise<T>,
  waitOf: (error: unknown) => number | null,
  until: AbortSignal,
): Promise<T> {
  for (let retries = 0; ; retries++) {
    try {
      return await task()
    } catch (error) {
      const wait = until.aborted ? null : waitOf(error)
      if (wait === null || wait > PATIENCE.most || retries === PATIENCE.retries) throw error
      await sleep(wait, undefined, { signal: until })
    }
  }
}

function toClient(opening: Opening, way: Way, opened: Live): McpClient {
  const { clean } = opening
  const closing = new AbortController()
  let live = opened
  let reopening: Promise<void> | undefined

  async function reopen(): Promise<void> {
    const lost = live
    const until = AbortSignal.any([closing.signal, AbortSignal.timeout(CONNECT_TIMEOUT)])
    live = await open(opening, way, lost.seen, until)
    await lost.end()
  }

  /** Executes a task. If the session is lost, starts a new one and tries again. */
  async function inSession<T>(task: (live: Live) => Promise<T>, signal: AbortSignal): Promise<T> {
    const used = live
    try {
      return await task(used)
    } catch (error) {
      signal.throwIfAborted()
      if (!isLost(error, used)) throw error
    }
    if (live === used) {
      reopening ??= reopen().finally(() => {
        reopening = undefined
      })
      await orAbort(reopening, signal)
    }
    return task(live)
  }

  function failure(name: string, error: unknown): ToolResult {
    const message = saidBy(error)
    const reason = reasonOf(error, live.seen, clean)
    if (!isServerError(error)) opening.onFailure?.(name, reason)
    const doubt = mayHaveActed(error, reason) ? '. The tool may have acted: check before you call it again' : ''
    return { content: clean(`The call failed: ${message ?? reason}`, MAX_MESSAGE) + doubt, isError: true }
  }

  return {
    tools: [...opened.tools.values()].map(({ tool }) => tool),
    hasMore: opened.hasMore,
    async call(name, input, signal, onProgress) {
      opening.bearer?.forget()
      try {
        const make = ({ client, tools }: Live) =>
          callTool(client, { name: tools.get(name)?.calledAs ?? name, input, onProgress }, signal)
        // Nothing else says for certain that the call was not made.
        const waitOfCall = (error: unknown) => {
          if (isUnwritten(error)) return JSON.stringify(input ?? null).length <= MAX_PIECE ? 0 : null
          return statusOf(error) === 429 ? waitOf(error, live.seen) : null
        }
        return toToolResult(await patiently(() => inSession(make, signal), waitOfCall, signal), clean)
      } catch (error) {
        signal.throwIfAborted()
        throwNeeded(live.seen)
        return failure(name, error)
      }
    },
    async list(signal) {
      const until = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT)])
      try {
        const now = await inSession(({ client }) => orAbort(listTools(client, clean, until), until), until)
        return [...now.tools.values()].map(({ tool }) => tool)
      } catch (error) {
        signal.throwIfAborted()
        throwNeeded(live.seen)
        throw new UnreachableServer(until.aborted ? 'it takes too long' : reasonOf(error, live.seen, clean))
      }
    },
    async close(goodbye = true) {
      closing.abort()
      await reopening?.catch(() => {})
      if (goodbye) await live.sayGoodbye()
      await live.end()
    },
  }
}

/** Throws if a request was not made because the user must connect first. */
function throwNeeded(seen: Seen): void {
  const { needed } = seen
  seen.needed = null
  if (needed) throw needed
}

/** Returns the error message of a server for a rejected call with its details, or undefined without one. */
export function saidBy(error: unknown): string | undefined {
  if (isServerError(error)) return withDetails(error.message, error.data)
  try {
    const body = asObject(JSON.parse(bodyOf(error) ?? ''))
    const { message, data } = asObject(body.error)
    if (typeof message === 'string') return withDetails(message, data)
    // Gateways and web frameworks have errors of their own.
    const [said] = [body.error, body.message, body.detail, body.title].filter((field) => field)
    if (said === undefined) return undefined
    return `${statusOf(error)}: ${(typeof said === 'string' ? said : JSON.stringify(said)).slice(0, MAX_FOREIGN)}`
  } catch {
    return undefined
  }
}

/** Returns the body of an HTTP error. Errors of the older transport have it in their message. */
function bodyOf(error: unknown): string | undefined {
  if (error instanceof SdkHttpError) return asText(error.data?.text)
  const [, body] = /^Error POSTing to endpoint \(HTTP \d{3}\): (.*)$/s.exec((error as Error).message) ?? []
  return body
}

/** Adds the data of an error, which often state what is wrong with the input. */
function withDetails(message: string, data: unknown): string {
  const details = typeof data === 'string' ? data : data === null || data === undefined ? '' : JSON.stringify(data)
  return details && details !== '{}' && !message.includes(details) ? `${message}: ${details}` : message
}

/** Wordings for a session that a server does not know any more, or whose beginning it has forgotten. */
const SESSION_GONE =
  /session.{0,60}(?:not found|expired|invalid|terminated|unknown|missing|closed|required|does not exist|doesn't exist)|(?:no|invalid|unknown|missing|expired|transport|bad)\b.{0,40}session|not initialized|before initialization|expect initialize/is
/** Codes of the protocol's own errors. A tool reports its errors with others. */
const isOfProtocol = (code: number) => code === -32600 || code === -32602 || (code <= -32000 && code > -32100)

/** Returns whether a call certainly did not reach the tool, because its session or stream is gone. */
function isLost(error: unknown, { isSession }: Live): boolean {
  if (error instanceof SdkError && error.code === SdkErrorCode.NotConnected) return true
  if (error instanceof Error && error.message === 'Not connected') return true
  if (!isSession) return false
  // Some servers answer 200 with the error.
  if (isServerError(error)) return isOfProtocol(error.code) && SESSION_GONE.test(error.message)
  const status = statusOf(error)
  if (!status) return false
  const text = error instanceof SdkHttpError ? error.data?.text : (error as Error).message
  return status === 404 || status === 410 || (status <= 500 && SESSION_GONE.test(String(text).slice(0, MAX_MESSAGE)))
}

async function open(opening: Opening, way: Way, seen: Seen, signal: AbortSignal) {
  const { bearer, clean } = opening
  const isAllowed = opening.allowPrivate ? undefined : isPublicAddress
  const maxResponse = way.transport === 'sse' ? MAX_RESPONSE.all : MAX_RESPONSE.one
  const safe = createSafeFetch({
    isAllowed,
    proxyFor: opening.proxyFor,
    maxResponse,
    inspect: checkSize,
    keepAlive: KEEP_ALIVE,
    ...(opening.mayRedirect === false && { maxRedirects: 0 }),
    staysOnOrigin: opening.staysOnOrigin,
    ...SILENCE,
  })
  /** Whether the session has a standing stream. On it, some servers answer requests that they have accepted with 202. */
  let hasStanding: Promise<boolean> | undefined
  const plain = watching(async (url, init = {}) => {
    const id = way.transport === 'sse' ? undefined : idOf(init)
    // The standing stream of a session says nothing about its requests.
    const isStanding = init.method === 'GET' && way.transport !== 'sse'
    const onError = (error: unknown) => {
      if (!init.signal?.aborted && !isStanding) seen.error = error
    }
    const sent = safe.fetch(url, init)
    if (isStanding) hasStanding = sent.then(isEventStream, () => false)
    const response = await sent
    if (id === undefined || response.status !== 202 || !(await hasStanding)) return mend(response, { id, onError })
    client.expectElsewhere(String(id))
    return response
  }, seen)
  const fetch = bearer ? authorized(plain, bearer, new URL(opening.url).origin, seen, opening.onToken) : plain
  const transport = createTransport({ ...opening, transport: way.transport }, fetch)
  const { client, settled } = createClient(transport, way, {
    patience: Math.min(MAX_PATIENCE, opening.toolTimeout / 4),
    onFlood: () => {
      seen.error = new BadAnswer('it sent too many messages')
    },
  })
  const end = async () => {
    await transport.close().catch(() => {})
    await safe.close()
  }
  try {
    const connected = asking(signal, (options) => client.connect(transport, options))
    await orAbort(connected, signal)
    const { tools, hasMore } = await listTools(client, clean, signal)
    return {
      client,
      tools,
      hasMore,
      seen,
      end,
      /** Whether the server has a session for this connection, which it can lose. */
      isSession: !('sessionId' in transport) || transport.sessionId !== undefined,
      /** Waits for the last messages and ends the session. */
      async sayGoodbye() {
        const until = AbortSignal.timeout(GOODBYE_TIMEOUT)
        await orAbort(settled(), until).catch(() => {})
        if ('terminateSession' in transport) await orAbort(transport.terminateSession(), until).catch(() => {})
      },
    }
  } catch (error) {
    await end()
    throw error
  }
}

/** Returns the id of the request in a message to a server; undefined for a notification or an answer. */
function idOf({ method, body }: RequestInit): number | undefined {
  const text = method === 'POST' && typeof body === 'string' ? body : ''
  const [, id] = /"id":(\d+)\}$/.exec(text.slice(-40)) ?? []
  return id !== undefined && text.startsWith('{"method":') ? Number(id) : undefined
}

type Call = { name: string; input: unknown; onProgress: (() => void) | undefined }

/** Calls a tool by its name on the server. */
export async function callTool(client: Client, { name, input, onProgress }: Call, signal: AbortSignal) {
  const params = { name, arguments: (input ?? {}) as Record<string, unknown> }
  const request = { method: 'tools/call', params } as const
  const onprogress = () => onProgress?.()
  const calling = asking(signal, (options) => client.request(request, { ...options, onprogress }))
  return orAbort(calling, signal)
}

/** Returns the outcome, or throws the signal's reason if that comes first. */
export function orAbort<T>(outcome: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort)
    outcome.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
