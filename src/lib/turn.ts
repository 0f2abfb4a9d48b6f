import { setImmediate } from 'node:timers/promises'

let reading: Promise<void> | null = null

/**
 * Resolves when all that has come for this process in this turn of the event loop has been read, for everybody who waits
 * for it together. Who does the same thing then does it side by side: the code that one has run is at hand for the next,
 * what they write goes out in one go, and those who wait for their answers send what comes next in one go, too.
 */
export const allRead = (): Promise<void> =>
  (reading ??= setImmediate().then(() => {
    reading = null
  }))
