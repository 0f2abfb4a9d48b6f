/** A path on this service: one slash first, then neither a second one nor a backslash, and no white space anywhere. */
const OWN_PATH = /^\/(?![/\\])[^\\\s\p{Cc}]*$/u

/** Maximum length of a path to return to (characters). */
const MAX_LENGTH = 2_000

/** Returns the page to open after signing in: a path of this service, or else the console at `/app`. */
export const returnPath = (given: string | null | undefined, base = ''): string =>
  given && given.length <= MAX_LENGTH && OWN_PATH.test(given) ? given : `${base}/app`
