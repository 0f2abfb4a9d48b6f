/** Returns a text of a field, which has \n only, with the line ends of the text that was in the field before. */
export const withLineEnds = (before: string, text: string): string =>
  /^[^\n]*\r\n/.test(before) ? text.replace(/\r?\n/g, '\r\n') : text
