import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

// The rules of the other APIs hold in the doors too.

let model: ModelServer
let server: TestServer
let agent: string
beforeAll(async () => {
  model = await startModelServer()
  server = await startServer({
    ...{ OPENAI_BASE_URL: model.baseUrl, DEFAULT_MODEL: 'compatible/test', EXECUTE_RATE_LIMIT: '3/3600' },
    ...{ CLIENT_TOOL_TIMEOUT: '1' },
  })
  const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
  agent = (await request(server, 'POST', '/api/v1/agents', { body })).body.id
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await model.close()
})

const messages = [{ role: 'user', content: 'Hi' }]
const parts = [{ type: 'text', text: 'Hi' }]

/** A request that starts a run, by its path. */
const runs = () =>
  ({
    '/openai/v1/chat/completions': { model: agent, messages },
    '/openai/v1/responses': { model: agent, input: 'Hi' },
    [`/api/v1/agents/${agent}/chat`]: { id: crypto.randomUUID(), messages: [{ id: '1', role: 'user', parts }] },
    [`/api/v1/agents/${agent}/ag-ui`]: {
      ...{ threadId: crypto.randomUUID(), runId: 'r', messages: [{ id: '1', role: 'user', content: 'Hi' }] },
    },
  }) as Record<string, object>

const post = (path: string, body: object, token = server.token) =>
  fetch(server.url + path, {
    ...{ method: 'POST', body: JSON.stringify(body) },
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
  })

describe('every door', () => {
  it('counts its runs, and refuses those beyond EXECUTE_RATE_LIMIT in the form of its protocol', async () => {
    const { token } = await server.member({ role: 'owner' })
    for (const path of Object.keys(runs())) {
      const { token: own } = await server.member()
      for (let count = 0; count < 3; count++) expect((await post(path, runs()[path]!, own)).status, path).toBe(200)
      const refused = await post(path, runs()[path]!, own)
      expect(refused.status, path).toBe(429)
      expect(refused.headers.get('retry-after'), path).toMatch(/^\d+$/)
      const answer = await refused.json()
      expect(answer.error === true || answer.error.type === 'rate_limit_error', path).toBe(true)
    }
    const { body } = await request(server, 'GET', '/api/v1/audit?action=agent.execute', { token })
    expect(body.events.length).toBe(12)
  })

  it('lets no other organization, and no token without the scope, start or read a run', async () => {
    for (const [path, body] of Object.entries(runs())) {
      const eve = await server.member({ organization: 'Other' })
      const weak = await server.member({ scopes: ['agents:read'] })
      expect((await post(path, body, eve.token)).status, path).toBe(404)
      expect((await post(path, body, weak.token)).status, path).toBe(403)
      expect((await post(path, body, 'mst_nonsense')).status, path).toBe(401)
      expect((await fetch(server.url + path, { method: 'PUT' })).status, path).toBe(405)
    }
  })

  it('fails a run whose client does not call its tool in time', async () => {
    const { token } = await server.member()
    const tools = [{ type: 'function', name: 'weather', parameters: { type: 'object', properties: {} } }]
    model.script({ toolCalls: [{ id: 'a', name: 'client__weather', input: {} }] })
    const response = await (await post('/openai/v1/responses', { model: agent, input: 'Hi', tools }, token)).json()
    const id = response.id.replace('resp_', '')
    const state = async () => (await request(server, 'GET', `/api/v1/executions/${id}`, { token })).body.execution
    await expect.poll(state).toMatchObject({ status: 'failed', error: 'timeout', errorCode: 'timeout' })
  })
})
