import { idempotentLease } from '../idempotency.ts'
import { inBatches } from '../subscriptions.ts'
import { mcpTool, restMeta, router, STARTS_RUN, tokenProcedure } from '../trpc.ts'
import { rerun } from './again.ts'
import { startAny } from './assistant.ts'
import { follow, logs } from './follow.ts'
import { tree } from './run-tree.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const executions = router({
  create: tokenProcedure('agents:execute')
    .meta(STARTS_RUN)
    .meta(restMeta('POST', '/api/v1/execute', 'Run an agent on a message, by default your own', schema.EXECUTE_ERRORS))
    .input(schema.ExecuteAny)
    .output(schema.Executed)
    .mutation(({ ctx, input }) => startAny(ctx.actor, ctx.deps, input, ctx)),

  list: tokenProcedure('executions:read')
    .meta(restMeta('GET', '/api/v1/executions', 'List executions'))
    .meta(mcpTool('list_executions', 'agentId status since spaceId chatId taskId missionId limit cursor'))
    .input(schema.ListExecutions.prefault({}))
    .output(schema.ExecutionsResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  get: tokenProcedure('executions:read', 'agents:execute')
    .meta(restMeta('GET', '/api/v1/executions/{id}', 'Get an execution'))
    .meta(mcpTool('get_execution', 'id'))
    .input(schema.ExecutionId)
    .output(schema.ExecutionResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input.id)),

  cancel: tokenProcedure('executions:write', 'agents:execute')
    .meta(
      restMeta('POST', '/api/v1/executions/{id}/cancel', 'Cancel an execution', {
        400: 'The execution has already ended',
      }),
    )
    .meta(mcpTool('cancel_execution', 'id', { destroys: true }))
    .input(schema.ExecutionId)
    .output(schema.ExecutionCancelled)
    .mutation(async ({ ctx, input: { id } }) => {
      const answer = await idempotentLease(
        ctx,
        { id },
        () => service.findToCancel(ctx.actor, ctx.deps, id),
        ({ anew }) => service.cancel(ctx.actor, ctx.deps, id, anew),
      )
      return ctx.idempotency?.replayed ? service.withoutClosed(ctx.actor, ctx.deps, answer) : answer
    }),

  rerun: tokenProcedure('agents:execute')
    .meta(STARTS_RUN)
    .meta(
      restMeta('POST', '/api/v1/executions/{id}/rerun', 'Run an agent again on the message of an execution', {
        ...schema.EXECUTE_ERRORS,
        404: 'The execution, its agent or its chat does not exist or is not accessible',
      }),
    )
    .input(schema.Rerun)
    .output(schema.Executed)
    .mutation(({ ctx, input }) => rerun(ctx.actor, ctx.deps, input, ctx)),

  tree: tokenProcedure('executions:read', 'agents:execute')
    .meta(restMeta('GET', '/api/v1/executions/{id}/tree', 'Get the whole tree of an execution'))
    .input(schema.ExecutionId)
    .output(schema.TreeResponse)
    .query(({ ctx, input }) => tree(ctx.actor, ctx.deps, input.id)),

  logs: tokenProcedure('executions:read', 'agents:execute')
    .meta(restMeta('GET', '/api/v1/executions/{id}/logs', 'Get the events of an execution'))
    .input(schema.ReadLogs)
    .output(schema.LogsResponse)
    .query(({ ctx, input }) => logs(ctx.actor, ctx.deps, input)),

  /** A stream without side effects, which clients repeat when they reconnect. */
  events: tokenProcedure('executions:read', 'agents:execute')
    .input(schema.FollowExecution)
    .subscription(async ({ ctx, input }) => {
      const { batches, isOver } = await follow(ctx.actor, ctx.deps, input, ctx.streamTo)
      return { ...inBatches(batches, ({ seq }) => String(seq)), isOver }
    }),
})

/** Returns whether the caller of `events` already has the last one and should not reconnect. */
export const isOver = (events: object): boolean => 'isOver' in events && events.isOver === true
