import { errors, type JWTPayload, jwtVerify } from 'jose'
import type { Deps } from '../deps.ts'
import { tokenExpired, unauthorized } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import type { Settings } from '../settings.ts'
import { discover, isSameButSlash, verifiedEmail } from './provider-claims.ts'
import { openProviderFetch } from './provider-fetch.ts'
import { createKeyFinder } from './remote-keys.ts'

/** Claims of an ID token. */
export type IdToken = {
  issuer: string
  subject: string
  /** Address in the form of {@link normalizeEmail}; null unless the issuer has verified it. */
  email: string | null
  expiresAt: Date
}

/**
 * Checks an ID token. Throws 401 `Token expired` or `Invalid or expired token`, and 503 if its issuer does not answer.
 */
export type IdTokens = { verify: (token: string) => Promise<IdToken> }

/** Asymmetric signatures only, because a shared secret, or none, would let others create tokens. */
export const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
]
/** Tolerated clock difference of the issuer (s). */
export const LEEWAY = 30

/**
 * Creates the check of ID tokens of the operator's identity provider (contract.md section 6): signature by a key of its
 * JWKS, algorithm, `iss`, `aud`, `exp`, `nbf`. The keys are fetched on first use, cached, and fetched again for an
 * unknown key, at most every half minute. A paused service fetches them too, because sign-in works while it is paused
 * (contract-2.md section 8.7). Returns null if no provider is configured.
 *
 * If the issuer in the discovery document differs from OIDC_ISSUER by a trailing slash, the document's spelling is
 * used, and both are logged.
 */
export function createIdTokens(settings: Settings, clock: Clock, log: Pick<Deps['log'], 'warn'>): IdTokens | null {
  const { OIDC_ISSUER: configured, OIDC_AUDIENCE: audience, OIDC_JWKS_URL: url } = settings
  if (!configured || !audience) return null
  const parties = [audience, ...settings.OIDC_CLIENT_IDS]
  let issuer = configured
  let hasWarned = false
  const logSpelling = (spelling: string) => {
    if (!hasWarned)
      log.warn({ configured, spelling }, `the identity provider spells its issuer ${spelling}: set OIDC_ISSUER to this`)
    hasWarned = true
  }
  const findAddress = async () => {
    const found = await discover(configured, fetch)
    if (found.issuer !== configured) logSpelling(found.issuer)
    issuer = found.issuer
    return found.jwks_uri
  }
  const fetch = openProviderFetch(settings)
  const findKey = createKeyFinder(async () => new URL(url ?? (await findAddress())), fetch)

  return {
    async verify(token) {
      const options = { audience, algorithms: ALGORITHMS, requiredClaims: ['iss', 'sub', 'exp'] }
      const now = { currentDate: clock.now(), clockTolerance: LEEWAY }
      const { payload, protectedHeader } = await jwtVerify(token, findKey, { ...options, ...now }).catch(refuse)
      const { iss, sub, exp = 0 } = payload
      // The issuer's spelling is known only after its keys were fetched.
      if (iss !== issuer) {
        if (typeof iss === 'string' && isSameButSlash(iss, issuer)) logSpelling(iss)
        throw invalid()
      }
      // Tokens of the same issuer for other purposes declare a different type or party.
      const isOther = !/^JWT$/i.test(protectedHeader.typ ?? 'JWT') || isForAnother(payload, parties)
      if (isOther || typeof sub !== 'string' || !sub) throw invalid()
      return {
        issuer,
        subject: sub,
        email: verifiedEmail(payload),
        expiresAt: new Date((exp + LEEWAY) * 1000),
      }
    },
  }
}

const invalid = () => unauthorized('Invalid or expired token')

/** Throws the 401 for a token that was refused. */
export function refuse(error: unknown): never {
  if (error instanceof errors.JWTExpired) throw tokenExpired()
  throw error instanceof errors.JOSEError ? invalid() : error
}

/**
 * Returns whether a token was issued to another party. One for several parties names it (OpenID Connect Core, 3.1.3.7).
 */
const isForAnother = ({ aud, azp }: JWTPayload, parties: readonly unknown[]): boolean =>
  azp === undefined ? Array.isArray(aud) && aud.length > 1 : !parties.includes(azp)
