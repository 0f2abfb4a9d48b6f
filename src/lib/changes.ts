import { isDeepStrictEqual } from 'node:util'

/** Returns the given fields of a PATCH, without undefined ones. */
export const omitUndefined = <Fields extends object>(fields: Fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [Field in keyof Fields]?: Exclude<Fields[Field], undefined>
  }

/**
 * Returns whether a PATCH changes a row. If so, all of its fields are written rather than only the differing ones,
 * because the row may change concurrently.
 */
export const hasChanges = <Row extends object>(
  row: Row,
  changes: { [Field in keyof Row]?: Row[Field] | undefined },
): boolean => Object.entries(changes).some(([field, value]) => !isDeepStrictEqual(value, row[field as keyof Row]))
