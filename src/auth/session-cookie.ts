import type { IncomingHttpHeaders } from 'node:http'
import { forbidden } from '../errors.ts'
import type { Settings } from '../settings.ts'

// The cookie of browsers (contract-2.md section 3.1).

/** Maximum age of the cookie (s), the longest that browsers accept. The server ends sessions earlier. */
const MAX_AGE = 400 * 24 * 60 * 60

const isHttps = ({ PUBLIC_URL }: Pick<Settings, 'PUBLIC_URL'>): boolean => PUBLIC_URL?.startsWith('https:') ?? false

/** Returns the name of the cookie. Only a page of this exact host can set one with the prefix `__Host-`. */
export const cookieName = (settings: Pick<Settings, 'PUBLIC_URL'>): string =>
  isHttps(settings) ? '__Host-muster' : 'muster'

/** Returns a `Set-Cookie` header with the secret of a session; an empty secret deletes the cookie. */
export const setCookie = (settings: Pick<Settings, 'PUBLIC_URL'>, secret: string): string =>
  `${cookieName(settings)}=${secret}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${secret ? MAX_AGE : 0}${isHttps(settings) ? '; Secure' : ''}`

/** Paths whose requests a cookie can authenticate. Other protocols accept tokens only. */
const TAKES_COOKIE = /^\/(?:api|trpc)\/|^\/graphql$/

/**
 * Creates the function that reads a session's secret from a request. It returns undefined for none, or more than one.
 */
export function createCookieReader(settings: Pick<Settings, 'PUBLIC_URL'>) {
  const pattern = new RegExp(`(?:^|; ?)${cookieName(settings)}=([^;]*)`, 'g')
  return (path: string, { cookie }: IncomingHttpHeaders): string | undefined => {
    if (cookie === undefined || !TAKES_COOKIE.test(path)) return undefined
    const secrets = [...cookie.matchAll(pattern)].map(([, secret]) => secret)
    return secrets.length === 1 && secrets[0] ? secrets[0] : undefined
  }
}

/**
 * Throws 403 unless a request comes from a page of this service. Such a request has `X-Muster-Request: 1`, which no
 * form can send. Its `Origin` equals that of `PUBLIC_URL`, or without one the `Host` of the request.
 */
export function requireOwnPage({ PUBLIC_URL }: Pick<Settings, 'PUBLIC_URL'>, headers: IncomingHttpHeaders): void {
  const { origin, host = '' } = headers
  const isOwn = PUBLIC_URL
    ? origin === new URL(PUBLIC_URL).origin
    : origin === `http://${host.toLowerCase()}` || origin === `https://${host.toLowerCase()}`
  if (headers['x-muster-request'] === '1' && isOwn) return
  throw forbidden({
    detail:
      'A page of this service must send the header X-Muster-Request: 1, and its browser the Origin of the service.',
  })
}
