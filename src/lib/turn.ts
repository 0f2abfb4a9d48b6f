import { setImmediate } from 'node:timers/promises'

/** For so long (ms) requests wait at most while connections come in. */
const MAX_WAIT = 50

let hasConnected = false
let reading: Promise<void> | null = null

/** Told of each connection that comes. */
export function connected(): void {
  hasConnected = true
}

/**
 * Resolves when all that has come for this process in this turn of the event loop has been read, for everybody who waits
 * for it together. What they then do they do one after the other: the code that one has run is at hand for the next,
 * what they write to the database shares a commit, and those who are answered together send what comes next together.
 *
 * A turn takes in one new connection, which is read in the next. While some come, those who are there wait for them: what
 * the first of a burst have begun makes each turn long, and the last would be let in seconds later.
 */
export const allRead = (): Promise<void> => (reading ??= readAll())

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
