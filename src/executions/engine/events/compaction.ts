import { setImmediate } from 'node:timers/promises'
import type { Db } from '../../../db/client.ts'
import { joinSegments } from './events.ts'

/** Maximum number of runs that wait for compaction. Further ones keep their segments. */
const MAX_WAITING = 10_000
/** Number of runs per transaction. */
const BATCH = 20

/**
 * Merges the small text segments of ended runs, because a row with its indexes costs more than its few words. Runs
 * after the end of the run: bursts of runs end together, and their callers wait. If the process dies, waiting runs keep
 * their segments.
 */
export function createCompaction(db: Db) {
  const waiting = new Set<string>()
  return {
    add(executionId: string): void {
      if (waiting.size < MAX_WAITING) waiting.add(executionId)
    },
    /**
     * Compacts all waiting runs, and yields to the event loop between batches. Runs of a failed batch stay in the
     * queue.
     */
    async run(): Promise<void> {
      while (waiting.size) {
        const batch = [...waiting].slice(0, BATCH)
        await db.$transaction(async (tx) => {
          for (const id of batch) await joinSegments(tx, id)
        })
        for (const id of batch) waiting.delete(id)
        await setImmediate()
      }
    },
  }
}
