import { extractWWWAuthenticateParams } from '@modelcontextprotocol/client'
import { AuthorizationNeeded } from '../executions/engine/run/abort.ts'
import type { Bearer } from './connections.ts'
import type { Fetch, Seen } from './reasons.ts'

/**
 * Wraps `fetch` to send the token of a bearer with each request to `origin`. Renews a refused token once, and asks for more
 * scope if a request needs it (RFC 6750, section 3.1). `onToken` is called with each token before it is sent.
 */
export const authorized =
  (fetch: Fetch, bearer: Bearer, origin: string, seen: Seen, onToken: (token: string) => void): Fetch =>
  async (url, init) => {
    if (new URL(url).origin !== origin) return fetch(url, init)
    const send = (token: string) => {
      onToken(token)
      const headers = new Headers(init?.headers)
      headers.set('Authorization', `Bearer ${token}`)
      return fetch(url, { ...init, headers })
    }
    try {
      const token = await bearer.token()
      let response = await send(token)
      if (response.status === 401) {
        const other = await bearer.renew(token)
        await response.body?.cancel()
        response = await send(other)
      }
      if (response.status === 403) {
        const { error, scope } = extractWWWAuthenticateParams(response)
        if (error === 'insufficient_scope') await bearer.widen(scope)
      }
      return response
    } catch (error) {
      if (error instanceof AuthorizationNeeded) seen.needed = error
      else seen.error = error
      throw error
    }
  }
