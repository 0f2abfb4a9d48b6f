/** Cuts a text of more characters than told, and says so. */
export function cut(text: string, length: number): string {
  const end = endOf(text, length)
  return end === text.length ? text : `${text.slice(0, end)}…`
}

/** The first characters of a text. */
export const beginning = (text: string, length: number): string => text.slice(0, endOf(text, length))

/** Where so many characters of a text end, from an index on. They are code points, as in all limits. */
export function endOf(text: string, length: number, from = 0): number {
  if (text.length - from <= length) return text.length
  let end = from
  for (let left = length; left > 0 && end < text.length; left--) end += (text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1
  return end
}

/** Texts shorter than this (characters) are left as they are. */
const SHORT = 128

/**
 * A text with more at its end. V8 keeps what was put together as a tree of its pieces, six times as large as the text where
 * they are tokens, until somebody searches it: here that is done whenever it has grown by an eighth.
 */
export function concat(text: string, more: string): string {
  const whole = text + more
  const step = Math.max(SHORT, 2 ** (28 - Math.clz32(whole.length)))
  if (Math.floor(whole.length / step) > Math.floor(text.length / step)) ANYTHING.test(whole)
  return whole
}

const ANYTHING = /^/
