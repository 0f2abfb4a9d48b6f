import { idempotent } from '../idempotency.ts'
import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const SPACE = '/api/v1/spaces/{id}/secrets'
const ORGANIZATION = '/api/v1/organizations/{orgId}/env'

export const secrets = router({
  list: tokenProcedure('secrets:read')
    .meta(restMeta('GET', SPACE, 'List the names of the secrets of a space'))
    .input(schema.SpaceSecrets)
    .output(schema.SpaceSecretsResponse)
    .query(async ({ ctx, input: { id: spaceId } }) => ({
      ...(await service.list(ctx.actor, ctx.deps, { spaceId })),
      spaceId,
    })),

  set: tokenProcedure('secrets:write')
    .meta(restMeta('POST', SPACE, 'Set secrets of a space'))
    .input(schema.SetSpaceSecrets)
    .output(schema.SecretsSet)
    .mutation(({ ctx, input }) => {
      const owner = { spaceId: input.id }
      return idempotent(
        ctx,
        input,
        () => service.findWritable(ctx.actor, ctx.deps, owner),
        (deps) => service.set(ctx.actor, deps, owner, input.secrets),
      )
    }),

  delete: tokenProcedure('secrets:write')
    .meta(
      restMeta('DELETE', SPACE, 'Delete secrets of a space', { 404: 'The space or one of the secrets does not exist' }),
    )
    .input(schema.DeleteSpaceSecrets)
    .output(schema.SecretsDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, { spaceId: input.id }, input.keys)),

  deleteOne: tokenProcedure('secrets:write')
    .meta(restMeta('DELETE', `${SPACE}/{name}`, 'Delete a secret of a space'))
    .input(schema.DeleteSpaceSecret)
    .output(schema.SecretsDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, { spaceId: input.id }, [input.name])),

  listEnv: tokenProcedure('secrets:read')
    .meta(restMeta('GET', ORGANIZATION, 'List the names of the secrets of your organization'))
    .input(schema.OrganizationSecrets)
    .output(schema.OrganizationSecretsResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  setEnv: tokenProcedure('secrets:write')
    .meta(restMeta('POST', ORGANIZATION, 'Set secrets of your organization, for all of its spaces'))
    .input(schema.SetOrganizationSecrets)
    .output(schema.SecretsSet)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.findWritable(ctx.actor, ctx.deps, input),
        (deps) => service.set(ctx.actor, deps, input, input.secrets),
      ),
    ),

  deleteEnv: tokenProcedure('secrets:write')
    .meta(
      restMeta('DELETE', ORGANIZATION, 'Delete secrets of your organization', {
        404: 'One of the secrets does not exist',
      }),
    )
    .input(schema.DeleteOrganizationSecrets)
    .output(schema.SecretsDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input, input.keys)),

  deleteOneEnv: tokenProcedure('secrets:write')
    .meta(restMeta('DELETE', `${ORGANIZATION}/{name}`, 'Delete a secret of your organization'))
    .input(schema.DeleteOrganizationSecret)
    .output(schema.SecretsDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input, [input.name])),
})
