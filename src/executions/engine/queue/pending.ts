import type { Logger } from 'pino'
import type { Bus } from '../../../bus/index.ts'
import type { Db } from '../../../db/client.ts'
import { watchTask } from '../../../lib/watch-task.ts'
import type { ExecutionRow } from '../events/events.ts'
import { BEGIN, loadCheckpoint } from '../run/checkpoint.ts'
import { failedWith } from '../run/failures.ts'
import type { Launch, Live } from '../run/live.ts'
import { createCapacity } from './capacity.ts'
import * as claims from './claims.ts'
import * as endings from './endings.ts'

export type PendingDeps = {
  db: Db
  bus: Bus
  log: Logger
  claimDeps: claims.ClaimDeps
  live: Live
  /** Maximum number of concurrent runs of this process; 0 if it only accepts runs for other processes. */
  maxRunning: number
  /** Returns whether this process may start runs now. */
  mayStart: () => boolean
  agentFor: (db: Db, row: ExecutionRow) => Promise<claims.AgentRow | string>
  /** Called after a run has ended before it could start. */
  notifyRunEnded: (ended: endings.Ended) => void
}

/** Creates the part of the engine that starts pending runs, as soon as there is capacity. */
export function createPending(deps: PendingDeps) {
  const { db, bus, log, claimDeps, live, mayStart } = deps
  const { limits } = claimDeps
  const capacity = createCapacity({
    db,
    limits: { process: deps.maxRunning, organization: limits.running },
    log,
    taken: live.taken,
    begin: start,
  })

  /** Starts a pending run that holds its session's lock. Returns false if there is no capacity. */
  async function start(id: string): Promise<boolean> {
    return mayStart() && live.claim((launch) => claimAndLaunch(id, launch))
  }

  async function claimAndLaunch(id: string, launch: Launch): Promise<boolean> {
    const pending = await db.execution.findUnique({ where: { id, status: 'pending', waitingFor: null } })
    if (!pending) return true
    const agent = pending.wantsCancel ? 'cancelled' : await deps.agentFor(db, pending)
    if (typeof agent === 'string') {
      await end(pending, agent)
      return true
    }
    const row = await claims.claimPending(claimDeps, pending, agent)
    if (!row) {
      if (limits.running !== undefined) capacity.wait(pending.organizationId)
      return limits.running === undefined
    }
    launch(row, agent, row.attempt > 1 ? await loadCheckpoint(db, row) : BEGIN)
    bus.publish('execution', [id])
    return true
  }

  /**
   * Ends a run that has not started or waits for an approval, as cancelled if it is marked for cancellation and as
   * failed otherwise.
   */
  async function end(row: ExecutionRow, error: string): Promise<void> {
    const outcome = row.wantsCancel ? endings.CANCELLED : failedWith(error)
    const ended = await endings.finishPending(claimDeps, row, outcome)
    if (ended) deps.notifyRunEnded(ended)
  }

  /** Failures are only logged because the sweep repeats the work. */
  const background = watchTask((error) =>
    log.error({ err: error }, 'failed to start a pending run; the sweep will retry'),
  )

  return {
    isFull: capacity.isFull,
    hasCapacity: capacity.hasCapacity,
    fill: capacity.fill,
    end,

    /** Starts a pending run here if there is capacity, otherwise announces it to all processes. */
    startOrAnnounce(id: string, organizationId: string): void {
      if (mayStart() && capacity.hasCapacity(organizationId)) void background(start(id))
      else bus.publish('pending', [organizationId])
    },

    /** Starts runs that other processes have announced: those of these organizations, and any that wait. */
    startAnnounced(organizationIds: readonly string[]): void {
      if (!mayStart()) return
      for (const organizationId of organizationIds) capacity.wait(organizationId)
      void background(capacity.fill())
    },

    /** Starts runs that wait for the slot of a run that has left this process. */
    useFreeSlot(): void {
      if (capacity.isWanted()) void background(capacity.fill())
    },
  }
}
