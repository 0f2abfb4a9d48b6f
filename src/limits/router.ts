import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const limits = router({
  get: tokenProcedure()
    .meta(restMeta('GET', '/api/v1/limits', 'Get your rate limits'))
    .output(schema.LimitsResponse)
    .query(({ ctx }) => service.get(ctx.actor, ctx.deps)),
})
