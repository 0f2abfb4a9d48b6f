/** What the promise gives, or undefined if the signal aborts before. */
export function unlessAborted<T>(promise: Promise<T> | undefined, signal: AbortSignal): Promise<T | undefined> {
  const { promise: aborted, resolve } = Promise.withResolvers<undefined>()
  const abort = () => resolve(undefined)
  signal.addEventListener('abort', abort)
  if (signal.aborted) abort()
  return Promise.race([promise, aborted]).finally(() => signal.removeEventListener('abort', abort))
}
