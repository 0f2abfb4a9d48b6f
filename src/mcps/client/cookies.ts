import type { Fetch } from './reasons.ts'

/** Maximum number of cookies of a session, and the maximum length of one (characters). */
const MAX = { cookies: 20, length: 4096 }

/**
 * Wraps the `fetch` of a session to send the cookies of its server back to it. Load balancers find the process that has
 * the session by them. Attributes are ignored: no cookie outlives the session or goes to another origin.
 */
export function withCookies(fetch: Fetch, origin: string): Fetch {
  const cookies = new Map<string, string>()
  return async (url, init = {}) => {
    if (new URL(url).origin !== origin) return fetch(url, init)
    const response = await fetch(url, cookies.size ? { ...init, headers: withCookie(init.headers, cookies) } : init)
    // The answer to a redirect may come from another origin.
    if (URL.parse(response.url)?.origin === origin) keep(cookies, response.headers.getSetCookie())
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
