import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { callerOf } from '../auth/rate-limits.ts'
import type { Deps } from '../deps.ts'
import type { Limit } from './schema.ts'

/** GET /limits: the rate limits of the caller. */
export function get(actor: Actor, { rateLimits }: Pick<Deps, 'rateLimits'>): { limits: z.input<typeof Limit>[] } {
  const states = rateLimits?.statesOf(callerOf(actor)) ?? []
  return {
    limits: states.map(({ window, resetsAt, ...state }) => ({
      ...state,
      window: window / 1000,
      resetsAt: new Date(resetsAt).toISOString(),
    })),
  }
}
