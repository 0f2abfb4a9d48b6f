import type { Logger } from 'pino'
import type { DeclaredProgram } from '../../lib/mcp-config.ts'
import { callTool } from '../client/call.ts'
import { type McpClient, withConnectTimeout } from '../client/client.ts'
import { type Clean, cleaner, toToolResult } from '../client/content.ts'
import { type IsWanted, listTools } from '../client/listing.ts'
import { failedCall } from '../client/server-errors.ts'
import { isServerError } from '../client/transport.ts'
import { UnreachableServer } from '../client/unreachable.ts'
import {
  failureReason,
  type Supervisor,
  type SupervisorLimits,
  superviseProgram,
  TOO_SLOW,
  toUnreachable,
} from './supervisor.ts'

/** Limits of programs; tests shorten them. */
export type ProgramLimits = SupervisorLimits & {
  /** Time after the last run after which a program is stopped (ms). */
  idle: number
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

/** A server that runs as a program, for one space or for none. */
export type ProgramUse = {
  mcpId: string
  spaceId: string | null
  program: DeclaredProgram
  /** Values that are removed from all texts of the program. */
  secrets: readonly string[]
  isWanted?: IsWanted
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

type Listed = Awaited<ReturnType<typeof list>>

/** The program of a server in a space, with the number of runs that use it. */
type Slot = {
  key: string
  use: ProgramUse
  clean: Clean
  supervisor: Supervisor
  users: number
  idle: NodeJS.Timeout | undefined
}

/**
 * Manages the programs of declared MCP servers: one process per server and space. A program starts when a run first
 * needs it, and is stopped when no run uses it.
 */
export function createPrograms(log: Logger, given: Partial<ProgramLimits> = {}): Programs {
  const limits = { ...LIMITS, ...given }
  const slots = new Map<string, Slot>()
  const stopping = new AbortController()

  function slotOf(use: ProgramUse): Slot {
    const { mcpId, spaceId, program } = use
    const key = `${mcpId} ${spaceId}`
    const known = slots.get(key)
    if (known) return known
    const clean = cleaner(use.secrets)
    const supervisor = superviseProgram({
      program,
      clean,
      limits,
      stopped: stopping.signal,
      beforeStart: () => ensureCapacity(slot),
      onFailure: (failure) => log.warn({ mcpId, spaceId, ...failure }, 'the program of an MCP server failed'),
    })
    const slot: Slot = { key, use, clean, supervisor, users: 0, idle: undefined }
    slots.set(key, slot)
    return slot
  }

  /** Stops a program that no run uses if there are too many. Throws if all are used. */
  function ensureCapacity(slot: Slot): void {
    const others = [...slots.values()].filter((other) => other !== slot && other.supervisor.isLive())
    if (others.length < limits.most) return
    const unused = others.find(({ users }) => !users)
    if (!unused) throw new UnreachableServer(`${limits.most} programs of MCP servers run already: try again later`)
    void end(unused)
  }

  /** Stops a program and forgets it. */
  async function end(slot: Slot): Promise<void> {
    slots.delete(slot.key)
    clearTimeout(slot.idle)
    await slot.supervisor.end()
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

  return {
    async connect(use, signal) {
      const slot = slotOf(use)
      acquire(slot)
      try {
        return toClient(slot, await list(slot, signal, use.isWanted), () => release(slot), use.isWanted)
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

/** Lists the current tools. */
async function list({ supervisor, clean }: Slot, signal: AbortSignal, isWanted: IsWanted) {
  const until = withConnectTimeout(signal)
  try {
    return await supervisor.withProgram(until, async ({ client }) => {
      const { toolChanges } = client
      return { ...(await listTools(client, clean, until, isWanted)), client, toolChanges }
    })
  } catch (error) {
    signal.throwIfAborted()
    if (until.aborted) throw new UnreachableServer(TOO_SLOW)
    throw error instanceof UnreachableServer ? error : toUnreachable(error, clean)
  }
}

function toClient(slot: Slot, opened: Listed, release: () => void, isWanted: IsWanted): McpClient {
  const { use, clean, supervisor } = slot
  let listed = opened
  /** The client of the latest call, which is another one after the program has started again. */
  let called = opened.client
  return {
    get tools() {
      return [...listed.tools.values()].map(({ tool }) => tool)
    },
    hasMore: opened.hasMore,
    omitted: opened.omitted,
    async refresh(signal) {
      const { client, toolChanges } = listed
      const isSame = called === client && client.toolChanges === toolChanges
      if (isSame || !supervisor.isLive()) return false
      try {
        listed = await list(slot, signal, isWanted)
        called = listed.client
        return true
      } catch {
        signal.throwIfAborted()
        return false
      }
    },
    async call(name, input, signal, onProgress) {
      const { calledAs = name, isTask } = listed.tools.get(name) ?? {}
      let isMade = false
      try {
        const result = await supervisor.withProgram(signal, ({ client }) => {
          isMade = true
          called = client
          return callTool(client, { name: calledAs, input, isTask, onProgress }, signal)
        })
        return toToolResult(result, clean)
      } catch (error) {
        signal.throwIfAborted()
        const reason = failureReason(error, clean)
        if (isServerError(error)) return failedCall(error, reason, false, clean)
        use.onFailure(name, reason)
        return failedCall(error, reason, isMade, clean)
      }
    },
    list: async (signal) => [...(await list(slot, signal, isWanted)).tools.values()].map(({ tool }) => tool),
    async close() {
      release()
    },
  }
}
