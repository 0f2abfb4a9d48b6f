export type Registry<K extends string | number, V> = {
  readonly size: number
  get(key: K): V | undefined
  has(key: K): boolean
  set(key: K, value: V): void
  /** Returns whether the key was there. */
  delete(key: K): boolean
  /** Returns the values of this moment, in no certain order. */
  values(): V[]
}

/**
 * Creates a map for short-lived values that a long-lived owner holds, such as open responses and running runs.
 *
 * V8 copies a `Map` or `Set` after some tens of changes. The abandoned copy often lies in the old space, where it keeps
 * its entries alive, with everything they refer to, until the next full collection. Here only keys are in a map, and
 * the values in an array that is changed in place (row `runs` of the benchmark).
 */
export function createRegistry<K extends string | number, V>(): Registry<K, V> {
  const places = new Map<K, number>()
  const keys: K[] = []
  const values: V[] = []
  return {
    get size() {
      return values.length
    },
    get(key) {
      const place = places.get(key)
      return place === undefined ? undefined : values[place]
    },
    has: (key) => places.has(key),
    set(key, value) {
      const place = places.get(key) ?? values.length
      places.set(key, place)
      keys[place] = key
      values[place] = value
    },
    delete(key) {
      const place = places.get(key)
      if (place === undefined) return false
      places.delete(key)
      // The last one moves to the free place.
      const lastKey = keys.pop()!
      const last = values.pop()!
      if (place < values.length) {
        places.set(lastKey, place)
        keys[place] = lastKey
        values[place] = last
      }
      return true
    },
    values: () => [...values],
  }
}
