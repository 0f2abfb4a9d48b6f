/** Maximum length of a scope that is stored (characters). */
export const MAX_SCOPE = 2000

/** Returns the words of scopes (RFC 6749, section 3.3), each once; undefined without any. */
export const joinScopes = (...scopes: readonly (string | null | undefined)[]): string | undefined =>
  [...new Set(scopes.flatMap((scope) => wordsOf(scope)))].join(' ') || undefined

/** Returns whether a scope has every word of another. */
export const includesScope = (scope: string | null, other: string): boolean =>
  wordsOf(other).every((word) => wordsOf(scope).includes(word))

const wordsOf = (scope: string | null | undefined): string[] => scope?.split(/\s+/).filter(Boolean) ?? []
