import { setImmediate } from 'node:timers/promises'
import type { Db } from '../../../db/client.ts'
import { joinSegments } from './events.ts'

/** How many runs may wait for it: of more than so many the events stay as they lie. */
const MAX_WAITING = 10_000
/** How many are done in one transaction. */
const BATCH = 20

/**
 * Puts together what ended runs have said in many small segments: rows and their indexes cost more than the few words in
 * each, and what was said slowly would take a multiple of its size. Not when the run ends, since a burst of runs ends
 * together and each has somebody who waits for it. What a process has not come to when it dies costs some space.
 */
export function createCompaction(db: Db) {
  const waiting = new Set<string>()
  return {
    add(executionId: string): void {
      if (waiting.size < MAX_WAITING) waiting.add(executionId)
    },
    /** Does it for all that wait, with turns for everybody else between. Runs whose batch fails stay in line. */
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
