import { readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createOperatorServers } from '../../src/mcps/operator.ts'
import { createAgent } from '../support/api.ts'
import { type McpTestServer, startMcpServer } from '../support/mcp-server.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'

/** MCP servers that the operator declares in MCP_CONFIG (contract-2.md section 2.12). */

const support = (name: string) => join(import.meta.dirname, '..', 'support', name)
const EVERYTHING = join(import.meta.dirname, '../../node_modules/@modelcontextprotocol/server-everything/dist/index.js')
const TOKEN = 'canary-of-the-operator-12345'

let folder: string
let mcp: McpTestServer
let model: ModelServer
let server: TestServer
let path: string
const people = {} as Record<'admin' | 'ben' | 'eve', Member>

const write = (mcpServers: object) => writeFileSync(path, JSON.stringify({ mcpServers }))
const program = (script: string, fields: object = {}) => ({ command: process.execPath, args: [script], ...fields })
const declared = () => ({
  everything: program(EVERYTHING, { env: {}, description: 'The reference server' }),
  hostile: program(support('hostile-program.js'), {
    env: { API_TOKEN: TOKEN },
    organizations: ['default', 'acme', 'nowhere'],
    permissions: [{ tool: 'pid', mode: 'ask' }],
  }),
  remote: { url: `${mcp.url}?key=${TOKEN}`, headers: { Authorization: `Bearer ${TOKEN}` }, organizations: ['acme'] },
  secret: { url: mcp.url, headers: { 'X-Key': `\${KEY}` }, organizations: ['acme'] },
  paused: program(EVERYTHING, { disabled: true }),
})

const start = () =>
  startServer(
    { OPENAI_BASE_URL: model.baseUrl, DEFAULT_MODEL: 'compatible/test-model', MCP_CONFIG: path, LOG_LEVEL: 'trace' },
    { folder },
  )

/** Starts the server again with other declarations. */
async function restartWith(mcpServers: object): Promise<void> {
  await server[Symbol.asyncDispose]()
  write(mcpServers)
  server = await start()
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'muster-operator-'))
  path = join(folder, 'mcp.json')
  mcp = await startMcpServer()
  model = await startModelServer()
  write({})
  server = await start()
  people.admin = await server.member({ role: 'owner' })
  people.ben = await server.member()
  people.eve = await server.member({ organization: 'Acme', role: 'owner' })
  await restartWith(declared())
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await mcp[Symbol.asyncDispose]()
  await model.close()
  await rm(folder, { recursive: true })
})

type Who = keyof typeof people
const call = (who: Who, method: string, address: string, body?: object) =>
  request({ url: server.url, token: people[who].token }, method, `/api/v1${address}`, body ? { body } : {})

async function list(who: Who): Promise<Record<string, any>> {
  const { body } = await call(who, 'GET', '/mcps')
  return Object.fromEntries(body.mcps.map((each: { name: string }) => [each.name, each]))
}

/** Runs an agent whose model calls a tool once. Returns the result of the tool. */
async function run(who: Who, mcpId: string, tool: string, input: object = {}): Promise<any> {
  model.script({ toolCalls: [{ id: 'c', name: tool, input }] }, { tokens: 'Done' })
  const id = await createAgent({ url: server.url, token: people[who].token }, { mcpInstanceIds: [mcpId] })
  const { body } = await call(who, 'POST', `/agents/${id}/execute`, { message: 'Go' })
  const { logs } = (await call(who, 'GET', `/executions/${body.executionId}/logs`)).body
  return logs.map(({ data }: any) => data).find(({ messageType }: any) => messageType === 'tool_result')
}

describe('a declared server', () => {
  it('is listed in its organizations, by default the first one, without its secrets', async () => {
    const [own, others] = [await list('ben'), await list('eve')]
    expect(Object.keys(own).sort()).toEqual(['everything', 'hostile', 'paused'])
    expect(Object.keys(others).sort()).toEqual(['hostile', 'remote', 'secret'])
    expect(own.everything).toMatchObject({
      source: 'operator',
      url: 'stdio:everything',
      transport: 'stdio',
      description: 'The reference server',
      mcpType: 'everything',
      isActive: true,
      headers: {},
      credentialsSet: [],
      permissions: [],
    })
    expect(own.hostile.permissions).toEqual([{ tool: 'pid', mode: 'ask' }])
    expect(own.paused.isActive).toBe(false)
    expect(own.hostile.id).not.toBe(others.hostile.id)
    expect(others.remote).toMatchObject({ source: 'operator', url: `${new URL(mcp.url).origin}/`, headers: {} })
    const query = '{ mcps { nodes { name source url transport permissions { tool mode } } } }'
    const graphql = await request({ url: server.url, token: people.ben.token }, 'POST', '/graphql', { body: { query } })
    expect(graphql.body.data.mcps.nodes).toContainEqual({
      name: 'hostile',
      source: 'operator',
      url: 'stdio:hostile',
      transport: 'stdio',
      permissions: [{ tool: 'pid', mode: 'ask' }],
    })
    expect(JSON.stringify([own, others, graphql.body])).not.toContain(TOKEN)
    expect(JSON.stringify([own, others])).not.toContain(process.execPath)
  })

  it('is unknown in other organizations', async () => {
    const { everything } = await list('ben')
    for (const [method, suffix] of [
      ['GET', ''],
      ['GET', '/tools'],
      ['PATCH', ''],
      ['DELETE', ''],
    ] as const) {
      const foreign = await call(
        'eve',
        method,
        `/mcps/${everything.id}${suffix}`,
        method === 'PATCH' ? { permissions: [] } : undefined,
      )
      expect([foreign.status, foreign.body.message]).toEqual([404, 'MCP not found'])
    }
    const attached = await call('eve', 'POST', '/agents', {
      name: 'A',
      systemPrompt: 'x',
      mcpInstanceIds: [everything.id],
    })
    expect(attached.status).toBe(400)
  })

  it('a declared server with an unknown organization is a warning in the log', () => {
    const lines = server.logs.filter((line) => line.includes('nowhere')).map((line) => JSON.parse(line))
    expect(lines).toMatchObject([{ level: 40, server: 'hostile', organization: 'nowhere' }])
    expect(lines[0].msg).toContain('create the organization')
  })

  it('a declared server that is a real program from npm lists its tools, and a run calls one', async () => {
    const { everything } = await list('ben')
    const { body } = await call('ben', 'GET', `/mcps/${everything.id}/tools`)
    expect(body.tools.map(({ name }: { name: string }) => name)).toContain('echo')
    expect(await run('ben', everything.id, 'echo', { message: 'Hello' })).toMatchObject({
      content: 'Echo: Hello',
      isError: false,
    })
  })

  it('a declared server that is disabled is not started', async () => {
    const { paused } = await list('ben')
    const { status, body } = await call('ben', 'GET', `/mcps/${paused.id}/tools`)
    expect([status, body.detail]).toEqual([502, expect.stringContaining('has removed or disabled it')])
  })

  it('a declared server that crashes in a call is an error of the call', async () => {
    const { hostile } = await list('ben')
    const { content, isError } = await run('ben', hostile.id, 'crash')
    expect(isError).toBe(true)
    expect(content).toContain('exit code 3. Its last output:\nfirst line\nThe token is [removed]')
    expect(server.logs.join()).not.toContain(TOKEN)
  })

  it('a declared server at a private address gets its headers, and no redirect away', async () => {
    const { remote } = await list('eve')
    const { content } = await run('eve', remote.id, 'headers')
    expect(JSON.parse(content).authorization).toBe('[removed]')
    expect(mcp.requests.at(-1)?.headers.authorization).toBe(`Bearer ${TOKEN}`)
  })

  it('a declared server gets a secret of the organization only if its hosts name the server', async () => {
    const { secret } = await list('eve')
    const tools = () => call('eve', 'GET', `/mcps/${secret.id}/tools`)
    const keep = (hosts: string[]) =>
      call('eve', 'POST', `/organizations/${people.eve.organizationId}/env`, {
        secrets: { KEY: { value: 'value-of-the-secret', hosts } },
      })
    await keep([])
    await call('eve', 'PATCH', `/mcps/${secret.id}`, { permissions: [{ tool: 'fail', mode: 'ask' }] })
    expect((await tools()).body.code).toBe('secret_not_allowed')
    await keep([new URL(mcp.url).host])
    const refused = await tools()
    expect(refused.body.detail).toContain('the address is not https')
  })
})

describe('a change of a declared server', () => {
  it('is refused but for its permissions, and for admins only', async () => {
    const { hostile } = await list('admin')
    for (const body of [
      { name: 'x' },
      { url: mcp.url },
      { isActive: false },
      { headers: {} },
      { credentials: {} },
      { description: null },
    ]) {
      const { status, body: answer } = await call('admin', 'PATCH', `/mcps/${hostile.id}`, body)
      expect([status, answer.detail]).toEqual([403, expect.stringContaining('Only its permissions can be changed')])
    }
    expect((await call('ben', 'PATCH', `/mcps/${hostile.id}`, { permissions: [] })).status).toBe(403)
    expect((await call('admin', 'DELETE', `/mcps/${hostile.id}`)).status).toBe(403)
    const process = await call('admin', 'PATCH', `/mcps/${hostile.id}`, { command: '/bin/sh' })
    expect(process.body.message).toBe('Invalid field: command, args and env are not supported')
  })

  it('can tighten its permissions and take that back, never below those of the operator', async () => {
    const { hostile } = await list('admin')
    const patch = (permissions: object[] | null) => call('admin', 'PATCH', `/mcps/${hostile.id}`, { permissions })
    const loose = await patch([{ tool: 'pid', mode: 'allow' }])
    expect([loose.status, loose.body.message]).toEqual([400, 'Invalid permissions. Looser than those of the operator'])
    expect(loose.body.detail).toContain('The operator set pid to ask')
    expect(
      (
        await patch([
          { tool: 'echo', mode: 'deny' },
          { tool: '*', mode: 'ask' },
        ])
      ).status,
    ).toBe(200)
    expect((await list('ben')).hostile.permissions).toEqual(
      expect.arrayContaining([
        { tool: 'pid', mode: 'ask' },
        { tool: 'echo', mode: 'deny' },
        { tool: '*', mode: 'ask' },
      ]),
    )
    expect((await run('ben', hostile.id, 'echo', { text: 'x' })).content).toContain('no tool')
    expect((await patch(null)).status).toBe(200)
    expect((await list('ben')).hostile.permissions).toEqual([{ tool: 'pid', mode: 'ask' }])
    expect((await run('ben', hostile.id, 'echo', { text: 'x' })).content).toBe('x')
    const others = await list('eve')
    expect(others.hostile.permissions).toEqual([{ tool: 'pid', mode: 'ask' }])
  })
})

describe('after another start', () => {
  afterEach(async () => {
    await server.service.deps.db.mcpServer.deleteMany({ where: { source: 'operator' } })
    await restartWith(declared())
  })

  it('ids, attachments and permissions stay, and what is no longer declared is inactive', async () => {
    const before = await list('admin')
    const { space } = (
      await call('admin', 'POST', '/spaces', { name: 'S', addMcps: [before.everything.id, before.hostile.id] })
    ).body
    await call('admin', 'PATCH', `/mcps/${before.hostile.id}`, { permissions: [{ tool: 'echo', mode: 'ask' }] })
    const { hostile, paused } = declared()
    await restartWith({ hostile: { ...hostile, permissions: [] }, paused: { ...paused, disabled: false } })
    const after = await list('admin')
    expect(after.hostile).toMatchObject({ id: before.hostile.id, permissions: [{ tool: 'echo', mode: 'ask' }] })
    expect(after.paused).toMatchObject({ id: before.paused.id, isActive: true })
    expect(after.everything).toMatchObject({ id: before.everything.id, isActive: false, source: 'operator' })
    expect((await list('eve')).remote.isActive).toBe(false)
    const { mcpRefs } = (await call('admin', 'GET', `/spaces/${space.id}`)).body.space
    expect(mcpRefs.map(({ mcpId }: { mcpId: string }) => mcpId).sort()).toEqual(
      [before.everything.id, before.hostile.id].sort(),
    )
    const gone = await call('admin', 'GET', `/mcps/${before.everything.id}/tools`)
    expect([gone.status, gone.body.detail]).toEqual([502, expect.stringContaining('has removed or disabled it')])
    expect((await call('admin', 'DELETE', `/mcps/${before.everything.id}`)).status).toBe(200)
  })

  it('equal declarations of several servers write each row once, and change none', async () => {
    const { hostile, paused } = declared()
    await restartWith({ hostile, paused })
    const { db } = server.service.deps
    await db.mcpServer.deleteMany({ where: { source: 'operator' } })
    const servers = [1, 2, 3, 4].map(() => createOperatorServers(server.service.deps))
    await Promise.all(servers.map(({ declare }) => declare()))
    const rows = await db.mcpServer.findMany({ where: { source: 'operator' }, orderBy: { id: 'asc' } })
    expect(rows.map(({ name }) => name).sort()).toEqual(['hostile', 'hostile', 'paused'])
    await servers[0]?.declare()
    expect(await db.mcpServer.findMany({ where: { source: 'operator' }, orderBy: { id: 'asc' } })).toEqual(rows)
    await Promise.all(servers.map(({ stop }) => stop()))
  })
})

it('the file itself is never changed or shown', () => {
  expect(readFileSync(path, 'utf8')).toContain(TOKEN)
  expect(server.logs.join()).not.toContain(TOKEN)
})
