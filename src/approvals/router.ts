import { onceClaimed } from '../idempotency.ts'
import { rest, router, token } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const DECIDED = { 409: 'It was decided already, or has expired' }

const decision = (path: `/api/${string}`, summary: string, status: 'approved' | 'denied') =>
  token('approvals:write')
    .meta(rest('POST', path, summary, DECIDED))
    .input(schema.Decide)
    .output(schema.ApprovalResponse)
    .mutation(({ ctx, input }) =>
      onceClaimed(
        ctx,
        input,
        () => service.find(ctx.actor, ctx.deps, input.id),
        (key) => service.decide(ctx.actor, ctx.deps, input, status, key),
      ),
    )

export const approvals = router({
  list: token('approvals:read')
    .meta(rest('GET', '/api/v1/approvals', 'List the calls of tools that wait for approval, or did'))
    .input(schema.ListApprovals.prefault({}))
    .output(schema.ApprovalsResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  approve: decision('/api/v1/approvals/{id}/approve', 'Let a call be made', 'approved'),
  deny: decision('/api/v1/approvals/{id}/deny', 'Refuse a call', 'denied'),
})
