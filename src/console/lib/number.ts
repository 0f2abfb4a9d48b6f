/**
 * Reads the number of a field; undefined if the field is empty. Returns a text that is none as it is: the API refuses
 * it.
 */
export const toNumber = (text: string): number | undefined =>
  text.trim() === '' ? undefined : Number.isFinite(Number(text)) ? Number(text) : (text as never)
