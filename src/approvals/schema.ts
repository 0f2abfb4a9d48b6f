import { z } from 'zod'
import { ok, text, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'

export const ApprovalStatus = z
  .enum(['pending', 'approved', 'denied', 'expired'], {
    error: 'Invalid status. Must be: pending, approved, denied, expired',
  })
  .meta({ id: 'ApprovalStatus', description: 'State of an approval' })

/** A tool call that needs, or needed, a person's approval (contract.md section 7). */
export const Approval = z
  .object({
    id: z.string().describe('Id of the approval'),
    executionId: z.string().describe('The run that waits'),
    chatId: z.string().describe('Id of the chat that the run belongs to'),
    agentId: z.string().describe('The agent whose run waits'),
    agentName: z.string().optional().describe('Name of the agent, if you can see the run'),
    chatTitle: z.string().optional().describe('Title of the chat, if you can see the run'),
    missionId: z.string().optional().describe('Id of the mission that the run belongs to'),
    taskId: z.string().optional().describe('Id of the task that the run works on'),
    toolUseId: z.string().describe('The call, as the events of the run name it'),
    tool: z.string().describe('What the model wants to call'),
    input: z.unknown().describe('What it wants to call it with: all of it, in lists too'),
    mcpId: z.string().optional().describe("MCP server of the tool; absent for the service's own tools"),
    mcpName: z.string().optional().describe('Name of that server when it was asked'),
    origin: z.string().optional().describe('Origin of the address that the call goes to'),
    description: z.string().optional().describe('What the tool says of itself. If that changes, the call asks again'),
    editedInput: z.unknown().optional().describe('The input that a person gave instead'),
    editedBy: z.string().optional().describe('The user who gave it'),
    status: ApprovalStatus.describe('`expired` too when the run ended before anybody decided'),
    reason: z.string().optional().describe('Why, in the words of whoever decided'),
    createdAt: timestamp.describe('Time at which the run asked'),
    expiresAt: timestamp.describe('Until when somebody can decide; then the run goes on without the call'),
    decidedBy: z.string().optional().describe('The user who decided'),
    decidedAt: timestamp.optional().describe('Time of the decision'),
  })
  .meta({ id: 'Approval', description: 'A call of a tool that waits for a decision, or did' })

export const ListApprovals = z.object({
  status: ApprovalStatus.optional().describe('Only approvals with this status'),
  executionId: z.string().optional().describe('Of this run'),
  ...pageInput,
})

/** GET /approvals/events (contract-2.md section 1.19). */
export const FollowApprovals = z.object({
  executionId: z.string().optional().describe('Only approvals of this run'),
})

/** Data of the event of approvals. */
export const ApprovalEventData = z.object({
  type: z.literal('changed').describe('Name of the event'),
  approval: Approval.describe('The approval as it is now'),
})

const decision = {
  id: z.string().describe('The approval'),
  reason: text(2_000).nullish().describe('Why; the model is told when it is denied'),
}

/** POST /approvals/{id}/deny (contract.md section 7). */
export const Deny = z.object(decision).meta({ examples: [{ reason: 'Not on a Friday' }] })

/** POST /approvals/{id}/approve (contract-2.md section 1.13). */
export const Approve = z
  .object({
    ...decision,
    input: z
      .record(z.string(), z.unknown())
      .nullish()
      .describe("Input to call the tool with instead, valid by the tool's schema. The model is told. Default: its own"),
  })
  .meta({ examples: [{ reason: 'Fine' }] })

export const ApprovalsResponse = ok({ approvals: z.array(Approval).describe('Approvals, newest first'), nextCursor })
export const ApprovalResponse = ok({ approval: Approval })
