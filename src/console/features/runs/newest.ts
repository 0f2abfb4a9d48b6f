/** The part of a run by which the list is sorted: the newest first, later ids before earlier ones. */
type Sorted = { id: string; createdAt: string }

const isNewer = (one: Sorted, other: Sorted) =>
  one.createdAt === other.createdAt ? one.id > other.id : one.createdAt > other.createdAt

/**
 * Adds the newest runs, which are read often, to the loaded ones. Leaves out a loaded run that is missing among the
 * newest: it has changed, and fits the filter of both no more.
 */
export function withNewest<Run extends Sorted>(
  loaded: readonly Run[],
  newest: { executions: readonly Run[]; nextCursor: string | null } | undefined,
): Run[] {
  if (!newest) return [...loaded]
  const [first, last] = [newest.executions[0], newest.executions.at(-1)]
  // A run that is newer still has begun meanwhile.
  const isBeside = (run: Run) =>
    (first && isNewer(run, first)) || (newest.nextCursor !== null && last && isNewer(last, run))
  return [...newest.executions, ...loaded.filter(isBeside)].sort((a, b) => (isNewer(a, b) ? -1 : 1))
}
