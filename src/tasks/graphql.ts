import { AGENT, Agent, AnswerForm } from '../agents/graphql.ts'
import { EXECUTION, Execution, Executions, isReadable } from '../executions/graphql.ts'
import { builder } from '../graphql/builder.ts'
import { changeField } from '../graphql/change-subscription.ts'
import { connectionType, relationList, rootList } from '../graphql/connection.ts'
import { argsFromZod, enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { changeRow, deleteRow, writeRow } from '../graphql/mutations.ts'
import { nodeOf } from '../graphql/node.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { isTruncated, reload, rootRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { outputOf } from '../lib/output.ts'
import { USER, User } from '../organizations/graphql.ts'
import { SPACE, Space } from '../spaces/graphql.ts'
import { listedBy } from './list.ts'
import { tasks } from './router.ts'
import * as rows from './rows.ts'
import * as schema from './schema.ts'

const Status = enumFromZod('TaskStatus', schema.TaskStatus, 'The status of a task')
const Priority = enumFromZod('TaskPriority', schema.TaskPriority, 'Priority of a task')

const TASK = rowsOf('Task', 'Task', rows.reachable, {
  name: 'Task',
  texts: rows.LONG_TEXTS,
})

const Task = builder.prismaObject('Task', {
  description: 'Work on a board, for a person or an agent',
  interfaces: nodeOf(TASK),
  select: { id: true },
  extensions: { scopes: ['tasks:read'], like: schema.Task },
  fields: (t) => ({
    id: t.exposeID('id'),
    truncated: t.boolean({ nullable: true, resolve: isTruncated }),
    title: t.exposeString('title'),
    description: t.exposeString('description', { nullable: true, extensions: { cost: 5 } }),
    status: t.expose('status', { type: Status }),
    priority: t.expose('priority', { type: Priority }),
    assignedTo: t.exposeID('assignedTo', { nullable: true, description: 'The id of an agent or a member' }),
    assignedAgent: t.field(
      rowIn(Agent, AGENT, 'assignedAgentId', 'Assigned agent; null if there is none that you can reach'),
    ),
    assignedUser: t.field(rowIn(User, USER, 'assignedTo', 'Assigned member; null if there is none')),
    spaceId: t.exposeID('spaceId', { nullable: true }),
    output: t.field({
      type: AnswerForm,
      nullable: true,
      select: { output: true },
      resolve: ({ output }) => outputOf(output),
    }),
    organizationId: t.exposeID('organizationId'),
    createdBy: t.exposeID('createdBy'),
    executionId: t.exposeID('executionId', { nullable: true }),
    result: t.string({
      nullable: true,
      description: 'Answer of the run, if you can read the run',
      extensions: { cost: 10 },
      select: { result: true, executionId: true },
      async resolve({ result, executionId }, _, context, info) {
        if (result === null || executionId === null) return result
        return (await isReadable(executionId, context, info)) ? result : null
      },
    }),
    lastError: t.string({
      nullable: true,
      description: 'Reason why the latest ended run did not complete it, if you can read that run',
      select: { lastError: true, lastExecutionId: true },
      async resolve({ lastError, lastExecutionId }, _, context, info) {
        if (lastError === null || lastExecutionId === null) return lastError
        return (await isReadable(lastExecutionId, context, info)) ? lastError : null
      },
    }),
    lastExecutionId: t.exposeID('lastExecutionId', { nullable: true }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    completedAt: t.expose('completedAt', { type: 'DateTime', nullable: true }),
    space: t.field(rowIn(Space, SPACE, 'spaceId', 'Space of the task')),
    execution: t.field(rowIn(Execution, EXECUTION, 'executionId', 'Run that works or worked on the task')),
    executions: t.field(
      relationList(Executions, EXECUTION, { column: 'taskId', description: 'All runs of the task, newest first' }),
    ),
  }),
})

const Tasks = connectionType('Task', Task, 'tasks, newest first')

for (const [type, column, what] of [
  [Agent, 'assignedTo', 'Tasks assigned to it'],
  [Space, 'spaceId', 'Tasks of the space'],
] as const) {
  builder.prismaObjectFields(type, (t) => ({
    tasks: t.field(relationList(Tasks, TASK, { column, description: `${what}, newest first` })),
  }))
}

builder.prismaObjectFields(Execution, (t) => ({
  task: t.field(rowIn(Task, TASK, 'taskId', 'Task of the run')),
}))

// The aliases are for older REST clients.
const ALIAS = { assignedTo: true } as const
const CreateInput = inputFromZod('CreateTaskInput', schema.CreateTask.omit(ALIAS), 'A new task')
const UpdateInput = inputFromZod('UpdateTaskInput', schema.UpdateTask.omit(ALIAS), 'Changes of a task')

const ExecutePayload = builder.objectRef<{ executionId: string; taskId: string }>('ExecuteTaskPayload').implement({
  description: 'A run of a task by its agent',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: 'The run' }),
    task: t.field({
      type: Task,
      description: 'The task after the change',
      resolve: ({ taskId }, _, context, info) => reload(context, info, TASK, taskId),
    }),
  }),
})

builder.queryFields((t) => ({
  tasks: t.field(
    rootList(Tasks, TASK, tasks.list, schema.ListTasks, ({ actor, deps }, input) => listedBy(actor, deps, input)),
  ),
  task: t.field(rootRow(Task, TASK, tasks.get, schema.TaskId)),
}))

builder.subscriptionField('taskChanges', (t) =>
  t.field(
    changeField(Task, TASK, 'task', {
      description: 'Created and changed tasks, each in its current state',
      scopes: ['tasks:read'],
    }),
  ),
)

builder.mutationFields((t) => ({
  createTask: t.field(writeRow(Task, TASK, tasks.create, CreateInput, (caller, input) => caller.tasks.create(input))),
  updateTask: t.field(
    writeRow(Task, TASK, tasks.update, UpdateInput, async (caller, input) => (await caller.tasks.update(input)).task),
  ),
  deleteTask: t.field(deleteRow(tasks.delete, schema.TaskId, (caller, args) => caller.tasks.delete(args))),
  claimTask: t.field(changeRow(Task, TASK, tasks.claim, schema.ClaimTask, (caller, args) => caller.tasks.claim(args))),
  executeTask: t.field({
    ...procedureExtensions(tasks.execute),
    type: ExecutePayload,
    args: argsFromZod(schema.ExecuteTask),
    resolve: async (_, args, { caller }) => ({ ...(await caller.tasks.execute(args)), taskId: args.id }),
  }),
}))
