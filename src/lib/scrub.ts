/** Minimum length of a secret to redact; shorter ones may be ordinary words. */
const SHORTEST = 6
const REMOVED = '[removed]'

/** Number of times that a text is searched with JSON escapes decoded, because JSON can be nested in JSON. */
const LEVELS = 2

/** JSON escapes of characters that a secret may contain, in the forms of all encoders. */
const ESCAPE = /\\(?:u00([2-7][\da-f])|(["\\/]))/gi

/** A secret with its KMP table: for each prefix, the length of its longest border. */
type Secret = { word: string; borders: Uint16Array }

/**
 * Removes secrets (printable ASCII, plain or JSON-escaped) from texts, and from a text that `isCut` also a prefix at
 * its end. Takes time linear in the text (Knuth, Morris and Pratt), because an attacker may choose both.
 */
export function scrubber(values: readonly string[]): (text: string, isCut: boolean) => string {
  // Headers are sent without surrounding blanks.
  const words = values.map((value) => value.trim()).filter(({ length }) => length >= SHORTEST)
  const secrets = words.map((word): Secret => ({ word, borders: bordersOf(word) }))

  /** Marks the characters that belong to a secret. */
  function hiddenIn(text: string, isCut: boolean, levels: number): Uint8Array {
    const hidden = new Uint8Array(text.length)
    for (const secret of secrets) if (text.includes(secret.word.slice(0, SHORTEST))) hide(hidden, text, secret, isCut)
    if (!levels || !text.includes('\\')) return hidden
    const { plain, places } = unescaped(text)
    const below = hiddenIn(plain, isCut, levels - 1)
    for (let at = 0; at < plain.length; at++) if (below[at]) hidden.fill(1, places[at], places[at + 1])
    return hidden
  }

  return (text, isCut) => {
    const hidden = hiddenIn(text, isCut, secrets.length ? LEVELS : 0)
    let cleaned = ''
    for (let from = 0, to = 0; from < text.length; from = to) {
      to = hidden.indexOf(hidden[from] ? 0 : 1, from)
      if (to < 0) to = text.length
      cleaned += hidden[from] ? REMOVED : text.slice(from, to)
    }
    return cleaned
  }
}

function bordersOf(word: string): Uint16Array {
  const borders = new Uint16Array(word.length)
  for (let at = 1; at < word.length; at++) {
    borders[at] = lengthAfter(word.charCodeAt(at), borders[at - 1]!, { word, borders })
  }
  return borders
}

/** Returns the length of the secret's prefix that the text ends with after one more character. */
function lengthAfter(code: number, length: number, { word, borders }: Secret): number {
  let left = length
  while (left && word.charCodeAt(left) !== code) left = borders[left - 1]!
  return word.charCodeAt(left) === code ? left + 1 : 0
}

/** Marks all occurrences of the secret, including overlapping ones. */
function hide(hidden: Uint8Array, text: string, secret: Secret, isCut: boolean): void {
  let length = 0
  let marked = 0
  const mark = (end: number) => {
    hidden.fill(1, Math.max(end - length, marked), end)
    marked = end
  }
  for (let at = 0; at < text.length; at++) {
    length = lengthAfter(text.charCodeAt(at), length, secret)
    if (length === secret.word.length) mark(at + 1)
  }
  if (isCut && length >= SHORTEST) mark(text.length)
}

/** Decodes the JSON escapes of a text and returns the original position of each character and of the end. */
function unescaped(text: string): { plain: string; places: number[] } {
  const places: number[] = []
  let next = 0
  const keep = (end: number) => {
    while (next < end) places.push(next++)
  }
  const plain = text.replace(ESCAPE, (found, code: string | undefined, mark: string, at: number) => {
    keep(at)
    places.push(at)
    next = at + found.length
    return code ? String.fromCharCode(Number.parseInt(code, 16)) : mark
  })
  keep(text.length + 1)
  return { plain, places }
}
