import { isPublicAddress } from '../../lib/net/addresses.ts'
import type { ProxyFor } from '../../lib/net/proxies.ts'
import { BadAnswer, createSafeFetch } from '../../lib/net/safe-fetch.ts'
import { abortable } from '../../lib/race-abort.ts'
import { authorized } from '../oauth/bearer.ts'
import type { Bearer } from '../oauth/connections.ts'
import type { Clean } from './content.ts'
import { withCookies } from './cookies.ts'
import { type IsWanted, listTools } from './listing.ts'
import { checkSize } from './message-size.ts'
import { type Seen, watching } from './seen.ts'
import { withOneStream, withStreams } from './streams.ts'
import { type Address, createClient, createTransport, type Handshake, requestWithSignal } from './transport.ts'

// One session with an MCP server over the network: its requests, its handshake and its end.

const MINUTE = 60_000
const MEBIBYTE = 1024 * 1024

/**
 * Time that an idle connection is reused (ms), if the server states none. It is shorter than that of any server in use
 * (gunicorn: 2 s), so that a call rarely meets a connection that is being closed.
 */
const KEEP_ALIVE = 1500
/**
 * Returns the maximum silence on a connection (ms): never shorter than a call may last. A standalone stream may be
 * silent while the model works.
 */
export const silenceOf = ({ toolTimeout }: Pick<Connection, 'toolTimeout'>) => ({
  headersTimeout: Math.max(10 * MINUTE, toolTimeout),
  idleTimeout: Math.max(30 * MINUTE, toolTimeout),
})
/** Maximum size of an answer (bytes). SSE has one stream for all answers of a run. */
const MAX_RESPONSE = { one: 8 * MEBIBYTE, all: 32 * MEBIBYTE }
/** Maximum time to deliver the last messages, and again to end the session (ms). */
const TERMINATE_TIMEOUT = 1000
/** Maximum time for a server to accept a notification (ms). */
const MAX_NOTIFICATION_TIMEOUT = 3000

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
  isWanted?: IsWanted
  /** Called with the reason if the server did not answer a tool call. */
  onFailure?: (tool: string, reason: string) => void
}

/** A protocol variant: the transport and the handshake. */
export type Variant = Handshake & { transport: string }

/** A connection with the functions that keep its secrets out of texts. */
export type SessionOptions = Connection & { clean: Clean; onSecret: (secret: string) => void }

/** A session with the tools that the server had at its beginning. */
export type Session = Awaited<ReturnType<typeof openSession>>

/** Opens a session and lists the tools. `seen` receives what the SDK does not report. */
export async function openSession(options: SessionOptions, variant: Variant, seen: Seen, signal: AbortSignal) {
  const { bearer, clean } = options
  const safe = createSafeFetch({
    isAllowed: options.allowPrivate ? undefined : isPublicAddress,
    proxyFor: options.proxyFor,
    maxResponse: variant.transport === 'sse' ? MAX_RESPONSE.all : MAX_RESPONSE.one,
    inspect: checkSize,
    keepAlive: KEEP_ALIVE,
    ...(options.mayRedirect === false && { maxRedirects: 0 }),
    staysOnOrigin: options.staysOnOrigin,
    ...silenceOf(options),
  })
  const { origin } = new URL(options.url)
  const withSession = withCookies(safe.fetch, origin, options.onSecret)
  const wire = { fetch: withSession, seen, clientOf: () => client }
  const plain = watching(variant.transport === 'sse' ? withOneStream(wire) : withStreams(wire), seen)
  const fetch = bearer ? authorized(plain, bearer, origin, seen, options.onSecret) : plain
  const transport = createTransport({ ...options, transport: variant.transport }, fetch)
  const { client, settled } = createClient(transport, variant, {
    notificationTimeout: Math.min(MAX_NOTIFICATION_TIMEOUT, options.toolTimeout / 4),
    onFlood: () => {
      seen.error = new BadAnswer('it sent too many messages')
    },
  })
  const close = async () => {
    await transport.close().catch(() => {})
    await safe.close()
  }
  try {
    await requestWithSignal(signal, (given) => client.connect(transport, given))
    const { toolChanges } = client
    const { tools, omitted, hasMore } = await listTools(client, clean, signal, options.isWanted)
    return {
      client,
      tools,
      /** Number of announced changes before the tools were listed. */
      toolChanges,
      hasMore,
      omitted,
      seen,
      close,
      /** Number of tasks that use the session. */
      tasks: 0,
      /** Whether the server has state for this session, which it can lose. */
      canBeLost: !('sessionId' in transport) || transport.sessionId !== undefined,
      /** Waits for the last messages and ends the session. */
      async terminate() {
        const until = AbortSignal.timeout(TERMINATE_TIMEOUT)
        await abortable(settled(), until).catch(() => {})
        if ('terminateSession' in transport) await abortable(transport.terminateSession(), until).catch(() => {})
      },
    }
  } catch (error) {
    await close()
    throw error
  }
}
