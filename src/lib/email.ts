/** Excludes the marks that separate addresses in a list, or an address from a name. */
const SHAPE = /^[^\s@\p{Cc}<>()[\]:;,"\\]+@[^\s@\p{Cc}<>()[\]:;,"\\]+(?<!\.)$/u
const MAX_LENGTH = 254

/**
 * Normalizes an e-mail address for storing and comparing: removes surrounding white space and lowercases ASCII letters.
 * Other characters stay, because Unicode case mapping turns look-alikes such as U+212A (Kelvin sign) into ASCII and
 * would match another user. Returns null if the text is not an address.
 */
export function normalizeEmail(text: string): string | null {
  const email = text.trim().replace(/[A-Z]/g, (letter) => letter.toLowerCase())
  return email.length <= MAX_LENGTH && SHAPE.test(email) ? email : null
}
