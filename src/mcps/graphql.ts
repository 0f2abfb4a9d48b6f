import { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { builder } from '../graphql/builder.ts'
import { connectionType, rootList } from '../graphql/connection.ts'
import { argsFromZod, enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { deleteRow } from '../graphql/mutations.ts'
import { nodeOf } from '../graphql/node.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { isTruncated, reload, rootRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { bool } from '../lib/fields.ts'
import { USER, User } from '../organizations/graphql.ts'
import { countListed, listedBy } from './list.ts'
import { permissionsOf } from './modes.ts'
import { mcps } from './router.ts'
import * as rows from './rows.ts'
import * as schema from './schema.ts'

// GraphQL has no objects with arbitrary keys, so lists of pairs are used, and no hyphens in enum values, so the
// transport is a string.
const Header = z.object({
  name: z.string().describe('Name of the header'),
  value: z.string().describe('Value of the header'),
})
const Credential = z.object({
  name: z.string().describe('Name of the credential'),
  value: z.string().nullish().describe('Value of the credential; null removes it'),
  isSecret: bool()
    .nullish()
    .describe('Whether the value is a secret. Default: true. The value is never returned in either case'),
})
const { transport, headers, credentials } = schema.CreateMcp.shape
const pairFields = {
  transport: z
    .string()
    .optional()
    .describe(transport.description ?? ''),
  headers: z
    .array(Header)
    .nullish()
    .describe(headers.description ?? ''),
  credentials: z
    .array(Credential)
    .nullish()
    .describe(credentials.description ?? ''),
}
const CreateFields = schema.CreateMcp.extend(pairFields)
const UpdateFields = schema.UpdateMcp.extend(pairFields)

const AuthKind = enumFromZod('McpAuthKind', schema.CreateMcp.shape.auth, 'How requests to a server are authenticated')
enumFromZod('McpPermissionMode', schema.PermissionMode, 'Permission to call a tool')
inputFromZod('McpPermissionInput', schema.Permission, 'Permission to call a tool, or all others')
inputFromZod('McpHeaderInput', Header, 'A header')
inputFromZod('McpCredentialInput', Credential, 'A credential')
const CreateInput = inputFromZod('CreateMcpInput', CreateFields, 'A new MCP server')
const UpdateInput = inputFromZod(
  'UpdateMcpInput',
  UpdateFields,
  'Changes of an MCP server; absent fields are unchanged',
)

const McpSource = enumFromZod('McpSource', schema.Source, 'Origin of an MCP server')

export const McpPermission = objectFromZod(
  'McpPermission',
  schema.Permission,
  'Permission to call a tool, or all others',
)
const McpHeader = objectFromZod('McpHeader', Header, 'A header that is sent with each request')
const McpTool = objectFromZod(
  'McpTool',
  schema.McpTool.extend({ inputSchema: z.unknown().describe('JSON Schema of the input') }),
  'A tool as its server describes it',
)

export const MCP = rowsOf('Mcp', 'McpServer', rows.reachable, {
  name: 'MCP',
  texts: rows.LONG_TEXTS,
})

const ConnectionState = enumFromZod('McpConnectionState', schema.Mcp.shape.connection, 'State of your connection')

const ownConnection = (_: object, { actor }: { actor: Actor }) =>
  ({
    url: true,
    auth: true,
    connections: { where: { userId: actor.userId }, select: rows.CONNECTION },
  }) as const

type WithConnections = Parameters<typeof rows.toConnection>[0] & {
  connections: NonNullable<Parameters<typeof rows.toConnection>[1]>[]
}

const connectionOf = (row: WithConnections) => rows.toConnection(row, row.connections[0])

export const Mcp = builder.prismaObject('McpServer', {
  name: 'Mcp',
  description: 'An MCP server',
  interfaces: nodeOf(MCP),
  select: { id: true },
  extensions: { scopes: ['mcps:read'], like: schema.Mcp },
  fields: (t) => ({
    id: t.exposeID('id'),
    truncated: t.boolean({ nullable: true, resolve: isTruncated }),
    mcpType: t.exposeString('mcpType'),
    name: t.exposeString('name'),
    description: t.exposeString('description', { nullable: true }),
    isActive: t.exposeBoolean('isActive'),
    ownerId: t.exposeID('ownerId'),
    organizationId: t.exposeID('organizationId'),
    source: t.field({
      type: McpSource,
      select: { source: true },
      resolve: ({ source }) => source as z.infer<typeof schema.Source>,
    }),
    url: t.exposeString('url'),
    transport: t.exposeString('transport'),
    headers: t.field({
      type: [McpHeader],
      select: { headers: true },
      resolve: (row) => Object.entries(rows.headersOf(row)).map(([name, value]) => ({ name, value })),
    }),
    credentialsSet: t.stringList({
      select: { credentials: { select: { name: true }, orderBy: { name: 'asc' } } },
      resolve: (row) => row.credentials.map(({ name }) => name),
    }),
    auth: t.field({
      type: AuthKind,
      select: { auth: true },
      resolve: ({ auth }) => auth as z.infer<typeof schema.Mcp.shape.auth>,
    }),
    clientId: t.exposeString('clientId', { nullable: true }),
    clientSecretSet: t.boolean({
      select: { clientSecret: true },
      resolve: ({ clientSecret }) => clientSecret !== null,
    }),
    scope: t.exposeString('scope', { nullable: true }),
    connection: t.field({
      type: ConnectionState,
      select: ownConnection,
      resolve: (row) => connectionOf(row).connection,
    }),
    connectedAs: t.string({
      nullable: true,
      select: ownConnection,
      resolve: (row) => connectionOf(row).connectedAs,
    }),
    permissions: t.field({
      type: [McpPermission],
      select: { permissions: true, operatorModes: true },
      resolve: permissionsOf,
    }),
    usageCount: t.exposeInt('usageCount'),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    owner: t.field(rowIn(User, USER, 'ownerId', 'Creator of the server')),
  }),
})

enumFromZod('McpAuth', schema.McpType.shape.auth, 'A credential that a server needs')
const McpType = objectFromZod('McpType', schema.McpType, 'A well-known kind of MCP server')

const Connecting = objectFromZod(
  'McpConnecting',
  schema.McpConnecting.omit({ success: true }),
  'The page that begins a connection',
)
const Disconnected = objectFromZod(
  'McpDisconnected',
  schema.McpDisconnected.omit({ success: true }),
  'Outcome of disconnecting',
)

const Mcps = connectionType('Mcp', Mcp, 'MCP servers, newest first')

builder.queryFields((t) => ({
  mcps: t.field(
    rootList(
      Mcps,
      MCP,
      mcps.list,
      schema.ListMcps,
      ({ actor }, input) => listedBy(actor, input),
      ({ actor, deps }, input) => countListed(actor, deps.db, input),
    ),
  ),
  mcp: t.field(rootRow(Mcp, MCP, mcps.get, schema.McpId)),
  mcpCatalogue: t.field({
    ...procedureExtensions(mcps.catalogue),
    type: [McpType],
    resolve: async (_, _args, { caller }) => (await caller.mcps.catalogue()).types,
  }),
  mcpTools: t.field({
    ...procedureExtensions(mcps.tools),
    type: [McpTool],
    args: argsFromZod(schema.McpId),
    resolve: async (_, args, { caller }) => (await caller.mcps.tools(args)).tools,
  }),
}))

type Lists = Pick<z.input<typeof UpdateFields>, 'headers' | 'credentials'>

/** Converts the lists of pairs into the objects of the procedures. */
const toProcedureInput = <Input extends Lists>({ headers, credentials, ...rest }: Input) => ({
  ...(rest as Omit<Input, keyof Lists | 'transport'> & { transport?: never }),
  ...(headers !== undefined && {
    headers: headers && Object.fromEntries(headers.map(({ name, value }) => [name, value])),
  }),
  ...(credentials !== undefined && {
    credentials:
      credentials &&
      Object.fromEntries(
        credentials.map(({ name, value, isSecret }) => [name, value == null ? null : { value, isSecret }]),
      ),
  }),
})

builder.mutationFields((t) => ({
  createMcp: t.field({
    ...procedureExtensions(mcps.create, { input: CreateFields }),
    type: Mcp,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: async (_, { input }, context, info) => {
      const { id } = await context.caller.mcps.create(toProcedureInput(input))
      return reload(context, info, MCP, id)
    },
  }),
  updateMcp: t.field({
    ...procedureExtensions(mcps.update, { input: UpdateFields }),
    type: Mcp,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, context, info) => {
      await context.caller.mcps.update(toProcedureInput(input))
      return reload(context, info, MCP, input.id)
    },
  }),
  connectMcp: t.field({
    ...procedureExtensions(mcps.connect),
    args: argsFromZod(schema.McpId),
    type: Connecting,
    resolve: (_, args, { caller }) => caller.mcps.connect(args),
  }),
  disconnectMcp: t.field({
    ...procedureExtensions(mcps.disconnect),
    args: argsFromZod(schema.McpId),
    type: Disconnected,
    resolve: (_, args, { caller }) => caller.mcps.disconnect(args),
  }),
  deleteMcp: t.field(deleteRow(mcps.delete, schema.McpId, (caller, args) => caller.mcps.delete(args))),
}))
