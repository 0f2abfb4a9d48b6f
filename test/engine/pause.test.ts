import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { createFolder } from '../support/folder.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

const ENCRYPTION_KEY = Buffer.alloc(32, 7).toString('base64')

let model: ModelServer
beforeAll(async () => {
  model = await startModelServer()
})
afterAll(() => model.close())

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
  it('serves requests, begins nothing and sends nothing, until resume; old runs are cancelled then', async () => {
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
    const { id: missionId } = await first.service.deps.db.mission.findFirstOrThrow()
    await first.service.deps.db.mission.update({
      where: { id: missionId },
      data: { nextRunAt: new Date(Date.now() - 1) },
    })
    await admin(first, 'mark-copy')
    await first.service.stop()

    const sent = model.requests.length
    await using server = await startServer(env, { folder: folder.path })
    const { db } = server.service.deps
    expect(await readiness(server)).toEqual([200, 'paused'])
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
    // As often as it likes, the sweep and the scheduler find nothing to do.
    const sweeps = () =>
      server.queries.filter((sql) => sql.includes('Membership') && sql.includes('wantsCancel')).length
    const before = sweeps()
    await expect.poll(() => sweeps() - before).toBeGreaterThan(1)
    expect(await db.mission.findUniqueOrThrow({ where: { id: missionId } })).toMatchObject({ runCount: 0 })
    expect((await db.execution.findUniqueOrThrow({ where: { id: old.executionId } })).status).toBe('running')
    expect(model.requests.length).toBe(sent)

    model.script({ tokens: ['Done'] })
    expect(await admin(server, 'resume')).toContain('cancelled: 1')
    await expect.poll(() => readiness(server)).toEqual([200, 'ok'])
    const statusOf = async (id: string) => (await db.execution.findUniqueOrThrow({ where: { id } })).status
    await expect.poll(() => statusOf(old.executionId)).toBe('cancelled')
    await expect.poll(() => statusOf(waiting.executionId)).toBe('completed')
    await expect.poll(async () => (await db.mission.findUniqueOrThrow({ where: { id: missionId } })).runCount).toBe(1)
    const asked = model.requests.slice(sent).map(({ body }) => JSON.stringify(body.messages))
    expect(asked.filter((messages) => messages.includes('old'))).toEqual([])
  })

  it('is one with PAUSED, which marks nothing: its runs go on without it', async () => {
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
    await first.service.stop()
    await using again = await startServer(env, { folder: folder.path })
    expect(await readiness(again)).toEqual([200, 'ok'])
    const status = async () =>
      (await again.service.deps.db.execution.findUniqueOrThrow({ where: { id: executionId } })).status
    await expect.poll(status).toBe('completed')
  })
})
