import { Agent } from '../agents/graphql.ts'
import { reachable as reachableAgent } from '../agents/service.ts'
import { notFound } from '../errors.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod, parseArgs } from '../graphql/inputs.ts'
import { loadOne } from '../graphql/loader.ts'
import { CURSOR_COLUMNS, pageType, readPage } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { selectRows } from '../graphql/select.ts'
import { tasks } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const Status = enumFromZod('TaskStatus', schema.TaskStatus, 'Where a task is')
const Priority = enumFromZod('TaskPriority', schema.TaskPriority, 'How soon a task is wanted')

const Task = builder.prismaObject('Task', {
  description: 'A work item, for a person or an agent',
  select: { id: true },
  extensions: { scopes: ['tasks:read'], like: schema.Task },
  fields: (t) => ({
    id: t.exposeID('id'),
    title: t.exposeString('title'),
    description: t.exposeString('description', { nullable: true, extensions: { cost: 20 } }),
    status: t.expose('status', { type: Status }),
    priority: t.expose('priority', { type: Priority }),
    assignedTo: t.exposeID('assignedTo', { nullable: true, description: 'The id of an agent or a member' }),
    assignedAgent: t.field({
      type: Agent,
      nullable: true,
      description: 'The agent that it is assigned to; null when it is none, or none that you can reach',
      select: { assignedAgentId: true },
      resolve: ({ assignedAgentId }, _, context, info) =>
        assignedAgentId === null
          ? null
          : loadOne(context, info, assignedAgentId, async (ids) => {
              const { actor, deps } = context
              const where = { id: { in: ids }, ...reachableAgent(actor) }
              const rows = selectRows(context, info, { type: 'Agent', columns: { id: true } })
              const found = await deps.db.agent.findMany({ ...rows, where })
              return new Map(found.map((row) => [row.id, row]))
            }),
    }),
    spaceId: t.exposeID('spaceId', { nullable: true }),
    organizationId: t.exposeID('organizationId'),
    createdBy: t.exposeID('createdBy'),
    executionId: t.exposeID('executionId', { nullable: true }),
    result: t.exposeString('result', { nullable: true, extensions: { cost: 50 } }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    completedAt: t.expose('completedAt', { type: 'DateTime', nullable: true }),
  }),
})

const TaskPage = pageType('TaskPage', Task, 'A page of tasks, newest first')

// Whoever wants to know how many there are selects `total`.
const ListTasks = schema.ListTasks.omit({ count: true })
// The other names are for clients of old, who speak REST.
const ALIAS = { assignedTo: true } as const
const CreateInput = inputFromZod('CreateTaskInput', schema.CreateTask.omit(ALIAS), 'A new task')
const UpdateInput = inputFromZod('UpdateTaskInput', schema.UpdateTask.omit(ALIAS), 'What to change of a task')

const ExecutePayload = builder.objectRef<{ executionId: string; taskId: string }>('ExecuteTaskPayload').implement({
  description: 'A run of the agent of a task on it',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: 'The run' }),
    task: t.prismaField({
      type: Task,
      description: 'The task as it is now',
      resolve: (query, { taskId: id }, _, { deps }) => deps.db.task.findUniqueOrThrow({ ...query, where: { id } }),
    }),
  }),
})

builder.queryFields((t) => ({
  tasks: t.field({
    ...shows(tasks.list, { rows: 1000 }),
    type: TaskPage,
    args: argsFromZod(ListTasks),
    resolve: (_, args, context, info) => {
      const { db } = context.deps
      const input = parseArgs(ListTasks, args)
      const where = service.listedBy(context.actor, input)
      const rows = selectRows(context, info, { type: 'Task', path: ['nodes'], columns: CURSOR_COLUMNS })
      return readPage(
        input,
        where,
        (page) => db.task.findMany({ ...rows, ...page }),
        () => db.task.count({ where }),
      )
    },
  }),
  task: t.prismaField({
    ...shows(tasks.get),
    type: Task,
    nullable: true,
    args: argsFromZod(schema.TaskId),
    resolve: async (query, _, args, { actor, deps }) => {
      const { id } = parseArgs(schema.TaskId, args)
      const row = await deps.db.task.findFirst({ ...query, where: { id, ...service.reachable(actor) } })
      if (!row) throw notFound('Task')
      return row
    },
  }),
}))

builder.mutationFields((t) => ({
  createTask: t.prismaField({
    ...shows(tasks.create),
    type: Task,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: async (query, _, { input }, { caller, deps }) => {
      const { id } = await caller.tasks.create(input)
      return deps.db.task.findUniqueOrThrow({ ...query, where: { id } })
    },
  }),
  updateTask: t.prismaField({
    ...shows(tasks.update),
    type: Task,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (query, _, { input }, { caller, deps }) => {
      await caller.tasks.update(input)
      return deps.db.task.findUniqueOrThrow({ ...query, where: { id: input.id } })
    },
  }),
  deleteTask: t.string({
    ...shows(tasks.delete),
    args: argsFromZod(schema.TaskId),
    resolve: async (_, args, { caller }) => (await caller.tasks.delete(args)).message,
  }),
  claimTask: t.prismaField({
    ...shows(tasks.claim),
    type: Task,
    args: argsFromZod(schema.ClaimTask),
    resolve: async (query, _, args, { caller, deps }) => {
      await caller.tasks.claim(args)
      return deps.db.task.findUniqueOrThrow({ ...query, where: { id: args.id } })
    },
  }),
  executeTask: t.field({
    ...shows(tasks.execute),
    type: ExecutePayload,
    args: argsFromZod(schema.ExecuteTask),
    resolve: async (_, args, { caller }) => ({ ...(await caller.tasks.execute(args)), taskId: args.id }),
  }),
}))
