import { hash, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Bus } from '../bus/index.ts'
import { unauthorized } from '../errors.ts'
import { type Actor, authenticate, hasExpired } from './actor.ts'

/**
 * For how long somebody is taken for who they were (ms). A revocation is heard of at once; what no server tells of (the
 * operator's command line, a notice that got lost) has its effect after so long, and on a stream that was opened
 * meanwhile at the next look at it (revocations.ts): within 5 s (contract.md section 1).
 */
const FRESH = 800
const MAX_KNOWN = 10_000

export type Actors = {
  /** Who an `Authorization` header speaks of, as {@link authenticate} has it. */
  of(header: string | undefined, invalid: string): Promise<Actor>
  stop(): void
}

/** Remembers for a moment who has shown which token: who asks much is looked up once a second, not at each request. */
export function createActors(deps: Parameters<typeof authenticate>[0] & { bus: Bus }): Actors {
  const { bus, clock } = deps
  // It would set a timer at each use, to ask for the time more seldom.
  const known = new LRUCache<string, Actor>({ max: MAX_KNOWN, ttl: FRESH, ttlResolution: 0 })
  // What is kept of a token is of no use anywhere else.
  const salt = randomBytes(16).toString('base64url')
  /** How often something was revoked: who was read before it is not to be remembered after it. */
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
