import { isAdmin, permit } from '../../../auth/actor.ts'
import type { Bus } from '../../../bus/index.ts'
import type { Db } from '../../../db/client.ts'
import { IdempotencyConflict, isTaken } from '../../../idempotency.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { Live } from '../run/live.ts'
import { type Also, type Canceller, markCancelled, markRuns } from './cancel-marks.ts'
import type * as claims from './claims.ts'
import * as endings from './endings.ts'
import type { Request } from './requests.ts'
import { findDescendants, type RunRef } from './tree.ts'

export type CancelDeps = {
  db: Db
  bus: Bus
  claimDeps: claims.ClaimDeps
  live: Live
  /** Called after a run that was not executing has ended. */
  notifyRunEnded: (ended: endings.Ended) => void
}

/** Cancels runs and their descendants in any process. */
export function createCancel({ db, bus, claimDeps, live, notifyRunEnded }: CancelDeps) {
  /**
   * Ends the run if no process executes it; otherwise marks it, adds it to `marked` and leaves the end to its process.
   * Returns the resulting row if it is final here.
   */
  async function cancelOne(row: RunRef, by: Canceller, marked: string[], also?: Also): Promise<ExecutionRow | null> {
    for (let current = row; current.terminalSeq === null; ) {
      if (current.status === 'pending') {
        const gone = await endings.finishPending(claimDeps, current, endings.CANCELLED, by, also)
        if (gone) {
          notifyRunEnded(gone)
          return gone.execution
        }
      }
      if (await markCancelled(claimDeps, row.id, by, also)) {
        marked.push(row.id)
        return null
      }
      // The run has ended or been suspended meanwhile.
      current = await db.execution.findUniqueOrThrow({ where: { id: row.id } })
    }
    return null
  }

  /**
   * Cancels a run and its descendants on behalf of `by`. Returns the ended run, or null if a process executes it and
   * was asked to stop.
   *
   * All descendants are marked in the same transaction, so that the heartbeat and the sweep find them even if this
   * process or the database fails. A marked run gets no more children. Processes are notified only after all runs are
   * marked, because a run that ends marks its own delegates on behalf of its own user.
   */
  async function cancelTree(row: ExecutionRow, by: Canceller): Promise<ExecutionRow | null> {
    const marked: string[] = []
    try {
      const gone = await cancelOne(row, by, marked, async (tx, now) => {
        const ids = (await findDescendants(tx, row)).map(({ id }) => id)
        if (ids.length) await markRuns(tx, { id: { in: ids } }, by, now)
      })
      const known = new Set<string>()
      for (;;) {
        const found = (await findDescendants(db, row)).filter(({ id }) => !known.has(id))
        if (!found.length) return gone
        for (const descendant of found) {
          known.add(descendant.id)
          await cancelOne(descendant, by, marked)
        }
      }
    } finally {
      if (marked.length) bus.publish('cancel', marked)
    }
  }

  let looking: Promise<void> | null = null

  async function stopMarked(): Promise<void> {
    const where = { terminalSeq: null, status: 'running' as const, leaseOwner: claimDeps.owner, wantsCancel: true }
    for (const { id } of await db.execution.findMany({ where, select: { id: true } })) live.stop(id, 'cancelled')
  }

  return {
    cancelTree,

    /**
     * Returns the active runs of a session, newest first, so that ending one does not start the next. Throws
     * `IdempotencyConflict` if an earlier attempt of this request started one of them, and 403 if the user may not
     * cancel one of them.
     */
    async findBusy(sessionId: string, { actor, key }: Request): Promise<ExecutionRow[]> {
      const where = { sessionId, status: { in: ['pending' as const, 'running' as const] } }
      const busy = await db.execution.findMany({ where, orderBy: { queueSeq: 'desc' } })
      if (key && (await isTaken(db, key))) throw new IdempotencyConflict()
      for (const row of busy) permit(row, row.wantsCancel || row.userId === actor.userId || isAdmin(actor))
      return busy
    },

    /**
     * Stops local runs that were marked while no notifications arrived. Calls share a look that is in progress, so that
     * they do not pile up while the database is silent.
     */
    stopMarked(): Promise<void> {
      looking ??= stopMarked().finally(() => {
        looking = null
      })
      return looking
    },
  }
}
