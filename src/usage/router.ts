import { idTokenProcedure, mcpTool, restMeta, router } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const usage = router({
  get: idTokenProcedure('orgId', 'usage:read')
    .meta(restMeta('GET', '/api/usage/organization/{orgId}', "Get the usage of your organization's runs"))
    .meta(mcpTool('get_usage', 'period start end'))
    .input(schema.GetUsage)
    .output(schema.UsageResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input)),
})
