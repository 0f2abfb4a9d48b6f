import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const PATH = '/api/v1/organizations/{orgId}/providers'

export const providers = router({
  list: tokenProcedure('providers:read')
    .meta(restMeta('GET', PATH, 'List the model providers of your organization'))
    .input(schema.ListProviders)
    .output(schema.ProvidersResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  set: tokenProcedure('providers:write')
    .meta(restMeta('PUT', `${PATH}/{name}`, 'Set a model provider of your organization', { 409: 'The name is taken' }))
    .input(schema.SetProvider)
    .output(schema.ProviderResponse)
    .mutation(async ({ ctx, input }) => {
      const found = await service.findWritable(ctx.actor, input)
      return service.store(ctx.actor, ctx.deps, found, await service.draft(ctx.deps, input))
    }),

  delete: tokenProcedure('providers:write')
    .meta(restMeta('DELETE', `${PATH}/{name}`, 'Delete a model provider of your organization'))
    .input(schema.DeleteProvider)
    .output(schema.ProviderDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input)),
})
