import { McpServer, ProtocolError, ProtocolErrorCode, type ServerContext } from '@modelcontextprotocol/server'
import packageJson from '../../../package.json' with { type: 'json' }
import type { Actor } from '../../auth/actor.ts'
import { paused } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Context } from '../../trpc.ts'
import { toErrorResult, toResult } from './results.ts'
import { type Report, resultOf, waitForRun } from './run.ts'
import { mayUse, type Tool } from './tools.ts'

/** A request to the MCP server: the caller, and the tools at this address. */
export type Door = { context: Context; actor: Actor; tools: ReadonlyMap<string, Tool> }

const INFO = { name: 'muster', title: 'Muster', version: packageJson.version }

const INSTRUCTIONS =
  "Muster runs your organization's AI agents. Find an agent with list_agents and run it with run_agent. " +
  'A run goes on when the call is cut: repeat the call with the same idempotencyKey, or read the run with get_execution.'

/** Creates the server of one request. */
export function createServer(door: Door): McpServer {
  const { actor, tools } = door
  const mcp = new McpServer(INFO, { capabilities: { tools: {} }, instructions: INSTRUCTIONS })
  const { server } = mcp
  server.setRequestHandler('tools/list', () => ({
    tools: [...tools.values()].filter((tool) => mayUse(actor, tool)).map(({ definition }) => definition),
  }))
  server.setRequestHandler('tools/call', async ({ params: { name, arguments: args = {} } }, mcpContext) => {
    const tool = tools.get(name)
    if (!tool) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${name}`)
    try {
      return await (tool.waits ? run(door, tool, args, mcpContext) : call(door, tool, args))
    } catch (error) {
      return toErrorResult(door.context, error)
    }
  })
  return mcp
}

const call = async ({ context, actor }: Door, tool: Tool, args: Record<string, unknown>) =>
  toResult(await tool.call(context, actor, args))

/** Starts a run, and waits for its end while the client is told what happens. */
async function run(door: Door, tool: Tool, args: Record<string, unknown>, mcpContext: ServerContext) {
  const { actor, context } = door
  if (context.deps.pause.isPaused()) throw paused()
  let row: ExecutionRow | undefined
  const onAccepted = (accepted: ExecutionRow) => {
    row = accepted
  }
  await tool.call({ ...context, onAccepted }, actor, args, { background: true })
  return resultOf(await waitForRun(context, actor, row!, reporter(mcpContext)))
}

/** Returns a function that sends progress to a client that asked for it, else null. */
function reporter({ mcpReq }: ServerContext): Report | null {
  const progressToken = mcpReq._meta?.progressToken
  if (progressToken === undefined) return null
  let progress = 0
  return (message) => {
    progress++
    // The client has gone: the run goes on without it.
    mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, message } }).catch(() => {})
  }
}
