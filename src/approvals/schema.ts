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
    userId: z.string().describe('The user that the run acts for, who can decide, as admins can'),
    agentId: z.string().describe('The agent whose run waits'),
    agentName: z.string().optional().describe('Name of the agent, if you can see the run'),
    chatTitle: z.string().optional().describe('Title of the chat, if you can see the run'),
    missionId: z.string().optional().describe('Id of the mission that the run belongs to'),
    taskId: z.string().optional().describe('Id of the task that the run works on'),
    toolUseId: z.string().describe('Id of the call, as in the events of the run'),
    tool: z.string().describe('Tool that the model calls'),
    input: z.unknown().describe('Input of the call: whole, in lists too'),
    mcpId: z.string().optional().describe("MCP server of the tool; absent for the service's own tools"),
    mcpName: z.string().optional().describe('Name of that server when the run asked'),
    origin: z.string().optional().describe('Origin of the address that the call goes to'),
    description: z.string().optional().describe('Description of the tool. If it changes, the call asks again'),
    editedInput: z.unknown().optional().describe('The input that a person gave instead'),
    editedBy: z.string().optional().describe('The user who gave the edited input'),
    status: ApprovalStatus.describe('State of the approval. `expired` also if the run ended before a decision'),
    reason: z.string().optional().describe('Reason that the decider gave'),
    createdAt: timestamp.describe('Time at which the run asked'),
    expiresAt: timestamp.describe('Time at which the approval expires; then the run continues without the call'),
    decidedBy: z.string().optional().describe('The user who decided'),
    decidedAt: timestamp.optional().describe('Time of the decision'),
  })
  .meta({ id: 'Approval', description: 'A tool call that waits or has waited for a decision' })

export const ListApprovals = z.object({
  status: ApprovalStatus.optional().describe('Only approvals with this status'),
  executionId: z.string().optional().describe('Only approvals of this run'),
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
  reason: text(2_000).nullish().describe('Reason of the decision. If the call is denied, the model reads it'),
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
      .describe(
        "Input to call the tool with instead, valid by the tool's schema. The model learns of the change. Default: its own",
      ),
  })
  .meta({ examples: [{ reason: 'Fine' }] })

export const ApprovalsResponse = ok({ approvals: z.array(Approval).describe('Approvals, newest first'), nextCursor })
export const ApprovalResponse = ok({ approval: Approval })
