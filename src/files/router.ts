import { mcpTool, restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const CONTENT = '/api/v1/spaces/{id}/files/content'

export const files = router({
  list: tokenProcedure('spaces:read')
    .meta(restMeta('GET', '/api/v1/spaces/{id}/files', 'List the files of a space, by path'))
    .meta(mcpTool('list_files', 'id path limit cursor'))
    .input(schema.ListFiles)
    .output(schema.FilesResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  get: tokenProcedure('spaces:read')
    .meta(restMeta('GET', CONTENT, 'Get a file of a space'))
    .meta(mcpTool('read_file', 'id path'))
    .input(schema.FilePath)
    .output(schema.FileResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input)),

  write: tokenProcedure('spaces:write')
    .meta(restMeta('PUT', CONTENT, 'Write a file of a space', { 413: 'The body is larger than 4 MiB' }))
    .meta(mcpTool('write_file', 'id path content encoding', { destroys: true, repeats: true }))
    .input(schema.WriteFile)
    .output(schema.FileResponse)
    .mutation(({ ctx, input }) => service.write(ctx.actor, ctx.deps, input)),

  delete: tokenProcedure('spaces:write')
    .meta(restMeta('DELETE', CONTENT, 'Delete a file of a space'))
    .input(schema.FilePath)
    .output(schema.FileDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input)),
})
