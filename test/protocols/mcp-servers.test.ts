import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'

// The MCP server on two servers with one database.

describe.runIf(onPostgres)('two servers', () => {
  let model: ModelServer
  let one: TestServer
  let two: TestServer
  let ann: Member
  beforeAll(async () => {
    model = await startModelServer()
    one = await startServer(model.env)
    two = await startServer(model.env, { folder: one.folder })
    ann = await one.member({ organization: 'Acme' })
  })
  afterAll(async () => {
    await two[Symbol.asyncDispose]()
    await one[Symbol.asyncDispose]()
    await model.close()
  })

  async function connect({ url }: TestServer) {
    const options = { versionNegotiation: { mode: { pin: '2026-07-28' } } } as const
    const client = new Client({ name: 'test', version: '1.0.0' }, options)
    const headers = { Authorization: `Bearer ${ann.token}` }
    await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers } }))
    return Object.assign(client, { [Symbol.asyncDispose]: () => client.close() })
  }

  it('report a skill that was created on the other one', async () => {
    await using client = await connect(one)
    let notices = 0
    client.setNotificationHandler('notifications/prompts/list_changed', () => void notices++)
    const subscription = await client.listen({ promptsListChanged: true })
    const body = { name: 'haiku', description: 'Writes.', prompt: 'Write.' }
    expect((await request(two, 'POST', '/api/v1/skills', { body, token: ann.token })).status).toBe(200)
    await expect.poll(() => notices).toBe(1)
    expect((await client.listPrompts()).prompts.map(({ name }) => name)).toContain('haiku')
    await subscription.close()
  })

  it('join a run of the other one by its idempotency key', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    model.script({ tokens: ['Good ', promise, 'day.'] })
    const body = { name: 'Ada', systemPrompt: 'x' }
    const { id } = (await request(one, 'POST', '/api/v1/agents', { body, token: ann.token })).body
    await using first = await connect(one)
    await using second = await connect(two)
    const call = { name: 'run_agent', arguments: { id, message: 'Hello', idempotencyKey: 'both' } }
    const begun = Promise.withResolvers<void>()
    const answers = [first.callTool(call, { onprogress: () => begun.resolve() })]
    await begun.promise
    answers.push(second.callTool(call, { onprogress: () => resolve() }))
    const [a, b] = await Promise.all(answers)
    expect(a?.structuredContent).toMatchObject({ result: 'Good day.' })
    expect(b?.structuredContent).toEqual(a?.structuredContent)
  })
})
