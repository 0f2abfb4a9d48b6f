/** Why a run is stopped from outside. */
export class Stop extends Error {
  readonly why: 'cancelled' | 'lost' | 'drained'
  constructor(why: Stop['why']) {
    super(why)
    this.why = why
  }
}

/** The model said nothing for too long, or the whole run took too long (contract.md section 4, "Time"). */
export class TimeoutError extends Error {
  override name = 'TimeoutError'
}

/** What the promise gives, or undefined if the signal aborts before. */
export function unlessAborted<T>(promise: Promise<T> | undefined, signal: AbortSignal): Promise<T | undefined> {
  const { promise: aborted, resolve } = Promise.withResolvers<undefined>()
  const abort = () => resolve(undefined)
  signal.addEventListener('abort', abort)
  if (signal.aborted) abort()
  return Promise.race([promise, aborted]).finally(() => signal.removeEventListener('abort', abort))
}
