import { hash, type KeyObject, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Bus } from '../bus/index.ts'
import type { Deps } from '../deps.ts'
import { forbidden, unauthorized } from '../errors.ts'
import { type Actor, authenticate, hasExpired } from './actor.ts'
import type { IdTokens } from './id-tokens.ts'
import { idTokenOf, userOfIdToken } from './identity.ts'
import { actorOfUser, findNamed, findSession, type SessionRow } from './sessions.ts'

/**
 * Maximum age of a cached actor (ms). A revocation is normally published at once. One that is not (a change by the
 * command line, a lost notification) takes effect after this time, and on open streams at their next check
 * (revocations.ts): within 5 s (contract.md section 1).
 */
const FRESH = 800
const MAX_CACHED = 10_000

/** The credentials of a request. */
export type Credentials = {
  authorization: string | undefined
  /** The secret in the cookie of a browser. */
  cookie: string | undefined
  /** The organization that the request names, by its id or slug. */
  organization: string | undefined
  /** Error message for an unknown token, which differs between `/api/v1` and the rest. */
  invalid: string
  /** Whether access tokens of MCP_AUTHORIZATION_SERVER are accepted, instead of ID tokens. */
  isMcp?: boolean
  /** Throws 403 for a write that another site may have made the browser send. */
  checkCookieWrite: () => void
}

/** A user apart from any organization. */
export type Person = {
  userId: string
  /** Permissions of the actor, limited by the scopes of the token. */
  scopes: readonly string[]
  /** The organization of the personal access token, or the named organization for other credentials, if any. */
  organization: string | undefined
  session: SessionRow | null
  /** The personal access token; empty for other credentials. */
  tokenId: string
}

export type Actors = {
  /** Authenticates the caller in an organization. Throws the 401s, 403s and 400s of the contracts. */
  of(credentials: Credentials): Promise<Actor>
  /** Authenticates without the cache. */
  again(credentials: Credentials): Promise<Actor>
  /** Authenticates the user without an organization. Throws the same 401s. */
  person(credentials: Credentials): Promise<Person>
  stop(): void
}

type ActorsDeps = Parameters<typeof authenticate>[0] &
  Pick<Deps, 'idTokens' | 'accessTokens'> & { bus: Bus; sessionKey: KeyObject }

/**
 * Creates a short-lived cache of actors by credential, so that a busy caller is looked up once a second instead of at
 * each request.
 */
export function createActors(deps: ActorsDeps): Actors {
  const { accessTokens, bus, clock, db, idTokens } = deps
  // A resolution above 0 would set a timer at each use.
  const cache = new LRUCache<string, Actor>({ max: MAX_CACHED, ttl: FRESH, ttlResolution: 0 })
  // Salts the cache keys, so that they are useless outside this process.
  const salt = randomBytes(16).toString('base64url')
  /** Number of revocations. An actor read before a revocation must not be cached after it. */
  let revocations = 0

  const unsubscribe = bus.subscribe('token', (ids) => {
    revocations++
    if (!ids) return cache.clear()
    for (const [key, { tokenId, sessionId = '', userId }] of cache.entries()) {
      if (ids.includes(tokenId) || ids.includes(sessionId) || ids.includes(userId)) cache.delete(key)
    }
  })

  async function cached(text: string, load: () => Promise<Actor>): Promise<Actor> {
    const key = hash('sha256', salt + text)
    const found = cache.get(key)
    if (found && !hasExpired(found, clock.now())) return found
    const before = revocations
    const actor = await load()
    if (before === revocations) cache.set(key, actor)
    return actor
  }

  async function ofToken({ authorization = '', organization, invalid }: Credentials, isFresh: boolean) {
    const load = () => authenticate(deps, authorization, invalid)
    const actor = await (isFresh ? load() : cached(authorization, load))
    const { organizationId: id, organizationSlug: slug } = actor
    if (organization === undefined) return actor
    const named = await findNamed(db, [{ id, slug }], organization, clock.now())
    if (!named) throw forbidden()
    return actor
  }

  async function ofIdToken(tokens: IdTokens, token: string, { organization, invalid }: Credentials): Promise<Actor> {
    const { userId, expiresAt } = await userOfIdToken({ ...deps, idTokens: tokens }, token, invalid)
    return { ...(await actorOfUser(db, userId, organization, clock.now())), expiresAt }
  }

  async function ofCookie(secret: string, organization: string | undefined, isFresh: boolean): Promise<Actor> {
    const load = async () => {
      const { id: sessionId, userId } = await findSession(deps, secret)
      return { ...(await actorOfUser(db, userId, organization, clock.now())), sessionId }
    }
    return isFresh ? load() : cached(`cookie ${secret} ${organization ?? ''}`, load)
  }

  async function find(credentials: Credentials, isFresh: boolean): Promise<Actor> {
    const { authorization, cookie, organization } = credentials
    if (authorization !== undefined) {
      const accessToken = credentials.isMcp && accessTokens ? idTokenOf(authorization) : undefined
      if (accessTokens && accessToken !== undefined) {
        const actor = await ofIdToken(accessTokens, accessToken, credentials)
        return { ...actor, scopes: accessTokens.scopesOf(accessToken) }
      }
      const idToken = idTokens ? idTokenOf(authorization) : undefined
      return idTokens && idToken !== undefined
        ? ofIdToken(idTokens, idToken, credentials)
        : ofToken(credentials, isFresh)
    }
    if (cookie === undefined) throw unauthorized('Authorization header required')
    credentials.checkCookieWrite()
    return ofCookie(cookie, organization, isFresh)
  }

  return {
    of: (credentials) => find(credentials, false),
    again: (credentials) => find(credentials, true),
    async person(credentials) {
      const { authorization, cookie, organization, invalid } = credentials
      if (authorization === undefined && cookie !== undefined) {
        credentials.checkCookieWrite()
        const session = await findSession(deps, cookie)
        return { userId: session.userId, scopes: ['*'], organization, session, tokenId: '' }
      }
      const idToken = idTokens ? idTokenOf(authorization) : undefined
      if (idToken !== undefined) {
        const { userId } = await userOfIdToken(deps, idToken, invalid)
        return { userId, scopes: ['*'], organization, session: null, tokenId: '' }
      }
      const { userId, scopes, organizationId, tokenId } = await find(credentials, false)
      return { userId, scopes, organization: organizationId, session: null, tokenId }
    },
    stop: unsubscribe,
  }
}
