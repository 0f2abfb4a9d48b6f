import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const audit = router({
  list: tokenProcedure('audit:read')
    .meta(restMeta('GET', '/api/v1/audit', 'List the audit events of your organization'))
    .input(schema.ListAudit.prefault({}))
    .output(schema.AuditResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),
})
