import type { ModelInfo } from '../executions/engine/models.ts'
import { builder } from '../graphql/builder.ts'
import { shows } from '../graphql/procedures.ts'
import { models } from './router.ts'

const Model = builder.objectRef<ModelInfo>('Model').implement({
  description: 'A model that agents can use',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'As agents name it' }),
    provider: t.exposeString('provider', { description: 'Who offers it' }),
    available: t.exposeBoolean('available', { description: 'Its provider has a key' }),
  }),
})

const ModelList = builder.objectRef<{ models: ModelInfo[]; defaultModel: string | null }>('ModelList').implement({
  description: 'The models that agents can use',
  fields: (t) => ({
    models: t.expose('models', { type: [Model], description: 'All of them' }),
    defaultModel: t.exposeString('defaultModel', {
      nullable: true,
      description: 'What runs when nobody names a model; null when none can be told',
    }),
  }),
})

builder.queryField('models', (t) =>
  t.field({ ...shows(models.list), type: ModelList, resolve: (_, __, { caller }) => caller.models.list() }),
)
