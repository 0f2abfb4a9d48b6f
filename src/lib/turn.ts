import { setImmediate } from 'node:timers/promises'

let reading: Promise<void> | null = null

/**
 * Resolves when all that has come for this process in this turn of the event loop has been read, for everybody who waits
 * for it together. What they then do they do one after the other: the code that one has run is at hand for the next,
 * what they write to the database shares a commit, and those who are answered together send what comes next together.
 */
export const allRead = (): Promise<void> =>
  (reading ??= setImmediate().then(() => {
    reading = null
  }))
