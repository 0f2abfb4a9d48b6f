import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { ok } from '../support/api.ts'
import * as hostileMcp from '../support/hostile-mcp.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const { calling, drip, envelope, JSON_TYPE, MEBIBYTE, pour, reply, SSE_TYPE } = hostileMcp

const model = await use(startModelServer())
const hostile = await use(hostileMcp.startHostileMcp())
const env = { OPENAI_BASE_URL: model.baseUrl, DEFAULT_MODEL: 'compatible/test-model' }
const server = await use(startServer({ ...env, ALLOW_PRIVATE_NETWORK: 'true', TOOL_TIMEOUT: '2' }))
const { id: mcpId } = await post('/mcps', { name: 'Hostile', url: hostile.url })
const agentWithTools: string = (await post('/agents', { name: 'A', systemPrompt: 'x', mcpInstanceIds: [mcpId] })).id
const plain: string = (await post('/agents', { name: 'B', systemPrompt: 'x' })).id
// Calls the tool once if there is one, then says that it is done.
model.fallback = ({ body }) => {
  const canCall = body.tools?.length && body.messages.at(-1)?.role !== 'tool'
  return canCall ? { toolCalls: [{ id: 'call-1', name: 'a', input: {} }] } : { tokens: 'Done' }
}

async function post(path: string, body: object): Promise<any> {
  return ok(request(server, 'POST', `/api/v1${path}`, { body }))
}

const execute = (agentId: string) => post(`/agents/${agentId}/execute`, { message: 'Hello' })

beforeEach(() => void server.logs.splice(0))

/** Returns the log lines about MCP servers and tools since the last call, or the start of the test. */
const logged = () =>
  server.logs
    .splice(0)
    .flatMap((line) => (/an? (?:call to an )?(?:MCP server|tool)\b/.test(line) ? JSON.parse(line) : []))

/** Runs an agent against the hostile server beside another run. Returns the tool's result; checks for leftovers. */
async function run(answer: hostileMcp.Answer): Promise<any[]> {
  hostile.answer = answer
  hostile.sent = 0
  const [{ result, executionId }, other] = await Promise.all([execute(agentWithTools), execute(plain)])
  expect([result, other.result]).toEqual(['Done', 'Done'])
  await expect.poll(() => hostile.connections).toBe(0)
  expect(hostile.sent).toBeLessThan(64 * MEBIBYTE)
  const { logs } = (await request(server, 'GET', `/api/v1/executions/${executionId}/logs`)).body
  return (logs as { data: Record<string, unknown> }[]).flatMap(({ data }) =>
    data.messageType === 'tool_result' ? data : [],
  )
}

it('a run can call the tools that its server announces while it calls one', async () => {
  let names = ['a', 'gone']
  hostile.answer = (response, message) =>
    calling(names, () => {
      names = ['later', 'a']
      const changed = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
      const result = envelope(message, { content: [{ type: 'text', text: 'Unlocked' }] })
      response.writeHead(200, SSE_TYPE).end(`data: ${changed}\n\ndata: ${result}\n\n`)
    })(response, message)
  const toolCalls = (name: string) => ({ toolCalls: [{ id: name, name, input: {} }] })
  model.script(toolCalls('a'), toolCalls('later'), { tokens: 'Done' })
  const before = model.requests.length
  const { executionId } = await execute(agentWithTools)
  const offered = model.requests
    .slice(before)
    .map(({ body }) => (body.tools ?? []).map((tool: any) => tool.function.name))
  expect(offered).toEqual([
    ['a', 'gone'],
    ['later', 'a'],
    ['later', 'a'],
  ])
  const { logs } = (await request(server, 'GET', `/api/v1/executions/${executionId}/logs`)).body
  const results = logs.filter(({ data }: any) => data.messageType === 'tool_result')
  expect(results.map(({ data }: any) => data.content)).toEqual(['Unlocked', 'Unlocked'])
})

it.each<[string, hostileMcp.Answer]>([
  ['says nothing', () => {}],
  ['drips', (response) => drip(response.writeHead(200, JSON_TYPE), ' ')],
  ['sends a gigabyte', (response) => pour(response.writeHead(200, JSON_TYPE), ' '.repeat(MEBIBYTE))],
  ['never ends', (response) => drip(response.writeHead(200, SSE_TYPE), ': on and on\n\n')],
  ['answers something else', (response, message) => reply(response, { ...message, id: 0 }, 5)],
  ['sends garbage', (response) => pour(response.writeHead(200, SSE_TYPE), 'data: {}\n\n'.repeat(1000))],
  ['breaks off', (response) => void response.writeHead(200, SSE_TYPE).write('data: {', () => response.destroy())],
  [
    'gives a huge error',
    (response, { id }) => {
      const error = { code: -32000, message: 'x\u0000'.repeat(MEBIBYTE) }
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ jsonrpc: '2.0', id, error }))
    },
  ],
])('a run whose tool %s has an error result and a log line, and other runs continue', async (what, call) => {
  const [result, ...more] = await run(calling(['a'], call))
  expect(result).toMatchObject({ toolUseId: 'call-1', isError: true })
  expect(result.content.length).toBeLessThan(5000)
  // A protocol error is an answer: the model reads it, and the log omits it.
  const lines = what === 'gives a huge error' ? [] : [{ level: 40, msg: expect.stringMatching(/failed/) }]
  expect(logged()).toMatchObject(lines)
  expect(more).toEqual([])
})

it.each<[string, hostileMcp.Answer]>([
  ['says nothing', () => {}],
  ['sends a gigabyte', (response) => pour(response.writeHead(200, SSE_TYPE), `data: ${'x'.repeat(MEBIBYTE)}`)],
  ['answers something else', (response, message) => reply(response, { ...message, id: 0 }, 5)],
])('a run whose MCP server %s when asked for its tools continues without them, with a note', async (_, answer) => {
  const before = model.requests.length
  expect(await run(answer)).toEqual([])
  const prompts = JSON.stringify(model.requests.slice(before).map(({ body }) => body.messages))
  expect(prompts).toContain('cannot be used now: it cannot be reached.')
})

it('a result of control characters alone is an empty one', async () => {
  const content = [{ type: 'text', text: '\u0000\u001b' }]
  expect(await run(calling(['a'], (response, message) => reply(response, message, { content })))).toMatchObject([
    { content: '', isError: false },
  ])
})

describe('an agent with missing tools', () => {
  const away = { name: 'Away', url: '' }
  beforeAll(async () => {
    await using closed = await hostileMcp.startHostileMcp()
    away.url = closed.url
  })

  const create = (fields: object) => post('/agents', { name: 'C', systemPrompt: 'x', ...fields })
  const DETAIL = 'The MCP server "Away" cannot be used: the connection was refused: nothing listens at its address'

  it('has a warning for each missing server and allowed name, and one log line', async () => {
    hostile.answer = calling(['a'], (response, message) => reply(response, message, { content: [] }))
    const working = await post('/mcps', { name: 'Works', url: hostile.url })
    const [unreachable, off] = [
      await post('/mcps', away),
      await post('/mcps', { ...away, name: 'Off', isActive: false }),
    ]
    const mcpInstanceIds = [working.id, unreachable.id, off.id]
    const allowedTools = ['a', 'Works__a', `${working.id}/a`, 'nothing', `${working.id}/b`, 'Away__c', 'read_file']
    const { id } = await create({ mcpInstanceIds, allowedTools })
    logged()
    const { status, warnings } = await execute(id)
    expect(status).toBe('completed')
    expect(logged()).toMatchObject([{ level: 40, mcpId: unreachable.id, reason: expect.stringContaining('refused') }])
    expect(warnings).toEqual([
      { code: 'mcp_unreachable', text: 'The MCP server "Off" cannot be used: it is disabled' },
      { code: 'mcp_unreachable', text: DETAIL },
      {
        code: 'tool_missing',
        text: `allowedTools names tools that do not exist: nothing, ${working.id}/b, Away__c`,
      },
    ])
  })

  it('chooses by allowedTools among more tools than a run can have', async () => {
    hostile.answer = calling(
      Array.from({ length: 250 }, (_, index) => `t${index}`),
      (response, message) => reply(response, message, { content: [] }),
    )
    const many = await post('/mcps', { name: 'Many', url: hostile.url })
    const offeredTo = async (fields: object) => {
      const { id } = await create({ mcpInstanceIds: [many.id], ...fields })
      const { warnings } = await execute(id)
      const offered = (model.requests.at(-1)?.body.tools ?? []).map((one: any) => one.function.name)
      return { warnings, offered: offered.filter((name: string) => /^t\d/.test(name)) }
    }
    const allowedTools = ['t249', 'Many__t248', `${many.id}/t247`, 't1']
    expect(await offeredTo({ allowedTools })).toEqual({ warnings: [], offered: ['t1', 't247', 't248', 't249'] })
    const text = expect.stringMatching(/^The MCP server "Many" has more tools .+ allowedTools of the agent\.$/)
    expect((await offeredTo({})).warnings).toContainEqual({ code: 'tool_missing', text })
  })

  it('fails its runs with the cause if it requires its tools', async () => {
    const { id: mcpId } = await post('/mcps', away)
    const { id } = await create({ mcpInstanceIds: [mcpId], requireTools: true })
    const before = model.requests.length
    const path = `/api/v1/agents/${id}/execute`
    const { status, body } = await request(server, 'POST', path, { body: { message: 'Hello' } })
    expect(status).toBe(500)
    expect(body).toMatchObject({ message: 'Chat execution failed', code: 'mcp_unreachable', detail: DETAIL })
    const { execution } = (await request(server, 'GET', `/api/v1/executions/${body.executionId}`)).body
    expect(execution).toMatchObject({ status: 'failed', error: DETAIL, stopReason: 'error' })
    expect(model.requests.length).toBe(before)
    const unknown = await create({ allowedTools: ['nothing'], requireTools: true })
    const failed = await request(server, 'POST', `/api/v1/agents/${unknown.id}/execute`, { body: { message: 'Hello' } })
    expect(failed.body).toMatchObject({
      code: 'mcp_unreachable',
      detail: 'allowedTools names tools that do not exist: nothing',
    })
  })
})
