import { builder } from '../graphql/builder.ts'
import { argsFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { CURSOR_COLUMNS, pageType, readPage } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { selectRows } from '../graphql/select.ts'
import { keys } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const Key = builder.prismaObject('Token', {
  name: 'Key',
  description: 'A personal access token of yours, never the token itself',
  select: { id: true },
  extensions: { scopes: ['keys:read'], like: schema.Key },
  fields: (t) => ({
    id: t.exposeID('id'),
    name: t.exposeString('name'),
    preview: t.exposeString('preview'),
    scopes: t.stringList({ select: { scopes: true }, resolve: ({ scopes }) => scopes as string[] }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    expiresAt: t.expose('expiresAt', { type: 'DateTime', nullable: true }),
    lastUsedAt: t.expose('lastUsedAt', { type: 'DateTime', nullable: true }),
  }),
})

const KeyPage = pageType('KeyPage', Key, 'A page of your keys, newest first')
const CreateInput = inputFromZod('CreateKeyInput', schema.CreateKey, 'A new key')

const CreatePayload = builder.objectRef<{ id: string; token: string | null }>('CreateKeyPayload').implement({
  description: 'A new key and its token',
  fields: (t) => ({
    token: t.exposeString('token', { nullable: true, description: 'The token, this once' }),
    key: t.prismaField({
      type: Key,
      description: 'The key',
      extensions: { scopes: ['keys:write'] },
      resolve: (query, { id }, _, { deps }) => deps.db.token.findUniqueOrThrow({ ...query, where: { id } }),
    }),
  }),
})

builder.queryField('keys', (t) =>
  t.field({
    ...shows(keys.list, { rows: 1000 }),
    type: KeyPage,
    args: argsFromZod(schema.ListKeys),
    resolve: (_, args, context, info) => {
      const { db } = context.deps
      const input = parseArgs(schema.ListKeys, args)
      const where = service.reachable(context.actor)
      const rows = selectRows(context, info, { type: 'Key', path: ['nodes'], columns: CURSOR_COLUMNS })
      return readPage(
        input,
        where,
        (page) => db.token.findMany({ ...rows, ...page }),
        () => db.token.count({ where }),
      )
    },
  }),
)

builder.mutationFields((t) => ({
  createKey: t.field({
    ...shows(keys.create),
    type: CreatePayload,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.keys.create(input),
  }),
  deleteKey: t.string({
    ...shows(keys.delete),
    args: argsFromZod(schema.KeyId),
    resolve: async (_, args, { caller }) => (await caller.keys.delete(args)).message,
  }),
}))
