import { listPublic } from '../agents/directory.ts'
import { executeAgent } from '../executions/execute.ts'
import { EXECUTE_ERRORS, Executed } from '../executions/schema.ts'
import { idempotent, idempotentLease, namesNothing } from '../idempotency.ts'
import * as keys from '../keys/service.ts'
import * as secrets from '../secrets/service.ts'
import { find as findSpace } from '../spaces/service.ts'
import { directoryProcedure, idTokenProcedure, restMeta, router, STARTS_RUN, tokenProcedure } from '../trpc.ts'
import * as files from './files.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'
import * as tokens from './tokens.ts'

const NO_SPACE = { 404: 'The space or the file does not exist' }
const EXECUTE = '/api/agent/execute'

/** The endpoints for client libraries (service.md, "F"): thin procedures over the other services. */
export const client = router({
  init: idTokenProcedure('spaceId', 'spaces:write')
    .meta(
      restMeta('POST', '/api/spaces/{spaceId}/init', 'Give a space its first files', {
        400: 'The repository cannot be read, or exceeds the limits',
        409: 'Space is already initialized',
      }),
    )
    .input(schema.InitSpace)
    .output(schema.SpaceInitialized)
    .mutation(({ ctx, input }) =>
      idempotentLease(
        ctx,
        input,
        () => service.findInitializable(ctx.actor, ctx.deps, input.spaceId),
        ({ keep }) => service.init(ctx.actor, ctx.deps, input, ctx.gone(), keep),
      ),
    ),

  environment: idTokenProcedure('spaceId', 'secrets:write')
    .meta(restMeta('POST', '/api/spaces/{spaceId}/environment', 'Set secrets of a space'))
    .input(schema.SetEnvironment)
    .output(schema.EnvironmentSet)
    .mutation(async ({ ctx, input: { spaceId, environmentVariables } }) => {
      const { keys } = await idempotent(
        ctx,
        { spaceId, environmentVariables },
        () => secrets.findWritable(ctx.actor, ctx.deps, { spaceId }),
        (deps) => secrets.set(ctx.actor, deps, { spaceId }, environmentVariables),
      )
      return { keys, count: keys.length }
    }),

  execute: idTokenProcedure('spaceId', 'agents:execute')
    .meta(STARTS_RUN)
    .meta(restMeta('POST', EXECUTE, 'Run an agent on a message', EXECUTE_ERRORS))
    .input(schema.ExecuteCharacter)
    .output(Executed)
    .mutation(({ ctx, input: { characterId: id, orgId: _, ...input } }) =>
      executeAgent(ctx.actor, ctx.deps, { ...input, id }, ctx, { path: EXECUTE }),
    ),

  publicAgents: directoryProcedure('agents:read')
    .meta(restMeta('GET', '/api/public/agents', "Browse every organization's public agents"))
    .input(schema.BrowseAgents.prefault({}))
    .output(schema.DirectoryResponse)
    .query(async ({ ctx: { deps }, input }) => {
      const { agents: data, total, nextCursor } = await listPublic(deps, input)
      return { data, meta: { timestamp: deps.clock.now().toISOString(), version: 'v1', total, nextCursor } }
    }),

  createToken: tokenProcedure('keys:write')
    .meta(restMeta('POST', '/api/tokens/create', 'Create a key'))
    .input(schema.CreateToken)
    .output(schema.TokenCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => keys.scopesOf(ctx.actor, input),
        (deps) => tokens.create(ctx.actor, deps, input),
      ),
    ),

  listTokens: tokenProcedure('keys:read')
    .meta(restMeta('GET', '/api/tokens/list', 'List your keys'))
    .input(schema.ListTokens.prefault({}))
    .output(schema.TokensResponse)
    .query(({ ctx, input }) => tokens.list(ctx.actor, ctx.deps, input)),

  revokeToken: tokenProcedure('keys:write')
    .meta(restMeta('POST', '/api/tokens/{tokenId}/revoke', 'Revoke a key'))
    .input(schema.RevokeToken)
    .output(schema.TokenRevoked)
    .mutation(({ ctx, input: { tokenId: id } }) =>
      idempotent(ctx, { id }, namesNothing, (deps) => keys.remove(ctx.actor, deps, { id })),
    ),

  browseFiles: idTokenProcedure('spaceId', 'spaces:read')
    .meta(restMeta('GET', '/api/files/browse', 'List a folder of a space', NO_SPACE))
    .input(schema.BrowseFiles)
    .output(schema.FolderResponse)
    .query(({ ctx, input }) => files.browse(ctx.actor, ctx.deps, input)),

  browseSpace: idTokenProcedure('spaceId', 'spaces:read')
    .meta(restMeta('GET', '/api/spaces/{spaceId}/files/browse', 'List a folder of a space'))
    .input(schema.BrowseFiles)
    .output(schema.FolderResponse)
    .query(({ ctx, input }) => files.browse(ctx.actor, ctx.deps, input)),

  readFile: idTokenProcedure('spaceId', 'spaces:read')
    .meta(restMeta('GET', '/api/files/read', 'Read a file of a space', NO_SPACE))
    .input(schema.OneFile)
    .output(schema.OneFileResponse)
    .query(({ ctx, input }) => files.read(ctx.actor, ctx.deps, input)),

  writeFile: idTokenProcedure('spaceId', 'spaces:write')
    .meta(restMeta('POST', '/api/files/write', 'Write a file of a space', { 413: 'The body is larger than 4 MiB' }))
    .input(schema.WriteSpaceFile)
    .output(schema.OneFileResponse)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => findSpace(ctx.actor, ctx.deps, input.spaceId),
        (deps) => files.write(ctx.actor, deps, input),
      ),
    ),

  deleteFile: idTokenProcedure('spaceId', 'spaces:write')
    .meta(restMeta('POST', '/api/files/delete', 'Delete a file of a space'))
    .input(schema.OneFile)
    .output(schema.OneFileDeleted)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => findSpace(ctx.actor, ctx.deps, input.spaceId),
        (deps) => files.remove(ctx.actor, deps, input),
      ),
    ),
})
