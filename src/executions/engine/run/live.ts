import type { Logger } from 'pino'
import { raceAbort } from '../../../lib/race-abort.ts'
import { createRegistry } from '../../../lib/registry.ts'
import type { EventLog } from '../events/event-log.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { AgentRow } from '../queue/claims.ts'
import { AbortReason } from './abort.ts'
import type { RunAttempt } from './attempt.ts'
import type { Checkpoint } from './checkpoint.ts'
import type { ReadSpace } from './space.ts'

/** A run that executes in this process. */
type Run = {
  row: ExecutionRow
  controller: AbortController
  ended: Promise<ExecutionRow | null>
}

/** Starts a run in this process, which has claimed it. `space`: its space, if it is being read already. */
export type Launch = (row: ExecutionRow, agent: AgentRow, from: Checkpoint, space?: ReadSpace) => void

export type LiveDeps = {
  eventLog: EventLog
  log: Logger
  attempt: RunAttempt
  /** Aborted when this process shuts down. */
  stopped: AbortSignal
  /** Called when a run no longer executes in this process. */
  onLeft: (executionId: string) => void
}

export type Live = ReturnType<typeof createLive>

/** Tracks the runs of this process and the slots reserved for runs that are about to start. */
export function createLive({ eventLog, log, attempt, stopped, onLeft }: LiveDeps) {
  const runs = createRegistry<string, Run>()
  /** Number of runs that are being claimed, and the number of slots reserved for them. */
  let claiming = 0
  let places = 0
  /** Resolved when no claim is in progress any more. Null unless `quiet` waits for that. */
  let claimed: PromiseWithResolvers<void> | null = null
  /** Runs cancelled while claims are in progress, in case the claim is theirs. */
  const early = new Set<string>()

  const abort = (id: string, why: AbortReason['reason']) => runs.get(id)?.controller.abort(new AbortReason(why))

  function startAttempt(...[row, agent, from, space]: Parameters<Launch>): void {
    const controller = new AbortController()
    const stream = eventLog.open(row, () => controller.abort(new AbortReason('lost')))
    const ended = attempt(row, agent, from, stream, controller, space)
      .catch((error) => {
        log.error({ err: error, executionId: row.id }, 'failed to end a run')
        eventLog.close(stream, null)
        return null
      })
      .finally(() => {
        // The run may already execute again: after an approval it resumes while its previous attempt still finishes
        // here.
        if (runs.get(row.id) === run) runs.delete(row.id)
        onLeft(row.id)
      })
    const run: Run = { row, controller, ended }
    runs.set(row.id, run)
    if (stopped.aborted) abort(row.id, 'drained')
    else if (early.has(row.id)) abort(row.id, 'cancelled')
  }

  return {
    ids: (): string[] => runs.values().map(({ row }) => row.id),
    has: (id: string): boolean => runs.has(id),
    stop: abort,
    /** Cancels a run, even if it is just starting. */
    cancel(id: string): void {
      if (runs.has(id)) abort(id, 'cancelled')
      else if (claiming) early.add(id)
    },
    /** Resolves with the final state of a live run. Returns undefined if the run is not live. */
    ended: (id: string): Promise<ExecutionRow | null> | undefined => runs.get(id)?.ended,
    /** Number of slots in use. */
    taken: (): number => runs.size + places,
    /** Returns the rows whose leases this process holds. */
    heldRows: (): ExecutionRow[] => runs.values().map(({ row }) => row),

    /**
     * Executes a task that claims a run and starts it with `launch`. If `hasCapacity`, a slot is reserved for the run
     * meanwhile. Cancellations that arrive during the claim are applied.
     */
    async claim<T>(task: (launch: Launch) => Promise<T>, hasCapacity = true): Promise<T> {
      let kept = hasCapacity ? 1 : 0
      const give = () => {
        places -= kept
        kept = 0
      }
      claiming++
      places += kept
      try {
        return await task((...run) => {
          give()
          startAttempt(...run)
        })
      } finally {
        claiming--
        give()
        if (!claiming) {
          early.clear()
          claimed?.resolve()
          claimed = null
        }
      }
    },

    /** Resolves when no run is live or starting, or shortly after the signal aborts. */
    async quiet(signal: AbortSignal): Promise<void> {
      while ((runs.size || claiming) && !signal.aborted) {
        if (claiming) claimed ??= Promise.withResolvers()
        await raceAbort(Promise.all([claimed?.promise, ...runs.values().map((run) => run.ended)]), signal)
      }
    },
  }
}
