/**
 * Returns the fields that differ from their first values. A form saves only these, and so leaves alone what another
 * person or an agent has changed meanwhile.
 */
export const changedFields = <Fields extends object>(first: Fields, fields: Fields): Partial<Fields> =>
  Object.fromEntries(
    Object.entries(fields).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(first[name as keyof Fields]),
    ),
  ) as Partial<Fields>
