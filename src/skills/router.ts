import { idempotent, namesNothing } from '../idempotency.ts'
import { restMeta, router, tokenProcedure } from '../trpc.ts'
import { list } from './list.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const TAKEN = { 409: 'Skill name already exists' }

export const skills = router({
  list: tokenProcedure('skills:read')
    .meta(
      restMeta(
        'GET',
        '/api/v1/skills',
        'List the skills that you can use, your own before those of other organizations',
      ),
    )
    .input(schema.ListSkills.prefault({}))
    .output(schema.SkillsResponse)
    .query(({ ctx, input }) => list(ctx.actor, ctx.deps, input)),

  create: tokenProcedure('skills:write')
    .meta(restMeta('POST', '/api/v1/skills', 'Create a skill', TAKEN))
    .input(schema.CreateSkill)
    .output(schema.SkillCreated)
    .mutation(({ ctx, input }) =>
      idempotent(ctx, input, namesNothing, (deps) => service.create(ctx.actor, deps, input)),
    ),

  get: tokenProcedure('skills:read')
    .meta(restMeta('GET', '/api/v1/skills/{id}', 'Get a skill'))
    .input(schema.SkillId)
    .output(schema.SkillResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input.id)),

  update: tokenProcedure('skills:write')
    .meta(restMeta('PATCH', '/api/v1/skills/{id}', 'Change a skill', TAKEN))
    .input(schema.UpdateSkill)
    .output(schema.SkillResponse)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),

  delete: tokenProcedure('skills:write')
    .meta(restMeta('DELETE', '/api/v1/skills/{id}', 'Delete a skill'))
    .input(schema.SkillId)
    .output(schema.SkillDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),
})
