import { setImmediate } from 'node:timers/promises'
import type { Logger } from 'pino'
import { unlessAborted } from '../../../lib/unless-aborted.ts'
import type { Journal } from '../events/event-log.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { AgentRow } from '../queue/claims.ts'
import { Stop } from './abort.ts'
import type { RunAttempt } from './attempt.ts'
import { BEGIN, type Checkpoint } from './checkpoint.ts'

/** A run that is on in this process. */
type Run = {
  row: ExecutionRow
  controller: AbortController
  ended: Promise<ExecutionRow | null>
  /** Whether its claim is on the disk: it may have begun before. */
  isClaimed: boolean
}

/** Begins a run in this process. Its claim is on the disk once `claimed` has resolved. */
export type Launch = (row: ExecutionRow, agent: AgentRow, from?: Checkpoint, claimed?: Promise<void>) => void

export type LiveDeps = {
  journal: Journal
  log: Logger
  attempt: RunAttempt
  /** Aborted when this process ends. */
  stopped: AbortSignal
  /** A run is not on here any more. */
  onLeft: (executionId: string) => void
}

export type Live = ReturnType<typeof createLive>

/** The runs that are on in this process, and the places of those that are about to be. */
export function createLive({ journal, log, attempt, stopped, onLeft }: LiveDeps) {
  const runs = new Map<string, Run>()
  /** How many runs are being claimed, and how many of these keep a place in which to begin. */
  let claiming = 0
  let places = 0
  /** Who shall be cancelled while claims are under way: their own may be one of them. */
  const early = new Set<string>()

  const stop = (id: string, why: Stop['why']) => runs.get(id)?.controller.abort(new Stop(why))

  function begin(row: ExecutionRow, agent: AgentRow, from: Checkpoint, claimed: Promise<void>): void {
    const controller = new AbortController()
    const channel = journal.open(row, () => controller.abort(new Stop('lost')))
    const ended = attempt(row, agent, from, channel, controller, claimed)
      .catch((error) => {
        log.error({ err: error, executionId: row.id }, 'a run could not be ended')
        journal.close(channel, null)
        return null
      })
      .finally(() => {
        // It may be on again already: one that waited for an approval goes on while its end here is still being told.
        if (runs.get(row.id) === run) runs.delete(row.id)
        onLeft(row.id)
      })
    const run: Run = { row, controller, ended, isClaimed: false }
    runs.set(row.id, run)
    claimed.then(() => {
      run.isClaimed = true
    })
    if (stopped.aborted) stop(row.id, 'drained')
    else if (early.has(row.id)) stop(row.id, 'cancelled')
  }

  return {
    ids: (): string[] => [...runs.keys()],
    has: (id: string): boolean => runs.has(id),
    stop,
    /** Stops a run that shall be cancelled, though it be just about to begin. */
    cancel(id: string): void {
      if (runs.has(id)) stop(id, 'cancelled')
      else if (claiming) early.add(id)
    },
    /** What a run that is on has become when it ends; undefined where none is. */
    ended: (id: string): Promise<ExecutionRow | null> | undefined => runs.get(id)?.ended,
    /** How many places are taken. */
    taken: (): number => runs.size + places,
    /** The rows whose leases this process has for sure. */
    heldRows: (): ExecutionRow[] => [...runs.values()].flatMap(({ row, isClaimed }) => (isClaimed ? row : [])),

    /**
     * Does what claims a run, and begins it by `launch`: in a place that is kept for it meanwhile, if it `hasRoom`. What
     * comes meanwhile from those who find its row already is not lost.
     */
    async claim<T>(task: (launch: Launch) => Promise<T>, hasRoom = true): Promise<T> {
      let kept = hasRoom ? 1 : 0
      const give = () => {
        places -= kept
        kept = 0
      }
      claiming++
      places += kept
      try {
        return await task((row, agent, from = BEGIN, claimed = Promise.resolve()) => {
          give()
          begin(row, agent, from, claimed)
        })
      } finally {
        claiming--
        give()
        if (!claiming) early.clear()
      }
    },

    /** Resolves when nothing runs here, and nothing is being begun; or a little after the signal has aborted. */
    async quiet(signal: AbortSignal): Promise<void> {
      while ((runs.size || claiming) && !signal.aborted) {
        await unlessAborted(Promise.all([...runs.values()].map((run) => run.ended)), signal)
        await setImmediate()
      }
    },
  }
}
