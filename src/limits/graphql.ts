import { builder } from '../graphql/builder.ts'
import { enumFromZod } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { limits } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('LimitName', schema.Limit.shape.name, 'The kind of calls that a rate limit counts')
const Limit = objectFromZod('Limit', schema.Limit, 'A rate limit that applies to you')

builder.queryField('limits', (t) =>
  t.field({
    ...procedureExtensions(limits.get, { rows: 2 }),
    type: [Limit],
    resolve: async (_, __, { caller }) => (await caller.limits.get()).limits,
  }),
)
