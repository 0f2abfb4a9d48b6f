import { isDeepStrictEqual } from 'node:util'

/** Returns the given fields of a PATCH, without undefined ones. */
export const omitUndefined = <Said extends object>(said: Said) =>
  Object.fromEntries(Object.entries(said).filter(([, value]) => value !== undefined)) as {
    [Field in keyof Said]?: Exclude<Said[Field], undefined>
  }

/**
 * Returns whether a PATCH changes a row. If so, all of its fields are written rather than only the differing ones,
 * because the row may change concurrently.
 */
export const hasChanges = <Row extends object>(
  row: Row,
  said: { [Field in keyof Row]?: Row[Field] | undefined },
): boolean => Object.entries(said).some(([field, value]) => !isDeepStrictEqual(value, row[field as keyof Row]))
