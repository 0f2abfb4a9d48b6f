import type { ServerResponse } from 'node:http'
import { headersOf, type LimitName, type LimitState, type RateLimits } from '../auth/rate-limits.ts'
import { rateLimited } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'

/**
 * Counts the calls of one HTTP request. Its response has the headers of each limit that applied. Throws 429 with the
 * seconds to wait.
 */
export function createRequestLimits(rateLimits: RateLimits, clock: Clock, res: ServerResponse) {
  const states = new Map<LimitName, LimitState>()
  return async function count(name: LimitName, caller: string, calls: number): Promise<void> {
    const taken = await rateLimits.take(name, caller, calls)
    if (!taken) return
    states.set(name, taken.state)
    if (!res.headersSent)
      res.setHeaders(new Map(Object.entries(headersOf([...states.values()], clock.now().getTime()))))
    if (taken.retryAfter !== null) throw rateLimited(taken.retryAfter)
  }
}
