import { LRUCache } from 'lru-cache'
import { type Grant, openAuthorization } from './authorization.ts'
import { givenClient } from './clients.ts'
import type { Bearer, ConnectionDeps, OAuthServer } from './connections.ts'
import { joinScopes } from './scope.ts'

/** Lifetime of a token whose server states none, and the time before its end at which it is replaced (ms). */
const LIFETIME = 5 * 60_000
const MARGIN = 30_000

/**
 * Tokens of this process, by server and its last change. They belong to no user, and another process asks for its own.
 */
const cachedTokens = new LRUCache<string, string>({ max: 1000 })

/** Creates the bearer of a server that this service signs in to as itself (RFC 6749, section 4.4). */
export function clientBearer(deps: ConnectionDeps, server: OAuthServer): Bearer {
  const key = `${server.id} ${server.updatedAt.getTime()}`
  const request = async () => {
    const { accessToken, expiresIn } = await requestToken(deps, server)
    const lifetime = expiresIn === undefined ? LIFETIME : expiresIn * 1000
    cachedTokens.set(key, accessToken, { ttl: Math.max(lifetime - MARGIN, 1000) })
    return accessToken
  }
  return {
    token: async () => cachedTokens.get(key) ?? request(),
    renew: async (refused) => {
      const other = cachedTokens.get(key)
      return other !== undefined && other !== refused ? other : request()
    },
    forget() {},
    // Its scope is set by hand.
    widen: async () => {},
  }
}

async function requestToken(deps: ConnectionDeps, server: OAuthServer): Promise<Grant> {
  await using authorization = openAuthorization(deps.settings, server)
  const { scope, ...issuer } = await authorization.discover()
  const client = await givenClient(deps, server, issuer.issuer, '')
  return await authorization.clientCredentials(issuer, client!, joinScopes(server.scope ?? scope))
}
