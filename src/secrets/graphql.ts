import { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, inputFromZod } from '../graphql/inputs.ts'
import { shows } from '../graphql/procedures.ts'
import { secrets } from './router.ts'
import * as schema from './schema.ts'

// GraphQL has no objects with names of the client's choice: a list of pairs says the same.
const SecretInput = inputFromZod('SecretInput', z.object({ name: z.string(), value: z.string() }), 'A secret')

const byName = (pairs: { name: string; value: string }[]) =>
  Object.fromEntries(pairs.map(({ name, value }) => [name, value]))

builder.queryFields((t) => ({
  spaceSecrets: t.stringList({
    ...shows(secrets.list),
    args: argsFromZod(schema.SpaceSecrets),
    resolve: async (_, args, { caller }) => (await caller.secrets.list(args)).secrets,
  }),
  organizationSecrets: t.stringList({
    ...shows(secrets.listEnv),
    args: argsFromZod(schema.OrganizationSecrets),
    resolve: async (_, args, { caller }) => (await caller.secrets.listEnv(args)).secrets,
  }),
}))

builder.mutationFields((t) => ({
  setSpaceSecrets: t.stringList({
    ...shows(secrets.set),
    args: { id: t.arg.id({ required: true }), secrets: t.arg({ type: [SecretInput], required: true }) },
    resolve: async (_, { id, secrets: pairs }, { caller }) =>
      (await caller.secrets.set({ id, secrets: byName(pairs) })).keys,
  }),
  deleteSpaceSecrets: t.stringList({
    ...shows(secrets.delete),
    args: argsFromZod(schema.DeleteSpaceSecrets),
    resolve: async (_, args, { caller }) => (await caller.secrets.delete(args)).keys,
  }),
  deleteSpaceSecret: t.stringList({
    ...shows(secrets.deleteOne),
    args: argsFromZod(schema.DeleteSpaceSecret),
    resolve: async (_, args, { caller }) => (await caller.secrets.deleteOne(args)).keys,
  }),
  setOrganizationSecrets: t.stringList({
    ...shows(secrets.setEnv),
    args: { orgId: t.arg.id({ required: true }), secrets: t.arg({ type: [SecretInput], required: true }) },
    resolve: async (_, { orgId, secrets: pairs }, { caller }) =>
      (await caller.secrets.setEnv({ orgId, secrets: byName(pairs) })).keys,
  }),
  deleteOrganizationSecrets: t.stringList({
    ...shows(secrets.deleteEnv),
    args: argsFromZod(schema.DeleteOrganizationSecrets),
    resolve: async (_, args, { caller }) => (await caller.secrets.deleteEnv(args)).keys,
  }),
  deleteOrganizationSecret: t.stringList({
    ...shows(secrets.deleteOneEnv),
    args: argsFromZod(schema.DeleteOrganizationSecret),
    resolve: async (_, args, { caller }) => (await caller.secrets.deleteOneEnv(args)).keys,
  }),
}))
