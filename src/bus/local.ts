import type { Bus, Notices } from './index.ts'

/** A bus within one process: handlers run before `publish` returns. */
export function createLocalBus(): Bus {
  const handlers: { [Channel in keyof Notices]: Set<(ids: readonly string[]) => void> } = {
    execution: new Set(),
    cancel: new Set(),
    token: new Set(),
  }
  return {
    publish(channel, ids) {
      for (const handler of handlers[channel]) handler(ids)
    },
    subscribe(channel, handler) {
      handlers[channel].add(handler)
      return () => handlers[channel].delete(handler)
    },
  }
}
