import { gzipSync } from 'node:zlib'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, it } from 'vitest'
import { toolsByName } from '../../src/protocols/mcp/tools.ts'
import { createAgent } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const server = await use(startServer(model.env))
const { ann, eve } = await server.people('ann', 'eve')
const agent = await createAgent({ ...server, token: ann.token }, { role: 'Mathematician' })

const ERAS = ['2025', '2026'] as const
type Era = (typeof ERAS)[number]

/** Connects the official client of an era. */
async function connect(era: Era, { token } = ann, path = '/mcp') {
  const client = new Client(
    { name: 'test', version: '1.0.0' },
    era === '2026' ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {},
  )
  const headers = { Authorization: `Bearer ${token}` }
  await client.connect(new StreamableHTTPClientTransport(new URL(server.url + path), { requestInit: { headers } }))
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.close() })
}

const textOf = (result: { content?: unknown }) => (result.content as { text: string }[])[0]?.text

describe.each(ERAS)('the official client of %s', (era) => {
  it('lists at most 25 tools, and calls one of each kind', async () => {
    await using client = await connect(era)
    const { tools } = await client.listTools()
    expect(tools.length).toBeLessThanOrEqual(25)
    expect(tools.map(({ name }) => name)).toContain('run_agent')
    const created = await client.callTool({ name: 'create_task', arguments: { title: `Of ${era}`, priority: 'high' } })
    const { id } = created.structuredContent as { id: string }
    const listed = await client.callTool({ name: 'list_tasks', arguments: { priority: 'high' } })
    expect((listed.structuredContent as { tasks: { id: string }[] }).tasks.map((task) => task.id)).toContain(id)
  })

  it('runs an agent, gets its progress, and continues the conversation', async () => {
    model.script({ tokens: ['Good ', 'day.'] }, { tokens: ['Again.'] })
    await using client = await connect(era)
    const progress: string[] = []
    const first = await client.callTool(
      { name: 'run_agent', arguments: { id: agent, message: 'Hello' } },
      { onprogress: ({ message }) => void progress.push(message ?? '') },
    )
    expect(first).toMatchObject({ structuredContent: { status: 'completed', result: 'Good day.' } })
    expect(textOf(first)).toBe('Good day.')
    expect(progress[0]).toMatch(/^Execution exec-\S+ is accepted$/)
    const { sessionId } = first.structuredContent as { sessionId: string }
    const second = await client.callTool({ name: 'run_agent', arguments: { id: agent, message: 'More', sessionId } })
    expect(second.structuredContent).toMatchObject({ sessionId, result: 'Again.' })
  })

  it("asks the only agent of an agent's own address", async () => {
    model.script({ tokens: ['42'] }, { tokens: ['Because.'] })
    await using client = await connect(era, ann, `/mcp/agents/${agent}`)
    const { tools } = await client.listTools()
    expect(tools).toMatchObject([{ name: 'ask', title: 'Ask Ada' }])
    const first = await client.callTool({ name: 'ask', arguments: { message: 'What?' } })
    const { sessionId: session } = first.structuredContent as { sessionId: string }
    const second = await client.callTool({ name: 'ask', arguments: { message: 'Why?', session } })
    expect(second.structuredContent).toMatchObject({ sessionId: session, result: 'Because.' })
  })

  it('names the agent of a run by its name or its slug, with the same key as by its id', async () => {
    model.script({ tokens: ['Once.'] })
    await using client = await connect(era)
    const run = (id: string) =>
      client.callTool({ name: 'run_agent', arguments: { id, message: 'Hi', idempotencyKey: `named-${era}` } })
    const first = await run('Ada')
    expect(first.structuredContent).toMatchObject({ result: 'Once.' })
    for (const id of ['ada', 'acme/ada', agent])
      expect((await run(id)).structuredContent).toEqual(first.structuredContent)
    expect(textOf(await run('nobody'))).toMatch(/^Agent not found\. Name .+\. The tool list_agents lists them\.$/)
  })

  it('gets an error with the remedy as the result of the tool', async () => {
    await using client = await connect(era)
    const unknown = await client.callTool({ name: 'get_agent', arguments: { id: 'nobody' } })
    expect(unknown).toMatchObject({ isError: true, _meta: { 'muster/error': { statusCode: 404, code: 'not_found' } } })
    expect(textOf(unknown)).toMatch(/^Agent not found\. There is none/)
    const misspelt = await client.callTool({ name: 'run_agent', arguments: { id: agent, mesage: 'Hi' } })
    expect(textOf(misspelt)).toBe('Unknown argument: mesage. Did you mean message?')
    model.script({ error: { status: 400, message: 'no such thing' } })
    const failed = await client.callTool({ name: 'run_agent', arguments: { id: agent, message: 'Hi' } })
    expect(failed).toMatchObject({ isError: true, _meta: { 'muster/error': { executionId: expect.any(String) } } })
    expect(textOf(failed)).toMatch(/^Chat execution failed\. /)
  })

  it('joins the run of the same idempotency key', async () => {
    model.script({ tokens: ['Once.'] })
    await using client = await connect(era)
    const call = { name: 'run_agent', arguments: { id: agent, message: 'Hi', idempotencyKey: `run-${era}` } }
    const first = await client.callTool(call)
    expect((await client.callTool(call)).structuredContent).toEqual(first.structuredContent)
    const other = { ...call, arguments: { ...call.arguments, message: 'Ho' } }
    expect(await client.callTool(other)).toMatchObject({
      isError: true,
      _meta: { 'muster/error': { statusCode: 422 } },
    })
  })

  it('sees nothing of another organization', async () => {
    await using client = await connect(era, eve)
    const { agents } = (await client.callTool({ name: 'list_agents' })).structuredContent as { agents: unknown[] }
    expect(agents).toEqual([])
    expect(await client.callTool({ name: 'run_agent', arguments: { id: agent, message: 'Hi' } })).toMatchObject({
      isError: true,
      _meta: { 'muster/error': { statusCode: 404 } },
    })
    await expect(connect(era, eve, `/mcp/agents/${agent}`)).rejects.toThrow()
  })
})

describe('the tools', () => {
  it('validate their results by their own output schemas, which are short', async () => {
    await using client = await connect('2026')
    const ajv = new Ajv2020({ strict: false, validateFormats: false })
    const { tools } = await client.listTools()
    expect(JSON.stringify(tools).length).toBeLessThan(51_000)
    for (const { name, inputSchema, outputSchema, annotations } of tools) {
      expect(() => ajv.compile(inputSchema as object), name).not.toThrow()
      expect(() => ajv.compile(outputSchema as object), name).not.toThrow()
      // AutoGen and CrewAI cannot read a list of types, and then have none of the tools.
      expect(JSON.stringify(inputSchema), name).not.toContain('"type":[')
      expect(Object.keys(annotations ?? {}), name).toHaveLength(4)
      if (!annotations?.readOnlyHint || inputSchema.required?.length) continue
      const { structuredContent } = await client.callTool({ name })
      const validate = ajv.compile(outputSchema as object)
      expect(validate(structuredContent), `${name}: ${ajv.errorsText(validate.errors)}`).toBe(true)
    }
  })

  it('are limited by the scopes of the token, and cached for nobody else', async () => {
    const reader = await server.member({ organization: 'Acme', scopes: ['tasks:read', 'chats:write'] })
    await using client = await connect('2026', reader)
    const { tools, cacheScope } = await client.listTools()
    expect(cacheScope).toBe('private')
    expect(tools.map(({ name }) => name).sort()).toEqual(['list_chats', 'list_tasks', 'read_chat'])
    const body = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'create_task', arguments: { title: 'No' } },
    }
    const headers = { Accept: 'application/json, text/event-stream' }
    const refused = await request(server, 'POST', '/mcp', { body, headers, token: reader.token })
    expect(refused.status).toBe(403)
    expect(refused.headers.get('www-authenticate')).toBe('Bearer error="insufficient_scope", scope="tasks:write"')
  })

  it('are those of the contract', () => {
    expect([...toolsByName().keys()].sort()).toMatchInlineSnapshot(`
      [
        "cancel_execution",
        "claim_task",
        "create_agent",
        "create_mission",
        "create_task",
        "execute_task",
        "get_agent",
        "get_execution",
        "get_usage",
        "list_agents",
        "list_approvals",
        "list_chats",
        "list_executions",
        "list_files",
        "list_missions",
        "list_spaces",
        "list_tasks",
        "pause_mission",
        "read_chat",
        "read_file",
        "run_agent",
        "run_mission",
        "update_agent",
        "update_task",
        "write_file",
      ]
    `)
  })
})

describe('the address', () => {
  const rpc = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
  const headers = { Accept: 'application/json, text/event-stream' }
  const answered = async (method: string, params: unknown) => {
    const body = { jsonrpc: '2.0', id: 1, method, params }
    return (await request(server, 'POST', '/mcp', { body, headers: { Accept: 'application/json' }, token: ann.token }))
      .body
  }

  it('refuses requests without a token, with an instruction to send one', async () => {
    const { status, headers: sent } = await request(server, 'POST', '/mcp', { body: rpc, headers, token: null })
    expect(status).toBe(401)
    expect(sent.get('www-authenticate')).toBe('Bearer')
  })

  it.each<[string, number, string, string | undefined, string]>([
    ['token', 401, '/mcp', 'wrong', 'Invalid token format. Token must start with mst_. Send the header'],
    ['agent', 404, '/mcp/agents/none', undefined, 'Agent not found. Name an agent that you can run by its id'],
  ])('refuses an unknown %s with an error of JSON-RPC, as libraries for Python show it', async (_, ...given) => {
    const [statusCode, path, token = ann.token, text] = given
    const { status, body } = await request(server, 'POST', path, { body: rpc, headers, token })
    const data = { error: true, statusCode, requestId: expect.any(String) }
    expect(status).toBe(statusCode)
    expect(body).toMatchObject({ jsonrpc: '2.0', id: null })
    expect(body.error).toMatchObject({ code: -32_000, message: expect.stringContaining(text), data })
  })

  it('refuses pages of other origins, and accepts its own', async () => {
    const of = (Origin: string) =>
      request(server, 'POST', '/mcp', { body: rpc, headers: { ...headers, Origin }, token: ann.token })
    expect((await of('https://evil.example')).status).toBe(403)
    expect((await of(server.url)).status).toBe(200)
  })

  it.each([
    ['anything', 'text/html, */*;q=0.8', 'text/event-stream'],
    ['event streams', 'text/event-stream', 'text/event-stream'],
    ['JSON', 'application/json', 'application/json'],
  ])('answers a client that accepts %s', async (_, Accept, type) => {
    const post = (body: unknown) => request(server, 'POST', '/mcp', { body, headers: { Accept }, token: ann.token })
    const { status, headers: sent, body } = await post(rpc)
    expect([status, sent.get('content-type')]).toEqual([200, type])
    if (type !== 'application/json') return
    expect(body).toMatchObject({ jsonrpc: '2.0', id: 1, result: { tools: expect.any(Array) } })
    const batch = [rpc, { jsonrpc: '2.0', id: 2, method: 'ping' }]
    expect((await post(batch)).body.map(({ id }: { id: number }) => id).sort()).toEqual([1, 2])
  })

  const greeting = { protocolVersion: '2025-06-18', clientInfo: { name: 'x', version: '1' } }
  it.each<[string, string, unknown]>([
    ['null for parameters', 'tools/list', null],
    ['a list for no parameters', 'tools/list', []],
    ['null for a cursor and metadata', 'tools/list', { cursor: null, _meta: null }],
    ['a list for no metadata', 'tools/list', { _meta: [] }],
    ['null for capabilities', 'initialize', { ...greeting, capabilities: null }],
    ['a list for no capabilities', 'initialize', { ...greeting, capabilities: [] }],
    ['no version of its own', 'initialize', { ...greeting, clientInfo: { name: 'x' } }],
    ['no name', 'initialize', { protocolVersion: '2025-06-18' }],
    ['null for a progress token and arguments', 'tools/call', { _meta: { progressToken: null }, arguments: null }],
    ['a list for no arguments', 'tools/call', { arguments: [] }],
    ['an empty text for no arguments', 'tools/call', { arguments: '' }],
    ['arguments as text', 'tools/call', { arguments: '{"limit": 1, "cursor": ""}' }],
  ])('answers a client that sends %s', async (_, method, given) => {
    const params = method === 'tools/call' ? { name: 'list_agents', ...(given as object) } : given
    expect((await answered(method, params)).result).toHaveProperty(
      { initialize: 'protocolVersion', 'tools/list': 'tools' }[method] ?? 'content',
    )
  })

  it('answers a ping of revision 2026-07-28, which the library for Go sends', async () => {
    const body = { jsonrpc: '2.0', id: 5, method: 'ping', params: {} }
    const sent = { ...headers, 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': 'ping' }
    const answer = await request(server, 'POST', '/mcp', { body, headers: sent, token: ann.token })
    expect([answer.status, answer.body]).toEqual([200, { jsonrpc: '2.0', id: 5, result: { resultType: 'complete' } }])
  })

  it('runs no agent for a token without the scope that sends several calls at once', async () => {
    const reader = await server.member({ organization: 'Acme', scopes: ['agents:read', 'executions:read'] })
    const params = { name: 'ask', arguments: { message: 'Hi' } }
    const body = [1, 2].map((id) => ({ jsonrpc: '2.0', id, method: 'tools/call', params }))
    const sent = { body, headers: { Accept: 'application/json' }, token: reader.token }
    const answers = (await request(server, 'POST', `/mcp/agents/${agent}`, sent)).body
    const refused = { isError: true, _meta: { 'muster/error': { code: 'insufficient_scope' } } }
    expect(answers).toMatchObject([{ result: refused }, { result: refused }])
  })

  it('treats empty texts of optional arguments as absent, with which models fill them', async () => {
    const named = { sessionId: '', chatId: '', spaceId: '', model: '', onBusy: '', idempotencyKey: '' }
    const run = { name: 'run_agent', arguments: { id: agent, message: 'Hello', ...named } }
    expect((await answered('tools/call', run)).result.structuredContent).toMatchObject({ status: 'completed' })
    await using client = await connect('2025', ann, `/mcp/agents/${agent}`)
    const asked = await client.callTool({ name: 'ask', arguments: { message: 'Hi', session: '', idempotencyKey: '' } })
    expect(asked.structuredContent).toMatchObject({ status: 'completed' })
    const emptied = { name: 'update_agent', arguments: { id: agent, description: '' } }
    expect((await answered('tools/call', emptied)).result.structuredContent).toMatchObject({ success: true })
    const { body } = await request(server, 'GET', `/api/v1/agents/${agent}`, { token: ann.token })
    expect(body.agent.description).toBe('')
    const none = { name: 'run_agent', arguments: { id: agent, message: '' } }
    expect((await answered('tools/call', none)).result.isError).toBe(true)
  })

  it('refuses arguments that are no object, in a sentence', async () => {
    const { error } = await answered('tools/call', { name: 'list_agents', arguments: [1] })
    expect(error).toMatchObject({ code: -32_602, message: expect.stringMatching(/^Invalid .*params\.arguments/) })
  })

  it('takes an empty cursor for none, and refuses another one as a wrong parameter', async () => {
    for (const method of ['tools/list', 'prompts/list', 'resources/list'])
      expect(await answered(method, { cursor: '' })).toHaveProperty('result')
    expect((await answered('prompts/list', { cursor: 'x' })).error.code).toBe(-32_602)
  })

  it('accepts no session of a browser', async () => {
    const cookie = { ...headers, Cookie: 'muster=anything' }
    expect((await request(server, 'POST', '/mcp', { body: rpc, headers: cookie, token: null })).status).toBe(401)
  })

  it('answers GET and DELETE with 405, and invalid JSON with a parse error', async () => {
    expect((await request(server, 'GET', '/mcp', { headers, token: ann.token })).status).toBe(405)
    expect((await request(server, 'DELETE', '/mcp', { headers, token: ann.token })).status).toBe(405)
    const bad = await request(server, 'POST', '/mcp', { body: '{', headers, token: ann.token })
    expect(bad).toMatchObject({ status: 400, body: { error: { code: -32700 } } })
  })

  it('refuses a compressed body and one in another charset, whose texts would change', async () => {
    const text = `${JSON.stringify(rpc).slice(0, -1)},"name":"é"}`
    const post = async (body: Buffer<ArrayBuffer>, more: Record<string, string> = {}) => {
      const sent = { ...headers, Authorization: `Bearer ${ann.token}`, 'Content-Type': 'application/json', ...more }
      const response = await fetch(`${server.url}/mcp`, { method: 'POST', headers: sent, body })
      return [response.status, ((await response.json()) as { error: { message: string } }).error.message]
    }
    const NO_TYPE = 'Unsupported content type. Send the header Content-Type: application/json, and no Content-Encoding'
    const latin1 = Buffer.from(text, 'latin1')
    expect(await post(gzipSync(text), { 'Content-Encoding': 'gzip' })).toEqual([415, NO_TYPE])
    expect(await post(latin1, { 'Content-Type': 'application/json; charset=iso-8859-1' })).toEqual([415, NO_TYPE])
    expect(await post(latin1)).toEqual([400, expect.stringContaining('Send one JSON object in UTF-8')])
  })
})
