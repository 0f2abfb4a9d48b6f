import { type Client, ProtocolError, SdkHttpError, SseError } from '@modelcontextprotocol/client'
import type { ToolResult } from '../executions/engine/tools.ts'
import { isPublicAddress } from '../lib/addresses.ts'
import { createSafeFetch, ForbiddenAddress } from '../lib/safe-fetch.ts'
import { type Clean, cleaner, toToolResult } from './content.ts'
import { listTools, type McpTool } from './listing.ts'
import { checkSize } from './message-size.ts'
import { type Address, asking, CLOSED, createClient } from './transport.ts'

const MINUTE = 60_000
const MEBIBYTE = 1024 * 1024

/** To connect and to list the tools, in milliseconds, where a call may take longer. */
const CONNECT_TIMEOUT = 20_000
/** What is not heard of for so long is given up: a standing stream may well be silent while the model thinks. */
const SILENCE = { headersTimeout: 10 * MINUTE, idleTimeout: 30 * MINUTE }
/** Of an answer, in bytes; SSE has one stream for all answers of a run. */
const MAX_RESPONSE = { one: 8 * MEBIBYTE, all: 32 * MEBIBYTE }
const GOODBYE_TIMEOUT = 1000
/** Of an error that a server gives, in characters. */
const MAX_MESSAGE = 4000

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
  /** Lists its tools as they are now. Throws an {@link UnreachableServer} or the signal's reason. */
  list(signal: AbortSignal): Promise<readonly McpTool[]>
  /** Without a `goodbye` the server is sent nothing, such as the credentials of its headers. */
  close(goodbye?: boolean): Promise<void>
}

export type Connection = Address & {
  /** Whether it may have a private address. */
  allowPrivate: boolean
  /** How long a call may take, in milliseconds. */
  toolTimeout: number
  /** What the server was sent and nobody may read: taken out of all that it says. */
  secrets: readonly string[]
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
  const isAllowed = connection.allowPrivate ? () => true : isPublicAddress
  const maxResponse = connection.transport === 'sse' ? MAX_RESPONSE.all : MAX_RESPONSE.one
  const safe = createSafeFetch({ isAllowed, maxResponse, inspect: checkSize, ...SILENCE })
  const { client, transport } = createClient(connection, safe.fetch, isLatest)
  const clean = cleaner(connection.secrets)
  const end = async () => {
    await transport.close().catch(() => {})
    await safe.close()
  }
  try {
    const connected = asking(signal, (options) => client.connect(transport, options))
    await orAbort(connected, signal)
    const { tools, hasMore } = await listTools(client, clean, signal)
    return {
      tools: [...tools.values()].map(({ tool }) => tool),
      hasMore,
      call(name, input, callSignal) {
        const calledAs = tools.get(name)?.calledAs ?? name
        return callTool(client, { name: calledAs, input, clean }, callSignal)
      },
      async list(listSignal) {
        const patience = AbortSignal.any([listSignal, AbortSignal.timeout(CONNECT_TIMEOUT)])
        try {
          const now = await orAbort(listTools(client, clean, patience), patience)
          return [...now.tools.values()].map(({ tool }) => tool)
        } catch (error) {
          listSignal.throwIfAborted()
          throw unreachable(error, patience)
        }
      },
      async close(goodbye = true) {
        if (goodbye && 'terminateSession' in transport) {
          const patience = AbortSignal.timeout(GOODBYE_TIMEOUT)
          await orAbort(transport.terminateSession(), patience).catch(() => {})
        }
        await end()
      },
    }
  } catch (error) {
    await end()
    throw error
  }
}

type Call = { name: string; input: unknown; clean: Clean }

async function callTool(client: Client, { name, input, clean }: Call, signal: AbortSignal): Promise<ToolResult> {
  const params = { name, arguments: (input ?? {}) as Record<string, unknown> }
  const request = { method: 'tools/call', params } as const
  try {
    const calling = asking(signal, (options) => client.request(request, options))
    return toToolResult(await orAbort(calling, signal), clean)
  } catch (error) {
    signal.throwIfAborted()
    const said = error instanceof ProtocolError ? error.message : reasonOf(error)
    return { content: clean(`The call failed: ${said}`, MAX_MESSAGE), isError: true }
  }
}

const unreachable = (error: unknown, until: AbortSignal) =>
  new UnreachableServer(until.aborted ? 'it takes too long' : reasonOf(error))

/** Why, without a word of what the server said: that may be anything, the credentials it was sent among it. */
function reasonOf(error: unknown): string {
  if (error instanceof SdkHttpError) return `it answered with the status ${error.status}`
  if (error instanceof SseError && error.code) return `it answered with the status ${error.code}`
  if (error instanceof ProtocolError && error.code !== CLOSED) return `it answered with the error ${error.code}`
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof ForbiddenAddress) return 'its address is not allowed'
  }
  return 'the connection failed'
}

/** The outcome, or the signal's reason when that comes first. */
function orAbort<T>(outcome: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort)
    outcome.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
