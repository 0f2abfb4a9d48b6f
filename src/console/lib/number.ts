/**
 * Reads the number of a field; undefined if the field is empty. Returns a text that is none as it is: the API refuses
 * it.
 */
export const toNumber = (text: string): number | undefined =>
  text.trim() === '' ? undefined : Number.isFinite(Number(text)) ? Number(text) : (text as never)

/** Like {@link toNumber}, of a field for a fraction: many languages, and so their keyboards of phones, have a comma. */
export const toFraction = (text: string): number | undefined => toNumber(text.replace(/^(\s*\d*),(?=\d+\s*$)/, '$1.'))
