import { decodeJwt, jwtVerify } from 'jose'
import { unauthorized } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import { publicAddress, type Settings } from '../settings.ts'
import { ALGORITHMS, type IdTokens, LEEWAY, refuse } from './id-tokens.ts'
import { discover, isSameButSlash, verifiedEmail } from './provider-claims.ts'
import { openProviderFetch } from './provider-fetch.ts'
import { createKeyFinder } from './remote-keys.ts'
import { isScope } from './scopes.ts'

/** Access tokens of an authorization server for the MCP server (RFC 9068). */
export type AccessTokens = IdTokens & {
  /** Returns the scopes of this service that a verified token has. */
  scopesOf: (token: string) => string[]
}

/**
 * Creates the check of access tokens of MCP_AUTHORIZATION_SERVER: signature by a key of its JWKS, `typ: at+jwt`, `iss`,
 * `aud`, `exp`, `nbf`. The issuer may be spelled with or without a slash at its end. The keys are fetched at the first use.
 */
export function createAccessTokens(settings: Settings, issuer: string, clock: Clock): AccessTokens {
  const audience = `${publicAddress(settings)}/mcp`
  const bare = issuer.replace(/\/$/, '')
  const fetch = openProviderFetch(settings)
  const findKey = createKeyFinder(() => findKeys(issuer, fetch), fetch)

  return {
    async verify(token) {
      const required = { audience, typ: 'at+jwt', algorithms: ALGORITHMS, requiredClaims: ['sub', 'exp'] }
      const now = { currentDate: clock.now(), clockTolerance: LEEWAY }
      const { payload } = await jwtVerify(token, findKey, { issuer: [bare, `${bare}/`], ...required, ...now }).catch(
        refuse,
      )
      const { sub, iss = issuer, exp = 0 } = payload
      if (typeof sub !== 'string' || !sub) throw unauthorized('Invalid or expired token')
      return { issuer: iss, subject: sub, email: verifiedEmail(payload), expiresAt: new Date((exp + LEEWAY) * 1000) }
    },
    scopesOf(token) {
      const { scope } = decodeJwt(token)
      return typeof scope === 'string' ? scope.split(' ').filter(isScope) : []
    },
  }
}

/** Finds the address of the keys: in the metadata of the authorization server (RFC 8414), or of OpenID Connect. */
async function findKeys(issuer: string, fetch: typeof globalThis.fetch): Promise<URL> {
  const { origin, pathname } = new URL(issuer)
  const address = `${origin}/.well-known/oauth-authorization-server${pathname.replace(/\/$/, '')}`
  const response = await fetch(address, { redirect: 'error', signal: AbortSignal.timeout(5_000) })
  const metadata = response.ok ? ((await response.json()) as { issuer?: unknown; jwks_uri?: unknown }) : null
  const isIssuer = typeof metadata?.issuer === 'string' && isSameButSlash(metadata.issuer, issuer)
  if (isIssuer && typeof metadata.jwks_uri === 'string') return new URL(metadata.jwks_uri)
  return new URL((await discover(issuer, fetch)).jwks_uri)
}
