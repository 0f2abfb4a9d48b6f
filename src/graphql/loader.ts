import type { GraphQLResolveInfo } from 'graphql'
import { MAX_IN } from '../db/fast-path/index.ts'
import { chunk } from '../lib/chunk.ts'
import type { GraphQLContext } from './builder.ts'
import { addTo } from './limits.ts'

type Batch = { keys: Set<string>; found: Promise<ReadonlyMap<string, unknown>> }

const batches = new WeakMap<GraphQLContext, Map<string, Batch>>()

/**
 * Loads the row of a key together with those of other rows at the same place of the response: calls `find` once per
 * thousand keys. Returns null for a key without a row. Throws if the response becomes too long.
 */
export async function loadOne<Found>(
  context: GraphQLContext,
  info: Pick<GraphQLResolveInfo, 'path'>,
  key: string,
  find: (keys: string[]) => Promise<ReadonlyMap<string, Found>>,
): Promise<Found | null> {
  const open = batches.get(context) ?? new Map<string, Batch>()
  batches.set(context, open)
  const place = placeOf(info.path)
  let batch = open.get(place)
  if (!batch) {
    const keys = new Set<string>()
    const found = allAsked().then(async () => {
      open.delete(place)
      const all = new Map<string, unknown>()
      for (const part of chunk([...keys], MAX_IN)) {
        for (const [key, one] of await find(part)) {
          addTo(context.answer, one)
          all.set(key, one)
        }
      }
      return all
    })
    batch = { keys, found }
    open.set(place, batch)
  }
  batch.keys.add(key)
  return ((await batch.found).get(key) as Found | undefined) ?? null
}

/** Returns a batching place that several fields of a row share. No field of the response can have this name. */
export const batchScope = (info: GraphQLResolveInfo, key: string): Pick<GraphQLResolveInfo, 'path'> => ({
  path: { ...info.path, key: `(${key})` },
})

/** Returns the path without list positions, which all rows of a list share. */
function placeOf(path: GraphQLResolveInfo['path'] | undefined): string {
  if (!path) return ''
  return typeof path.key === 'number' ? placeOf(path.prev) : `${placeOf(path.prev)}.${path.typename}.${path.key}`
}

/** Resolves after all settled promises have called their resolvers, because ticks come after promise callbacks. */
const allAsked = () => Promise.resolve().then(() => new Promise<void>((resolve) => process.nextTick(resolve)))
