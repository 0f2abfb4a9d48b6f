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

/** Resolves with the promise's value, or with undefined if it takes longer than `limit` (ms). */
export function raceTimeout<T>(promise: Promise<T>, limit: number): Promise<T | undefined> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>()
  const timer = setTimeout(resolve, limit)
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** Resolves or rejects like the promise, or rejects with the signal's reason if that comes first. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort)
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
