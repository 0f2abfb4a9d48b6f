import { setTimeout as sleep } from 'node:timers/promises'
import { isUnavailable } from '../../../lib/database-errors.ts'

const RETRY_INTERVAL = 500

/**
 * Retries a task while the database is unavailable, until the signal aborts. Calls `again` with the error before the
 * first retry.
 */
export async function retryWhileUnavailable<T>(
  task: () => Promise<T>,
  signal: AbortSignal,
  again: (error: unknown) => void = () => {},
): Promise<T> {
  for (let isFirst = true; ; isFirst = false) {
    try {
      return await task()
    } catch (error) {
      if (!isUnavailable(error) || signal.aborted) throw error
      if (isFirst) again(error)
      await sleep(RETRY_INTERVAL)
    }
  }
}
