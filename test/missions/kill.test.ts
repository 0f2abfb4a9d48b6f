import { expect, it } from 'vitest'
import { newToken } from '../../src/lib/token.ts'
import { createFolder } from '../support/folder.ts'
import { startModelServer } from '../support/model-server.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { request } from '../support/rest.ts'

it('a server killed at random during fire times starts each of them once after its restart', async () => {
  await using folder = await createFolder()
  await using model = await startModelServer()
  model.fallback = { tokens: 'One word after the other, as slowly as it gets.', delay: 20 }
  const token = newToken('mst')
  const env = { DATA_DIR: folder.path, BOOTSTRAP_TOKEN: token, OPENAI_BASE_URL: model.baseUrl }
  let server: ServerProcess = await spawnServer(folder.path, env)
  const call = (method: string, path: string, body?: object) =>
    request({ url: server.url, token }, method, `/api/v1${path}`, { ...(body && { body }) })
  try {
    const agentId = (await call('POST', '/agents', { name: 'Ada', systemPrompt: 'S' })).body.id
    const ids: string[] = []
    const start = Date.now() + 3000
    for (let count = 0; count < 40; count++) {
      const value = new Date(Math.max(start + count * 100, Date.now() + 3000)).toISOString()
      const mission = { title: 'x', goal: 'x', agentId, schedule: { type: 'once', value } }
      const { status, body } = await call('POST', '/missions', mission)
      expect(status, JSON.stringify(body)).toBe(200)
      ids.push(body.id)
    }
    for (const wait of [3700, 900]) {
      await new Promise((resolve) => setTimeout(resolve, wait))
      await server.stop('SIGKILL')
      server = await spawnServer(folder.path, env)
    }
    const runs = async () => {
      const { executions } = (await call('GET', '/executions')).body
      return executions.filter(({ status }: { status: string }) => status !== 'pending' && status !== 'running')
    }
    await expect.poll(async () => (await runs()).length).toBe(40)
    const all = (await call('GET', '/executions?count=true')).body
    expect(all.total).toBe(40)
    expect(new Set(all.executions.map(({ missionId }: { missionId: string }) => missionId))).toEqual(new Set(ids))
    for (const { schedule, status } of (await call('GET', '/missions')).body.missions) {
      expect(schedule).toMatchObject({ runCount: 1, nextRun: null })
      // If the kill came in mid-sentence, the run has failed and is not reported as completed.
      expect(['completed', 'failed']).toContain(status)
    }
  } finally {
    await server[Symbol.asyncDispose]()
  }
})
