import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from 'jose'
import { unavailable } from '../errors.ts'
import { onceDone } from '../lib/once.ts'

/**
 * Creates the search for the key of a token in an issuer's JWKS. `findAddress` is called at the first use, and again
 * after it has failed. The keys are cached, and fetched again for an unknown key, at most every half minute. The search
 * throws 503 if the issuer does not answer.
 */
export function createKeyFinder(findAddress: () => Promise<URL>, fetch: typeof globalThis.fetch): JWTVerifyGetKey {
  const open = onceDone(async () => createRemoteJWKSet(await findAddress(), { [customFetch]: fetch }))
  return async (header, token) => {
    const keys = open()
    try {
      return await (await keys)(header, token)
    } catch (error) {
      throw isTokensFault(error) ? error : unavailable(error, AWAY)
    }
  }
}

const AWAY =
  'The identity provider that issued the token does not answer, so the token cannot be checked. Repeat the request in a moment.'

/** Returns whether the error concerns the token itself rather than unavailable keys. */
const isTokensFault = (error: unknown): boolean =>
  error instanceof errors.JWKSNoMatchingKey ||
  error instanceof errors.JWKSMultipleMatchingKeys ||
  error instanceof errors.JOSENotSupported
