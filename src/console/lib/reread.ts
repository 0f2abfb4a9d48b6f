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
