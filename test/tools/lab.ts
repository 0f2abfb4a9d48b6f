import { fitInput } from '../../src/executions/engine/run/inputs.ts'
import { toolUser } from '../../src/executions/engine/run/prepare.ts'
import type { Tool, ToolUser } from '../../src/executions/engine/run/tools.ts'
import { tickingClock } from '../support/clock.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'

type Fields = Record<string, unknown>

export type Lab = AsyncDisposable & {
  server: TestServer
  /** Makes a REST call that must succeed. */
  post(who: Member, path: string, body: Fields): Promise<any>
  get(who: Member, path: string): Promise<any>
  agent(who: Member, fields?: Fields): Promise<string>
  space(who: Member, fields?: Fields): Promise<string>
  skill(who: Member, fields?: Fields): Promise<{ id: string; name: string; prompt: string }>
  /** The user for whom a run would open its tools, by default in the default space and with all scopes. */
  user(who: Member, agentId: string, spaceId?: string, scopes?: string): Promise<ToolUser>
}

/** A real service whose tools are called without a model. */
export async function startLab(): Promise<Lab> {
  const server = await startServer({}, { clock: tickingClock() })
  const { db } = server.service.deps
  let made = 0

  async function call(method: string, who: Member, path: string, body?: Fields) {
    const answer = await request(server, method, path, { token: who.token, ...(body && { body }) })
    if (answer.status !== 200) throw new Error(`${method} ${path}: ${JSON.stringify(answer.body)}`)
    return answer.body
  }
  const post: Lab['post'] = (who, path, body) => call('POST', who, path, body)

  return {
    server,
    post,
    get: (who, path) => call('GET', who, path),
    agent: async (who, fields = {}) =>
      (await post(who, '/api/v1/agents', { name: 'A', systemPrompt: 'x', ...fields })).id,
    space: async (who, fields = {}) => (await post(who, '/api/v1/spaces', { name: 'S', ...fields })).id,
    skill: async (who, fields = {}) => {
      made += 1
      const input = { name: `skill-${made}`, description: `For work ${made}.`, prompt: `# Prompt ${made}`, ...fields }
      return (await post(who, '/api/v1/skills', input)).skill
    },
    async user(who, agentId, spaceId, scopes) {
      const { organizationId, userId } = who
      const agent = await db.agent.findUniqueOrThrow({ where: { id: agentId } })
      const space = spaceId ?? (await db.space.findFirstOrThrow({ where: { organizationId, isDefault: true } })).id
      const row = { organizationId, userId, agentId, spaceId: space, scopes: scopes ?? null } as ToolUser['row']
      return toolUser(db, { row, agent, controller: new AbortController(), warn: () => {} })
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
}

/** Calls a tool by its name, as a run does. Returns the result, parsed if it is JSON. */
export async function callTool(tools: readonly Tool[], name: string, input: unknown = {}): Promise<any> {
  const tool = tools.find((one) => one.name === name)
  if (!tool) throw new Error(`There is no tool ${name}`)
  const signal = new AbortController().signal
  const { content } = await tool.call(fitInput(input, tool.inputSchema), {
    toolUseId: 'x',
    signal,
    progressed: () => {},
    childExecutionId: null,
    findChild: async () => null,
    adopt: async () => {},
  })
  return content.startsWith('{') ? JSON.parse(content) : content
}
