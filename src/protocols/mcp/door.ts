import type { IncomingMessage, ServerResponse } from 'node:http'
import { createMcpHandler } from '@modelcontextprotocol/server'
import type { Actor } from '../../auth/actor.ts'
import { lacksScopes, notFound } from '../../errors.ts'
import { readBody } from '../../http/body.ts'
import { asRequested, type Context } from '../../trpc.ts'
import { checkOrigin, toRequest, writeResponse } from './http.ts'
import { createServer, type Door } from './server.ts'
import { agentTools, mayUse, toolsByName } from './tools.ts'

/** Maximum size of a request (bytes): a file of 1 MiB in base64, and room beside it. */
const MAX_BODY = 4 * 1024 * 1024

const AGENT = /^\/mcp\/agents\/([^/?]+)/

/**
 * Serves the MCP server (contract-2.md section 6.1) at `/mcp`, and one agent at `/mcp/agents/{id}`. Clients of revision
 * 2026-07-28 and those with `initialize` use the same address, and neither has a session. Throws 401, 403 and 404.
 */
export async function handle(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { deps } = context
  checkOrigin(deps.settings, req)
  const actor = asRequested(context, await context.authenticate())
  const [, agent] = AGENT.exec(req.url ?? '') ?? []
  const tools = agent === undefined ? toolsByName() : await agentTools(deps, actor, decoded(agent))
  const body = await readBody(req, MAX_BODY)
  const message = parse(body)
  checkScope(actor, tools, message)
  const door: Door = { context, actor, tools }
  const handler = createMcpHandler(() => createServer(door), {
    legacy: 'stateless',
    maxRequestBodySize: MAX_BODY,
    onerror: (error) => deps.log.debug({ requestId: context.requestId, err: error }, 'mcp request failed'),
  })
  const request = toRequest(req, body, context.streamTo(actor))
  await writeResponse(res, await handler.fetch(request))
}

/** Decodes a name in an address. Throws 404 for one that is malformed. */
function decoded(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    throw notFound('Agent')
  }
}

/** Returns the message, or null for anything else than JSON, which the package refuses. */
function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString())
  } catch {
    return null
  }
}

/** Throws 403 for a tool outside the scopes of the token, so that a client can ask its user for them. */
function checkScope(actor: Actor, tools: Door['tools'], message: unknown): void {
  const { method, params } = (message ?? {}) as { method?: unknown; params?: { name?: unknown } | null }
  const tool = method === 'tools/call' ? tools.get(String(params?.name)) : undefined
  if (tool && !mayUse(actor, tool)) throw lacksScopes(tool.scopes)
}
