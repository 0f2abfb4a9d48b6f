import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'

export const models = router({
  list: tokenProcedure()
    .meta(restMeta('GET', '/api/v1/models', 'List the models that agents can use'))
    .output(schema.ModelsResponse)
    .query(async ({ ctx: { deps, actor } }) => ({
      models: await deps.models.list(actor.organizationId),
      defaultModel: await deps.models.defaultModel(actor.organizationId).catch(() => null),
    })),
})
