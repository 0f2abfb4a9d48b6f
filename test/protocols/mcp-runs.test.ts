import { Client, type ClientOptions, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { beforeEach, describe, expect, it } from 'vitest'
import { openState, sealState } from '../../src/protocols/mcp/state.ts'
import { createMcp } from '../engine/tool-lab.ts'
import { createAgent } from '../support/api.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const TASKS = 'io.modelcontextprotocol/tasks'

const model = await use(startModelServer())
const mcp = await use(startMcpServer())
const server = await use(
  startServer({
    ...model.env,
    ALLOW_PRIVATE_NETWORK: 'true',
  }),
)
const ann = await server.member({ organization: 'Acme' })
const mcpId = await createMcp({ url: server.url, token: ann.token }, mcp.url, [{ tool: '*', mode: 'ask' }])
const agent = await createAgent({ ...server, token: ann.token }, { mcpInstanceIds: [mcpId] })
beforeEach(() => {
  mcp.calls.length = 0
  model.fallback = ({ body }) =>
    body.messages.at(-1)?.role === 'tool'
      ? { tokens: `It said: ${body.messages.at(-1)?.content}` }
      : { toolCalls: [{ id: 'call', name: 'echo', input: { text: 'Hi' } }] }
})

type Answer = { action: 'accept' | 'decline' | 'cancel'; content?: Record<string, string> }

/** Connects the official client, whose user answers each question as given. */
async function connect(answer: Answer | null, { token } = ann, era: '2025' | '2026' = '2026') {
  const questions: string[] = []
  const options: ClientOptions = {
    ...(answer && { capabilities: { elicitation: { form: {} } } }),
    ...(era === '2026' && { versionNegotiation: { mode: { pin: '2026-07-28' } } }),
  }
  const client = new Client({ name: 'test', version: '1.0.0' }, options)
  if (answer) {
    client.setRequestHandler('elicitation/create', ({ params }) => {
      questions.push(params.message)
      return answer
    })
  }
  const headers = { Authorization: `Bearer ${token}` }
  await client.connect(new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`), { requestInit: { headers } }))
  return Object.assign(client, { questions, [Symbol.asyncDispose]: () => client.close() })
}

const call = (message = 'Hello') => ({ name: 'run_agent', arguments: { id: agent, message } })

type Fields = Record<string, unknown>

/** Sends one request of revision 2026-07-28 by hand. */
async function send(
  method: string,
  params: Fields,
  capabilities: Fields,
  { token } = ann,
  path = '/mcp',
): Promise<any> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': capabilities,
  }
  const name = params.taskId ?? params.name
  const headers = {
    Accept: 'application/json',
    'MCP-Protocol-Version': '2026-07-28',
    'Mcp-Method': method,
    ...(name !== undefined && { 'Mcp-Name': String(name) }),
  }
  const body = { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } }
  return (await request(server, 'POST', path, { body, headers, token })).body
}

it('a call of a run is answered with a stream before the run has ended, also without progress', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  model.fallback = { tokens: ['Good ', promise, 'day.'] }
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': {},
  }
  const response = await fetch(`${server.url}/mcp`, {
    method: 'POST',
    headers: {
      Authorization: `Bearer ${ann.token}`,
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': '2026-07-28',
      'Mcp-Method': 'tools/call',
      'Mcp-Name': 'run_agent',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { ...call(), _meta } }),
  })
  expect(response.headers.get('content-type')).toBe('text/event-stream')
  resolve()
  expect(await response.text()).toContain('"result":"Good day."')
})

describe('an approval', () => {
  it('is a question to the person at the client, whose answer continues the run', async () => {
    await using client = await connect({ action: 'accept', content: { decision: 'approve', reason: 'Fine' } })
    const result = await client.callTool(call())
    expect(result.structuredContent).toMatchObject({ status: 'completed', result: 'It said: Hi' })
    expect(client.questions).toHaveLength(1)
    expect(client.questions[0]).toMatch(/^Ada wants to call echo \(.+\)\.\n[\s\S]*Arguments: \{\n {2}"text": "Hi"\n\}$/)
    expect(mcp.calls).toEqual([{ tool: 'echo', input: { text: 'Hi' } }])
  })

  it.each([
    ['denies the call', { action: 'accept', content: { decision: 'deny', reason: 'Not today' } }],
    ['declines the question', { action: 'decline' }],
  ] as const)('is denied by a person who %s', async (_, answer) => {
    await using client = await connect(answer)
    const result = await client.callTool(call())
    expect(result.structuredContent).toMatchObject({ status: 'completed', result: expect.stringMatching(/denied/i) })
    expect(mcp.calls).toEqual([])
  })

  it.each(['2025', '2026'] as const)('is a link for a client of %s without questions', async (era) => {
    await using client = await connect(null, ann, era)
    const { structuredContent, content } = await client.callTool(call())
    const approvalsUrl = expect.stringMatching(/^http:.+\/app\/approvals$/)
    expect(structuredContent).toMatchObject({ waitingFor: 'approval', approvalsUrl })
    expect((content as { text: string }[])[0]?.text).toMatch(/\/app\/approvals\. Afterwards /)
  })

  it('an approval of an earlier run of the session is named to the next caller at once', async () => {
    await using client = await connect(null)
    const first = (await client.callTool(call())).structuredContent as Fields
    const next = { name: 'run_agent', arguments: { id: agent, message: 'And?', sessionId: first.sessionId } }
    const { structuredContent, content } = await client.callTool(next)
    expect(structuredContent).toMatchObject({ status: 'pending', waitingFor: 'approval' })
    expect((structuredContent as Fields).executionId).not.toBe(first.executionId)
    expect((content as { text: string }[])[0]?.text).toContain(`waits for the earlier run ${first.executionId}`)
  })

  it('an approval of an earlier run of the session is a question to the next caller', async () => {
    await using first = await connect(null)
    const { sessionId } = (await first.callTool(call())).structuredContent as Fields
    await using client = await connect({ action: 'accept', content: { decision: 'approve' } })
    model.script({ tokens: 'The first.' }, { tokens: 'The second.' })
    const next = { name: 'run_agent', arguments: { id: agent, message: 'And?', sessionId } }
    expect((await client.callTool(next)).structuredContent).toMatchObject({ result: 'The second.' })
    expect(client.questions).toHaveLength(1)
    expect(mcp.calls).toHaveLength(1)
  })

  it('is a link for a token that may not decide', async () => {
    const runner = await server.member({
      organization: 'Acme',
      scopes: ['agents:execute', 'agents:read', 'executions:read', 'mcps:read'],
    })
    await using client = await connect({ action: 'accept', content: { decision: 'approve' } }, runner)
    expect((await client.callTool(call())).structuredContent).toMatchObject({ waitingFor: 'approval' })
    expect(client.questions).toEqual([])
    expect(mcp.calls).toEqual([])
  })

  it('belongs to its user, tool and arguments, for an hour', async () => {
    const eve = await server.member({ organization: 'Acme' })
    const params = call('Bound')
    const asked = (await send('tools/call', params, { elicitation: {} })).result
    expect(asked).toMatchObject({ resultType: 'input_required', requestState: expect.any(String) })
    expect(Buffer.from(asked.requestState, 'base64url').toString()).not.toContain('exec-')
    const [key] = Object.keys(asked.inputRequests)
    const inputResponses = { [key!]: { action: 'accept', content: { decision: 'approve' } } }
    const { requestState } = asked
    const invalid = { error: { code: -32602, message: 'Invalid or expired requestState' } }
    const again = { ...params, inputResponses, requestState }
    expect(await send('tools/call', again, { elicitation: {} }, eve)).toMatchObject(invalid)
    const other = { ...again, arguments: { ...params.arguments, message: 'Other' } }
    expect(await send('tools/call', other, { elicitation: {} })).toMatchObject(invalid)
    const broken = { ...again, requestState: `${requestState.slice(0, -2)}AA` }
    expect(await send('tools/call', broken, { elicitation: {} })).toMatchObject(invalid)
    expect(mcp.calls).toEqual([])
    const { deps } = server.service
    const ofCall = { actor: { ...ann } as never, tool: 'run_agent', args: {} }
    const sealed = sealState(deps, ofCall, { executionId: 'x' })
    const inAnHour = { now: () => new Date(deps.clock.now().getTime() + 60 * 60 * 1000) }
    expect(openState(deps, ofCall, sealed)).toEqual({ executionId: 'x' })
    expect(() => openState({ ...deps, clock: inAnHour as never }, ofCall, sealed)).toThrow('expired')
    const done = (await send('tools/call', again, { elicitation: {} })).result
    expect(done).toMatchObject({ resultType: 'complete', structuredContent: { result: 'It said: Hi' } })
  })
})

describe('a task', () => {
  const capabilities = { elicitation: {}, extensions: { [TASKS]: {} } }
  const get = async (taskId: string, who = ann) => (await send('tasks/get', { taskId }, capabilities, who)).result
  const until = (taskId: string, status: string) => expect.poll(async () => (await get(taskId))?.status).toBe(status)

  it('is an execution: it asks, is answered, and has the result', async () => {
    const { result: task } = await send('tools/call', call(), capabilities)
    expect(task).toMatchObject({
      resultType: 'task',
      taskId: expect.stringMatching(/^exec-/),
      status: 'working',
      ttlMs: null,
      pollIntervalMs: expect.any(Number),
      createdAt: expect.any(String),
      lastUpdatedAt: expect.any(String),
    })
    await until(task.taskId, 'input_required')
    const { inputRequests } = await get(task.taskId)
    const [key] = Object.keys(inputRequests)
    expect(inputRequests[key!]).toMatchObject({ method: 'elicitation/create' })
    const inputResponses = {
      [key!]: { action: 'accept', content: { decision: 'approve' } },
      other: { action: 'accept' },
    }
    const answered = await send('tasks/update', { taskId: task.taskId, inputResponses }, capabilities)
    expect(answered.result).toMatchObject({ resultType: 'complete' })
    await until(task.taskId, 'completed')
    expect((await get(task.taskId)).result).toMatchObject({ structuredContent: { result: 'It said: Hi' } })
  })

  it('says that it waits for an earlier run of its session', async () => {
    const { result: first } = await send('tools/call', call(), capabilities)
    await until(first.taskId, 'input_required')
    const { execution } = (await request(server, 'GET', `/api/v1/executions/${first.taskId}`, { token: ann.token }))
      .body
    const next = { name: 'run_agent', arguments: { id: agent, message: 'And?', sessionId: execution.sessionId } }
    const { result: second } = await send('tools/call', next, capabilities)
    const statusMessage = expect.stringContaining(`waits for the earlier run ${first.taskId}`)
    expect(await get(second.taskId)).toMatchObject({ status: 'working', statusMessage })
    // No person ends the wait for a client's own tools.
    const { db } = server.service.deps
    await db.execution.update({ where: { id: first.taskId }, data: { waitingFor: 'client_tool' } })
    expect((await get(second.taskId)).statusMessage ?? '').not.toContain('waits for the earlier run')
  })

  it("a task of another agent is unknown at an agent's own address", async () => {
    const { result: task } = await send('tools/call', call(), capabilities)
    const id = await createAgent({ ...server, token: ann.token })
    const at = (address: string) => send('tasks/get', { taskId: task.taskId }, capabilities, ann, address)
    expect(await at(`/mcp/agents/${id}`)).toMatchObject({ error: { code: -32602, message: 'Unknown task' } })
    expect(await at(`/mcp/agents/${agent}`)).toHaveProperty('result')
  })

  it('a request about a task is refused with a 400 if its header names another one', async () => {
    const { result: task } = await send('tools/call', call(), capabilities)
    const headers = { 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': 'tasks/get', 'Mcp-Name': 'another' }
    const body = { jsonrpc: '2.0', id: 7, method: 'tasks/get', params: { taskId: task.taskId } }
    const refused = await request(server, 'POST', '/mcp', { body, headers, token: ann.token })
    expect([refused.status, refused.body]).toMatchObject([400, { id: 7, error: { code: -32020 } }])
    expect(await get(task.taskId)).toMatchObject({ taskId: task.taskId })
  })

  it('a task of a run that failed is completed with an error', async () => {
    model.fallback = () => ({ error: { status: 400, message: 'no' } })
    const { result: task } = await send('tools/call', call(), capabilities)
    await until(task.taskId, 'completed')
    expect((await get(task.taskId)).result).toMatchObject({ isError: true })
  })

  it('is cancelled, once and again', async () => {
    const { result: task } = await send('tools/call', call(), capabilities)
    await until(task.taskId, 'input_required')
    for (let times = 0; times < 2; times++) {
      const { result } = await send('tasks/cancel', { taskId: task.taskId }, capabilities)
      expect(result).toMatchObject({ resultType: 'complete' })
    }
    await until(task.taskId, 'cancelled')
  })

  it('is unknown to another organization, and to a client that declared no tasks', async () => {
    const eve = await server.member({ organization: 'Other' })
    const { result: task } = await send('tools/call', call(), capabilities)
    const { taskId } = task
    for (const method of ['tasks/get', 'tasks/cancel', 'tasks/update']) {
      const params = { taskId, ...(method === 'tasks/update' && { inputResponses: {} }) }
      const unknown = { error: { code: -32602, message: 'Unknown task' } }
      expect(await send(method, params, capabilities, eve), method).toMatchObject(unknown)
      expect(await send(method, params, {}), method).toMatchObject({ error: { code: -32021 } })
    }
    const { result } = await send('server/discover', {}, {})
    expect(result.capabilities.extensions).toHaveProperty([TASKS])
  })
})
