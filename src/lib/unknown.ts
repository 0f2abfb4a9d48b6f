// An object of unknown origin.

export type Fields = Readonly<Record<string, unknown>>

/** Returns whether a value is an object in the sense of JSON: neither a list nor null. */
export const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Shared empty values, because the models' readers ask for absent fields many times per token. */
const NO_FIELDS: Fields = Object.freeze({})
const NO_ENTRIES: readonly unknown[] = Object.freeze([])

/** Returns an object unchanged, and an empty object for anything else. */
export const asObject = (value: unknown): Fields =>
  typeof value === 'object' && value !== null ? (value as Fields) : NO_FIELDS

/** Returns a text unchanged, and an empty text for anything else. */
export const asText = (value: unknown): string => (typeof value === 'string' ? value : '')

/** Returns a list unchanged, and an empty list for anything else. */
export const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : NO_ENTRIES)

/**
 * Returns the entries of a list, also of one that a server has written as an object: its only entry, or its entries by
 * their numbers, as PHP does for a list with gaps.
 */
export const asEntries = (value: unknown): readonly unknown[] => {
  if (!isObject(value)) return asList(value)
  return Object.keys(value).every((key) => /^\d+$/.test(key)) ? Object.values(value) : [value]
}

/** Returns an object without its null fields, which then count as absent. */
export const withoutNull = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))
