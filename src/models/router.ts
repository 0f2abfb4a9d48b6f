import { z } from 'zod'
import { ok } from '../lib/fields.ts'
import { rest, router, token } from '../trpc.ts'

const Model = z
  .object({ id: z.string(), provider: z.string(), available: z.boolean().describe('Its provider has a key') })
  .meta({ id: 'Model' })

const Models = ok({
  models: z.array(Model),
  defaultModel: z.string().nullable().describe('What runs when nobody names a model; null when none can be told'),
})

export const models = router({
  list: token()
    .meta(rest('GET', '/api/v1/models', 'List the models that agents can use'))
    .output(Models)
    .query(async ({ ctx: { deps } }) => ({
      models: await deps.models.list(),
      defaultModel: await deps.models.defaultModel().catch(() => null),
    })),
})
