// What others have sent, and may be anything.

export type Fields = Readonly<Record<string, unknown>>

/** Whether it is an object as JSON has them: neither a list nor null. */
export const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** What has fields, as it is; anything else as an object without any. */
export const asObject = (value: unknown): Fields =>
  typeof value === 'object' && value !== null ? (value as Fields) : {}

/** A text as it is; anything else as none. */
export const asText = (value: unknown): string => (typeof value === 'string' ? value : '')

/** A list as it is; anything else as an empty one. */
export const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])
