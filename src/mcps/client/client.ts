import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import type { ToolResult } from '../../executions/engine/run/tools.ts'
import { abortable } from '../../lib/race-abort.ts'
import { challengeIn, renewFor } from '../oauth/bearer.ts'
import { callTool } from './call.ts'
import { type Clean, cleaner, toToolResult } from './content.ts'
import { listTools, type McpTool } from './listing.ts'
import { demandIn, isUnwritten, mayHaveActed, reasonOf, statusOf, waitOf } from './reasons.ts'
import type { Seen } from './seen.ts'
import { failedCall, isLost, isRefusal, mayBeOlder, olderVersionIn, wordsOf } from './server-errors.ts'
import { type Connection, openSession, type Session, type SessionOptions, type Variant } from './session.ts'
import { isServerError } from './transport.ts'
import { UnreachableServer } from './unreachable.ts'

/** Maximum time to connect and list the tools (ms). A call may take longer. */
const CONNECT_TIMEOUT = 20_000

/** Returns a signal that also aborts once a server had the time to connect and list its tools. */
export const withConnectTimeout = (signal: AbortSignal): AbortSignal =>
  AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT)])

/** Maximum size of an input whose request is written in one piece (characters). */
const MAX_PIECE = 8 * 1024
/** Number of retries for an overloaded server, and the longest delay that it may ask for (ms). */
const RETRY = { most: 2, maxDelay: 10_000 }

/** A connection to an MCP server, for one run. */
export type McpClient = {
  /** The tools as listed last. */
  readonly tools: readonly McpTool[]
  /** Whether the server has more tools than can be used. */
  readonly hasMore: boolean
  /** Names of tools of the server that cannot be used. */
  readonly omitted: readonly string[]
  /**
   * Calls a tool by its name. A failure is an error result. Rejects with the signal's reason, or with an
   * {@link AuthorizationNeeded} if the user must connect first. If the server has lost the session, starts a new one
   * and repeats the rejected call once. Calls `onProgress` for each progress notification.
   */
  call(name: string, input: unknown, signal: AbortSignal, onProgress?: () => void): Promise<ToolResult>
  /**
   * Lists the tools again if the server has announced a change since. Returns whether it did: false if it fails.
   * Rejects with the signal's reason.
   */
  refresh(signal: AbortSignal): Promise<boolean>
  /** Lists the current tools. Throws an {@link UnreachableServer} or the signal's reason. */
  list(signal: AbortSignal): Promise<readonly McpTool[]>
  /**
   * Closes the connection. With `terminate` (the default) first asks the server to end the session. Without it, sends
   * nothing more, so that the server receives no credentials.
   */
  close(terminate?: boolean): Promise<void>
}

const HTTP: Variant = { transport: 'streamable-http', isLatest: false }
const SSE: Variant = { transport: 'sse', isLatest: false }
/**
 * Variants in order of preference. Most servers support older revisions, alone or beside the latest, without
 * negotiation. Servers without the transport may support its predecessor, as the specification says ("Backwards
 * Compatibility"). Many servers of the predecessor have moved to the newer one.
 */
const VARIANTS: readonly Variant[] = [HTTP, { ...HTTP, isLatest: true }, SSE]

/**
 * Connects to an MCP server and lists its tools. Throws an {@link UnreachableServer}, also on a timeout, or the
 * signal's reason.
 */
export async function connectMcp(connection: Connection, signal: AbortSignal): Promise<McpClient> {
  const until = AbortSignal.any([signal, AbortSignal.timeout(Math.min(CONNECT_TIMEOUT, connection.toolTimeout))])
  const secrets = new Set(connection.secrets)
  let scrub = cleaner(connection.secrets)
  const clean: Clean = (text, max) => scrub(text, max)
  /** Adds a token or a cookie to the secrets that are removed. */
  const onSecret = (secret: string) => {
    if (!secrets.has(secret)) scrub = cleaner([...secrets.add(secret)])
  }
  const options = { ...connection, clean, onSecret }
  let left = connection.transport === 'sse' ? [SSE, HTTP] : VARIANTS
  let failure: UnreachableServer | null = null
  while (left[0]) {
    const [variant, ...others] = left
    const seen: Seen = { refusal: null, error: null, needed: null }
    try {
      const tryOpen = () => openSession(options, variant, seen, until)
      return toClient(options, variant, await withRetries(tryOpen, (error) => waitOf(error, seen), until))
    } catch (error) {
      signal.throwIfAborted()
      throwNeeded(seen)
      // If the server supports neither transport, the error of the configured one is more informative.
      const isOther = variant.transport !== connection.transport && !isServerError(error)
      if (!failure || !isOther) failure = until.aborted ? tooSlow() : unreachable(error, seen, clean)
      if (until.aborted) break
      left = variantsAfter(error, variant, others, options.url)
    }
  }
  throw failure ?? tooSlow()
}

/** Returns the variants to try after a failure: an older version of the failed one, or those of the others that may do. */
function variantsAfter(error: unknown, failed: Variant, others: readonly Variant[], url: string): readonly Variant[] {
  const version = failed.version ? null : olderVersionIn(error)
  if (version) return [{ ...failed, version }, ...others]
  if (isRefusal(error)) return others
  return mayBeOlder(url, error) ? others.filter(({ transport }) => transport === 'sse') : []
}

const tooSlow = () => new UnreachableServer('it takes too long')

const unreachable = (error: unknown, seen: Seen, clean: Clean) =>
  new UnreachableServer(reasonOf(error, seen, clean), { said: wordsOf(error, clean) })

/** Retries a task after the delay that `waitOf` gives, if it gives one. */
async function withRetries<T>(
  task: () => Promise<T>,
  waitOf: (error: unknown) => number | null,
  until: AbortSignal,
): Promise<T> {
  for (let retries = 0; ; retries++) {
    try {
      return await task()
    } catch (error) {
      const wait = until.aborted ? null : waitOf(error)
      if (wait === null || wait > RETRY.maxDelay || retries === RETRY.most) throw error
      await sleep(wait, undefined, { signal: until })
    }
  }
}

const toolsOf = ({ tools }: Session): McpTool[] => [...tools.values()].map(({ tool }) => tool)

function toClient(options: SessionOptions, variant: Variant, opened: Session): McpClient {
  const { clean, isWanted } = options
  const closing = new AbortController()
  let session = opened
  /** Lost sessions with calls that the server may still answer: only one of its instances may have lost the session. */
  const lostInUse = new Set<Session>()
  let reopening: Promise<void> | undefined
  /** Whether the tools of a new session differ from those that were read last. */
  let hasOthers = false
  /** Errors of sessions that could not be renewed, after which a rejected call was not made again. */
  const beforeCall = new WeakSet<object>()

  async function reopen(): Promise<void> {
    const lost = session
    const until = withConnectTimeout(closing.signal)
    const tryOpen = () => openSession(options, variant, lost.seen, until)
    session = await withRetries(tryOpen, (error) => waitOf(error, lost.seen), until).catch((error) => {
      beforeCall.add(error)
      throw error
    })
    // A server that was restarted may have other tools.
    hasOthers ||= !isDeepStrictEqual(toolsOf(lost), toolsOf(session))
    if (lost.tasks) lostInUse.add(lost)
    else await lost.close()
  }

  /** Executes a task in a session. The last task of a lost one closes it. */
  async function execute<T>(task: (session: Session) => Promise<T>, used: Session): Promise<T> {
    used.tasks++
    try {
      return await task(used)
    } finally {
      used.tasks--
      if (!used.tasks && lostInUse.delete(used)) void used.close()
    }
  }

  /** Executes a task. If the session is lost, starts a new one and tries again. */
  async function inSession<T>(task: (session: Session) => Promise<T>, signal: AbortSignal): Promise<T> {
    const used = session
    try {
      return await execute(task, used)
    } catch (error) {
      signal.throwIfAborted()
      if (!isLost(error, used.canBeLost)) throw error
    }
    if (session === used) {
      reopening ??= reopen().finally(() => {
        reopening = undefined
      })
      await abortable(reopening, signal)
    }
    return execute(task, session)
  }

  function failure(name: string, error: unknown): ToolResult {
    const reason = reasonOf(error, session.seen, clean)
    if (!isServerError(error)) options.onFailure?.(name, reason)
    return failedCall(error, reason, !beforeCall.has(error as object) && mayHaveActed(error, reason), clean)
  }

  return {
    get tools() {
      return toolsOf(session)
    },
    hasMore: opened.hasMore,
    omitted: opened.omitted,
    async refresh(signal) {
      const current = session
      const { client } = current
      const { toolChanges } = client
      if (hasOthers) {
        hasOthers = false
        return true
      }
      if (toolChanges === current.toolChanges) return false
      try {
        const { tools } = await listTools(client, clean, withConnectTimeout(signal), isWanted)
        current.tools = tools
        current.toolChanges = toolChanges
        return true
      } catch {
        signal.throwIfAborted()
        return false
      }
    },
    async call(name, input, signal, onProgress) {
      options.bearer?.forget()
      try {
        const callOnce = ({ client, tools }: Session) => {
          const { calledAs = name, tool, isTask } = tools.get(name) ?? {}
          const inputSchema = tool?.inputSchema
          return callTool(client, { name: calledAs, input, inputSchema, isTask, onProgress }, signal)
        }
        // After any other failure, the tool may have acted.
        const waitOfCall = (error: unknown) => {
          if (beforeCall.has(error as object)) return null
          if (isUnwritten(error)) return JSON.stringify(input ?? null).length <= MAX_PIECE ? 0 : null
          return statusOf(error) === 429 ? waitOf(error, session.seen) : null
        }
        const callAgain = () => withRetries(() => inSession(callOnce, signal), waitOfCall, signal)
        const answer = await callAgain()
        const challenge = challengeIn(answer)
        if (!challenge) return toToolResult(answer, clean)
        if (options.bearer) {
          await renewFor(options.bearer, challenge, session.seen)
          return toToolResult(await callAgain(), clean)
        }
        const { content, ...result } = toToolResult(answer, clean)
        return { ...result, content: `${content}\n\n[The server refused the call: ${demandIn(challenge, clean)}]` }
      } catch (error) {
        signal.throwIfAborted()
        throwNeeded(session.seen)
        return failure(name, error)
      }
    },
    async list(signal) {
      const until = withConnectTimeout(signal)
      try {
        const listOnce = () => inSession(({ client }) => listTools(client, clean, until, isWanted), until)
        const now = await withRetries(listOnce, (error) => waitOf(error, session.seen), until)
        return [...now.tools.values()].map(({ tool }) => tool)
      } catch (error) {
        signal.throwIfAborted()
        throwNeeded(session.seen)
        throw until.aborted ? tooSlow() : unreachable(error, session.seen, clean)
      }
    },
    async close(terminate = true) {
      closing.abort()
      await reopening?.catch(() => {})
      if (terminate) await session.terminate()
      const open = [session, ...lostInUse]
      lostInUse.clear()
      await Promise.all(open.map((each) => each.close()))
    },
  }
}

/** Throws if a request was not made because the user must connect first. */
function throwNeeded(seen: Seen): void {
  const { needed } = seen
  seen.needed = null
  if (needed) throw needed
}
