import type { Db } from '../../../db/client.ts'
import type { Clock } from '../../../lib/clock.ts'
import type { ExecutionRow } from '../events/events.ts'
import { MAX_WAITED } from '../queue/claims.ts'
import { waitedBelow } from '../queue/tree.ts'
import { TimeoutError } from './abort.ts'

/**
 * Stops a run after `timeout` (ms), not counting the time in which it or its delegates waited for approvals. A run that
 * waited longer than can be recorded restarts with the full time. Returns a function that stops the timer.
 */
export function limitTime(
  { db, clock }: { db: Db; clock: Clock },
  row: ExecutionRow,
  controller: AbortController,
  timeout: number,
): () => void {
  const now = clock.now().getTime()
  const since = row.waitedMs < MAX_WAITED ? (row.startedAt ?? row.createdAt).getTime() + row.waitedMs : now
  let isStopped = false
  let granted = 0
  const expire = async () => {
    const waited = await waitedBelow(db, row, clock.now()).catch(() => 0)
    if (isStopped) return
    if (waited <= granted)
      return controller.abort(new TimeoutError(`The run took longer than ${timeout / 1000} s (EXECUTION_TIMEOUT)`))
    timer = setTimeout(expire, waited - granted)
    granted = waited
  }
  let timer = setTimeout(expire, Math.max(0, since + timeout - now))
  return () => {
    isStopped = true
    clearTimeout(timer)
  }
}
