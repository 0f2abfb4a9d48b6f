import { TOO_MANY_WAIT } from '../executions/schema.ts'
import { idempotent, idempotentClaimed } from '../idempotency.ts'
import { mcpTool, restMeta, router, STARTS_RUN, tokenProcedure } from '../trpc.ts'
import * as fireTimes from './fire-times.ts'
import { list, runs } from './list.ts'
import * as rows from './rows.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'
import * as status from './status.ts'

export const missions = router({
  list: tokenProcedure('missions:read')
    .meta(restMeta('GET', '/api/v1/missions', 'List missions'))
    .meta(mcpTool('list_missions', 'search status limit cursor'))
    .input(schema.ListMissions.prefault({}))
    .output(schema.MissionsResponse)
    .query(({ ctx, input }) => list(ctx.actor, ctx.deps, input)),

  create: tokenProcedure('missions:write')
    .meta(restMeta('POST', '/api/v1/missions', 'Create a mission'))
    .meta(mcpTool('create_mission', 'title goal agentId spaceId visibility maxTurns schedule'))
    .input(schema.CreateMission)
    .output(schema.MissionCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.findPlace(ctx.actor, ctx.deps, input),
        (deps) => service.create(ctx.actor, deps, input),
      ),
    ),

  preview: tokenProcedure('missions:read')
    .meta(restMeta('POST', '/api/v1/missions/preview', 'List the first fire times of a schedule'))
    .input(schema.PreviewSchedule)
    .output(schema.NextResponse)
    .query(({ ctx, input }) => fireTimes.preview(ctx.deps, input)),

  get: tokenProcedure('missions:read')
    .meta(restMeta('GET', '/api/v1/missions/{id}', 'Get a mission'))
    .input(schema.MissionId)
    .output(schema.MissionResponse)
    .query(({ ctx, input }) => rows.get(ctx.actor, ctx.deps, input.id)),

  update: tokenProcedure('missions:write')
    .meta(
      restMeta('PATCH', '/api/v1/missions/{id}', 'Change, run, pause or resume a mission', {
        409: 'The mission is not in a suitable state',
        429: TOO_MANY_WAIT,
      }),
    )
    .input(schema.UpdateMission)
    .output(schema.MissionResponse)
    .mutation(({ ctx, input }) => {
      const { actor, deps, precondition } = ctx
      const visible = () => rows.get(actor, deps, input.id)
      return idempotentClaimed(ctx, input, visible, (key) => service.update(actor, deps, input, { key, precondition }))
    }),

  delete: tokenProcedure('missions:write')
    .meta(restMeta('DELETE', '/api/v1/missions/{id}', 'Archive a mission'))
    .input(schema.MissionId)
    .output(schema.MissionDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),

  run: tokenProcedure('missions:write')
    .meta(STARTS_RUN)
    .meta(
      restMeta('POST', '/api/v1/missions/{id}/run', 'Run a mission now', {
        409: 'The mission is running or paused',
        429: TOO_MANY_WAIT,
      }),
    )
    .meta(mcpTool('run_mission', 'id'))
    .input(schema.MissionId)
    .output(schema.MissionRun)
    .mutation(({ ctx, input }) =>
      idempotentClaimed(
        ctx,
        input,
        () => rows.get(ctx.actor, ctx.deps, input.id),
        (key) => status.run(ctx.actor, ctx.deps, input.id, { key, countRun: ctx.countRun }),
      ),
    ),

  pause: tokenProcedure('missions:write')
    .meta(restMeta('POST', '/api/v1/missions/{id}/pause', 'Pause a mission', { 409: 'The mission is completed' }))
    .meta(mcpTool('pause_mission', 'id', { repeats: true }))
    .input(schema.MissionId)
    .output(schema.MissionResponse)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => rows.get(ctx.actor, ctx.deps, input.id),
        (deps) => status.pause(ctx.actor, deps, input.id),
      ),
    ),

  resume: tokenProcedure('missions:write')
    .meta(
      restMeta('POST', '/api/v1/missions/{id}/resume', 'Resume a paused mission', { 409: 'The mission is not paused' }),
    )
    .input(schema.MissionId)
    .output(schema.MissionResponse)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => rows.get(ctx.actor, ctx.deps, input.id),
        (deps) => status.resume(ctx.actor, deps, input.id),
      ),
    ),

  runs: tokenProcedure('missions:read')
    .meta(restMeta('GET', '/api/v1/missions/{id}/runs', 'List the runs of a mission'))
    .input(schema.ListRuns)
    .output(schema.RunsResponse)
    .query(({ ctx, input }) => runs(ctx.actor, ctx.deps, input)),

  next: tokenProcedure('missions:read')
    .meta(restMeta('GET', '/api/v1/missions/{id}/next', 'List the next fire times of a mission'))
    .input(schema.NextRuns)
    .output(schema.NextResponse)
    .query(({ ctx, input }) => fireTimes.next(ctx.actor, ctx.deps, input)),
})
