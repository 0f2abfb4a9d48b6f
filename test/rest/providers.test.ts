import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { expectError } from '../support/faces.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const SECRET = 'canary-provider-key-1'

let server: TestServer
let model: ModelServer
let owner: Member
let member: Member
let stranger: Member
beforeAll(async () => {
  model = await startModelServer()
  server = await startServer({
    LOG_LEVEL: 'trace',
    ALLOW_PRIVATE_NETWORK: 'true',
    OPENAI_API_KEY: 'server-key-1',
    OPENAI_BASE_URL: `${model.baseUrl}/server`,
    COMPATIBLE_PROVIDERS: JSON.stringify([{ name: 'groq', baseUrl: `${model.baseUrl}/groq` }]),
  })
  owner = await server.member({ organization: 'Acme', role: 'owner' })
  member = await server.member({ organization: 'Acme' })
  stranger = await server.member({ organization: 'Other', role: 'owner' })
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await model.close()
})

const path = (name = '') => `/api/v1/organizations/${owner.organizationId}/providers${name && `/${name}`}`
const call = ({ token }: Member, method: string, where: string, body?: unknown) =>
  request(server, method, where, { token, ...(body !== undefined && { body }) })

/** Runs an agent of Acme's; returns how the model was asked. */
async function run(who: Member, name: string) {
  const body = { name: 'A', systemPrompt: 'Be good.', model: name }
  const { id } = (await call(who, 'POST', '/api/v1/agents', body)).body
  const before = model.requests.length
  const answer = await call(who, 'POST', `/api/v1/agents/${id}/execute`, { message: 'Hello' })
  const [asked] = model.requests.slice(before)
  return { answer, path: asked?.path, authorization: asked?.headers.authorization }
}

describe('a provider of an organization', () => {
  it('is set with its check, listed without its key, used by runs, and deleted', async () => {
    const given = { apiKey: ` ${SECRET}\n`, baseUrl: `${model.baseUrl}/own/`, headers: { 'X-Team': SECRET } }
    const set = await call(owner, 'PUT', path('compatible:mine'), given)
    expect(set.status).toBe(200)
    expect(set.body.provider).toMatchObject({
      name: 'compatible:mine',
      source: 'organization',
      status: 'ok',
      error: null,
    })
    const listed = await call(member, 'GET', path())
    expect(listed.body.providers).toMatchObject([
      { name: 'compatible:mine', baseUrl: `${model.baseUrl}/own`, setBy: owner.userId, status: 'ok' },
      { name: 'openai', source: 'server', baseUrl: null, status: 'unchecked' },
      { name: 'compatible', source: 'server' },
      { name: 'groq', source: 'server' },
      { name: 'offline', source: 'server' },
    ])
    const ran = await run(member, 'mine/some/model')
    expect([ran.answer.status, ran.path, ran.authorization]).toEqual([
      200,
      '/v1/own/chat/completions',
      `Bearer ${SECRET}`,
    ])
    const rows = await server.service.deps.db.provider.findMany()
    expect(Buffer.concat(rows.map(({ ciphertext }) => Buffer.from(ciphertext))).includes(SECRET)).toBe(false)
    expect(JSON.stringify([set.body, listed.body]) + server.logs.join('')).not.toContain(SECRET)
    expect((await call(owner, 'DELETE', path('compatible:mine'))).status).toBe(200)
    expectError(await call(owner, 'DELETE', path('compatible:mine')), 404, 'Provider not found')
    const actions = await server.service.deps.db.auditEvent.findMany({
      where: { organizationId: owner.organizationId },
    })
    expect(actions.map(({ action }) => action)).toEqual(expect.arrayContaining(['provider.update', 'provider.delete']))
  })

  it('wins over the server, whose key never goes to its address', async () => {
    await call(owner, 'PUT', path('compatible'), { apiKey: 'own-key-1', baseUrl: `${model.baseUrl}/own` })
    expect(await run(owner, 'compatible/m')).toMatchObject({
      path: '/v1/own/chat/completions',
      authorization: 'Bearer own-key-1',
    })
    expect(await run(stranger, 'compatible/m')).toMatchObject({
      path: '/v1/server/chat/completions',
      authorization: 'Bearer server-key-1',
    })
    await call(owner, 'DELETE', path('compatible'))
    expect(await run(owner, 'compatible/m')).toMatchObject({ path: '/v1/server/chat/completions' })
  })

  it('that does not list its models is stored as failed, with the reason, and unchecked where nobody asks', async () => {
    const before = model.models
    model.models = { status: 401, message: `wrong key ${SECRET}` }
    const given = { apiKey: SECRET, baseUrl: model.baseUrl }
    const { body } = await call(owner, 'PUT', path('compatible:bad'), given)
    expect(body.provider).toMatchObject({ status: 'failed', error: expect.stringMatching(/^HTTP 401: wrong key/) })
    expect(JSON.stringify(body)).not.toContain(SECRET)
    const unchecked = await call(owner, 'PUT', `${path('compatible:bad')}?check=false`, given)
    expect(unchecked.body.provider).toMatchObject({ status: 'unchecked', error: null })
    model.models = before
    await call(owner, 'DELETE', path('compatible:bad'))
  })

  it.each([
    ['anthropic', {}, 400, 'Missing required field: apiKey'],
    ['compatible:x', { apiKey: 'k' }, 400, 'Missing required field: baseUrl'],
    ['compatible:x', { apiKey: 'k', baseUrl: 'ftp://a' }, 400, /^Invalid baseUrl/],
    ['compatible:x', { apiKey: 'k', baseUrl: 'http://u:p@a' }, 400, /^Invalid baseUrl/],
    ['compatible:groq', { apiKey: 'k', baseUrl: 'http://127.0.0.1:9' }, 409, 'Provider name is taken'],
    ['compatible:openai', { apiKey: 'k', baseUrl: 'http://127.0.0.1:9' }, 409, 'Provider name is taken'],
    ['groq', { apiKey: 'k' }, 400, /^Invalid provider name/],
  ])('named %s with %j is refused with %d', async (name, body, status, message) => {
    const answer = await call(owner, 'PUT', path(name), body)
    expect([answer.status, answer.body.message]).toEqual([
      status,
      typeof message === 'string' ? message : expect.stringMatching(message),
    ])
  })

  it('is written by admins of that organization alone, and seen by its members alone', async () => {
    expectError(await call(member, 'PUT', path('anthropic'), { apiKey: 'k' }), 403, FORBIDDEN)
    expectError(await call(member, 'DELETE', path('anthropic')), 403, FORBIDDEN)
    for (const method of ['GET', 'PUT', 'DELETE'] as const) {
      const where = method === 'GET' ? path() : path('anthropic')
      expectError(await call(stranger, method, where, method === 'PUT' ? { apiKey: 'k' } : undefined), 403, FORBIDDEN)
    }
  })
})
