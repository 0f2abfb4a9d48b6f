/** Cuts a text at `length` characters and marks the cut. */
export function cut(text: string, length: number): string {
  const end = endOf(text, length)
  return end === text.length ? text : `${text.slice(0, end)}…`
}

/** Returns the first characters of a text. */
export const beginning = (text: string, length: number): string => text.slice(0, endOf(text, length))

/** Returns the index after `length` characters, from an index on. Characters are code points, as in all limits. */
export function endOf(text: string, length: number, from = 0): number {
  if (text.length - from <= length) return text.length
  let end = from
  for (let left = length; left > 0 && end < text.length; left--) end += (text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1
  return end
}

/** Returns whether a character is a grapheme of its own beside another such one: Latin letters, signs and blanks. */
const isPlain = (code: number): boolean => code >= 0x20 && code < 0x300

let graphemes: Intl.Segmenter | undefined

/**
 * Returns the beginning of a text, at most `length` code points long, cut between graphemes: an emoji or a letter with
 * its accents stays whole. A single grapheme that is longer is cut.
 */
export function beginningWhole(text: string, length: number): string {
  const end = endOf(text, length)
  if (end === text.length) return text
  if (isPlain(text.charCodeAt(end - 1)) && isPlain(text.charCodeAt(end))) return text.slice(0, end)
  graphemes ??= new Intl.Segmenter()
  // Whether two characters form a grapheme depends on the preceding ones.
  const start = graphemes.segment(text.slice(0, end + 2)).containing(end)?.index
  return text.slice(0, start || end)
}

/** Matches what a line cannot show: control characters and invisible ones, but joiners and variation selectors. */
const UNSEEN = /[\p{Cc}\ufff9-\ufffb]|(?![\p{Join_Control}\p{Variation_Selector}])\p{Default_Ignorable_Code_Point}/gu

const SEEN = /[^\p{Z}\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800]/u

/**
 * Returns a text as one visible line of at most `length` code points: no control characters, changes of direction or
 * invisible characters, and blanks in place of line ends. Null if nothing visible is left.
 */
export function toTitle(text: string, length: number): string | null {
  // Limits the work for long messages.
  const line = beginning(text.trimStart(), length * 50)
    .toWellFormed()
    .replace(/[\s\u0085]+/gu, ' ')
    .replace(UNSEEN, '')
    .replace(/ {2,}/g, ' ')
    .trim()
  return SEEN.test(line) ? beginningWhole(line, length).trimEnd() : null
}

/** Maximum length of a text that a message quotes (characters). */
const MAX_PRINTABLE = 100

/** Returns the beginning of a text with `?` for each character that is not printable ASCII. */
export const toPrintable = (text: string): string => text.replace(/[^\x20-\x7e]/g, '?').slice(0, MAX_PRINTABLE)

/** Maximum length of texts that are never flattened (characters). */
const SHORT = 128

/**
 * Appends to a text, and flattens it whenever it has grown by an eighth. V8 stores concatenated strings as a tree,
 * which takes six times the memory for token-sized pieces until the string is flattened.
 */
export function appendFlat(text: string, more: string): string {
  const whole = text + more
  const step = Math.max(SHORT, 2 ** (28 - Math.clz32(whole.length)))
  if (Math.floor(whole.length / step) > Math.floor(text.length / step)) ANYTHING.test(whole)
  return whole
}

const ANYTHING = /^/

/** Decodes percent-encoding. Returns a malformed text as it is. */
export function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** Returns a name with underscores in camel case. */
export const camelCased = (name: string): string =>
  name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
