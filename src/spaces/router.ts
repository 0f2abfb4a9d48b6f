import { idempotent } from '../idempotency.ts'
import { mcpTool, restMeta, router, tokenProcedure } from '../trpc.ts'
import { findAdded } from './attachments.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const spaces = router({
  list: tokenProcedure('spaces:read')
    .meta(restMeta('GET', '/api/v1/spaces', 'List the spaces of your organization'))
    .meta(mcpTool('list_spaces', 'search limit cursor'))
    .input(schema.ListSpaces.prefault({}))
    .output(schema.SpacesResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  create: tokenProcedure('spaces:write')
    .meta(restMeta('POST', '/api/v1/spaces', 'Create a space'))
    .input(schema.CreateSpace)
    .output(schema.SpaceCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => findAdded(ctx.actor, ctx.deps.db, input),
        (deps) => service.create(ctx.actor, deps, input),
      ),
    ),

  get: tokenProcedure('spaces:read')
    .meta(restMeta('GET', '/api/v1/spaces/{id}', 'Get a space'))
    .input(schema.SpaceId)
    .output(schema.SpaceResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input.id)),

  update: tokenProcedure('spaces:write')
    .meta(restMeta('PATCH', '/api/v1/spaces/{id}', 'Change a space and its attachments'))
    .input(schema.UpdateSpace)
    .output(schema.SpaceResponse)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),

  updateSkill: tokenProcedure('spaces:write')
    .meta(
      restMeta('POST', '/api/v1/spaces/{id}/skills/{skillId}/update', 'Adopt the newer version of a skill of a space'),
    )
    .input(schema.SpaceSkillId)
    .output(schema.SpaceResponse)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.get(ctx.actor, ctx.deps, input.id),
        (deps) => service.updateSkill(ctx.actor, deps, input),
      ),
    ),

  delete: tokenProcedure('spaces:write')
    .meta(
      restMeta('DELETE', '/api/v1/spaces/{id}', 'Archive a space with its chats', {
        400: 'The space is the default space',
      }),
    )
    .input(schema.SpaceId)
    .output(schema.SpaceDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),
})
