import { z } from 'zod'
import { normalizeEmail } from '../lib/email.ts'

const DISCOVERY_TIMEOUT = 5_000

const withoutSlash = (issuer: string) => issuer.replace(/\/$/, '')

/** Returns whether two spellings of an issuer differ in a trailing slash at most. */
export const isSameButSlash = (a: string, b: string): boolean => withoutSlash(a) === withoutSlash(b)

/**
 * Fetches the discovery document of an identity provider (OpenID Connect Discovery, 4), with the provider's own
 * spelling of its issuer. Throws if the provider does not answer, or the document is for another issuer.
 */
export async function discover(issuer: string, fetch: typeof globalThis.fetch) {
  const address = `${withoutSlash(issuer)}/.well-known/openid-configuration`
  const response = await fetch(address, { redirect: 'error', signal: AbortSignal.timeout(DISCOVERY_TIMEOUT) })
  const { ok, status } = response
  if (!ok) throw Object.assign(new Error(`The discovery of the identity provider answered ${status}`), { status })
  const Configuration = z.looseObject({
    issuer: z.string().refine((url) => isSameButSlash(url, issuer), `The issuer is not ${issuer}`),
    jwks_uri: z.url({ protocol: /^https?$/ }),
  })
  return Configuration.parse(await response.json())
}

/** Claims about a person. */
export type Claims = Readonly<Record<string, unknown>>

/** Microsoft states in a separate claim whether an address belongs to the domain of the tenant. */
const MICROSOFT = /^https:\/\/login\.microsoftonline\.(?:com|us)\//

/** Returns the e-mail address that the issuer has verified, in the form of {@link normalizeEmail}, else null. */
export function verifiedEmail({ iss, email, email_verified, xms_edov }: Claims): string | null {
  const isMicrosoft = typeof iss === 'string' && MICROSOFT.test(iss)
  const verified = email_verified ?? (isMicrosoft ? xms_edov : undefined)
  // Some issuers send it as text, and Microsoft as a number.
  const isVerified = verified === true || verified === 'true' || (isMicrosoft && (verified === 1 || verified === '1'))
  return isVerified && typeof email === 'string' ? normalizeEmail(email) : null
}

/** Returns a claim by its name, or otherwise by its name as a dotted path. */
export function claimOf(claims: Claims, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name]
  let value: unknown = claims
  for (const part of name.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined
    value = (value as Claims)[part]
  }
  return value
}

/**
 * Returns whether a claim is only named, and has to be fetched elsewhere (OpenID Connect Core, 5.6.2). Microsoft does
 * so with the groups of a person who has more than 200.
 */
export function isElsewhere({ _claim_names: names }: Claims, name: string): boolean {
  const has = (key: string) => typeof names === 'object' && names !== null && Object.hasOwn(names, key)
  return has(name) || has(name.split('.', 1)[0] ?? name)
}

/** Returns the highest role of the claim's values in a map; `member` if none of them is in it. */
export function roleOf(value: unknown, map: Readonly<Record<string, 'admin' | 'member'>>): 'admin' | 'member' {
  const values = (Array.isArray(value) ? value : [value]).filter((each) => typeof each === 'string')
  return values.some((each) => Object.hasOwn(map, each) && map[each] === 'admin') ? 'admin' : 'member'
}
