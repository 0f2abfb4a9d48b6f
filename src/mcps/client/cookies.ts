import type { Fetch } from './seen.ts'

/** Maximum number of cookies of a session, the maximum length of one (characters), and of values that are secrets. */
const MAX = { cookies: 20, length: 4096, secrets: 100 }
/** Minimum length of a value that may be a secret rather than a word (characters). */
const MIN_SECRET = 16

/**
 * Wraps the `fetch` of a session to send the cookies of its server back to it. Load balancers find the process that has
 * the session by them. Attributes are ignored: no cookie outlives the session or goes to another origin. Calls
 * `onSecret` with each value that may be a secret.
 */
export function withCookies(fetch: Fetch, origin: string, onSecret: (value: string) => void): Fetch {
  const cookies = new Map<string, string>()
  const secrets = new Set<string>()
  return async (url, init = {}) => {
    if (new URL(url).origin !== origin) return fetch(url, init)
    const response = await fetch(url, cookies.size ? { ...init, headers: withCookie(init.headers, cookies) } : init)
    // The answer to a redirect may come from another origin.
    if (URL.parse(response.url)?.origin !== origin) return response
    keep(cookies, response.headers.getSetCookie())
    for (const value of cookies.values()) {
      if (value.length < MIN_SECRET || secrets.size === MAX.secrets || secrets.has(value)) continue
      secrets.add(value)
      onSecret(value)
    }
    return response
  }
}

function withCookie(given: RequestInit['headers'], cookies: ReadonlyMap<string, string>): Headers {
  const headers = new Headers(given)
  const configured = headers.get('cookie')
  const own = [...cookies].map(([name, value]) => `${name}=${value}`)
  headers.set('cookie', [...(configured ? [configured] : []), ...own].join('; '))
  return headers
}

function keep(cookies: Map<string, string>, set: readonly string[]): void {
  for (const line of set) {
    const [, name, value = ''] = /^\s*([^=;\s]+)=([^;]*)/.exec(line) ?? []
    if (!name || line.length > MAX.length) continue
    if (!value.trim() || /;\s*max-age=(?:0|-\d+)\s*(?:;|$)/i.test(line)) cookies.delete(name)
    else if (cookies.has(name) || cookies.size < MAX.cookies) cookies.set(name, value.trim())
  }
}
