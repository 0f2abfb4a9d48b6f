import { isDeepStrictEqual } from 'node:util'

/** The fields of a PATCH that are given: the others are undefined. */
export const given = <Said extends object>(said: Said) =>
  Object.fromEntries(Object.entries(said).filter(([, value]) => value !== undefined)) as {
    [Field in keyof Said]?: Exclude<Said[Field], undefined>
  }

/**
 * Whether a PATCH says of a row what is not so already. All that it says is written then, not only what differs: somebody
 * else may be changing the row.
 */
export const isNews = <Row extends object>(
  row: Row,
  said: { [Field in keyof Row]?: Row[Field] | undefined },
): boolean => Object.entries(said).some(([field, value]) => !isDeepStrictEqual(value, row[field as keyof Row]))
