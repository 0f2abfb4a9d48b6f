import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { DeclaredProgram } from '../lib/mcp-config.ts'
import { abortable } from '../lib/race-abort.ts'
import { CONNECT_TIMEOUT, type McpClient } from './client.ts'
import { type Clean, cleaner, toToolResult } from './content.ts'
import { listTools } from './listing.ts'
import { createProgram, type ProgramTransport } from './program.ts'
import { reasonOf } from './reasons.ts'
import { isRefusal, MAX_ERROR_TEXT, olderVersionIn, serverMessage } from './server-errors.ts'
import { callTool } from './session.ts'
import { createClient, type Handshake, isServerError, requestWithSignal } from './transport.ts'
import { UnreachableServer } from './unreachable.ts'

/** Limits of programs; tests shorten them. */
export type ProgramLimits = {
  /** Time that a program has to start (ms). Runs wait for a shorter time, and the next run finds it started. */
  startTimeout: number
  /** Time after the last run after which a program is stopped (ms). */
  idle: number
  /** First and longest delay before a program is started again (ms). The first failure has none. */
  backoff: { first: number; most: number }
  /** Time after which a program counts as working, and its next failure as the first (ms). */
  steady: number
  /** Time that a program has to answer a ping after a call was aborted (ms). */
  ping: number
  /** Time that a stopped program has to end, before and after SIGTERM (ms). */
  grace: number
  /** Maximum number of programs of this process. */
  most: number
}

const LIMITS: ProgramLimits = {
  startTimeout: 60_000,
  idle: 5 * 60_000,
  backoff: { first: 1000, most: 60_000 },
  steady: 60_000,
  ping: 10_000,
  grace: 1500,
  most: 64,
}

const TOO_SLOW = 'it takes too long to start or to answer'

/** Maximum delay before a start that a run waits for (ms). */
const PATIENCE = 5000

/** A server that runs as a program, for one space or for none. */
export type ProgramUse = {
  mcpId: string
  spaceId: string | null
  program: DeclaredProgram
  /** Values that are removed from all texts of the program. */
  secrets: readonly string[]
  /** Called with the reason if the program did not answer a tool call. */
  onFailure: (tool: string, reason: string) => void
}

export type Programs = {
  /**
   * Connects a run to a program, which is started if none runs. Throws an {@link UnreachableServer} or the signal's
   * reason.
   */
  connect(use: ProgramUse, signal: AbortSignal): Promise<McpClient>
  /** Ends all programs. */
  stop(): Promise<void>
}

type Live = { client: ReturnType<typeof createClient>['client']; transport: ProgramTransport }

type Listed = Awaited<ReturnType<typeof listTools>>

type Slot = {
  key: string
  use: ProgramUse
  clean: Clean
  /** The running program, or the one that starts. */
  live: Promise<Live> | null
  users: number
  idle: NodeJS.Timeout | undefined
  failures: number
  /** The latest failure, and when the program may be started again. */
  failed: { reason: string; until: number } | null
}

/**
 * Manages the programs of declared MCP servers: one process per server and space. A program starts when a run first
 * needs it, and is stopped when no run uses it. After it has ended by itself, it is started again with growing delays.
 */
export function createPrograms(log: Logger, given: Partial<ProgramLimits> = {}): Programs {
  const limits = { ...LIMITS, ...given }
  const slots = new Map<string, Slot>()
  const stopping = new AbortController()

  function slotOf(use: ProgramUse): Slot {
    const key = `${use.mcpId} ${use.spaceId}`
    const known = slots.get(key)
    if (known) return known
    const clean = cleaner(use.secrets)
    const slot = { key, use, clean, live: null, users: 0, idle: undefined, failures: 0, failed: null }
    slots.set(key, slot)
    return slot
  }

  /** Returns the running program, started if necessary. */
  function running(slot: Slot): Promise<Live> {
    if (slot.live) return slot.live
    const starting = start(slot)
    slot.live = starting
    starting.catch(() => {
      if (slot.live === starting) slot.live = null
    })
    return starting
  }

  async function start(slot: Slot): Promise<Live> {
    const { failed } = slot
    const wait = failed ? failed.until - Date.now() : 0
    if (failed && wait > PATIENCE) {
      const seconds = Math.ceil(wait / 1000)
      throw new UnreachableServer(
        `it is started again in ${seconds} s at the earliest, after a failure: ${failed.reason}`,
      )
    }
    if (wait > 0) await sleep(wait, undefined, { signal: stopping.signal })
    stopping.signal.throwIfAborted()
    ensureCapacity(slot)
    const live = await launch(slot)
    const since = Date.now()
    void live.transport.whenEnded.then((reason) => {
      slot.live = null
      if (stopping.signal.aborted || slots.get(slot.key) !== slot) return
      if (Date.now() - since >= limits.steady) slot.failures = 0
      fail(slot, reason)
    })
    return live
  }

  /** Starts the program in the protocol's revision that it understands. */
  async function launch(slot: Slot): Promise<Live> {
    const until = AbortSignal.any([stopping.signal, AbortSignal.timeout(limits.startTimeout)])
    const handshakes: Handshake[] = [{ isLatest: false }, { isLatest: true }]
    for (let handshake = handshakes.shift(); handshake; handshake = handshakes.shift()) {
      const transport = createProgram(slot.use.program, slot.clean, limits.grace)
      const { client } = createClient(transport, handshake, { maxMessages: Number.POSITIVE_INFINITY })
      try {
        await abortable(
          requestWithSignal(until, (options) => client.connect(transport, options)),
          until,
        )
        return { client, transport }
      } catch (error) {
        const reason = transport.kill(until.aborted ? TOO_SLOW : failureReason(error, slot))
        const version = handshake.version ? null : olderVersionIn(error)
        if (version) handshakes.unshift({ ...handshake, version })
        if (version || (!handshake.isLatest && isRefusal(error))) continue
        stopping.signal.throwIfAborted()
        fail(slot, reason)
        throw new UnreachableServer(reason)
      }
    }
    throw new UnreachableServer('it speaks no revision of the protocol that is supported')
  }

  /** Sets when a failed program may be started again. */
  function fail(slot: Slot, reason: string): void {
    const { first, most } = limits.backoff
    slot.failures++
    const delay = slot.failures === 1 ? 0 : Math.min(first * 2 ** (slot.failures - 2), most)
    slot.failed = { reason, until: Date.now() + delay }
    const { mcpId, spaceId } = slot.use
    log.warn({ mcpId, spaceId, reason, failures: slot.failures, delay }, 'the program of an MCP server failed')
  }

  /** Stops a program that no run uses if there are too many. Throws if all are used. */
  function ensureCapacity(slot: Slot): void {
    const others = [...slots.values()].filter((other) => other !== slot && other.live)
    if (others.length < limits.most) return
    const unused = others.find(({ users }) => !users)
    if (!unused) throw new UnreachableServer(`${limits.most} programs of MCP servers run already: try again later`)
    void end(unused)
  }

  /** Stops a program and forgets it. */
  async function end(slot: Slot): Promise<void> {
    slots.delete(slot.key)
    clearTimeout(slot.idle)
    const live = await slot.live?.catch(() => null)
    await live?.transport.close()
  }

  function acquire(slot: Slot): void {
    clearTimeout(slot.idle)
    slot.users++
  }

  function release(slot: Slot): void {
    slot.users--
    if (slot.users || slots.get(slot.key) !== slot) return
    slot.idle = setTimeout(() => void end(slot), limits.idle)
    slot.idle.unref()
  }

  /** After an aborted call, ends a program that does not answer any more, so that the next call gets a new one. */
  async function checkAnswering({ client, transport }: Live): Promise<void> {
    const until = AbortSignal.timeout(limits.ping)
    await abortable(
      requestWithSignal(until, (options) => client.ping(options)),
      until,
    ).catch(() => {
      if (until.aborted) transport.kill('its program did not answer any more, and was ended')
    })
  }

  /** Executes a task with the running program. Throws the reason of its end if it ends meanwhile. */
  async function withProgram<T>(slot: Slot, signal: AbortSignal, task: (live: Live) => Promise<T>): Promise<T> {
    const live = await abortable(running(slot), signal)
    try {
      return await task(live)
    } catch (error) {
      if (signal.aborted) void checkAnswering(live)
      signal.throwIfAborted()
      const ended = live.transport.ended()
      throw ended === null ? error : new UnreachableServer(ended)
    }
  }

  /** Lists the current tools. */
  async function list(slot: Slot, signal: AbortSignal): Promise<Listed> {
    const until = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT)])
    try {
      return await withProgram(slot, until, ({ client }) => abortable(listTools(client, slot.clean, until), until))
    } catch (error) {
      signal.throwIfAborted()
      throw new UnreachableServer(until.aborted ? TOO_SLOW : failureReason(error, slot))
    }
  }

  function toClient(slot: Slot, { tools, hasMore }: Listed): McpClient {
    return {
      tools: [...tools.values()].map(({ tool }) => tool),
      hasMore,
      async call(name, input, signal, onProgress) {
        try {
          const params = { name: tools.get(name)?.calledAs ?? name, input, onProgress }
          const result = await withProgram(slot, signal, ({ client }) => callTool(client, params, signal))
          return toToolResult(result, slot.clean)
        } catch (error) {
          signal.throwIfAborted()
          const reason = failureReason(error, slot)
          if (!isServerError(error)) slot.use.onFailure(name, reason)
          return {
            content: slot.clean(`The call failed: ${serverMessage(error) ?? reason}`, MAX_ERROR_TEXT),
            isError: true,
          }
        }
      },
      list: async (signal) => [...(await list(slot, signal)).tools.values()].map(({ tool }) => tool),
      async close() {
        release(slot)
      },
    }
  }

  return {
    async connect(use, signal) {
      const slot = slotOf(use)
      acquire(slot)
      try {
        return toClient(slot, await list(slot, signal))
      } catch (error) {
        release(slot)
        throw error
      }
    },
    async stop() {
      stopping.abort()
      await Promise.all([...slots.values()].map(end))
    },
  }
}

const failureReason = (error: unknown, { clean }: Slot) =>
  error instanceof UnreachableServer
    ? error.message
    : reasonOf(error, { refusal: null, error: null, needed: null }, clean)
