/** Splits a list into parts of at most `size` elements. */
export function* chunk<T>(list: readonly T[], size: number): Generator<T[]> {
  for (let from = 0; from < list.length; from += size) yield list.slice(from, from + size)
}
