import { setTimeout as sleep } from 'node:timers/promises'
import { isUnavailable } from '../../../lib/database-errors.ts'

const RETRY_INTERVAL = 500

/** Does a task again for as long as the database is away, or until the signal aborts. `again` is told why, each time. */
export async function outlast<T>(
  task: () => Promise<T>,
  signal: AbortSignal,
  again: (error: unknown) => void = () => {},
): Promise<T> {
  for (;;) {
    try {
      return await task()
    } catch (error) {
      if (!isUnavailable(error) || signal.aborted) throw error
      again(error)
      await sleep(RETRY_INTERVAL)
    }
  }
}
