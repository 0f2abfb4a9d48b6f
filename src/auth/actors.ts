import { hash, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Bus } from '../bus/index.ts'
import { unauthorized } from '../errors.ts'
import { type Actor, authenticate, hasExpired } from './actor.ts'

/**
 * Maximum age of a cached actor (ms). A revocation is normally published at once. One that is not (a change by the
 * command line, a lost notification) takes effect after this time, and on open streams at their next check
 * (revocations.ts): within 5 s (contract.md section 1).
 */
const FRESH = 800
const MAX_KNOWN = 10_000

export type Actors = {
  /** Returns the actor of an `Authorization` header, like {@link authenticate}. */
  of(header: string | undefined, invalid: string): Promise<Actor>
  stop(): void
}

/**
 * Creates a short-lived cache of actors by token, so that a busy caller is looked up once a second instead of at each
 * request.
 */
export function createActors(deps: Parameters<typeof authenticate>[0] & { bus: Bus }): Actors {
  const { bus, clock } = deps
  // A resolution above 0 would set a timer at each use.
  const known = new LRUCache<string, Actor>({ max: MAX_KNOWN, ttl: FRESH, ttlResolution: 0 })
  // Salts the cache keys, so that they are useless outside this process.
  const salt = randomBytes(16).toString('base64url')
  /** Number of revocations. An actor read before a revocation must not be cached after it. */
  let revocations = 0

  const unsubscribe = bus.subscribe('token', (ids) => {
    revocations++
    for (const [key, { tokenId }] of known.entries()) if (!ids || ids.includes(tokenId)) known.delete(key)
  })

  return {
    async of(header, invalid) {
      if (header === undefined) throw unauthorized('Authorization header required')
      const key = hash('sha256', salt + header)
      const found = known.get(key)
      if (found && !hasExpired(found, clock.now())) return found
      const before = revocations
      const actor = await authenticate(deps, header, invalid)
      if (before === revocations) known.set(key, actor)
      return actor
    },
    stop: unsubscribe,
  }
}
