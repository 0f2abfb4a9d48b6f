import type { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { Deletion } from '../graphql/deletion.ts'
import { argsFromZod, enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { Key } from '../keys/schema.ts'
import { organizations } from './router.ts'
import * as schema from './schema.ts'

const extensions = { scopes: ['members:read'] as const }

enumFromZod('ServiceAccountRole', schema.ServiceRole, 'The role of a service account')
const ServiceAccount = objectFromZod(
  'ServiceAccount',
  schema.ServiceAccount,
  'A user without a browser session, who uses keys only',
  {
    extensions,
  },
)
const ServiceKey = objectFromZod('ServiceAccountKey', Key, 'A key of a service account', { extensions })
const CreateInput = inputFromZod('CreateServiceAccountInput', schema.CreateServiceAccount, 'A new service account')
const UpdateInput = inputFromZod(
  'UpdateServiceAccountInput',
  schema.UpdateServiceAccount,
  'Changes of a service account',
)
const KeyInput = inputFromZod('CreateServiceAccountKeyInput', schema.CreateServiceKey, 'A new key of a service account')

type CreatedKey = { token: string | null; key: z.output<typeof Key> }
const KeyPayload = builder.objectRef<CreatedKey>('CreateServiceAccountKeyPayload').implement({
  description: 'A new key of a service account and its token',
  fields: (t) => ({
    token: t.exposeString('token', { nullable: true, description: 'The token, returned only once' }),
    key: t.field({
      type: ServiceKey,
      description: 'The key',
      extensions: { scopes: ['members:write'] },
      resolve: ({ key }) => key,
    }),
  }),
})

builder.queryFields((t) => ({
  serviceAccounts: t.field({
    ...procedureExtensions(organizations.listServiceAccounts, { rows: 50 }),
    type: [ServiceAccount],
    args: argsFromZod(schema.OrganizationId),
    resolve: async (_, args, { caller }) => (await caller.organizations.listServiceAccounts(args)).serviceAccounts,
  }),
  serviceAccountKeys: t.field({
    ...procedureExtensions(organizations.listServiceKeys, { rows: 50, input: schema.ServiceAccountId }),
    type: [ServiceKey],
    args: argsFromZod(schema.ServiceAccountId),
    resolve: async (_, args, { caller }) => (await caller.organizations.listServiceKeys(args)).keys,
  }),
}))

builder.mutationFields((t) => ({
  createServiceAccount: t.field({
    ...procedureExtensions(organizations.createServiceAccount),
    type: ServiceAccount,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: async (_, { input }, { caller }) =>
      (await caller.organizations.createServiceAccount(input)).serviceAccount,
  }),
  updateServiceAccount: t.field({
    ...procedureExtensions(organizations.updateServiceAccount),
    type: ServiceAccount,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) =>
      (await caller.organizations.updateServiceAccount(input)).serviceAccount,
  }),
  deleteServiceAccount: t.field({
    ...procedureExtensions(organizations.deleteServiceAccount),
    type: Deletion,
    args: argsFromZod(schema.ServiceAccountId),
    resolve: async (_, args, { caller }) => ({
      deletedId: args.userId,
      ...(await caller.organizations.deleteServiceAccount(args)),
    }),
  }),
  createServiceAccountKey: t.field({
    ...procedureExtensions(organizations.createServiceKey),
    type: KeyPayload,
    args: { input: t.arg({ type: KeyInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.organizations.createServiceKey(input),
  }),
  deleteServiceAccountKey: t.field({
    ...procedureExtensions(organizations.deleteServiceKey),
    type: Deletion,
    args: argsFromZod(schema.ServiceKeyId),
    resolve: async (_, args, { caller }) => ({
      deletedId: args.keyId,
      ...(await caller.organizations.deleteServiceKey(args)),
    }),
  }),
}))
