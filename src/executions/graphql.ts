import type { z } from 'zod'
import { Agent } from '../agents/graphql.ts'
import { agents } from '../agents/router.ts'
import { executable, reachable as reachableAgent } from '../agents/service.ts'
import { notFound } from '../errors.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { loadOne } from '../graphql/loader.ts'
import { CURSOR_COLUMNS, newestFirst, pageType, RelationArgs, readPage } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { selectRows } from '../graphql/select.ts'
import { executions } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const Status = enumFromZod('ExecutionStatus', schema.Status, 'Where an execution is')
const Wait = enumFromZod('ExecutionWait', schema.Execution.shape.waitingFor, 'What a pending execution waits for')
enumFromZod('OnBusy', schema.Execute.shape.onBusy, 'What to do while the session runs another message')
enumFromZod('OnDisconnect', schema.Execute.shape.onDisconnect, 'What becomes of the run when the caller goes away')

export const Usage = builder.objectRef<{ inputTokens: number; outputTokens: number }>('Usage').implement({
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
    children: t.relation('children', {
      description: 'The executions that are a part of it, newest first',
      nullable: true,
      args: argsFromZod(RelationArgs),
      extensions: { rows: 20, single: true },
      query: (args, { actor }) => ({
        where: service.listed(actor),
        orderBy: newestFirst,
        take: parseArgs(RelationArgs, args).limit,
      }),
    }),
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
}))

const ExecuteInput = inputFromZod(
  'ExecuteAgentInput',
  schema.Execute.omit({ stream: true }),
  'A message for an agent. To follow the run, say `background` and subscribe to `executionEvents`',
)

const ExecutePayload = builder.objectRef<z.output<typeof schema.Executed>>('ExecuteAgentPayload').implement({
  description: 'A run that was accepted and, unless it is in the background, has completed',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: 'The run' }),
    chatId: t.exposeID('chatId', { description: 'Its chat, to continue' }),
    sessionId: t.exposeID('sessionId', { description: 'Its session, to continue' }),
    status: t.expose('status', { type: Status, description: 'Where it is' }),
    result: t.exposeString('result', { nullable: true, description: 'The answer, unless it is in the background' }),
    execution: t.prismaField({
      type: Execution,
      description: 'The run as a whole',
      extensions: { scopes: ['executions:read', 'agents:execute'] },
      resolve: (query, { executionId: id }, _, { deps }) =>
        deps.db.execution.findUniqueOrThrow({ ...query, where: { id } }),
    }),
  }),
})

const CancelPayload = builder.objectRef<{ id: string; message: string }>('CancelExecutionPayload').implement({
  description: 'What became of a cancelled run',
  fields: (t) => ({
    message: t.exposeString('message', { description: 'For people' }),
    execution: t.prismaField({
      type: Execution,
      description: 'The run as it is now',
      extensions: { scopes: ['executions:read', 'agents:execute'] },
      resolve: (query, { id }, _, { deps }) => deps.db.execution.findUniqueOrThrow({ ...query, where: { id } }),
    }),
  }),
})

builder.mutationFields((t) => ({
  executeAgent: t.field({
    ...shows(agents.execute),
    type: ExecutePayload,
    args: { input: t.arg({ type: ExecuteInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.agents.execute(input),
  }),
  cancelExecution: t.field({
    ...shows(executions.cancel),
    type: CancelPayload,
    args: argsFromZod(schema.ExecutionId),
    resolve: async (_, { id }, { caller }) => ({ id, message: (await caller.executions.cancel({ id })).message }),
  }),
}))
