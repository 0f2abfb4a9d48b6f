import type { ExecutionEvent, ExecutionRow, MessageData } from '../../src/executions/engine/events/events.ts'
import { createAgent, ok } from '../support/api.ts'
import { type McpTestServer, startMcpServer } from '../support/mcp-server.ts'
import type { ModelRequest } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import type { TestServer } from '../support/server.ts'
import { followed, type Lab, startLab } from './lab.ts'

/** A lab with a real MCP server, and agents that may call its tools. */
export type ToolLab = AsyncDisposable & {
  lab: Lab
  mcp: McpTestServer
  /** Creates an agent with that server. Returns its row. */
  agent(fields?: object, permissions?: readonly object[]): Promise<Awaited<ReturnType<typeof agentRow>>>
  /** Runs an agent to its end. Returns the events that followers get. */
  run(agent: { id: string }, message?: string): Promise<{ row: ExecutionRow; events: ExecutionEvent[] }>
}

const agentRow = ({ db }: Lab, id: string) => db.agent.findUniqueOrThrow({ where: { id } })

export async function startToolLab(env: Record<string, string> = {}): Promise<ToolLab> {
  const mcp = await startMcpServer()
  const lab = await startLab({ ALLOW_PRIVATE_NETWORK: 'true', ...env })
  return {
    lab,
    mcp,
    async agent(fields = {}, permissions = []) {
      const mcpId = await createMcp(lab.server, mcp.url, permissions)
      return agentRow(lab, await createAgent(lab.server, { mcpInstanceIds: [mcpId], ...fields }))
    },
    async run(agent, message = 'Hello') {
      const begun = await lab.run({ agent: await agentRow(lab, agent.id), message })
      const events = await followed(lab.engine, begun)
      return { row: await lab.row(begun.id), events }
    },
    async [Symbol.asyncDispose]() {
      await lab[Symbol.asyncDispose]()
      await mcp[Symbol.asyncDispose]()
    },
  }
}

export async function createMcp(
  server: Pick<TestServer, 'url' | 'token'>,
  url: string,
  permissions: readonly object[] = [],
): Promise<string> {
  const body = { name: 'Test', mcpType: 'test', url, transport: 'streamable-http', permissions }
  return (await ok(request(server, 'POST', '/api/v1/mcps', { body }))).id
}

/** A tool call of the model. */
export const call = (name: string, input: unknown = {}, id = `${name}-1`) => ({ id, name, input })

/** The messages of a run's events, without text fragments. */
export const messagesOf = (events: readonly ExecutionEvent[]): MessageData[] =>
  events.flatMap(({ event, data }) => (event === 'message' && data.messageType !== 'stream_event' ? data : []))

/** The tool results, in order. */
export const results = (events: readonly ExecutionEvent[]) =>
  messagesOf(events).flatMap((data) => (data.messageType === 'tool_result' ? data : []))

/** The names of the tools that a request offers to the model. */
export const offered = ({ body }: ModelRequest): string[] =>
  ((body.tools ?? []) as { function: { name: string } }[]).map((tool) => tool.function.name)
