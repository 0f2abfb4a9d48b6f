import { Agent } from '../agents/graphql.ts'
import { executable, reachable as reachableAgent } from '../agents/service.ts'
import { notFound } from '../errors.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { loadOne } from '../graphql/loader.ts'
import { CURSOR_COLUMNS, newestFirst, pageType, RELATION, RelationArgs, readPage } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { selectRows } from '../graphql/select.ts'
import { executions } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const Status = enumFromZod('ExecutionStatus', schema.Status, 'Where an execution is')
const Wait = enumFromZod('ExecutionWait', schema.Execution.shape.waitingFor, 'What a pending execution waits for')

type TokenUsage = { inputTokens: number; outputTokens: number }

export const Usage = builder.objectRef<TokenUsage>('Usage').implement({
  description: 'Tokens, as the provider counts them',
  fields: (t) => ({
    inputTokens: t.exposeInt('inputTokens', { description: 'What the model read' }),
    outputTokens: t.exposeInt('outputTokens', { description: 'What it wrote' }),
  }),
})

export const Execution = builder.prismaObject('Execution', {
  description: 'One run of an agent',
  // Whose run it is decides who may read it.
  select: { id: true, userId: true },
  extensions: { scopes: ['executions:read'], like: schema.Execution },
  fields: (t) => ({
    id: t.exposeID('id'),
    agentId: t.exposeID('agentId'),
    agentVersion: t.exposeInt('agentVersion'),
    agentName: t.string({
      description: 'What the agent is called; null when another organization has withdrawn it',
      nullable: true,
      select: { agentId: true },
      resolve: ({ agentId }, _, context, info) =>
        loadOne(context, info, agentId, async (ids) => {
          const { actor, deps } = context
          const mine = { organizationId: actor.organizationId }
          const where = { id: { in: ids }, OR: [mine, executable(actor)] }
          const found = await deps.db.agent.findMany({ where, select: { id: true, name: true } })
          return new Map(found.map(({ id, name }) => [id, name]))
        }),
    }),
    agent: t.field({
      type: Agent,
      description: 'The agent as it is now; null when you cannot reach it, as that of another organization',
      nullable: true,
      select: { agentId: true },
      resolve: ({ agentId }, _, context, info) =>
        loadOne(context, info, agentId, async (ids) => {
          const { actor, deps } = context
          const where = { id: { in: ids }, ...reachableAgent(actor) }
          const rows = selectRows(context, info, { type: 'Agent', columns: { id: true } })
          const found = await deps.db.agent.findMany({ ...rows, where })
          return new Map(found.map((row) => [row.id, row]))
        }),
    }),
    organizationId: t.exposeID('organizationId'),
    userId: t.exposeID('userId'),
    status: t.expose('status', { type: Status }),
    waitingFor: t.expose('waitingFor', { type: Wait, nullable: true }),
    message: t.exposeString('message', { extensions: { cost: 50 } }),
    mediaIds: t.idList({ select: { mediaIds: true }, resolve: ({ mediaIds }) => mediaIds as string[] }),
    preview: t.exposeString('preview', { description: 'The first 200 characters of the message' }),
    result: t.exposeString('result', { nullable: true, extensions: { cost: 50 } }),
    error: t.exposeString('error', { nullable: true }),
    model: t.exposeString('model', { nullable: true }),
    usage: t.field({ type: Usage, select: { inputTokens: true, outputTokens: true }, resolve: (row) => row }),
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
      resolve: ({ startedAt, completedAt }) => startedAt && completedAt && completedAt.getTime() - startedAt.getTime(),
    }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    startedAt: t.expose('startedAt', { type: 'DateTime', nullable: true }),
    completedAt: t.expose('completedAt', { type: 'DateTime', nullable: true }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    parent: t.relation('parent', {
      description: 'The execution that it is a part of; null when there is none, or none that you can reach',
      nullable: true,
      query: (_, { actor }) => ({ where: service.reachable(actor) }),
    }),
    children: t.prismaField({
      type: ['Execution'],
      description: 'The executions that are a part of it, newest first',
      nullable: true,
      args: argsFromZod(RelationArgs),
      extensions: RELATION,
      resolve: (query, { id: parentExecutionId }, args, { actor, deps }) => {
        const { limit: take } = parseArgs(RelationArgs, args)
        const where = { AND: [{ parentExecutionId }, service.listed(actor)] }
        return deps.db.execution.findMany({ ...query, where, orderBy: newestFirst, take })
      },
    }),
  }),
})

const ExecutionTree = builder.objectRef<{ ids: string[]; usage: TokenUsage }>('ExecutionTree').implement({
  description: 'An execution with all that it is a part of, and all that is a part of it',
  fields: (t) => ({
    executions: t.prismaField({
      type: [Execution],
      description: 'The root first, then as deep as they are; those that you cannot reach are left out',
      extensions: { scopes: ['executions:read', 'agents:execute'] },
      resolve: (query, { ids }, _, { deps }) =>
        deps.db.execution.findMany({
          ...query,
          where: { id: { in: ids } },
          orderBy: [{ depth: 'asc' }, { createdAt: 'asc' }, { id: 'asc' }],
        }),
    }),
    usage: t.expose('usage', { type: Usage, description: 'Of the whole tree, seen or not' }),
  }),
})

const ExecutionPage = pageType('ExecutionPage', Execution, 'A page of executions, newest first')

// Whoever wants to know how many there are selects `total`.
const ListExecutions = schema.ListExecutions.omit({ count: true })

builder.queryFields((t) => ({
  executions: t.field({
    ...shows(executions.list, { rows: 1000 }),
    type: ExecutionPage,
    args: argsFromZod(ListExecutions),
    resolve: (_, args, context, info) => {
      const { execution } = context.deps.db
      const input = parseArgs(ListExecutions, args)
      const where = service.listedBy(context.actor, input)
      const columns = { ...CURSOR_COLUMNS, userId: true } as const
      const rows = selectRows(context, info, { type: 'Execution', path: ['nodes'], columns })
      return readPage(
        input,
        where,
        (page) => execution.findMany({ ...rows, ...page }),
        () => execution.count({ where }),
      )
    },
  }),
  execution: t.prismaField({
    ...shows(executions.get),
    type: Execution,
    nullable: true,
    args: argsFromZod(schema.ExecutionId),
    resolve: async (query, _, args, { actor, deps }) => {
      const { id } = parseArgs(schema.ExecutionId, args)
      const where = { AND: [{ id }, service.reachable(actor)] }
      const row = await deps.db.execution.findFirst({ ...query, where })
      if (!row) throw notFound('Execution')
      service.requireOwnRun(actor, row)
      return row
    },
  }),
  executionTree: t.field({
    ...shows(executions.tree),
    type: ExecutionTree,
    args: argsFromZod(schema.ExecutionId),
    resolve: async (_, args, { caller }) => {
      const { tree, usage } = await caller.executions.tree(args)
      return { ids: idsOf(tree), usage: { inputTokens: usage.input_tokens, outputTokens: usage.output_tokens } }
    },
  }),
}))

const idsOf = ({ id, children }: schema.ExecutionNode): string[] => [id, ...children.flatMap(idsOf)]
