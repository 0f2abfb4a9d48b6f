import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from 'jose'
import { unavailable } from '../errors.ts'

/**
 * Creates the search for the key of a token in an issuer's JWKS. `findAddress` is called at the first use, and again
 * after it has failed. The keys are cached, and fetched again for an unknown key, at most every half minute. The search
 * throws 503 if the issuer does not answer.
 */
export function createKeyFinder(findAddress: () => Promise<URL>, fetch: typeof globalThis.fetch): JWTVerifyGetKey {
  const open = async () => createRemoteJWKSet(await findAddress(), { [customFetch]: fetch })
  let keys: ReturnType<typeof open> | undefined
  return async (header, token) => {
    keys ??= open().catch((error) => {
      keys = undefined
      throw error
    })
    try {
      return await (await keys)(header, token)
    } catch (error) {
      throw isTokensFault(error) ? error : unavailable(error)
    }
  }
}

/** Returns whether the error concerns the token itself rather than unavailable keys. */
const isTokensFault = (error: unknown): boolean =>
  error instanceof errors.JWKSNoMatchingKey ||
  error instanceof errors.JWKSMultipleMatchingKeys ||
  error instanceof errors.JOSENotSupported
