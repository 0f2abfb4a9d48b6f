import { isAdmin, permit } from '../../../auth/actor.ts'
import type { Bus } from '../../../bus/index.ts'
import type { Db } from '../../../db/client.ts'
import { isTaken, KeyTaken } from '../../../idempotency.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { Live } from '../run/live.ts'
import type { Request } from './accept.ts'
import type * as claims from './claims.ts'
import * as endings from './endings.ts'
import { findDescendants, type Standing } from './tree.ts'

export type CancelDeps = {
  db: Db
  bus: Bus
  claimDeps: claims.ClaimDeps
  live: Live
  /** What is to be done once a run has ended that was not on. */
  afterwards: (ended: endings.Ended) => void
}

/** Cancels runs and what they have started, wherever they are on. */
export function createCancel({ db, bus, claimDeps, live, afterwards }: CancelDeps) {
  /**
   * Ends it here if it does not run; otherwise marks it, and it is one of the `marked`, for whoever runs it. What it then
   * is, once that is known here.
   */
  async function cancelOne(
    row: Standing,
    by: endings.Canceller,
    marked: string[],
    also?: Parameters<typeof endings.markCancelled>[3],
  ): Promise<ExecutionRow | null> {
    for (let current = row; current.terminalSeq === null; ) {
      if (current.status === 'pending') {
        const gone = await endings.finishPending(claimDeps, current, endings.CANCELLED, by, also)
        if (gone) {
          afterwards(gone)
          return gone.execution
        }
      }
      if (await endings.markCancelled(claimDeps, row.id, by, also)) {
        marked.push(row.id)
        return null
      }
      // It has ended, or begun to wait.
      current = await db.execution.findUniqueOrThrow({ where: { id: row.id } })
    }
    return null
  }

  /**
   * Cancels a run and its descendants, on somebody's word. What the run then is, where it did not run; null where whoever
   * runs it has been told to stop. What there is below it is marked in the same transaction: should this process or the
   * database go away, the heartbeat and the sweep come to it. A marked run gets no more children. They are told once all
   * are marked: the end of one would mark those that it waits for itself, on its own user's word.
   */
  async function cancelTree(row: ExecutionRow, by: endings.Canceller): Promise<ExecutionRow | null> {
    const marked: string[] = []
    try {
      const gone = await cancelOne(row, by, marked, async (tx, now) => {
        const ids = (await findDescendants(tx, row)).map(({ id }) => id)
        if (ids.length) await endings.markRuns(tx, { id: { in: ids } }, by, now)
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

  return {
    cancelTree,

    /**
     * What a session has under way, the last first, lest the end of one begins the next. Throws `KeyTaken` where this
     * request itself, made before, has begun it, and 403 where one of the runs is not this user's to cancel.
     */
    async findBusy(sessionId: string, { actor, key }: Request): Promise<ExecutionRow[]> {
      const where = { sessionId, status: { in: ['pending' as const, 'running' as const] } }
      const busy = await db.execution.findMany({ where, orderBy: { queueSeq: 'desc' } })
      if (key && (await isTaken(db, key))) throw new KeyTaken()
      for (const row of busy) permit(row, row.wantsCancel || row.userId === actor.userId || isAdmin(actor))
      return busy
    },

    /** Stops what runs here and was marked while notices did not arrive. */
    async stopMarked(): Promise<void> {
      const where = { terminalSeq: null, status: 'running' as const, leaseOwner: claimDeps.owner, wantsCancel: true }
      for (const { id } of await db.execution.findMany({ where, select: { id: true } })) live.stop(id, 'cancelled')
    },
  }
}
