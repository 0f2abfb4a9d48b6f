import type { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { connectionType, rootList } from '../graphql/connection.ts'
import { argsFromZod, inputFromZod } from '../graphql/inputs.ts'
import { nodeOf } from '../graphql/node.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { reload, rowsOf } from '../graphql/rows.ts'
import { keys } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const KEY = rowsOf('Key', 'Token', service.reachable, { name: 'Key' })

const Key = builder.prismaObject('Token', {
  name: 'Key',
  description: 'A personal access token of yours, never the token itself',
  interfaces: nodeOf(KEY),
  select: { id: true },
  extensions: { scopes: ['keys:read'], like: schema.Key },
  fields: (t) => ({
    id: t.exposeID('id'),
    name: t.exposeString('name'),
    preview: t.exposeString('preview'),
    scopes: t.stringList({ select: { scopes: true }, resolve: ({ scopes }) => scopes as string[] }),
    tokenId: t.exposeID('tokenId', {
      nullable: true,
      description: 'The key that created it; null if no key did',
    }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    expiresAt: t.expose('expiresAt', { type: 'DateTime', nullable: true }),
    lastUsedAt: t.expose('lastUsedAt', { type: 'DateTime', nullable: true }),
  }),
})

const Keys = connectionType('Key', Key, 'your keys, newest first')
const CreateInput = inputFromZod('CreateKeyInput', schema.CreateKey, 'A new key')

const CreatePayload = builder.objectRef<{ id: string; token: string | null }>('CreateKeyPayload').implement({
  description: 'A new key and its token',
  fields: (t) => ({
    token: t.exposeString('token', { nullable: true, description: 'The token, returned only once' }),
    key: t.field({
      type: Key,
      description: 'The key',
      extensions: { scopes: ['keys:write'] },
      resolve: ({ id }, _, context, info) => reload(context, info, KEY, id),
    }),
  }),
})

const DerivedOfKey = builder.objectRef<z.input<typeof schema.Derived>>('DerivedOfKey').implement({
  description: 'Things that were made with a key',
  fields: (t) => ({
    keys: t.exposeIDList('keys', { description: 'Keys that were created with it or with one of those' }),
    missions: t.exposeIDList('missions', { description: 'Missions last written with one of these keys' }),
    runs: t.exposeIDList('runs', { description: 'Executions under way that one of these keys started' }),
  }),
})

type Deleted = { deletedId: string; message: string; derived: z.input<typeof schema.Derived> }
const DeletePayload = builder.objectRef<Deleted>('DeleteKeyPayload').implement({
  description: 'A revoked key, and what was made with it',
  fields: (t) => ({
    deletedId: t.exposeID('deletedId', { description: 'The key' }),
    message: t.exposeString('message', { description: 'Confirmation for people' }),
    derived: t.field({
      type: DerivedOfKey,
      description: 'Ended too with `cascade`; otherwise they still exist',
      resolve: ({ derived }) => derived,
    }),
  }),
})

builder.queryField('keys', (t) =>
  t.field(rootList(Keys, KEY, keys.list, schema.ListKeys, ({ actor }) => service.reachable(actor))),
)

builder.mutationFields((t) => ({
  createKey: t.field({
    ...procedureExtensions(keys.create),
    type: CreatePayload,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.keys.create(input),
  }),
  deleteKey: t.field({
    ...procedureExtensions(keys.delete),
    type: DeletePayload,
    args: {
      ...argsFromZod(schema.KeyId),
      cascade: t.arg.boolean({
        description:
          'Also revoke keys made with it, pause missions, cancel runs, delete invitations and disable webhooks',
      }),
    },
    resolve: async (_, args, { caller }) => {
      const { id, cascade } = args
      return { deletedId: id, ...(await caller.keys.delete({ id, ...(cascade != null && { cascade }) })) }
    },
  }),
}))
