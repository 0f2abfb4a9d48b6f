/** Minimum time between two reports of a task that continues to fail (ms). */
const INTERVAL = 60_000

/**
 * Returns a function that watches the executions of a periodic task. It reports the first failure, and the latest once a
 * minute until an execution succeeds, because an outage would otherwise fill the log several times a second. Callers
 * may share an execution.
 */
export function watchTask(report: (error: unknown) => void): (execution: Promise<unknown>) => Promise<void> {
  let reportedAt = Number.NEGATIVE_INFINITY
  return (execution) =>
    execution.then(
      () => {
        reportedAt = Number.NEGATIVE_INFINITY
      },
      (error) => {
        const now = performance.now()
        if (now - reportedAt < INTERVAL) return
        reportedAt = now
        report(error)
      },
    )
}
