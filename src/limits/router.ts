import { rest, router, token } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const limits = router({
  get: token()
    .meta(rest('GET', '/api/v1/limits', 'Get your rate limits'))
    .output(schema.LimitsResponse)
    .query(({ ctx }) => service.get(ctx.actor, ctx.deps)),
})
