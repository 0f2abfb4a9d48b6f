import type { CallToolResult } from '@modelcontextprotocol/client'
import { AuthorizationNeeded } from '../../executions/engine/run/abort.ts'
import type { Fetch, Seen } from '../client/seen.ts'
import { isAboutSession } from '../client/server-errors.ts'
import type { Bearer } from './connections.ts'
import { readChallenge } from './mend-answer.ts'

/**
 * Wraps `fetch` to send the token of a bearer with each request to `origin`. Renews a refused token once, and asks for
 * more scope if a request needs it (RFC 6750, section 3.1). `onToken` is called with each token before it is sent.
 */
export const authorized = (
  fetch: Fetch,
  bearer: Bearer,
  origin: string,
  seen: Seen,
  onToken: (token: string) => void,
): Fetch => {
  /** The token that the server has accepted last. */
  let accepted: string | undefined
  return async (url, init) => {
    if (new URL(url).origin !== origin) return fetch(url, init)
    const send = async (token: string) => {
      onToken(token)
      const headers = new Headers(init?.headers)
      headers.set('Authorization', `Bearer ${token}`)
      const response = await fetch(url, { ...init, headers })
      if (response.ok) accepted = token
      return response
    }
    try {
      const token = await bearer.token()
      const response = await send(token)
      // Gateways refuse methods that they do not know.
      if (response.ok || (init?.method !== 'POST' && token === accepted)) return response
      if (hasSession(url, init) && (await hasLostSession(response))) return response
      const { error, scope } = readChallenge(response.headers)
      const lacksScope = error === 'insufficient_scope'
      if (lacksScope) await bearer.widen(scope)
      // A token that has the scope has ended: some servers check the scope first.
      if (!lacksScope && !isInvalid(response.status, error)) return response
      const other = await bearer.renew(token)
      await response.body?.cancel()
      return await send(other)
    } catch (error) {
      note(seen, error)
      throw error
    }
  }
}

/**
 * Returns the challenge with which a tool refuses a call in its result, or null. Servers that have tools for everybody
 * beside those for their users do so, as OpenAI's Apps SDK demands, instead of answering 401 or 403.
 */
export function challengeIn({ isError, _meta: meta }: CallToolResult): Headers | null {
  const [header] = isError ? [meta?.['mcp/www_authenticate']].flat() : []
  return typeof header === 'string' ? new Headers({ 'WWW-Authenticate': header.replace(/[^\x20-\x7e]/g, ' ') }) : null
}

/**
 * Renews the token that a tool has refused by a challenge. Throws {@link AuthorizationNeeded} if the user must connect
 * first, such as for more scope.
 */
export async function renewFor(bearer: Bearer, challenge: Headers, seen: Seen): Promise<void> {
  const { error, scope } = readChallenge(challenge)
  try {
    const token = await bearer.token()
    if (error !== 'invalid_token') await bearer.widen(scope)
    await bearer.renew(token)
  } catch (failure) {
    note(seen, failure)
    throw failure
  }
}

/** Notes why a request got no token. */
function note(seen: Seen, error: unknown): void {
  if (error instanceof AuthorizationNeeded) seen.needed = error
  else seen.error = error
}

/** Returns whether a request names a session. Without one, a refusal that speaks of a session is about the token. */
const hasSession = (url: string | URL, init: RequestInit | undefined): boolean =>
  new Headers(init?.headers).has('mcp-session-id') || /session/i.test(new URL(url).search)

/** Returns whether a refusal is about a lost session: some servers answer 401 for one, with a token that is good. */
const hasLostSession = async (response: Response): Promise<boolean> =>
  response.status === 401 && !response.headers.has('www-authenticate') && isAboutSession(await response.clone().text())

/** Returns whether a request was refused because of its token. Some servers answer 400 or 403 instead of 401. */
const isInvalid = (status: number, error: string | undefined): boolean =>
  status === 401 || ((status === 400 || status === 403) && error === 'invalid_token')
