import type { Bus } from '../../../bus/index.ts'

/** Interval at which waiters check again in case a notice was lost (ms). */
const LOOK_AGAIN = 5_000

export type Notices = {
  /** Waits from now on: `happened` resolves at the next notice of the id, when the signal aborts, or after 5 s. */
  expect(id: string, signal: AbortSignal): Disposable & { happened: Promise<void> }
  stop(): void
}

/** Shares one subscription among all waiters for executions, or for chats. */
export function createNotices(bus: Bus, channel: 'execution' | 'chat' = 'execution'): Notices {
  const waiting = new Map<string, Set<() => void>>()
  const stop = bus.subscribe(channel, (ids) => {
    for (const id of ids ?? waiting.keys()) for (const wake of waiting.get(id) ?? []) wake()
  })
  return {
    stop,
    expect(id, signal) {
      const { promise, resolve } = Promise.withResolvers<void>()
      const wakes = waiting.get(id) ?? new Set()
      waiting.set(id, wakes.add(resolve))
      const timer = setTimeout(resolve, LOOK_AGAIN)
      const abort = () => resolve()
      signal.addEventListener('abort', abort)
      if (signal.aborted) abort()
      return {
        happened: promise,
        [Symbol.dispose]() {
          clearTimeout(timer)
          signal.removeEventListener('abort', abort)
          wakes.delete(resolve)
          if (!wakes.size && waiting.get(id) === wakes) waiting.delete(id)
        },
      }
    },
  }
}
