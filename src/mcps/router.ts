import { idempotent, namesNothing } from '../idempotency.ts'
import { restMeta, router, tokenProcedure } from '../trpc.ts'
import { listTypes } from './catalogue.ts'
import { listTools } from './connect.ts'
import { list } from './list.ts'
import { disconnect } from './oauth/disconnect.ts'
import { connect } from './oauth/prepare-sign-in.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

/** Checks the raw input first, because parsing would silently remove the forbidden fields. */
const writing = tokenProcedure('mcps:write').use(async ({ getRawInput, next }) => {
  schema.checkNoProcess(await getRawInput())
  return next()
})

export const mcps = router({
  list: tokenProcedure('mcps:read')
    .meta(restMeta('GET', '/api/v1/mcps', 'List MCP servers'))
    .input(schema.ListMcps.prefault({}))
    .output(schema.McpsResponse)
    .query(({ ctx, input }) => list(ctx.actor, ctx.deps, input)),

  create: writing
    .meta(restMeta('POST', '/api/v1/mcps', 'Add an MCP server'))
    .input(schema.CreateMcp)
    .output(schema.McpCreated)
    .mutation(({ ctx, input }) =>
      idempotent(ctx, input, namesNothing, (deps) => service.create(ctx.actor, deps, input)),
    ),

  catalogue: tokenProcedure('mcps:read')
    .meta(restMeta('GET', '/api/v1/mcps/catalogue', 'List well-known MCP servers'))
    .output(schema.McpTypesResponse)
    .query(({ ctx }) => ({ types: listTypes(ctx.deps.settings) })),

  get: tokenProcedure('mcps:read')
    .meta(restMeta('GET', '/api/v1/mcps/{id}', 'Get an MCP server'))
    .input(schema.McpId)
    .output(schema.McpResponse)
    .query(({ ctx, input }) => service.get(ctx.actor, ctx.deps, input.id)),

  update: writing
    .meta(restMeta('PATCH', '/api/v1/mcps/{id}', 'Change an MCP server'))
    .input(schema.UpdateMcp)
    .output(schema.McpResponse)
    .mutation(({ ctx, input }) => service.update(ctx.actor, ctx.deps, input)),

  delete: tokenProcedure('mcps:write')
    .meta(restMeta('DELETE', '/api/v1/mcps/{id}', 'Delete an MCP server'))
    .input(schema.McpId)
    .output(schema.McpDeleted)
    .mutation(({ ctx, input }) => service.remove(ctx.actor, ctx.deps, input.id)),

  connect: tokenProcedure('mcps:write')
    .meta(
      restMeta('POST', '/api/v1/mcps/{id}/connect', 'Connect yourself to an MCP server with OAuth', {
        409: 'The server needs no connection',
        502: 'Its authorization server cannot be used',
      }),
    )
    .input(schema.McpId)
    .output(schema.McpConnecting)
    .mutation(({ ctx, input }) => connect(ctx.actor, ctx.deps, input.id)),

  disconnect: tokenProcedure('mcps:write')
    .meta(restMeta('DELETE', '/api/v1/mcps/{id}/connection', 'Disconnect yourself from an MCP server'))
    .input(schema.McpId)
    .output(schema.McpDisconnected)
    .mutation(({ ctx, input }) => disconnect(ctx.actor, ctx.deps, input.id)),

  tools: tokenProcedure('mcps:read')
    .meta(
      restMeta('GET', '/api/v1/mcps/{id}/tools', 'Connect to an MCP server and list its tools', {
        409: 'You are not connected to the server',
        502: 'The server is unreachable',
      }),
    )
    .input(schema.McpId)
    .output(schema.McpToolsResponse)
    .query(({ ctx, input }) => listTools(ctx.actor, ctx.deps, input.id, ctx.gone())),
})
