import { isDeepStrictEqual } from 'node:util'

/** Of what a PATCH says, what differs from the row. What it does not say (undefined) stays. */
export const changesTo = <Row extends object>(row: Row, said: { [Field in keyof Row]?: Row[Field] | undefined }) =>
  Object.fromEntries(
    Object.entries(said).filter(
      ([field, value]) => value !== undefined && !isDeepStrictEqual(value, row[field as keyof Row]),
    ),
  ) as Partial<Row>

export const isEmpty = (changes: object): boolean => Object.keys(changes).length === 0
