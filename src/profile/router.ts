import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const profile = router({
  get: tokenProcedure('profile:read')
    .meta(restMeta('GET', '/api/v1/profile', 'Get your profile'))
    .output(schema.ProfileResponse)
    .query(({ ctx }) => service.get(ctx.actor, ctx.deps)),

  update: tokenProcedure('profile:write')
    .meta(restMeta('PATCH', '/api/v1/profile', 'Change your name, picture and mail notifications'))
    .input(schema.UpdateProfile)
    .output(schema.ProfileResponse)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),
})
