import { setImmediate } from 'node:timers/promises'

/** Maximum time that requests wait while connections arrive (ms). */
const MAX_WAIT = 50

let hasConnected = false
let reading: Promise<void> | null = null

/** Called for each new connection. */
export function connected(): void {
  hasConnected = true
}

/**
 * Resolves when all input that arrived in this event loop turn has been read, for all waiting requests together. They
 * then run one after another: code stays warm, database writes share a commit, and clients that are answered together
 * send their next requests together.
 *
 * Each turn accepts one new connection, which is read in the next turn. While connections arrive, existing requests
 * wait for them; otherwise the long turns of the first requests in a burst would delay the last connections by seconds.
 */
export const nextReadBatch = (): Promise<void> => (reading ??= readAll())

async function readAll(): Promise<void> {
  const begun = performance.now()
  let more: boolean
  do {
    await setImmediate()
    more = hasConnected
    hasConnected = false
  } while (more && performance.now() - begun < MAX_WAIT)
  reading = null
}
