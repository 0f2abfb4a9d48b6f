import { throwRefusal } from '../errors.ts'
import type { Bus, Notices } from './index.ts'

/**
 * Yields the ids published on a channel until the signal aborts; null if some may have been missed. For a slow consumer
 * they are merged, each id once.
 */
export async function* changes(
  bus: Bus,
  channel: keyof Notices,
  signal: AbortSignal,
): AsyncGenerator<readonly string[] | null> {
  const waiting = new Set<string>()
  let missed = false
  let wake = () => {}
  const stop = bus.subscribe(channel, (ids) => {
    for (const id of ids ?? []) waiting.add(id)
    missed ||= ids === null
    wake()
  })
  const abort = () => wake()
  signal.addEventListener('abort', abort)
  try {
    while (!signal.aborted) {
      if (missed || waiting.size) {
        const told = missed ? null : [...waiting]
        waiting.clear()
        missed = false
        yield told
      } else {
        const { promise, resolve } = Promise.withResolvers<void>()
        wake = resolve
        await promise
      }
    }
    throwRefusal(signal)
  } finally {
    stop()
    signal.removeEventListener('abort', abort)
  }
}
