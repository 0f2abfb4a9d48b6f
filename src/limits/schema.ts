import { z } from 'zod'
import { ok, timestamp } from '../lib/fields.ts'

/** A rate limit of the caller (contract-2.md section 3.8). */
export const Limit = z
  .object({
    name: z
      .enum(['default', 'execute'])
      .meta({ id: 'LimitName', description: 'Kind of calls that a limit counts' })
      .describe('`default`: requests; `execute`: runs'),
    limit: z.int().describe('Maximum number of calls in a window'),
    window: z.int().describe('Length of the window (seconds)'),
    remaining: z.int().describe('Number of calls left in this window, as far as this server knows'),
    resetsAt: timestamp.describe('End of this window'),
  })
  .meta({ id: 'Limit', description: "A rate limit, with the caller's use of it" })

export const LimitsResponse = ok({ limits: z.array(Limit).describe('Empty if the operator has set none') })
