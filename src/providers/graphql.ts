import { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { Deletion } from '../graphql/deletion.ts'
import { argsFromZod, enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { providers } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('ProviderSource', schema.Provider.shape.source, 'Owner of the key of a model provider')
enumFromZod('ProviderStatus', schema.Provider.shape.status, 'The outcome of the check of a model provider')
const ProviderObject = objectFromZod('Provider', schema.Provider, 'A model provider of an organization')

// GraphQL has no objects with arbitrary keys, so a list of pairs is used.
const Header = z.object({
  name: z.string().describe('Name of the header'),
  value: z.string().describe('Value of the header'),
})
inputFromZod('ProviderHeaderInput', Header, 'A header of a model provider')
const SetProvider = schema.SetProvider.extend({
  headers: z.array(Header).nullish(),
  check: z.boolean().default(true).describe('Whether the provider is asked for its models'),
})

builder.queryField('providers', (t) =>
  t.field({
    ...procedureExtensions(providers.list),
    type: [ProviderObject],
    args: argsFromZod(schema.ListProviders),
    resolve: async (_, args, { caller }) => (await caller.providers.list(args)).providers,
  }),
)

builder.mutationFields((t) => ({
  setProvider: t.field({
    ...procedureExtensions(providers.set, { input: SetProvider }),
    type: ProviderObject,
    args: argsFromZod(SetProvider),
    resolve: async (_, { headers, check, ...input }, { caller }) => {
      const pairs = headers?.map(({ name, value }) => [name, value] as const)
      return (
        await caller.providers.set({
          ...input,
          check: check ?? true,
          ...(pairs && { headers: Object.fromEntries(pairs) }),
        })
      ).provider
    },
  }),
  deleteProvider: t.field({
    ...procedureExtensions(providers.delete),
    args: argsFromZod(schema.DeleteProvider),
    type: Deletion,
    resolve: async (_, args, { caller }) => ({ deletedId: args.name, ...(await caller.providers.delete(args)) }),
  }),
}))
