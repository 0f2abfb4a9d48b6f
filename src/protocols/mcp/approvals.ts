import { type InputRequest, inputRequired, inputResponse } from '@modelcontextprotocol/server'
import type { z } from 'zod'
import type { Approval } from '../../approvals/schema.ts'
import type { AppError } from '../../errors.ts'
import { createCaller } from '../../router.ts'
import type { Context } from '../../trpc.ts'
import { fromTRPCError } from '../../trpc-errors.ts'

type Pending = z.input<typeof Approval>

/** Maximum length of a call's arguments in a question (characters). */
const MAX_INPUT = 4_000

/** Prefix of the keys of questions, before the id of the approval. */
const PREFIX = 'approval_'

/** Returns the approvals that a run waits for. */
export async function pendingOf(context: Context, executionId: string): Promise<Pending[]> {
  const { approvals } = await createCaller(context).approvals.list({ executionId, status: 'pending' })
  return approvals as Pending[]
}

/** Returns the questions for a person, one for each approval. */
export const questionsFor = (approvals: readonly Pending[]): Record<string, InputRequest> =>
  Object.fromEntries(
    approvals.map((approval) => [
      PREFIX + approval.id,
      inputRequired.elicit({
        message: describe(approval),
        requestedSchema: {
          type: 'object',
          properties: {
            decision: { type: 'string', title: 'Decision', enum: ['approve', 'deny'] },
            reason: { type: 'string', title: 'Reason', description: 'The agent reads it', maxLength: 2_000 },
          },
          required: ['decision'],
        },
      }),
    ]),
  )

function describe({ agentName, tool, mcpName, origin, description, input }: Pending): string {
  const place = [mcpName, origin].filter(Boolean).join(', ')
  const json = JSON.stringify(input, null, 2)
  const text = json.length > MAX_INPUT ? `${json.slice(0, MAX_INPUT)}… (cut)` : json
  return [
    `${agentName ?? 'The agent'} wants to call ${tool}${place && ` (${place})`}.`,
    ...(description ? [description] : []),
    `Arguments: ${text}`,
  ].join('\n')
}

/**
 * Decides approvals by the answers of a person. A dismissed question leaves its approval as it is, and so does one that
 * another person decided meanwhile. Throws the errors of a decision.
 */
export async function decideBy(context: Context, responses: Record<string, unknown> | undefined): Promise<void> {
  for (const key of Object.keys(responses ?? {})) {
    const answer = key.startsWith(PREFIX) ? inputResponse(responses, key) : null
    if (answer?.kind !== 'elicit' || answer.action === 'cancel') continue
    const { decision, reason } = answer.content ?? {}
    const isApproved = answer.action === 'accept' && decision === 'approve'
    if (answer.action === 'accept' && !isApproved && decision !== 'deny') continue
    const input = { id: key.slice(PREFIX.length), ...(typeof reason === 'string' && reason && { reason }) }
    const { approvals } = createCaller(context)
    try {
      await (isApproved ? approvals.approve(input) : approvals.deny(input))
    } catch (error) {
      const { status } = fromTRPCError(error) as AppError
      if (status !== 409) throw error
    }
  }
}
