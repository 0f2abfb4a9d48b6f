import { TOO_MANY_WAIT } from '../executions/schema.ts'
import { idempotent } from '../idempotency.ts'
import { mcpTool, restMeta, router, STARTS_RUN, tokenProcedure } from '../trpc.ts'
import { follow } from './follow.ts'
import { list } from './list.ts'
import { get } from './rows.ts'
import { execute } from './runs.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const tasks = router({
  list: tokenProcedure('tasks:read')
    .meta(restMeta('GET', '/api/v1/tasks', 'List the tasks of your organization'))
    .meta(mcpTool('list_tasks', 'search status priority assignedTo spaceId limit cursor'))
    .input(schema.ListTasks.prefault({}))
    .output(schema.TasksResponse)
    .query(({ ctx, input }) => list(ctx.actor, ctx.deps, input)),

  create: tokenProcedure('tasks:write')
    .meta(restMeta('POST', '/api/v1/tasks', 'Create a task'))
    .meta(mcpTool('create_task', 'title description priority assignTo spaceId'))
    .input(schema.CreateTask)
    .output(schema.TaskCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.checkVisible(ctx.actor, ctx.deps, input),
        (deps) => service.create(ctx.actor, deps, input),
      ),
    ),

  get: tokenProcedure('tasks:read')
    .meta(restMeta('GET', '/api/v1/tasks/{id}', 'Get a task'))
    .input(schema.TaskId)
    .output(schema.TaskResponse)
    .query(({ ctx, input }) => get(ctx.actor, ctx.deps, input.id)),

  update: tokenProcedure('tasks:write')
    .meta(restMeta('PATCH', '/api/v1/tasks/{id}', 'Change a task'))
    .meta(
      mcpTool('update_task', 'id title description status priority assignTo spaceId', {
        destroys: true,
        repeats: true,
      }),
    )
    .input(schema.UpdateTask)
    .output(schema.TaskResponse)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),

  delete: tokenProcedure('tasks:write')
    .meta(restMeta('DELETE', '/api/v1/tasks/{id}', 'Delete a task'))
    .input(schema.TaskId)
    .output(schema.TaskDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),

  claim: tokenProcedure('tasks:write')
    .meta(restMeta('POST', '/api/v1/tasks/{id}/claim', 'Take an unassigned task', { 409: 'Task is already assigned' }))
    .meta(mcpTool('claim_task', 'id agentId'))
    .input(schema.ClaimTask)
    .output(schema.TaskResponse)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.checkVisible(ctx.actor, ctx.deps, input),
        (deps) => service.claim(ctx.actor, deps, input),
      ),
    ),

  /** Follows tasks; it has no effect, and is repeated by clients that reconnect. */
  changes: tokenProcedure('tasks:read')
    .meta({ errors: { 404: 'The task does not exist' } })
    .input(schema.FollowTasks.prefault({}))
    .subscription(({ ctx, input }) => follow(ctx.actor, ctx.deps, input, ctx.streamTo)),

  execute: tokenProcedure('tasks:write')
    .meta(STARTS_RUN)
    .meta(
      restMeta('POST', '/api/v1/tasks/{id}/execute', 'Run the agent of a task on the task', {
        404: 'The task, its agent or its space does not exist or is not accessible',
        409: 'Task is already running, or its execution was cancelled',
        429: TOO_MANY_WAIT,
        500: 'The model failed; the execution has the reason, and the task is pending again',
      }),
    )
    .meta(
      mcpTool('execute_task', 'id', {
        description: 'Run the agent that a task is assigned to on it, and wait for its end.',
      }),
    )
    .input(schema.ExecuteTask)
    .output(schema.TaskExecuted)
    .mutation(({ ctx, input }) => execute(ctx.actor, ctx.deps, input, ctx)),
})
