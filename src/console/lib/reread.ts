import type { QueryClient, QueryFilters } from '@tanstack/react-query'

/**
 * Reads queries again after a change. A first answer that is still coming may be older than the change. TanStack Query
 * would take it for the new one, so those queries are read once more after it.
 */
export async function reread(cache: QueryClient, filters: QueryFilters): Promise<void> {
  const first = cache
    .getQueryCache()
    .findAll(filters)
    .filter(({ state }) => state.data === undefined && state.fetchStatus === 'fetching')
  await cache.invalidateQueries(filters)
  if (first.length) await cache.invalidateQueries({ predicate: (query) => first.includes(query) })
}

/**
 * Returns a function that does some work, and once more if it is called meanwhile. On a slow network a request for each
 * change would wait behind those of the changes before.
 */
export function inTurn(work: () => Promise<unknown>): () => Promise<void> {
  let isAsked = false
  let isWorking = false
  return async () => {
    isAsked = true
    if (isWorking) return
    isWorking = true
    while (isAsked) {
      isAsked = false
      await work()
    }
    isWorking = false
  }
}
