import type { ExecutionEvent } from '../executions/engine/events/events.ts'
import type { Run } from './position.ts'

type Batch = { run: Run; events: readonly ExecutionEvent[] }

/**
 * Merges the events of several runs. Each run waits until its events were taken, so that a slow reader leaves them in
 * the database.
 */
export function createChannel() {
  const waiting: (Batch & { taken: () => void })[] = []
  let failure: { error: unknown } | null = null
  let isClosed = false
  let before = Promise.resolve()
  let wake = () => {}

  async function pump(run: Run, batches: AsyncIterable<readonly ExecutionEvent[]>): Promise<void> {
    for await (const events of batches) {
      if (isClosed) return
      const { promise, resolve } = Promise.withResolvers<void>()
      waiting.push({ run, events, taken: resolve })
      wake()
      await promise
    }
  }

  return {
    carry(run: Run, batches: AsyncIterable<readonly ExecutionEvent[]>): void {
      // Ended runs are sent one after the other.
      const turn = run.terminalSeq === null ? Promise.resolve() : before
      const done = turn
        .then(() => pump(run, batches))
        .catch((error) => {
          failure ??= { error }
          wake()
        })
      if (run.terminalSeq !== null) before = done
    },
    /** Returns an object that makes {@link take} return early once the promise resolves. */
    until(happened: Promise<void>): { isOver: boolean } {
      const news = { isOver: false }
      void happened.then(() => {
        news.isOver = true
        wake()
      })
      return news
    },
    /** Returns the next batch, or null once there is news. Throws the error of a run. */
    async take(news: { isOver: boolean }): Promise<Batch | null> {
      while (!news.isOver) {
        if (failure) throw failure.error
        const batch = waiting.shift()
        batch?.taken()
        if (batch) return batch
        const { promise, resolve } = Promise.withResolvers<void>()
        wake = resolve
        await promise
      }
      return null
    },
    close(): void {
      isClosed = true
      for (const { taken } of waiting) taken()
    },
  }
}
