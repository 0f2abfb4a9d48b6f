import { describe, expect, it } from 'vitest'
import { graphql } from '../graphql/support.ts'
import { apis, expectError } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const SECRET = 'canary-provider-key-1'

const model = await use(startModelServer())
const server = await use(
  startServer({
    LOG_LEVEL: 'trace',
    ALLOW_PRIVATE_NETWORK: 'true',
    OPENAI_API_KEY: 'server-key-1',
    OPENAI_BASE_URL: `${model.baseUrl}/server`,
    COMPATIBLE_PROVIDERS: JSON.stringify([{ name: 'groq', baseUrl: `${model.baseUrl}/groq` }]),
  }),
)
const owner = await server.member({ organization: 'Acme', role: 'owner' })
const member = await server.member({ organization: 'Acme' })
const stranger = await server.member({ organization: 'Other', role: 'owner' })

const path = (name = '') => `/api/v1/organizations/${owner.organizationId}/providers${name && `/${name}`}`
const call = ({ token }: Member, method: string, where: string, body?: unknown) =>
  request(server, method, where, { token, ...(body !== undefined && { body }) })

/** Runs an agent of Acme's. Returns the request to the model. */
async function run(who: Member, name: string) {
  const body = { name: 'A', systemPrompt: 'Be good.', model: name }
  const { id } = (await call(who, 'POST', '/api/v1/agents', body)).body
  const before = model.requests.length
  const answer = await call(who, 'POST', `/api/v1/agents/${id}/execute`, { message: 'Hello' })
  const [asked] = model.requests.slice(before)
  return { answer, path: asked?.path, authorization: asked?.headers.authorization }
}

describe('a provider of an organization', () => {
  it('is checked when set, listed without its key, used by runs, and deleted', async () => {
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
    ])
    expect(listed.body.providers).toHaveLength(4)
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

  it('a provider that does not list its models is stored as failed or unchecked', async () => {
    const before = model.models
    model.models = { status: 401, message: `wrong key ${SECRET}` }
    const given = { apiKey: SECRET, baseUrl: model.baseUrl }
    const { body } = await call(owner, 'PUT', path('compatible:bad'), given)
    expect(body.provider).toMatchObject({ status: 'failed', error: expect.stringMatching(/^HTTP 401: wrong key/) })
    expect(JSON.stringify(body)).not.toContain(SECRET)
    // Servers such as LM Studio answer an unknown path so.
    const short = { ...given, baseUrl: model.baseUrl.replace('/v1', '') }
    for (const [models, error] of [
      [{ status: 404, message: 'Not Found' }, 'HTTP 404: Not Found'],
      [{ status: 200, message: 'Unexpected endpoint or method' }, 'The answer is not a list of models'],
    ] as const) {
      model.models = models
      const refused = await call(owner, 'PUT', path('compatible:bad'), short)
      const advice = 'Check the base address (most servers expect /v1 at its end)'
      expect(refused.body.provider).toMatchObject({ status: 'failed', error: `${error}. ${advice}` })
    }
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

  it('is set, listed and deleted over GraphQL and tRPC as over REST', async () => {
    const orgId = owner.organizationId
    const given = { orgId, name: 'compatible:apis', apiKey: SECRET, baseUrl: `${model.baseUrl}/apis` }
    const expected = { name: 'compatible:apis', baseUrl: given.baseUrl, source: 'organization', status: 'unchecked' }
    const fields = '{ name baseUrl source status }'
    const set = await graphql(
      server,
      `mutation ($orgId: ID!, $name: String!, $apiKey: String!, $baseUrl: String, $headers: [ProviderHeaderInput!]) {
        setProvider(orgId: $orgId, name: $name, apiKey: $apiKey, baseUrl: $baseUrl, headers: $headers, check: false) ${fields}
      }`,
      { ...given, headers: [{ name: 'X-Team', value: 'a' }] },
      owner,
    )
    expect([set.message, set.data?.setProvider]).toEqual([undefined, expected])
    const listed = await graphql(server, `query ($orgId: ID!) { providers(orgId: $orgId) ${fields} }`, given, member)
    expect(listed.data?.providers).toContainEqual(expected)
    expect((await apis.tRPC(server, 'providers.list', { orgId }, member)).body.providers).toContainEqual(
      expect.objectContaining(expected),
    )
    await run(member, 'apis/m')
    expect(model.requests.at(-1)?.headers['x-team']).toBe('a')
    const refused = await graphql(
      server,
      `mutation ($orgId: ID!) { setProvider(orgId: $orgId, name: "anthropic", apiKey: "k") { name } }`,
      { orgId },
      member,
    )
    expect(refused.message).toBe(FORBIDDEN)
    const deleted = await graphql(
      server,
      'mutation ($orgId: ID!, $name: String!) { deleteProvider(orgId: $orgId, name: $name) { deletedId } }',
      { orgId, name: given.name },
      owner,
    )
    expect(deleted.data?.deleteProvider).toEqual({ deletedId: given.name })
  })

  it("answers for another organization's public agent that its members run", async () => {
    await call(owner, 'PUT', path('compatible'), { apiKey: 'own-key-2', baseUrl: `${model.baseUrl}/callers` })
    const body = { name: 'Shared', systemPrompt: 'Be good.', model: 'compatible/m', visibility: 'public' }
    const { id } = (await call(stranger, 'POST', '/api/v1/agents', body)).body
    for (const [who, asked] of [
      [owner, '/v1/callers/chat/completions'],
      [stranger, '/v1/server/chat/completions'],
    ] as const) {
      expect((await call(who, 'POST', `/api/v1/agents/${id}/execute`, { message: 'Hello' })).status).toBe(200)
      expect(model.requests.at(-1)?.path).toBe(asked)
    }
    await call(owner, 'DELETE', path('compatible'))
  })

  it.each(['replaced', 'deleted'])(
    'a provider of an organization that is %s lets its active runs end',
    async (change) => {
      const before = { apiKey: 'own-key-3', baseUrl: `${model.baseUrl}/before` }
      await call(owner, 'PUT', path('compatible:moving'), before)
      const resume = Promise.withResolvers<void>()
      model.script({ tokens: ['One ', resume.promise, 'whole answer'] })
      const count = model.requests.length
      const running = run(owner, 'moving/m')
      await model.request(count)
      const changed =
        change === 'deleted'
          ? await call(owner, 'DELETE', path('compatible:moving'))
          : await call(owner, 'PUT', path('compatible:moving'), {
              apiKey: 'new-key',
              baseUrl: `${model.baseUrl}/after`,
            })
      expect(changed.status).toBe(200)
      resume.resolve()
      const { answer } = await running
      expect([answer.status, answer.body.result]).toEqual([200, 'One whole answer'])
      const next = await run(owner, 'moving/m')
      if (change === 'deleted') {
        // No other provider gets this run's request.
        expect([next.answer.status, next.answer.body.code, next.path]).toEqual([500, 'model_not_available', undefined])
        expect(next.answer.body.detail).toContain('There is no provider moving here')
        return
      }
      expect([next.path, next.authorization]).toEqual(['/v1/after/chat/completions', 'Bearer new-key'])
      await call(owner, 'DELETE', path('compatible:moving'))
    },
  )

  it('a provider whose key is replaced during a run is asked with the new key after a refusal', async () => {
    await call(owner, 'PUT', path('compatible:rotated'), { apiKey: 'key-1', baseUrl: `${model.baseUrl}/rotated` })
    const replaced = Promise.withResolvers<void>()
    // The first answer is empty, so that the run asks once more with the key that it has.
    model.script({ tokens: [replaced.promise], end: 'cut' }, { error: { status: 401, message: 'Wrong key' } })
    const count = model.requests.length
    const running = run(owner, 'rotated/m')
    await model.request(count)
    await call(owner, 'PUT', path('compatible:rotated'), { apiKey: 'key-2', baseUrl: `${model.baseUrl}/rotated` })
    replaced.resolve()
    expect((await running).answer.status).toBe(200)
    const keys = model.requests.slice(count).map(({ headers }) => headers.authorization)
    expect(keys).toEqual(['Bearer key-1', 'Bearer key-1', 'Bearer key-2'])
    await call(owner, 'DELETE', path('compatible:rotated'))
  })

  it('is changed only by admins of the organization, and visible only to its members', async () => {
    expectError(await call(member, 'PUT', path('anthropic'), { apiKey: 'k' }), 403, FORBIDDEN)
    expectError(await call(member, 'DELETE', path('anthropic')), 403, FORBIDDEN)
    for (const method of ['GET', 'PUT', 'DELETE'] as const) {
      const where = method === 'GET' ? path() : path('anthropic')
      expectError(await call(stranger, method, where, method === 'PUT' ? { apiKey: 'k' } : undefined), 403, FORBIDDEN)
    }
  })
})

it('a provider is found by its name as clients encode it in a path', async () => {
  const encoded = path(encodeURIComponent('compatible:encoded'))
  const set = await call(owner, 'PUT', encoded, { apiKey: 'k', baseUrl: model.baseUrl })
  expect(set.body.provider).toMatchObject({ name: 'compatible:encoded', status: 'ok' })
  expect((await call(owner, 'DELETE', encoded)).status).toBe(200)
})

describe('the address of a provider of an organization', () => {
  it('must be public when set and when used, unless the operator allows private networks', async () => {
    await using guarded = await startServer()
    const admin = await guarded.member({ organization: 'Acme', role: 'owner' })
    const where = `/api/v1/organizations/${admin.organizationId}/providers/compatible:mine`
    const put = (baseUrl: string) =>
      request(guarded, 'PUT', where, { token: admin.token, body: { apiKey: 'k', baseUrl } })
    const { port } = new URL(model.baseUrl)
    const inside = [
      model.baseUrl,
      `http://localhost:${port}/v1`,
      `http://[::1]:${port}`,
      `http://[::ffff:127.0.0.1]:${port}`,
      `http://2130706433:${port}`,
      'http://10.0.0.1',
      'http://169.254.169.254/latest',
      'https://[fd00::1]',
    ]
    const accepted = model.accepted
    for (const baseUrl of inside) {
      expectError(await put(baseUrl), 400, 'Invalid baseUrl. The address is not allowed')
    }
    expect(model.accepted).toBe(accepted)
  })
})

it('the 51st provider of an organization is refused, and another one of a present name is not', async () => {
  const full = await server.member({ organization: 'Full', role: 'owner' })
  const { organizationId, userId: setBy } = full
  const row = { organizationId, baseUrl: null, ciphertext: Buffer.alloc(1), status: 'ok', setAt: new Date(), setBy }
  const data = Array.from({ length: 49 }, (_, index) => ({ ...row, name: `compatible:p${index}` }))
  await server.service.deps.db.provider.createMany({ data })
  const put = (name: string) =>
    call(full, 'PUT', `/api/v1/organizations/${organizationId}/providers/${name}`, {
      apiKey: SECRET,
      baseUrl: `${model.baseUrl}/own`,
    })
  expect([(await put('compatible:last')).status, (await put('compatible:last')).status]).toEqual([200, 200])
  expectError(await put('compatible:over'), 400, 'Too many providers. At most 50')
})
