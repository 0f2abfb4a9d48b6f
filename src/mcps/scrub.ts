/** Shorter ones are words that anybody may say. */
const SHORTEST = 6
const REMOVED = '[removed]'

/** How often a text is read anew without JSON's escapes: JSON may stand in JSON. */
const LEVELS = 2

/** JSON's escapes of what a secret may be made of, as any writer has them. */
const ESCAPE = /\\(?:u00([2-7][\da-f])|(["\\/]))/gi

/** For each beginning of the word: the length of the longest shorter one that it ends with. */
type Secret = { word: string; borders: Uint16Array }

/**
 * Takes secrets out of texts: printable ASCII, as it is or as JSON escapes it; of a text that `isCut`, also the beginning
 * of one at its end. In time that grows with the text alone (Knuth, Morris and Pratt), since both may be made up by
 * somebody who wants this server to stand still.
 */
export function scrubber(values: readonly string[]): (text: string, isCut: boolean) => string {
  // Headers are sent without blanks around them.
  const words = values.map((value) => value.trim()).filter(({ length }) => length >= SHORTEST)
  const secrets = words.map((word): Secret => ({ word, borders: bordersOf(word) }))

  /** For each character whether it belongs to a secret. */
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
    let shown = ''
    for (let from = 0, to = 0; from < text.length; from = to) {
      to = hidden.indexOf(hidden[from] ? 0 : 1, from)
      if (to < 0) to = text.length
      shown += hidden[from] ? REMOVED : text.slice(from, to)
    }
    return shown
  }
}

function bordersOf(word: string): Uint16Array {
  const borders = new Uint16Array(word.length)
  for (let at = 1; at < word.length; at++) {
    borders[at] = lengthAfter(word.charCodeAt(at), borders[at - 1]!, { word, borders })
  }
  return borders
}

/** How much of the word's beginning a text ends with after one more character, when it was `length` before. */
function lengthAfter(code: number, length: number, { word, borders }: Secret): number {
  let left = length
  while (left && word.charCodeAt(left) !== code) left = borders[left - 1]!
  return word.charCodeAt(left) === code ? left + 1 : 0
}

/** Marks where the secret stands in the text; of two that overlap, both. */
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

/** A text without JSON's escapes, and where each character of it began, and its end was. */
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
