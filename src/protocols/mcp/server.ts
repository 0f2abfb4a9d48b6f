import {
  inputRequired,
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  type ServerContext,
} from '@modelcontextprotocol/server'
import packageJson from '../../../package.json' with { type: 'json' }
import type { Actor } from '../../auth/actor.ts'
import { covers } from '../../auth/scopes.ts'
import { lacksScopes, paused } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { find as findRun } from '../../executions/service.ts'
import { createCaller } from '../../router.ts'
import type { Context } from '../../trpc.ts'
import { type Report, type Run, type Wait, waitForRun, waitOf } from '../shared/wait.ts'
import { decideBy, pendingOf, questionsFor } from './approvals.ts'
import { addResources } from './resources.ts'
import { resultOf, type ToolResult, toErrorResult, toResult } from './results.ts'
import { addSkills } from './skills.ts'
import { openState, type RequestState, sealState } from './state.ts'
import { addTasks, capabilitiesOf, TASKS, takesTasks, toTaskResult } from './tasks.ts'
import { mayUse, type Tool } from './tools.ts'

/** A request to the MCP server: the caller, and the tools of the address. */
export type McpRequest = {
  context: Context
  actor: Actor
  tools: ReadonlyMap<string, Tool>
  /** The one agent of the address, if it has one. */
  agentId: string | undefined
  /** The request's message. */
  message: unknown
}

const INFO = { name: 'muster', title: 'Muster', version: packageJson.version }

const INSTRUCTIONS =
  "Muster runs your organization's AI agents. Find an agent with list_agents and run it with run_agent. " +
  'A run goes on when the call is cut: repeat the call with the same idempotencyKey, or read the run with get_execution.'

const AGENT_INSTRUCTIONS =
  'Ask the agent with the tool `ask`. The answer has a `sessionId`: give it as `session` to continue the conversation.'

/** Creates the server of one request. */
export function createServer(request: McpRequest): McpServer {
  const { actor, agentId, context, tools } = request
  const isAgent = agentId !== undefined
  const mcp = new McpServer(INFO, {
    capabilities: { tools: {}, extensions: { [TASKS]: {} } },
    instructions: isAgent ? AGENT_INSTRUCTIONS : INSTRUCTIONS,
    requestState: { verify: (state) => openState(context.deps, { actor, ...callOf(request) }, state) },
  })
  const { server } = mcp
  server.setRequestHandler('tools/list', () => ({
    tools: [...tools.values()].filter((tool) => mayUse(actor, tool)).map(({ definition }) => definition),
  }))
  server.setRequestHandler('tools/call', async ({ params: { name, arguments: args = {} } }, mcpContext) => {
    const tool = tools.get(name)
    if (!tool) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${name.slice(0, 100)}`)
    try {
      // The door checks single requests. Earlier clients may send several at once.
      if (!mayUse(actor, tool)) throw lacksScopes(tool.scopes)
      return (await (tool.waits ? callTool(request, tool, args, mcpContext) : call(request, tool, args))) as ToolResult
    } catch (error) {
      return toErrorResult(context, error)
    }
  })
  // The server is for one request, and a call of a tool needs nothing else.
  if (methodOf(request) === 'tools/call') return mcp
  addTasks(server, context, agentId)
  if (!isAgent && covers(actor.scopes, 'skills:read')) addSkills(mcp, context, actor)
  if (!isAgent && covers(actor.scopes, 'spaces:read')) addResources(mcp, context)
  return mcp
}

/** Returns the method of the request; undefined for several at once. */
const methodOf = ({ message }: McpRequest): unknown => (message as { method?: unknown } | null | undefined)?.method

/** Returns the tool and the arguments of a call, as the client sent them. */
function callOf({ agentId = '', message }: McpRequest) {
  const { name, arguments: args } = (message as { params?: { name?: unknown; arguments?: unknown } }).params ?? {}
  return { tool: `${agentId} ${name}`, args: args ?? {} }
}

const call = async ({ context, actor }: McpRequest, tool: Tool, args: Record<string, unknown>) =>
  toResult(await tool.call(context, actor, args))

/**
 * Starts a run, or resumes one that waited for a person, and waits for its end. The client gets its progress. A client
 * of the tasks extension gets a task at once.
 */
async function callTool(request: McpRequest, tool: Tool, args: Record<string, unknown>, mcpContext: ServerContext) {
  const { actor, context } = request
  const { deps } = context
  const state = mcpContext.mcpReq.requestState<RequestState>()
  const isTask = !state && takesTasks(mcpContext)
  if (!isTask && deps.pause.isPaused()) throw paused()
  let row: ExecutionRow | undefined
  if (state) {
    row = await findRun(actor, deps, state.executionId)
    await decideBy(context, mcpContext.mcpReq.inputResponses)
  } else {
    const onAccepted = (accepted: ExecutionRow) => {
      row = accepted
    }
    await tool.call({ ...context, onAccepted }, actor, args, { background: true })
  }
  const { id } = row!
  if (isTask) return toTaskResult(context, (await createCaller(context).executions.get({ id })).execution as Run)
  const { run, wait } = await waitForRun(context, actor, row!, reporter(mcpContext))
  return wait ? waiting(request, run, wait, mcpContext) : resultOf(run)
}

/** Returns the questions of a run for a person, or a link for a client without questions. */
async function waiting(request: McpRequest, run: Run, wait: Wait, mcpContext: ServerContext) {
  const { actor, context } = request
  const { elicitation } = capabilitiesOf(mcpContext)
  const canAsk = elicitation && (elicitation.form !== undefined || elicitation.url === undefined)
  const { waitingFor } = wait
  if (waitingFor === 'approval' && canAsk && covers(actor.scopes, 'approvals:write')) {
    const inputRequests = questionsFor(await pendingOf(context, wait.executionId))
    const requestState = sealState(context.deps, { actor, ...callOf(request) }, { executionId: run.id })
    return inputRequired({ inputRequests, requestState })
  }
  const { id: executionId, chatId, sessionId, status, stopReason } = run
  const { url, text } = waitOf(context.deps, waitingFor, wait.executionId === run.id ? undefined : wait.executionId)
  return toResult(
    { success: true, executionId, chatId, sessionId, status, stopReason, waitingFor, approvalsUrl: url },
    `${text}. Afterwards read its result with get_execution (id ${executionId}), or repeat this call with the same idempotencyKey.`,
  )
}

/** Returns a function that sends progress to a client that asked for it, else null. */
function reporter({ mcpReq }: ServerContext): Report | null {
  const progressToken = mcpReq._meta?.progressToken
  if (progressToken === undefined) return null
  let progress = 0
  return (message) => {
    progress++
    // The client has disconnected, and the run continues.
    mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, message } }).catch(() => {})
  }
}
