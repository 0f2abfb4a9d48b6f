import type { GraphQLResolveInfo } from 'graphql'
import { AGENT, Agent } from '../agents/graphql.ts'
import { NAMED, nameIn } from '../agents/visibility.ts'
import { isAdmin } from '../auth/actor.ts'
import { CHAT, Chat, Message } from '../chats/graphql.ts'
import { builder, type GraphQLContext } from '../graphql/builder.ts'
import { connectionType, relationList, rootList } from '../graphql/connection.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { batchScope, loadOne } from '../graphql/loader.ts'
import { nodeOf } from '../graphql/node.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { delegateOf, findRow, isTruncated, rootRow, rowIn, rowsOf, selectRows } from '../graphql/rows.ts'
import { parseExact } from '../lib/exact-json.ts'
import { USER, User } from '../organizations/graphql.ts'
import { SPACE, Space } from '../spaces/graphql.ts'
import { warningsOf } from './engine/run/warnings.ts'
import { executions } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const Status = enumFromZod('ExecutionStatus', schema.Status, 'The status of an execution')
const Wait = enumFromZod(
  'ExecutionWait',
  schema.Execution.shape.waitingFor,
  'Reason for which a pending execution waits',
)

type TokenUsage = { inputTokens: number; outputTokens: number }

export const Usage = builder.objectRef<TokenUsage>('Usage').implement({
  description: 'Tokens as counted by the provider',
  fields: (t) => ({
    inputTokens: t.exposeFloat('inputTokens', { description: 'Number of input tokens' }),
    outputTokens: t.exposeFloat('outputTokens', { description: 'Number of output tokens' }),
  }),
})

export const Warning = builder.objectRef<{ code: string; text: string }>('Warning').implement({
  description: 'A warning about a feature that a run had to omit',
  fields: (t) => ({
    code: t.exposeString('code', { description: 'Kind of the warning, for programs; new ones may appear' }),
    text: t.exposeString('text', { description: 'Message for people' }),
  }),
})

type Row = { id: string; userId: string }

/** Returns whether the caller may read the texts of a run, with one query for all rows of a list. */
export async function isReadable(id: string, context: GraphQLContext, info: GraphQLResolveInfo): Promise<boolean> {
  const found = await loadOne(context, batchScope(info, 'readable'), id, async (ids) => {
    const readable = await service.readableOf(context.actor, context.deps.db, ids)
    return new Map(ids.map((one) => [one, readable.has(one)]))
  })
  return found ?? false
}

/** Resolves a text column of a run, or null unless the caller may read its texts. */
const textOf =
  <const Column extends string, Value>(column: Column, otherwise: Value) =>
  async (
    row: { id: string } & Record<Column, Value>,
    _: object,
    context: GraphQLContext,
    info: GraphQLResolveInfo,
  ): Promise<Value> =>
    (await isReadable(row.id, context, info)) ? row[column] : otherwise

export const EXECUTION = rowsOf<Row>('Execution', 'Execution', service.reachable, {
  name: 'Execution',
  columns: { userId: true },
  texts: ['message', 'result', 'resultObject'],
})

export const Execution = builder.prismaObject('Execution', {
  description: 'The work of an agent on one message',
  interfaces: nodeOf(EXECUTION),
  // The owner of the run determines who may read it.
  select: { id: true, userId: true },
  extensions: { scopes: ['executions:read'], like: schema.Execution },
  fields: (t) => ({
    id: t.exposeID('id'),
    truncated: t.boolean({
      nullable: true,
      description:
        'Whether `message` and `result` are cut at 4,000 characters, as in long lists. Get the execution by its id for both',
      resolve: isTruncated,
    }),
    agentId: t.exposeID('agentId'),
    agentVersion: t.exposeInt('agentVersion'),
    agentName: t.string({
      description: 'Name of the agent; null if another organization has withdrawn it',
      nullable: true,
      select: { agentId: true },
      resolve: async ({ id, agentId }, _, context, info) => {
        if (!(await isReadable(id, context, info))) return null
        return loadOne(context, info, agentId, async (ids) => {
          const { actor, deps } = context
          const found = await deps.db.agent.findMany({ where: { id: { in: ids } }, select: { id: true, ...NAMED } })
          return new Map(found.map((agent) => [agent.id, nameIn(actor.organizationId, agent)]))
        })
      },
    }),
    agent: t.field(
      rowIn(
        Agent,
        AGENT,
        'agentId',
        'The agent in its current state; null if you cannot reach it, as for another organization',
      ),
    ),
    organizationId: t.exposeID('organizationId'),
    userId: t.exposeID('userId'),
    tokenId: t.id({
      nullable: true,
      description: 'The key that started it; only for its user and admins',
      select: { userId: true, tokenId: true },
      resolve: ({ userId, tokenId }, _, { actor }) => (isAdmin(actor) || userId === actor.userId ? tokenId : null),
    }),
    status: t.expose('status', { type: Status }),
    waitingFor: t.expose('waitingFor', { type: Wait, nullable: true }),
    message: t.string({ select: { message: true }, extensions: { cost: 10 }, resolve: textOf('message', '') }),
    files: t.stringList({
      select: { files: true },
      resolve: async ({ id, files }, _, context, info) =>
        (await isReadable(id, context, info)) ? (files as string[]) : [],
    }),
    mediaIds: t.idList({
      select: { mediaIds: true },
      resolve: async ({ id, mediaIds }, _, context, info) =>
        (await isReadable(id, context, info)) ? (mediaIds as string[]) : [],
    }),
    preview: t.string({
      description: 'The first 200 characters of the message',
      select: { preview: true },
      resolve: textOf('preview', ''),
    }),
    result: t.string({
      nullable: true,
      select: { result: true },
      extensions: { cost: 10 },
      resolve: textOf<'result', string | null>('result', null),
    }),
    resultObject: t.field({
      type: 'JSON',
      nullable: true,
      description: 'Parsed answer of a run with an output schema; null for rows that are cut',
      select: { resultObject: true },
      extensions: { cost: 10 },
      async resolve(row, _, context, info) {
        if (row.resultObject === null || isTruncated(row)) return null
        return (await isReadable(row.id, context, info)) ? parseExact(row.resultObject) : null
      },
    }),
    error: t.string({
      nullable: true,
      select: { error: true },
      resolve: textOf<'error', string | null>('error', null),
    }),
    restricted: t.boolean({
      nullable: true,
      resolve: async ({ id }, _, context, info) => ((await isReadable(id, context, info)) ? null : true),
    }),
    errorCode: t.string({
      nullable: true,
      select: { errorCode: true },
      resolve: textOf<'errorCode', string | null>('errorCode', null),
    }),
    stopReason: t.exposeString('stopReason', { nullable: true }),
    model: t.exposeString('model', { nullable: true }),
    modelsTried: t.stringList({
      select: { modelsTried: true },
      resolve: ({ modelsTried }) => modelsTried as string[],
    }),
    usage: t.field({ type: Usage, select: { inputTokens: true, outputTokens: true }, resolve: (row) => row }),
    warnings: t.field({
      type: [Warning],
      select: { warnings: true },
      extensions: { rows: 3 },
      resolve: async (row, _, context, info) => ((await isReadable(row.id, context, info)) ? warningsOf(row) : []),
    }),
    usageEstimated: t.exposeBoolean('usageEstimated'),
    chatId: t.exposeID('chatId'),
    sessionId: t.exposeID('sessionId'),
    spaceId: t.exposeID('spaceId'),
    taskId: t.exposeID('taskId', { nullable: true }),
    missionId: t.exposeID('missionId', { nullable: true }),
    parentExecutionId: t.exposeID('parentExecutionId', { nullable: true }),
    depth: t.exposeInt('depth'),
    attempt: t.exposeInt('attempt'),
    executionTime: t.float({
      nullable: true,
      select: { startedAt: true, completedAt: true },
      resolve: ({ startedAt, completedAt }) =>
        startedAt && completedAt && Math.max(0, completedAt.getTime() - startedAt.getTime()),
    }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    startedAt: t.expose('startedAt', { type: 'DateTime', nullable: true }),
    completedAt: t.expose('completedAt', { type: 'DateTime', nullable: true }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    user: t.field(rowIn(User, USER, 'userId', 'Owner of the run')),
    chat: t.field(rowIn(Chat, CHAT, 'chatId', 'Chat of the run')),
    space: t.field(rowIn(Space, SPACE, 'spaceId', 'Space of the run')),
  }),
})

export const Executions = connectionType('Execution', Execution, 'executions, newest first')

type Tree = { nodes: schema.ExecutionNode[]; usage: TokenUsage }

const ExecutionTree = builder.objectRef<Tree>('ExecutionTree').implement({
  description: 'An execution with its ancestors and descendants',
  fields: (t) => ({
    executions: t.field({
      type: [Execution],
      description:
        'The root first, then by depth, without unreachable ones. If the texts exceed 1 MiB, only the requested execution has them whole; for the others `message` is cut at 200 characters and `result` is null',
      extensions: { scopes: ['executions:read', 'agents:execute'], rows: 100 },
      resolve: async ({ nodes }, _, context, info) => {
        // The texts are loaded already, as far as they fit in a response.
        const { message, result, ...select } = selectRows(context, info, EXECUTION).select
        const texts = new Map(nodes.map(({ id, message, result = null }) => [id, { message, result }]))
        const rows = await delegateOf(context.deps.db, EXECUTION).findMany({
          select,
          where: { id: { in: [...texts.keys()] } },
          orderBy: [{ depth: 'asc' }, { createdAt: 'asc' }, { id: 'asc' }],
        })
        return rows.map((row) => ({ ...row, ...texts.get(row.id) }))
      },
    }),
    usage: t.expose('usage', { type: Usage, description: 'Usage of the whole tree, including unreachable executions' }),
  }),
})

builder.prismaObjectFields(Execution, (t) => ({
  parent: t.field(
    rowIn(Execution, EXECUTION, 'parentExecutionId', 'Parent execution; null if there is none that you can reach'),
  ),
  children: t.field(
    relationList(Executions, EXECUTION, {
      column: 'parentExecutionId',
      description: 'Child executions, newest first',
    }),
  ),
}))

builder.prismaObjectFields(Agent, (t) => ({
  executions: t.field(
    relationList(Executions, EXECUTION, {
      column: 'agentId',
      description: 'Runs in your organization, newest first',
    }),
  ),
}))

builder.prismaObjectFields(Chat, (t) => ({
  executions: t.field(
    relationList(Executions, EXECUTION, { column: 'chatId', description: 'Runs of the chat, newest first' }),
  ),
}))

builder.prismaObjectFields(Message, (t) => ({
  execution: t.field(rowIn(Execution, EXECUTION, 'executionId', 'Run of the message')),
}))

builder.prismaObjectFields(Space, (t) => ({
  executions: t.field(
    relationList(Executions, EXECUTION, { column: 'spaceId', description: 'Runs of the space, newest first' }),
  ),
}))

builder.queryFields((t) => ({
  executions: t.field(
    rootList(
      Executions,
      EXECUTION,
      executions.list,
      schema.ListExecutions,
      ({ actor }, input) => service.listedBy(actor, input),
      ({ actor, deps }, input) => service.countListed(actor, deps.db, input),
    ),
  ),
  execution: t.field({
    ...rootRow(Execution, EXECUTION, executions.get, schema.ExecutionId),
    resolve: async (_, args, context, info) => {
      const { id } = parseArgs(schema.ExecutionId, args)
      const row = await findRow(context, info, EXECUTION, id)
      service.requireOwnRun(context.actor, row)
      return row
    },
  }),
  executionTree: t.field({
    ...procedureExtensions(executions.tree),
    type: ExecutionTree,
    args: argsFromZod(schema.ExecutionId),
    resolve: async (_, args, { caller }) => {
      const { tree, usage } = await caller.executions.tree(args)
      return { nodes: nodesOf(tree), usage: { inputTokens: usage.input_tokens, outputTokens: usage.output_tokens } }
    },
  }),
}))

const nodesOf = (node: schema.ExecutionNode): schema.ExecutionNode[] => [node, ...node.children.flatMap(nodesOf)]
