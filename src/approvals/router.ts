import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { idempotentClaimed } from '../idempotency.ts'
import { type Context, mcpTool, restMeta, router, tokenProcedure } from '../trpc.ts'
import { follow } from './follow.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const DECIDED = { 409: 'The approval was already decided, or has expired' }

type Decision = z.output<typeof schema.Approve>

async function decide(ctx: Context & { actor: Actor }, input: Decision, status: 'approved' | 'denied') {
  const { actor, deps } = ctx
  const answer = await idempotentClaimed(
    ctx,
    input,
    () => service.find(actor, deps, input.id),
    (key) => service.decide(actor, deps, input, status, key),
  )
  return ctx.idempotency?.replayed ? service.withoutClosed(actor, deps, answer) : answer
}

export const approvals = router({
  list: tokenProcedure('approvals:read')
    .meta(restMeta('GET', '/api/v1/approvals', 'List tool calls that wait or have waited for approval'))
    .meta(mcpTool('list_approvals', 'status executionId limit cursor'))
    .input(schema.ListApprovals.prefault({}))
    .output(schema.ApprovalsResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  /** Follows approvals; it has no effect, and is repeated by clients that reconnect. */
  changes: tokenProcedure('approvals:read')
    .meta({ errors: { 404: 'The run does not exist or is not accessible' } })
    .input(schema.FollowApprovals.prefault({}))
    .subscription(({ ctx, input }) => follow(ctx.actor, ctx.deps, input, ctx.streamTo)),

  approve: tokenProcedure('approvals:write')
    .meta(restMeta('POST', '/api/v1/approvals/{id}/approve', 'Approve a tool call', DECIDED))
    .input(schema.Approve)
    .output(schema.ApprovalResponse)
    .mutation(({ ctx, input }) => decide(ctx, input, 'approved')),

  deny: tokenProcedure('approvals:write')
    .meta(restMeta('POST', '/api/v1/approvals/{id}/deny', 'Deny a tool call', DECIDED))
    .input(schema.Deny)
    .output(schema.ApprovalResponse)
    .mutation(({ ctx, input }) => decide(ctx, input, 'denied')),
})
