import { EXECUTE_ERRORS, Executed } from '../executions/schema.ts'
import { start } from '../executions/start.ts'
import { once, onceOutside } from '../idempotency.ts'
import * as secrets from '../secrets/service.ts'
import { idToken, rest, router } from '../trpc.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const EXECUTE = '/api/agent/execute'

/** The endpoints for client libraries (service.md, "F"): thin procedures over the services of the others. */
export const client = router({
  init: idToken('spaceId', 'spaces:write')
    .meta(
      rest('POST', '/api/spaces/{spaceId}/init', 'Give a space its first files', {
        400: 'The repository cannot be had, or does not fit',
        409: 'Space is already initialized',
      }),
    )
    .input(schema.InitSpace)
    .output(schema.SpaceInitialized)
    .mutation(({ ctx, input }) =>
      onceOutside(
        ctx,
        input,
        () => service.findInitializable(ctx.actor, ctx.deps, input.spaceId),
        ({ keep }) => service.init(ctx.actor, ctx.deps, input, ctx.gone(), keep),
      ),
    ),

  environment: idToken('spaceId', 'secrets:write')
    .meta(rest('POST', '/api/spaces/{spaceId}/environment', 'Set secrets of a space'))
    .input(schema.SetEnvironment)
    .output(schema.EnvironmentSet)
    .mutation(async ({ ctx, input: { spaceId, environmentVariables } }) => {
      const { keys } = await once(
        ctx,
        { spaceId, environmentVariables },
        () => secrets.findWritable(ctx.actor, ctx.deps, { spaceId }),
        (deps) => secrets.set(ctx.actor, deps, { spaceId }, environmentVariables),
      )
      return { keys, count: keys.length }
    }),

  execute: idToken('spaceId', 'agents:execute')
    .meta(rest('POST', EXECUTE, 'Run an agent on a message', EXECUTE_ERRORS))
    .input(schema.ExecuteCharacter)
    .output(Executed)
    .mutation(({ ctx, input: { characterId: id, orgId: _, ...input } }) =>
      start(ctx.actor, ctx.deps, { ...input, id }, ctx, { path: EXECUTE }),
    ),
})
