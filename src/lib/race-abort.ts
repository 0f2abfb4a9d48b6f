/** Resolves with the promise's value, or with undefined if one of the signals aborts first. */
export function raceAbort<T>(
  promise: Promise<T> | undefined,
  ...signals: readonly AbortSignal[]
): Promise<T | undefined> {
  const { promise: aborted, resolve } = Promise.withResolvers<undefined>()
  const abort = () => resolve(undefined)
  for (const signal of signals) signal.addEventListener('abort', abort)
  if (signals.some((signal) => signal.aborted)) abort()
  return Promise.race([promise, aborted]).finally(() => {
    for (const signal of signals) signal.removeEventListener('abort', abort)
  })
}
