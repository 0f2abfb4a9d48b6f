import { AsyncLocalStorage } from 'node:async_hooks'
import {
  Client,
  type FetchLike,
  type JSONRPCErrorResponse,
  type JSONRPCResponse,
  ProtocolError,
  SdkHttpError,
  SSEClientTransport,
  SseError,
  StreamableHTTPClientTransport,
  type Transport,
} from '@modelcontextprotocol/client'
import packageJson from '../../package.json' with { type: 'json' }
import type { ToolResult } from '../executions/engine/tools.ts'
import { isPublicAddress } from '../lib/addresses.ts'
import { createSafeFetch, ForbiddenAddress } from '../lib/safe-fetch.ts'
import { cleanName, cleanText, toToolResult } from './content.ts'

const MINUTE = 60_000

/** To connect and to list the tools, in milliseconds, where a call may take longer. */
const CONNECT_TIMEOUT = 20_000
/** Each call has its own, shorter one: its signal. */
const LONGEST = 24 * 60 * MINUTE
/** What is not heard of for so long is given up: a standing stream may well be silent while the model thinks. */
const SILENCE = { headersTimeout: 10 * MINUTE, idleTimeout: 30 * MINUTE }
const GOODBYE_TIMEOUT = 1000

const MAX_TOOLS = 200
const MAX_PAGES = 20
const MAX_NAME = 200
const MAX_DESCRIPTION = 4000
/** In characters of JSON: of one tool's schema, and of all of a server's. */
const MAX_SCHEMA = 32 * 1024
const MAX_SCHEMAS = 512 * 1024
const MAX_DEPTH = 64
/** In one connection: a server that says more has nothing to say. */
const MAX_MESSAGES = 10_000
/** A request of the server's, such as a ping, is answered by a request of ours. */
const REQUEST_WEIGHT = 50

/** A tool as its server describes it, cleaned. */
export type McpTool = { name: string; description: string; inputSchema: Record<string, unknown> }

/** By the cleaned name: the tool, and the name that the server knows it by. */
type McpTools = Map<string, { tool: McpTool; calledAs: string }>

/** A server that cannot be used now. Its message is for people, and says nothing that the server said. */
export class UnreachableServer extends Error {
  override name = 'UnreachableServer'
}

/** A connection to an MCP server, for one run. */
export type McpClient = {
  readonly tools: readonly McpTool[]
  /** Whether it has more tools than can be used. */
  readonly hasMore: boolean
  /**
   * Calls one of its tools, by its name. What goes wrong is an error result; rejects with the signal's reason only.
   */
  call(name: string, input: unknown, signal: AbortSignal): Promise<ToolResult>
  close(): Promise<void>
}

/** As the SDK has it: of the errors that no server gave. */
const CLOSED = -32000

export type Connection = {
  url: string
  transport: string
  headers: Headers
  /** Whether it may have a private address. */
  allowPrivate: boolean
  /** How long a call may take, in milliseconds. */
  toolTimeout: number
  /** What the server was sent and nobody may read: taken out of all that it says. */
  secrets: readonly string[]
}

/** What a message is sent for: the request, once it has an id, and what gives it up. */
const sending = new AsyncLocalStorage<{ id: unknown; signal: AbortSignal }>()

/**
 * Takes an answer only where its question was asked: with streamable HTTP each request has its answer in a response of
 * its own, and one that claims to be another's is none.
 */
class StrictClient extends Client {
  protected override _onresponse(response: JSONRPCResponse | JSONRPCErrorResponse): void {
    const asked = sending.getStore()
    const isOwn = this.transport instanceof SSEClientTransport || (asked && asked.id === response.id)
    if (isOwn) super._onresponse(response as JSONRPCResponse)
  }

  /** The request's response has ended. If its answer was not in it, there is none. */
  giveUp(id: string | number): void {
    super._onresponse({ jsonrpc: '2.0', id, error: { code: CLOSED, message: 'The connection was closed' } })
  }
}

/**
 * Connects to an MCP server and lists its tools. Throws an {@link UnreachableServer}, also when that takes too long, or
 * the signal's reason.
 */
export async function connectMcp(connection: Connection, signal: AbortSignal): Promise<McpClient> {
  const until = AbortSignal.any([signal, AbortSignal.timeout(Math.min(CONNECT_TIMEOUT, connection.toolTimeout))])
  try {
    return await open(connection, until, false)
  } catch (error) {
    signal.throwIfAborted()
    // A server that speaks the protocol's latest revision only. Most speak both, and are not asked which.
    if (connection.transport === 'sse' || !isRefusal(error)) throw unreachable(error, until)
  }
  try {
    return await open(connection, until, true)
  } catch (error) {
    signal.throwIfAborted()
    throw unreachable(error, until)
  }
}

const isRefusal = (error: unknown) => error instanceof SdkHttpError && error.status === 400

async function open(connection: Connection, signal: AbortSignal, isLatest: boolean): Promise<McpClient> {
  const safe = createSafeFetch({ isAllowed: connection.allowPrivate ? () => true : isPublicAddress, ...SILENCE })
  const transport = createTransport(connection, safe.fetch)
  const client = new StrictClient(
    { name: 'muster', version: packageJson.version },
    isLatest ? { versionNegotiation: { mode: 'auto' } } : {},
  )
  const end = async () => {
    await transport.close().catch(() => {})
    await safe.close()
  }
  prepare(client, transport)
  try {
    await within(
      sending.run({ id: null, signal }, () => client.connect(transport, { signal, timeout: LONGEST })),
      signal,
    )
    const { tools, hasMore } = await listTools(client, connection, signal)
    return {
      tools: [...tools.values()].map(({ tool }) => tool),
      hasMore,
      call(name, input, callSignal) {
        const calledAs = tools.get(name)?.calledAs ?? name
        return callTool(client, connection, { name: calledAs, input }, callSignal)
      },
      async close() {
        if ('terminateSession' in transport) {
          const goodbye = AbortSignal.timeout(GOODBYE_TIMEOUT)
          await within(transport.terminateSession(), goodbye).catch(() => {})
        }
        await end()
      },
    }
  } catch (error) {
    await end()
    throw error
  }
}

/** No reconnecting, no signing in: a run that loses its server goes on without it. */
function createTransport({ url, transport, headers }: Connection, fetch: FetchLike) {
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

/** Its tools as they can be used: as many and as large as allowed, each name once. */
async function listTools(client: Client, { secrets }: Connection, signal: AbortSignal) {
  const tools: McpTools = new Map()
  let size = 0
  let cursor: string | undefined
  for (let page = 0; page < MAX_PAGES; page++) {
    const params = cursor === undefined ? {} : { cursor }
    const request = { method: 'tools/list', params } as const
    const listed = await sending.run({ id: null, signal }, () => client.request(request, { signal, timeout: LONGEST }))
    for (const described of listed.tools) {
      const tool = toTool(described, secrets)
      if (!tool || tools.has(tool.name)) continue
      size += JSON.stringify(tool).length
      if (tools.size === MAX_TOOLS || size > MAX_SCHEMAS) return { tools, hasMore: true }
      tools.set(tool.name, { tool, calledAs: described.name })
    }
    cursor = listed.nextCursor
    if (cursor === undefined) return { tools, hasMore: false }
  }
  return { tools, hasMore: true }
}

type Described = { name: string; description?: string | undefined; inputSchema: unknown }

/** Null for one whose name or schema is of no use. */
function toTool(described: Described, secrets: readonly string[]): McpTool | null {
  const name = cleanName(described.name, MAX_NAME)
  const schema = isTooDeep(described.inputSchema) ? null : JSON.stringify(described.inputSchema)
  if (!name || schema === null || schema.length > MAX_SCHEMA) return null
  const clean = (_: string, value: unknown) => (typeof value === 'string' ? cleanText(value, MAX_SCHEMA) : value)
  const description = scrubbed(cleanText(described.description ?? '', MAX_DESCRIPTION), secrets)
  return { name, description, inputSchema: JSON.parse(scrubbed(schema, secrets), clean) as McpTool['inputSchema'] }
}

const isTooDeep = (value: unknown, left = MAX_DEPTH): boolean =>
  left === 0 ||
  (typeof value === 'object' && value !== null && Object.values(value).some((part) => isTooDeep(part, left - 1)))

async function callTool(
  client: Client,
  { secrets }: Connection,
  { name, input }: { name: string; input: unknown },
  signal: AbortSignal,
): Promise<ToolResult> {
  const params = { name, arguments: (input ?? {}) as Record<string, unknown> }
  const request = { method: 'tools/call', params } as const
  const scrub = (text: string) => scrubbed(text, secrets)
  try {
    const calling = sending.run({ id: null, signal }, () => client.request(request, { signal, timeout: LONGEST }))
    return toToolResult(await within(calling, signal), scrub)
  } catch (error) {
    signal.throwIfAborted()
    const said = error instanceof ProtocolError ? cleanText(error.message, MAX_DESCRIPTION) : reasonOf(error)
    return { content: scrub(`The call failed: ${said}`), isError: true }
  }
}

/** Shorter ones are words that anybody may say. */
const SHORTEST_SECRET = 6

const scrubbed = (text: string, secrets: readonly string[]) =>
  secrets.reduce(
    (rest, secret) => (secret.length < SHORTEST_SECRET ? rest : rest.replaceAll(secret, '[removed]')),
    text,
  )

const unreachable = (error: unknown, until: AbortSignal) =>
  new UnreachableServer(until.aborted ? 'it takes too long' : reasonOf(error))

/** Why, without a word of what the server said: that may be anything, the credentials it was sent among it. */
function reasonOf(error: unknown): string {
  if (error instanceof SdkHttpError) return `it answered with the status ${error.status}`
  if (error instanceof ProtocolError && error.code !== CLOSED) return `it answered with the error ${error.code}`
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof ForbiddenAddress) return 'its address is not allowed'
  }
  return 'the connection failed'
}

/** The outcome, or the signal's reason when that comes first. */
function within<T>(outcome: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort)
    outcome.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
