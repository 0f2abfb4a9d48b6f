import { rest, router, token } from '../trpc.ts'
import * as schema from './schema.ts'

export const models = router({
  list: token()
    .meta(rest('GET', '/api/v1/models', 'List the models that agents can use'))
    .output(schema.ModelsResponse)
    .query(async ({ ctx: { deps } }) => ({
      models: await deps.models.list(),
      defaultModel: await deps.models.defaultModel().catch(() => null),
    })),
})
