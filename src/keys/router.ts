import { idempotent } from '../idempotency.ts'
import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

export const keys = router({
  list: tokenProcedure('keys:read')
    .meta(restMeta('GET', '/api/v1/keys', 'List your keys'))
    .input(schema.ListKeys.prefault({}))
    .output(schema.KeysResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  create: tokenProcedure('keys:write')
    .meta(restMeta('POST', '/api/v1/keys', 'Create a key'))
    .input(schema.CreateKey)
    .output(schema.KeyCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.scopesOf(ctx.actor, input),
        (deps) => service.create(ctx.actor, deps, input),
      ),
    ),

  delete: tokenProcedure('keys:write')
    .meta(restMeta('DELETE', '/api/v1/keys/{id}', 'Revoke a key'))
    .input(schema.RevokeKey)
    .output(schema.KeyDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input)),
})
