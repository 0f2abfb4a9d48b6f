import { runInNewContext } from 'node:vm'
import { asObject } from './unknown.ts'

/** Maximum number of tries that other programs may slow down. */
const MAX_TRIES = 5

/** Returns whether {@link runInTime} interrupted its work. */
export const isOutOfTime = (error: unknown): boolean => asObject(error).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT'

/**
 * Runs synchronous work with a time limit (ms), which only a script can have. Throws what the work throws, or an error
 * for {@link isOutOfTime}. The limit is of the clock, so work that had the processor for less than half of it runs
 * again: the machine is busy with other programs. `onInterrupted` is called after each interruption.
 */
export function runInTime<T>(limit: number, work: () => T, onInterrupted?: () => void): T {
  for (let tries = 1; ; tries += 1) {
    const before = process.threadCpuUsage()
    try {
      return runInNewContext('work()', { work }, { timeout: limit }) as T
    } catch (error) {
      if (!isOutOfTime(error)) throw error
      onInterrupted?.()
      const { user, system } = process.threadCpuUsage(before)
      if (user + system >= (limit / 2) * 1000 || tries === MAX_TRIES) throw error
    }
  }
}
