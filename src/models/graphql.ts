import { builder } from '../graphql/builder.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { models } from './router.ts'
import * as schema from './schema.ts'

objectFromZod('Model', schema.Model, 'A model that agents can use')
const ModelList = objectFromZod(
  'ModelList',
  schema.ModelsResponse.omit({ success: true }),
  'The models that agents can use',
)

builder.queryField('models', (t) =>
  t.field({
    ...procedureExtensions(models.list),
    type: ModelList,
    resolve: (_, __, { caller }) => caller.models.list(),
  }),
)
