import type { Bus, Handler, Notices } from './index.ts'

export type LocalBus = Bus & {
  /** Makes all subscribers check everything. */
  notifyAll(): void
}

/** Creates a bus within one process: handlers run before `publish` returns. */
export function createLocalBus(): LocalBus {
  const handlers: { [Channel in keyof Notices]: Set<Handler> } = {
    execution: new Set(),
    cancel: new Set(),
    token: new Set(),
    task: new Set(),
    chat: new Set(),
    approval: new Set(),
    pending: new Set(),
    provider: new Set(),
    skill: new Set(),
    file: new Set(),
    webhook: new Set(),
  }
  return {
    publish(channel, ids) {
      // A server of another version may use a channel unknown to this one.
      for (const handler of handlers[channel] ?? []) handler(ids)
    },
    subscribe(channel, handler) {
      handlers[channel].add(handler)
      return () => handlers[channel].delete(handler)
    },
    notifyAll() {
      for (const channel of Object.values(handlers)) for (const handler of channel) handler(null)
    },
  }
}
