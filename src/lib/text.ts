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
