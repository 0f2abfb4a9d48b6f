/** Maximum nesting of lists and objects in JSON (levels): deeper values would exceed the stack when they are written. */
export const MAX_NESTING = 64

/** Returns whether lists and objects of a value are nested more than `left` levels deep. */
export const isNested = (value: unknown, left = MAX_NESTING): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (left === 0 || Object.values(value).some((inner) => isNested(inner, left - 1)))

/** Parses JSON. Returns undefined if the text is not valid. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Serializes JSON with sorted keys, so that equal inputs have equal texts. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    part && typeof part === 'object' && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  )
}
