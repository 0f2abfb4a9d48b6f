import { setTimeout as sleep } from 'node:timers/promises'
import type { DeclaredProgram } from '../../lib/mcp-config.ts'
import { abortable } from '../../lib/race-abort.ts'
import type { Clean } from '../client/content.ts'
import { reasonOf } from '../client/reasons.ts'
import { isRefusal, olderVersionIn, wordsOf } from '../client/server-errors.ts'
import { createClient, type Handshake, requestWithSignal } from '../client/transport.ts'
import { UnreachableServer } from '../client/unreachable.ts'
import { createProgram, type ProgramTransport } from './program.ts'

/** Limits of one program. */
export type SupervisorLimits = {
  /** Time that a program has to start (ms). Runs wait for a shorter time, and the next run finds it started. */
  startTimeout: number
  /** First and longest delay before a program is started again (ms). The first failure has none. */
  backoff: { first: number; most: number }
  /** Time after which a program counts as working, and its next failure as the first (ms). */
  steady: number
  /** Time that a program has to answer a ping after a call was aborted (ms). */
  ping: number
  /** Time that a stopped program has to end, before and after SIGTERM (ms). */
  grace: number
}

export const TOO_SLOW = 'it takes too long to start or to answer'
/** Reason of a program that has written no message in its time to start. */
const SPEECHLESS = 'it takes too long to start, or speaks no MCP over its standard input and output'

/** Maximum delay before a start that a run waits for (ms). */
const PATIENCE = 5000

type Live = { client: ReturnType<typeof createClient>['client']; transport: ProgramTransport }

/** A program that is started when it is needed, and started again after it has ended by itself. */
export type Supervisor = {
  /** Whether the program runs or starts. */
  isLive(): boolean
  /** Executes a task with the running program. Throws the reason of its end if it ends meanwhile. */
  withProgram<T>(signal: AbortSignal, task: (live: Live) => Promise<T>): Promise<T>
  /** Stops the program. */
  end(): Promise<void>
}

type Options = {
  program: DeclaredProgram
  clean: Clean
  limits: SupervisorLimits
  /** Aborts when the service stops: no program starts any more. */
  stopped: AbortSignal
  /** Called before each start. Throws if the program may not start. */
  beforeStart: () => void
  /** Called after each failure, with the delay before the next start (ms). */
  onFailure: (failure: { reason: string; failures: number; delay: number }) => void
}

/** Supervises one program. After it has ended by itself, it is started again with growing delays. */
export function superviseProgram(options: Options): Supervisor {
  const { limits, stopped } = options
  let live: Promise<Live> | null = null
  let isEnded = false
  let failures = 0
  /** The latest failure, and when the program may be started again. */
  let failed: { reason: string; until: number } | null = null

  /** Returns the running program, started if necessary. */
  function running(): Promise<Live> {
    if (live) return live
    const starting = start()
    live = starting
    starting.catch(() => {
      if (live === starting) live = null
    })
    return starting
  }

  async function start(): Promise<Live> {
    const wait = failed ? failed.until - Date.now() : 0
    if (failed && wait > PATIENCE) {
      const seconds = Math.ceil(wait / 1000)
      throw new UnreachableServer(
        `it is started again in ${seconds} s at the earliest, after a failure: ${failed.reason}`,
      )
    }
    if (wait > 0) await sleep(wait, undefined, { signal: stopped })
    stopped.throwIfAborted()
    options.beforeStart()
    const started = await launch(options).catch((error: unknown) => {
      stopped.throwIfAborted()
      if (error instanceof UnreachableServer) fail(error.message)
      throw error
    })
    const since = Date.now()
    void started.transport.whenEnded.then((reason) => {
      live = null
      if (stopped.aborted || isEnded) return
      if (Date.now() - since >= limits.steady) failures = 0
      fail(reason)
    })
    return started
  }

  /** Sets when the failed program may be started again. */
  function fail(reason: string): void {
    const { first, most } = limits.backoff
    failures++
    const delay = failures === 1 ? 0 : Math.min(first * 2 ** (failures - 2), most)
    failed = { reason, until: Date.now() + delay }
    options.onFailure({ reason, failures, delay })
  }

  return {
    isLive: () => live !== null,
    async withProgram(signal, task) {
      const used = await abortable(running(), signal)
      try {
        return await task(used)
      } catch (error) {
        if (signal.aborted) void checkAnswering(used, limits.ping)
        signal.throwIfAborted()
        const ended = used.transport.ended()
        throw ended === null ? error : new UnreachableServer(ended)
      }
    },
    async end() {
      isEnded = true
      const last = await live?.catch(() => null)
      await last?.transport.close()
    },
  }
}

/** Starts the program in the protocol's revision that it understands. Throws an {@link UnreachableServer}. */
async function launch({ program, clean, limits, stopped }: Options): Promise<Live> {
  const until = AbortSignal.any([stopped, AbortSignal.timeout(limits.startTimeout)])
  const handshakes: Handshake[] = [{ isLatest: false }, { isLatest: true }]
  for (let handshake = handshakes.shift(); handshake; handshake = handshakes.shift()) {
    const transport = createProgram(program, clean, limits.grace)
    const { client } = createClient(transport, handshake, { maxMessages: Number.POSITIVE_INFINITY })
    try {
      await requestWithSignal(until, (options) => client.connect(transport, options))
      return { client, transport }
    } catch (error) {
      const isSlow = transport.hasSpoken ? TOO_SLOW : SPEECHLESS
      const reason = transport.kill(until.aborted ? isSlow : failureReason(error, clean))
      const version = handshake.version ? null : olderVersionIn(error)
      if (version) handshakes.unshift({ ...handshake, version })
      if (!version && (handshake.isLatest || !isRefusal(error)))
        throw new UnreachableServer(reason, { said: wordsOf(error, clean) })
    }
  }
  throw new UnreachableServer('it speaks no revision of the protocol that is supported')
}

/** After an aborted call, ends a program that does not answer any more, so that the next call gets a new one. */
async function checkAnswering({ client, transport }: Live, timeout: number): Promise<void> {
  const until = AbortSignal.timeout(timeout)
  await requestWithSignal(until, (options) => client.ping(options)).catch(() => {
    if (until.aborted) transport.kill('its program did not answer any more, and was ended')
  })
}

/** Returns the error of a program that answers with one, with its words. */
export const toUnreachable = (error: unknown, clean: Clean): UnreachableServer =>
  new UnreachableServer(failureReason(error, clean), { said: wordsOf(error, clean) })

/** Returns why a program could not be used, without secrets. */
export const failureReason = (error: unknown, clean: Clean): string =>
  error instanceof UnreachableServer
    ? error.message
    : reasonOf(error, { refusal: null, error: null, needed: null }, clean)
