import { z } from 'zod'
import { inRange, ok } from '../lib/fields.ts'

export const Period = z
  .enum(['daily', 'weekly', 'monthly'], { error: 'Invalid period. Must be: daily, weekly, monthly' })
  .meta({ id: 'UsagePeriod', description: 'Length of one entry of a usage report' })

const date = z.iso
  .date({ error: (issue) => `Invalid value for field: ${issue.path?.join('.')}. Expected YYYY-MM-DD` })
  .check(inRange)

/** GET /usage/organization/{orgId} (service.md, "F"; contract.md section 6). */
export const GetUsage = z.object({
  orgId: z.string().describe('Your organization'),
  period: Period.optional().describe('Length of one entry. Default: `daily`. Weeks begin on Monday'),
  start: date.optional().describe('First day (UTC). Default: 30 days up to `end`'),
  end: date.optional().describe('Last day (UTC). Default: today. At most a year is reported'),
})

const tokens = z.int().meta({ format: 'int64' })
const amounts = {
  executions: z.int().describe('Number of runs that ended'),
  failed: z.int().describe('Number of runs that failed'),
  input_tokens: tokens.describe('Number of tokens that the models read'),
  output_tokens: tokens.describe('Number of tokens that the models wrote'),
}

export const Totals = z.object(amounts).meta({ id: 'UsageTotals', description: 'Sum of a usage report' })
export const AgentUsage = z
  .object({ agentId: z.string().describe('Id of the agent'), ...amounts })
  .meta({ id: 'AgentUsage', description: 'Usage of one agent' })
export const ModelUsage = z
  .object({
    model: z.string().nullable().describe('The model; null for runs that ended before they asked one'),
    ...amounts,
  })
  .meta({ id: 'ModelUsage', description: 'Usage of one model' })

export const UserUsage = z
  .object({
    userId: z.string().nullable().describe('The user; null for runs from before the service counted users'),
    ...amounts,
  })
  .meta({ id: 'UserUsage', description: 'Usage of one user' })

export const UsageEntry = z
  .object({
    date: z.iso.date().describe('The first day of the period: the day, its Monday, or the first of its month'),
    ...amounts,
    byAgent: z
      .array(AgentUsage)
      .describe('Usage by agent, the most runs first. Private agents of others are in the sums only'),
    byModel: z.array(ModelUsage).describe('Usage by model, the most runs first'),
    byUser: z.array(UserUsage).describe('Usage by user, the most runs first'),
  })
  .meta({ id: 'UsageEntry', description: 'Usage of one period' })

export const UsageResponse = ok({
  organizationId: z.string().describe('Id of the organization'),
  period: Period.describe('Length of one entry'),
  start: z.iso.date().describe('First day of the report'),
  end: z.iso.date().describe('Last day of the report'),
  usage: z.array(UsageEntry).describe('In order of time; periods in which no run ended are left out'),
  totals: Totals.describe('Sum of all entries'),
})
