import { z } from 'zod'
import { ok, text, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'

export const ApprovalStatus = z
  .enum(['pending', 'approved', 'denied', 'expired'], {
    error: 'Invalid status. Must be: pending, approved, denied, expired',
  })
  .meta({ id: 'ApprovalStatus' })

/** A tool call that needs, or needed, a person's approval (contract.md section 7). */
export const Approval = z
  .object({
    id: z.string(),
    executionId: z.string().describe('The run that waits'),
    chatId: z.string(),
    toolUseId: z.string().describe('The call, as the events of the run name it'),
    tool: z.string().describe('What the model wants to call'),
    input: z.unknown().describe('What it wants to call it with: all of it, in lists too'),
    status: ApprovalStatus.describe('`expired` too when the run ended before anybody decided'),
    reason: z.string().optional().describe('Why, in the words of whoever decided'),
    createdAt: timestamp,
    expiresAt: timestamp.describe('Until when somebody can decide; then the run goes on without the call'),
    decidedBy: z.string().optional().describe('The user who decided'),
    decidedAt: timestamp.optional(),
  })
  .meta({ id: 'Approval' })

export const ListApprovals = z.object({
  status: ApprovalStatus.optional(),
  executionId: z.string().optional().describe('Of this run'),
  ...pageInput,
})

export const Decide = z
  .object({
    id: z.string().describe('The approval'),
    reason: text(2_000).nullish().describe('Why; the model is told when it is denied'),
  })
  .meta({ examples: [{ reason: 'Not on a Friday' }] })

export const ApprovalsResponse = ok({ approvals: z.array(Approval), nextCursor })
export const ApprovalResponse = ok({ approval: Approval })
