type Line = { busy: number; waiting: (() => void)[] }

/**
 * Executes the work of each key in order of arrival, with at most `most` in progress. An aborted waiter throws the
 * signal's reason in its turn.
 */
export function createQueues(most: number) {
  const lines = new Map<string, Line>()
  return async <T>(key: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> => {
    const line = lines.get(key) ?? { busy: 0, waiting: [] }
    lines.set(key, line)
    if (line.busy < most) line.busy++
    else await new Promise<void>((resolve) => line.waiting.push(resolve))
    try {
      signal.throwIfAborted()
      return await work()
    } finally {
      const next = line.waiting.shift()
      if (next) next()
      else if (--line.busy === 0) lines.delete(key)
    }
  }
}
