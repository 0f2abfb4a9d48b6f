import { describe, expect, it } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { ok } from '../support/api.ts'
import { createFolder } from '../support/folder.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const ENCRYPTION_KEY = Buffer.alloc(32, 7).toString('base64')

const model = await use(startModelServer())

/** Runs a command of the operator on the database of a server. */
async function admin(server: TestServer, ...args: string[]) {
  const outcome = await runAdmin(args, { DATA_DIR: server.folder, ENCRYPTION_KEY, ...server.databaseEnv })
  expect(outcome.err).toBe('')
  return outcome.out
}

const readiness = async ({ url }: TestServer) => {
  const answer = await fetch(`${url}/readyz`)
  return [answer.status, (await answer.json()).status]
}

describe('a paused server', () => {
  it('serves requests, starts and sends nothing until resume, and cancels old runs then', async () => {
    await using folder = await createFolder()
    const env = { ENCRYPTION_KEY, OPENAI_BASE_URL: model.baseUrl, DRAIN_TIMEOUT: '0.1' }
    const first = await startServer(env, { folder: folder.path })
    const { token } = first
    const ask = (server: TestServer, method: string, path: string, body?: object) =>
      request(server, method, `/api/v1${path}`, { token, ...(body && { body }) })
    const agentId = (await ask(first, 'POST', '/agents', { name: 'Ada', systemPrompt: 'S' })).body.id
    const index = model.requests.length
    model.script({ tokens: ['Half'], end: 'hang' })
    const old = (await ask(first, 'POST', `/agents/${agentId}/execute`, { message: 'old', background: true })).body
    await model.request(index)
    const mission = { title: 'M', goal: 'G', agentId, scheduleType: 'interval', scheduleValue: '60' }
    const made = await ask(first, 'POST', '/missions', mission)
    expect(made.status, JSON.stringify(made.body)).toBe(200)
    const { mediaDraft } = first.service.deps.db
    // An upload under way, whose file belongs to the original.
    await mediaDraft.create({ data: { id: 'draft', createdAt: new Date() } })
    await admin(first, 'mark-copy')
    expect(await mediaDraft.count()).toBe(0)
    await first.service.stop()

    const sent = model.requests.length
    await using server = await startServer(env, { folder: folder.path })
    const { db } = server.service.deps
    expect(await readiness(server)).toEqual([200, 'paused'])
    const { id: missionId } = await db.mission.findFirstOrThrow()
    await db.mission.update({ where: { id: missionId }, data: { nextRunAt: new Date(Date.now() - 1) } })
    expect((await ask(server, 'POST', '/tasks', { title: 'T' })).status).toBe(200)
    const refused = await ask(server, 'POST', `/agents/${agentId}/execute`, { message: 'now' })
    expect([refused.status, refused.body.code]).toEqual([503, 'paused'])
    const stream = await ask(server, 'POST', `/agents/${agentId}/execute`, { message: 'now', stream: true })
    expect([stream.status, stream.body.code]).toEqual([503, 'paused'])
    const byHand = await ask(server, 'POST', `/missions/${missionId}/run`)
    expect([byHand.status, byHand.body.code]).toEqual([503, 'paused'])
    const waiting = (await ask(server, 'POST', `/agents/${agentId}/execute`, { message: 'later', background: true }))
      .body
    expect(waiting.status).toBe('pending')
    // The sweep and the scheduler find no work, however often they look.
    const sweeps = () =>
      server.queries.filter((sql) => sql.includes('Membership') && sql.includes('wantsCancel')).length
    const before = sweeps()
    await expect.poll(() => sweeps() - before).toBeGreaterThan(1)
    expect(await db.mission.findUniqueOrThrow({ where: { id: missionId } })).toMatchObject({ runCount: 0 })
    expect((await db.execution.findUniqueOrThrow({ where: { id: old.executionId } })).status).toBe('running')
    expect(model.requests.length).toBe(sent)

    model.script({ tokens: ['Done'] })
    expect(await admin(server, 'resume')).toContain('Cancelled runs from before the copy: 1')
    await expect.poll(() => readiness(server)).toEqual([200, 'ok'])
    const statusOf = async (id: string) => (await db.execution.findUniqueOrThrow({ where: { id } })).status
    await expect.poll(() => statusOf(old.executionId)).toBe('cancelled')
    await expect.poll(() => statusOf(waiting.executionId)).toBe('completed')
    await expect.poll(async () => (await db.mission.findUniqueOrThrow({ where: { id: missionId } })).runCount).toBe(1)
    const asked = model.requests.slice(sent).map(({ body }) => JSON.stringify(body.messages))
    expect(asked.filter((messages) => messages.includes('old'))).toEqual([])
  })

  it('a server with PAUSED marks nothing, and its runs continue at a start without it', async () => {
    await using folder = await createFolder()
    const env = { ENCRYPTION_KEY, OPENAI_BASE_URL: model.baseUrl }
    const first = await startServer({ ...env, PAUSED: 'true' }, { folder: folder.path })
    const { token } = first
    expect(await readiness(first)).toEqual([200, 'paused'])
    const agent = await request(first, 'POST', '/api/v1/agents', { token, body: { name: 'Ada', systemPrompt: 'S' } })
    const path = `/api/v1/agents/${agent.body.id}/execute`
    const { executionId } = (await request(first, 'POST', path, { token, body: { message: 'x', background: true } }))
      .body
    expect(await admin(first, 'resume')).toContain('not marked')
    // Beyond QUEUE_TIMEOUT, in which the run waited for no other run.
    const createdAt = new Date(Date.now() - 2 * 3_600_000)
    await first.service.deps.db.execution.update({ where: { id: executionId }, data: { createdAt } })
    await first.service.stop()
    await using again = await startServer(env, { folder: folder.path })
    expect(await readiness(again)).toEqual([200, 'ok'])
    const status = async () =>
      (await again.service.deps.db.execution.findUniqueOrThrow({ where: { id: executionId } })).status
    await expect.poll(status).toBe('completed')
  })

  it('contacts no provider, MCP server or repository, on any route', async () => {
    await using mcp = await startMcpServer()
    await using folder = await createFolder()
    const env = { ENCRYPTION_KEY, OPENAI_BASE_URL: model.baseUrl, ALLOW_PRIVATE_NETWORK: 'true' }
    const first = await startServer(env, { folder: folder.path })
    const { token } = first
    const ask = (server: TestServer, method: string, path: string, body?: object) =>
      request(server, method, path.startsWith('/api') ? path : `/api/v1${path}`, { token, ...(body && { body }) })
    const { id: organizationId } = await first.service.deps.db.organization.findFirstOrThrow()
    const server = { name: 'Test', mcpType: 'test', url: mcp.url, transport: 'streamable-http' }
    const mcpId = (await ask(first, 'POST', '/mcps', server)).body.id
    const agent = { name: 'Ada', systemPrompt: 'S', mcpInstanceIds: [mcpId] }
    const agentId = (await ask(first, 'POST', '/agents', agent)).body.id
    const task = { title: 'T', assignTo: agentId }
    const made = await ask(first, 'POST', '/tasks', task)
    expect(made.status, JSON.stringify(made.body)).toBe(200)
    const taskId = made.body.id
    const spaceId = (await ask(first, 'POST', '/spaces', { name: 'Empty' })).body.id
    model.script({ tokens: ['Hello'] })
    const run = await ask(first, 'POST', `/agents/${agentId}/execute`, { message: 'before' })
    expect(run.status, JSON.stringify(run.body)).toBe(200)
    const { executionId, chatId } = run.body
    await admin(first, 'mark-copy')
    await first.service.stop()

    const sent = [model.requests.length, mcp.requests.length]
    await using copy = await startServer(env, { folder: folder.path })
    const git = { type: 'git', url: `${model.baseUrl}/repository.git` }
    const refused: [string, object?][] = [
      ['/execute', { agentId, message: 'x' }],
      [`/agents/${agentId}/execute/stream`, { message: 'x' }],
      [`/chats/${chatId}/messages`, { message: 'x' }],
      [`/executions/${executionId}/rerun`],
      [`/tasks/${taskId}/execute`],
      [`/api/spaces/${spaceId}/init`, git],
    ]
    for (const [path, body] of refused) {
      const answer = await ask(copy, 'POST', path, body)
      expect([path, answer.status, answer.body.code]).toEqual([path, 503, 'paused'])
    }
    const listed = await ask(copy, 'GET', `/mcps/${mcpId}/tools`)
    expect([listed.status, listed.body.code]).toEqual([503, 'paused'])
    const query = `mutation { executeAgent(input: { id: "${agentId}", message: "x" }) { executionId } }`
    const { body } = await request(copy, 'POST', '/graphql', { token, body: { query } })
    expect(JSON.stringify(body)).toContain('"code":"paused"')
    expect((await ask(copy, 'GET', `/tasks/${taskId}`)).body.task.status).toBe('pending')
    expect((await ask(copy, 'GET', '/models')).status).toBe(200)
    const provider = { apiKey: 'k', baseUrl: model.baseUrl }
    const set = await ask(copy, 'PUT', `/organizations/${organizationId}/providers/compatible:own`, provider)
    expect([set.status, set.body.provider?.status]).toEqual([200, 'unchecked'])
    expect([model.requests.length, mcp.requests.length]).toEqual(sent)
    expect(await copy.service.deps.db.execution.count()).toBe(1)
  })

  it('repeats no approved call of the original, neither paused nor after resume', async () => {
    await using mcp = await startMcpServer()
    mcp.hold = new Promise(() => {})
    await using folder = await createFolder()
    const env = {
      ENCRYPTION_KEY,
      OPENAI_BASE_URL: model.baseUrl,
      ALLOW_PRIVATE_NETWORK: 'true',
      DRAIN_TIMEOUT: '0.1',
      LEASE_DURATION: '1',
    }
    const first = await startServer(env, { folder: folder.path })
    const { token } = first
    const ask = async (server: TestServer, method: string, path: string, body?: object) => {
      return ok(request(server, method, `/api/v1${path}`, { token, ...(body && { body }) }))
    }
    const permissions = ['wait', 'echo'].map((tool) => ({ tool, mode: 'ask' }))
    const server = { name: 'Test', mcpType: 'test', url: mcp.url, transport: 'streamable-http', permissions }
    const mcpInstanceIds = [(await ask(first, 'POST', '/mcps', server)).id]
    const agentId = (await ask(first, 'POST', '/agents', { name: 'Ada', systemPrompt: 'S', mcpInstanceIds })).id
    const approvalOf = async (on: TestServer, executionId: string) =>
      (await ask(on, 'GET', `/approvals?executionId=${executionId}`)).approvals[0]
    async function asking(name: string, input: object): Promise<string> {
      model.script({ toolCalls: [{ id: `${name}-1`, name, input }] })
      const { executionId } = await ask(first, 'POST', `/agents/${agentId}/execute`, {
        message: name,
        background: true,
      })
      await expect.poll(async () => (await approvalOf(first, executionId))?.status).toBe('pending')
      return executionId
    }
    // One call is approved and in progress when the copy is made; the other is approved on the copy.
    const [approved, waiting] = [await asking('wait', {}), await asking('echo', { text: 'x' })]
    await ask(first, 'POST', `/approvals/${(await approvalOf(first, approved)).id}/approve`)
    await expect.poll(() => mcp.calls.map(({ tool }) => tool)).toEqual(['wait'])
    await admin(first, 'mark-copy')
    await first.service.stop()

    const sent = [model.requests.length, mcp.calls.length]
    await using copy = await startServer(env, { folder: folder.path })
    await ask(copy, 'POST', `/approvals/${(await approvalOf(copy, waiting)).id}/approve`)
    expect([model.requests.length, mcp.calls.length]).toEqual(sent)
    model.fallback = { tokens: ['Done'] }
    expect(await admin(copy, 'resume')).toContain('Cancelled runs from before the copy: 2')
    const statusOf = async (id: string) =>
      (await copy.service.deps.db.execution.findUniqueOrThrow({ where: { id } })).status
    for (const id of [approved, waiting]) await expect.poll(() => statusOf(id)).toBe('cancelled')
    // A new run of the copy calls the tool, which proves that calls are visible.
    model.script({ toolCalls: [{ id: 'echo-2', name: 'echo', input: { text: 'new' } }] })
    const { executionId } = await ask(copy, 'POST', `/agents/${agentId}/execute`, { message: 'new', background: true })
    await expect.poll(async () => (await approvalOf(copy, executionId))?.status).toBe('pending')
    await ask(copy, 'POST', `/approvals/${(await approvalOf(copy, executionId)).id}/approve`)
    await expect.poll(() => statusOf(executionId)).toBe('completed')
    expect(mcp.calls.map(({ tool, input }) => ({ tool, input }))).toEqual([
      { tool: 'wait', input: {} },
      { tool: 'echo', input: { text: 'new' } },
    ])
  })
})
