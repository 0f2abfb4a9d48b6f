import type { GraphQLResolveInfo } from 'graphql'
import { MAX_IN } from '../db/fast-path/index.ts'
import { inParts } from '../lib/parts.ts'
import type { GraphQLContext } from './builder.ts'
import { addTo } from './limits.ts'

type Batch = { keys: Set<string>; found: Promise<ReadonlyMap<string, unknown>> }

const batches = new WeakMap<GraphQLContext, Map<string, Batch>>()

/**
 * Finds what belongs to a row, together with what belongs to the other rows at the same place of the answer: `find` is
 * called once, with the keys of them all, or once for every thousand. Null for a key it does not find. Throws where the
 * answer would be too long.
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
      for (const part of inParts([...keys], MAX_IN)) {
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

/** A place for what several fields of a row share. No field of the answer can be called so. */
export const beside = (info: GraphQLResolveInfo, key: string): Pick<GraphQLResolveInfo, 'path'> => ({
  path: { ...info.path, key: `(${key})` },
})

/** The rows of a list share it: the path without the positions in lists. */
function placeOf(path: GraphQLResolveInfo['path'] | undefined): string {
  if (!path) return ''
  return typeof path.key === 'number' ? placeOf(path.prev) : `${placeOf(path.prev)}.${path.typename}.${path.key}`
}

/** Once all promises that are settled by now have called on their resolvers: ticks come after them. */
const allAsked = () => Promise.resolve().then(() => new Promise<void>((resolve) => process.nextTick(resolve)))
