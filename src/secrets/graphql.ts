import { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, inputFromZod } from '../graphql/inputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { secrets } from './router.ts'
import * as schema from './schema.ts'

// GraphQL has no objects with arbitrary keys, so a list of pairs is used.
const Secret = z.object({
  name: z.string().describe('Name of the secret'),
  value: z.string().describe('Value of the secret'),
  hosts: z.array(z.string()).optional().describe('Hosts that runs may send it to'),
})
const pairs = { secrets: z.array(Secret) }
const SetSpaceSecrets = schema.SetSpaceSecrets.extend(pairs)
const SetOrganizationSecrets = schema.SetOrganizationSecrets.extend(pairs)

inputFromZod('SecretInput', Secret, 'A secret')

const byName = (pairs: z.output<typeof Secret>[]) =>
  Object.fromEntries(pairs.map(({ name, value, hosts = [] }) => [name, { value, hosts }]))

builder.queryFields((t) => ({
  spaceSecrets: t.stringList({
    ...procedureExtensions(secrets.list),
    args: argsFromZod(schema.SpaceSecrets),
    resolve: async (_, args, { caller }) => (await caller.secrets.list(args)).secrets,
  }),
  organizationSecrets: t.stringList({
    ...procedureExtensions(secrets.listEnv),
    args: argsFromZod(schema.OrganizationSecrets),
    resolve: async (_, args, { caller }) => (await caller.secrets.listEnv(args)).secrets,
  }),
}))

builder.mutationFields((t) => ({
  setSpaceSecrets: t.stringList({
    ...procedureExtensions(secrets.set, { input: SetSpaceSecrets }),
    args: argsFromZod(SetSpaceSecrets),
    resolve: async (_, { id, secrets }, { caller }) =>
      (await caller.secrets.set({ id, secrets: byName(secrets) })).keys,
  }),
  deleteSpaceSecrets: t.stringList({
    ...procedureExtensions(secrets.delete),
    args: argsFromZod(schema.DeleteSpaceSecrets),
    resolve: async (_, args, { caller }) => (await caller.secrets.delete(args)).keys,
  }),
  deleteSpaceSecret: t.stringList({
    ...procedureExtensions(secrets.deleteOne),
    args: argsFromZod(schema.DeleteSpaceSecret),
    resolve: async (_, args, { caller }) => (await caller.secrets.deleteOne(args)).keys,
  }),
  setOrganizationSecrets: t.stringList({
    ...procedureExtensions(secrets.setEnv, { input: SetOrganizationSecrets }),
    args: argsFromZod(SetOrganizationSecrets),
    resolve: async (_, { orgId, secrets }, { caller }) =>
      (await caller.secrets.setEnv({ orgId, secrets: byName(secrets) })).keys,
  }),
  deleteOrganizationSecrets: t.stringList({
    ...procedureExtensions(secrets.deleteEnv),
    args: argsFromZod(schema.DeleteOrganizationSecrets),
    resolve: async (_, args, { caller }) => (await caller.secrets.deleteEnv(args)).keys,
  }),
  deleteOrganizationSecret: t.stringList({
    ...procedureExtensions(secrets.deleteOneEnv),
    args: argsFromZod(schema.DeleteOrganizationSecret),
    resolve: async (_, args, { caller }) => (await caller.secrets.deleteOneEnv(args)).keys,
  }),
}))
