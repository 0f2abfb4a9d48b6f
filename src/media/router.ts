import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

/** Uploads and downloads are REST only, because they are byte streams: http/media.ts. */
export const media = router({
  list: tokenProcedure('media:read')
    .meta(restMeta('GET', '/api/v1/media', 'List uploaded files'))
    .input(schema.ListMedia.prefault({}))
    .output(schema.MediaListResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  get: tokenProcedure('media:read')
    .meta(restMeta('GET', '/api/v1/media/{id}', 'Get the metadata of an uploaded file'))
    .input(schema.MediaId)
    .output(schema.MediaResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input.id)),

  delete: tokenProcedure('media:write')
    .meta(restMeta('DELETE', '/api/v1/media/{id}', 'Delete an uploaded file'))
    .input(schema.MediaId)
    .output(schema.MediaDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),
})
