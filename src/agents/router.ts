import { executeAgent } from '../executions/execute.ts'
import { EXECUTE_ERRORS, Execute, Executed } from '../executions/schema.ts'
import { idempotent } from '../idempotency.ts'
import { mcpTool, restMeta, router, STARTS_RUN, tokenProcedure } from '../trpc.ts'
import { withCharacters } from './characters.ts'
import { getPublic, listPublic } from './directory.ts'
import { list } from './list.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'
import { versions } from './versions.ts'

/** Fields of an agent that the tools at /mcp change. */
const EDITED =
  'name systemPrompt role description model visibility tags category initialGreeting skillIds mcpInstanceIds ' +
  'subagentIds allowedTools slug maxTurns'

export const agents = router({
  list: tokenProcedure('agents:read')
    .meta(restMeta('GET', '/api/v1/agents', 'List the agents of your organization'))
    .meta(mcpTool('list_agents', 'search category tag visibility limit cursor'))
    .input(schema.ListAgents.prefault({}))
    .output(schema.AgentsResponse)
    .query(async ({ ctx, input }) => withCharacters(ctx.deps, await list(ctx.actor, ctx.deps, input))),

  create: tokenProcedure('agents:write')
    .meta(restMeta('POST', '/api/v1/agents', 'Create an agent'))
    .meta(mcpTool('create_agent', EDITED))
    .input(schema.CreateAgent)
    .output(schema.AgentCreated)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.findNamed(ctx.actor, ctx.deps, input),
        async (deps) => withCharacters(deps, await service.create(ctx.actor, deps, input)),
      ),
    ),

  get: tokenProcedure('agents:read')
    .meta(restMeta('GET', '/api/v1/agents/{id}', 'Get an agent'))
    .meta(mcpTool('get_agent', 'id'))
    .input(schema.AgentId)
    .output(schema.AgentResponse)
    .query(async ({ ctx, input }) => withCharacters(ctx.deps, await service.get(ctx.actor, ctx.deps, input.id))),

  update: tokenProcedure('agents:write')
    .meta(restMeta('PATCH', '/api/v1/agents/{id}', 'Change an agent', { 409: 'Another agent has the slug' }))
    .meta(mcpTool('update_agent', `id version ${EDITED}`, { destroys: true, repeats: true }))
    .input(schema.UpdateAgent)
    .output(schema.AgentMessage)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),

  delete: tokenProcedure('agents:write')
    .meta(restMeta('DELETE', '/api/v1/agents/{id}', 'Archive an agent'))
    .input(schema.AgentId)
    .output(schema.AgentMessage)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),

  updateSkill: tokenProcedure('agents:write')
    .meta(
      restMeta('POST', '/api/v1/agents/{id}/skills/{skillId}/update', 'Adopt the newer version of a skill of an agent'),
    )
    .input(schema.AgentSkill)
    .output(schema.AgentResponse)
    .mutation(({ ctx, input }) =>
      idempotent(
        ctx,
        input,
        () => service.get(ctx.actor, ctx.deps, input.id),
        async (deps) => withCharacters(deps, await service.updateSkill(ctx.actor, deps, input)),
      ),
    ),

  versions: tokenProcedure('agents:read')
    .meta(restMeta('GET', '/api/v1/agents/{id}/versions', 'List the versions of an agent, newest first'))
    .input(schema.ListVersions)
    .output(schema.AgentVersionsResponse)
    .query(({ ctx, input }) => versions(ctx.actor, ctx.deps, input)),

  execute: tokenProcedure('agents:execute')
    .meta(STARTS_RUN)
    .meta(restMeta('POST', '/api/v1/agents/{id}/execute', 'Run an agent on a message', EXECUTE_ERRORS))
    .meta(
      mcpTool('run_agent', 'id message spaceId chatId sessionId model onBusy mediaIds', {
        description:
          'Run an agent on a message and wait for its answer. To continue a conversation, give the sessionId of an earlier answer.',
      }),
    )
    .input(Execute)
    .output(Executed)
    .mutation(({ ctx, input }) => executeAgent(ctx.actor, ctx.deps, input, ctx)),

  listPublic: tokenProcedure('agents:read')
    .meta(restMeta('GET', '/api/v1/public/agents', "List every organization's public agents"))
    .input(schema.ListPublicAgents.prefault({}))
    .output(schema.AgentCardsResponse)
    .query(({ ctx, input }) => listPublic(ctx.deps, input)),

  getPublic: tokenProcedure('agents:read')
    .meta(restMeta('GET', '/api/v1/public/agents/{id}', 'Get the card of a public or unlisted agent'))
    .input(schema.AgentId)
    .output(schema.AgentCardResponse)
    .query(({ ctx, input }) => getPublic(ctx.deps, input.id)),
})
