/**
 * Returns a function that calls `make` at its first call, and returns that promise at each. A first call that is early
 * (`isEarly`) is repeated by the first later one that is not. It then forgets `make`, because an open stream would
 * retain all that its request needed.
 */
export const once = <T>(make: () => Promise<T>, isEarly: () => boolean): (() => Promise<T>) => {
  let due: (() => Promise<T>) | null = make
  let made: Promise<T> | undefined
  return () => {
    const isDone = !isEarly()
    if (due && (isDone || !made)) made = due()
    if (isDone) due = null
    return made!
  }
}

/**
 * Returns a function that calls `make` at its first call, and again after a failure, and otherwise returns the same
 * promise. An import fails if the process has no file descriptor left, and succeeds a moment later.
 */
export const onceDone = <T>(make: () => Promise<T>): (() => Promise<T>) => {
  let made: Promise<T> | undefined
  return () =>
    (made ??= make().catch((error) => {
      made = undefined
      throw error
    }))
}
