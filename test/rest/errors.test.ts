import { once } from 'node:events'
import { connect } from 'node:net'
import { duplexPair } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterEach, describe, expect, it } from 'vitest'
import { refuseMalformed } from '../../src/http/malformed.ts'
import { APIS, apis, expectError, invalid, missing, onEachApi } from '../support/api.ts'
import { type Answer, request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const server = await use(startServer())
afterEach(async () => {
  expect((await request(server, 'GET', '/api/v1/agents?limit=1')).status).toBe(200)
})

const valid = { name: 'Ada', systemPrompt: 'You are Ada.' }
/** A form of answers whose property has a name. */
const schemaOf = (name: string) => ({ schema: { type: 'object', properties: { [name]: {} } } })
const agentId: string = (await request(server, 'POST', '/api/v1/agents', { body: valid })).body.id
const VISIBILITY = 'Invalid visibility value. Must be: private, organization, public, or unlisted'
const STATUS = 'Invalid status. Must be: pending, running, completed, failed, cancelled'

const BLANKS = [undefined, null, '', ' ', '\t\n\u00a0']

/** Procedure, input, message. `{id}` of the first agent is added if the input has none. */
const badInputs: [procedure: string, input: object, message: string][] = [
  ...BLANKS.map((value): [string, object, string] => ['agents.create', { ...valid, name: value }, missing('name')]),
  ...['systemPrompt', 'system_message'].flatMap((field) =>
    BLANKS.map((value): [string, object, string] => [
      'agents.create',
      { name: 'Ada', [field]: value },
      missing('systemPrompt'),
    ]),
  ),
  ...BLANKS.map((message): [string, object, string] => ['agents.execute', { message }, missing('message')]),
  ...['agents.create', 'agents.update', 'agents.execute', 'client.execute'].flatMap((procedure) =>
    ['', ' \n'].map((model): [string, object, string] => [
      procedure,
      { ...valid, characterId: 'x', message: 'Hi', model },
      missing('model'),
    ]),
  ),
  ['agents.update', { name: null }, missing('name')],
  ['agents.update', { name: ' ' }, missing('name')],
  ['agents.update', { systemPrompt: null }, missing('systemPrompt')],
  ['agents.update', { systemPrompt: '' }, missing('systemPrompt')],
  ['agents.update', { system_message: ' ' }, missing('systemPrompt')],
  ['agents.update', { system_message: null }, missing('system_message')],

  ['agents.create', { ...valid, name: 1 }, invalid('name', 'string')],
  ['agents.create', { ...valid, name: ['Ada'] }, invalid('name', 'string')],
  ['agents.create', { ...valid, systemPrompt: {} }, invalid('systemPrompt', 'string')],
  ['agents.create', { ...valid, role: true }, invalid('role', 'string')],
  ['agents.create', { ...valid, model: 5 }, invalid('model', 'string')],
  ['agents.create', { ...valid, tags: 'a,b' }, invalid('tags', 'array')],
  ['agents.create', { ...valid, tags: { 0: 'a' } }, invalid('tags', 'array')],
  ['agents.create', { ...valid, tags: ['a', 1] }, invalid('tags.1', 'string')],
  ['agents.create', { ...valid, maxTurns: '5' }, invalid('maxTurns', 'number')],
  ['agents.create', { ...valid, maxTurns: true }, invalid('maxTurns', 'number')],
  ['agents.create', { ...valid, maxTurns: 1.5 }, invalid('maxTurns', 'integer')],
  ['agents.create', { ...valid, maxTurns: 0 }, invalid('maxTurns', 'at least 1')],
  ['agents.create', { ...valid, maxTurns: 501 }, invalid('maxTurns', 'at most 500')],
  ['agents.create', { ...valid, name: 'x'.repeat(201) }, invalid('name', 'at most 200 characters')],
  [
    'agents.create',
    { ...valid, systemPrompt: 'x'.repeat(100_001) },
    invalid('systemPrompt', 'at most 100000 characters'),
  ],
  ['agents.execute', { message: 'x'.repeat(200_001) }, invalid('message', 'at most 200000 characters')],
  ['agents.execute', { message: 7 }, invalid('message', 'string')],
  ['agents.execute', { message: 'Hi', stream: 'false' }, invalid('stream', 'boolean')],
  ['agents.execute', { message: 'Hi', stream: 1 }, invalid('stream', 'boolean')],
  ['agents.execute', { message: 'Hi', background: 'true' }, invalid('background', 'boolean')],
  ['agents.execute', { message: 'Hi', onBusy: 'wait' }, invalid('onBusy', 'one of: queue, reject, interrupt')],
  ['agents.execute', { message: 'Hi', sessionId: 1 }, invalid('sessionId', 'string')],
  ['agents.update', { archived: 'false' }, invalid('archived', 'boolean')],
  ['agents.update', { archived: 0 }, invalid('archived', 'boolean')],
  ['agents.update', { maxTurns: '5' }, invalid('maxTurns', 'number')],

  ...['', 'Private', 'secret', 5, ['private'], { toString: 'private' }].flatMap(
    (visibility): [string, object, string][] => [
      ['agents.create', { ...valid, visibility }, VISIBILITY],
      ['agents.update', { visibility }, VISIBILITY],
    ],
  ),
  ['agents.update', { visibility: null }, VISIBILITY],
  ['agents.list', { visibility: 'secret' }, VISIBILITY],
  ['agents.list', { owner: 'you' }, invalid('owner', 'me')],
  ['agents.list', { limit: '0' }, invalid('limit', 'at least 1')],
  ['agents.list', { limit: '-1' }, invalid('limit', 'at least 1')],
  ['agents.list', { limit: '1001' }, invalid('limit', 'at most 1000')],
  ['agents.list', { limit: '1.5' }, invalid('limit', 'integer')],
  ['agents.list', { limit: 'ten' }, invalid('limit', 'number')],
  ['agents.listPublic', { limit: 'ten' }, invalid('limit', 'number')],
  ['executions.list', { limit: '1001' }, invalid('limit', 'at most 1000')],
  ...['x', btoa('1.'), btoa('.a'), btoa(`1.a' OR 1`), btoa('-1.a'), 'x'.repeat(3000)].flatMap((cursor) =>
    ['agents.list', 'agents.listPublic', 'executions.list'].map((procedure): [string, object, string] => [
      procedure,
      { cursor },
      invalid('cursor', 'a nextCursor of this list'),
    ]),
  ),
  ['executions.list', { status: 'done' }, STATUS],
  ['executions.list', { since: 'yesterday' }, invalid('since', 'ISO 8601 timestamp')],
  ['executions.list', { count: 'yes' }, invalid('count', 'true or false')],
  ['executions.events', { executionId: 'x', after: 'first' }, invalid('after', 'number')],
  ['executions.events', { executionId: 'x', after: '-1' }, invalid('after', 'at least 0')],
  ['agents.list', { search: 'a\0b' }, 'Invalid character in request: U+0000'],
  ['agents.create', { ...valid, name: 'a\0b' }, 'Invalid character in request: U+0000'],
  ['agents.create', { ...valid, output: schemaOf('a\0b') }, 'Invalid character in request: U+0000'],
  ['tasks.create', { title: 'A', output: schemaOf('\ud800') }, 'Invalid character in request: an unpaired surrogate'],
  ['agents.create', { ...valid, tags: ['\ud800'] }, 'Invalid character in request: an unpaired surrogate'],
]

const nested = (depth: number): unknown => JSON.parse(`${'{"a":'.repeat(depth - 1)}{}${'}'.repeat(depth - 1)}`)

const call = (api: 'REST' | 'tRPC', procedure: string, input: object, token?: string) =>
  apis[api](server, procedure, /update|execute/.test(procedure) ? { id: agentId, ...input } : { ...input }, {
    ...(token && { token }),
  })

describe('a missing or invalid value gives a 400 that names it', () => {
  it.each(onEachApi(badInputs))('%s %s %j: %s', async (api, procedure, input, message) => {
    expectError(await call(api, procedure, input), 400, message)
  })

  it.each(APIS)('%s: a quoted boolean is refused, also after REST was called', async (api) => {
    await request(server, 'PATCH', `/api/v1/agents/${agentId}`, { body: { archived: false, maxTurns: 5 } })
    await request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { body: { message: 'Hi', background: true } })
    for (const wrong of [{ archived: 'false' }, { archived: 'true' }, { archived: '' }]) {
      expectError(await call(api, 'agents.update', wrong), 400, invalid('archived', 'boolean'))
    }
    expectError(await call(api, 'agents.update', { maxTurns: '7' }), 400, invalid('maxTurns', 'number'))
    const wrong = { message: 'Hi', background: 'false' }
    expectError(await call(api, 'agents.execute', wrong), 400, invalid('background', 'boolean'))
    expect((await call(api, 'agents.get', { id: agentId })).body.agent).toMatchObject({ archived: false, maxTurns: 5 })
  })

  it.each(APIS)('%s: 64 levels are accepted, 65 are not', async (api) => {
    expect((await call(api, 'agents.create', { ...valid, unknown: nested(63) })).status).toBe(200)
    const answer = await call(api, 'agents.create', { ...valid, unknown: nested(64) })
    expectError(answer, 400, 'Request body too deep. At most 64 levels')
  })

  it.each(['PATCH', 'DELETE'])('%s with an Idempotency-Key refuses a body of 50,000 levels', async (method) => {
    const answer = await request(server, method, `/api/v1/agents/${agentId}`, {
      body: `${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}`,
      headers: { 'Idempotency-Key': 'deep' },
    })
    expectError(answer, 400, 'Request body too deep. At most 64 levels')
  })

  it.each(APIS)('%s: lengths up to the limit are accepted', async (api) => {
    const long = { name: 'x'.repeat(200), systemPrompt: 'x'.repeat(100_000) }
    expect((await call(api, 'agents.create', long)).status).toBe(200)
  })
})

describe('a read-only field', () => {
  const theirs = {
    id: 'x'.repeat(22),
    organizationId: 'theirs',
    userId: 'theirs',
    createdBy: 'theirs',
    createdAt: '2001-01-01T00:00:00.000Z',
    updatedAt: '2001-01-01T00:00:00.000Z',
    archivedAt: '2001-01-01T00:00:00.000Z',
    version: 99,
    status: 'deleted',
    searchText: 'theirs',
    unknown: { nested: true },
    success: false,
    constructor: 'x',
  }

  it.each(APIS)('is ignored on create and in a PATCH (%s)', async (api) => {
    const { body } = await call(api, 'agents.create', { ...valid, ...theirs, archived: true })
    const { agent } = (await call(api, 'agents.get', { id: body.id })).body
    expect(agent).toEqual({ ...agent, ...valid, id: body.id, version: 1, archived: false })
    expect(body.id).not.toBe(theirs.id)
    expect([agent.organizationId, agent.userId]).not.toContain('theirs')
    expect(agent.createdAt).not.toBe(theirs.createdAt)
    expect(Object.keys(agent)).not.toContain('unknown')

    // A version in a PATCH is the version that the caller has seen.
    const change = { ...theirs, id: body.id, version: undefined }
    expect((await call(api, 'agents.update', change)).status).toBe(200)
    expect((await call(api, 'agents.get', { id: body.id })).body.agent).toEqual(agent)
  })

  it('cannot be set by a prototype', async () => {
    const hidden = '{"visibility":"private","role":"Hidden"}'
    for (const field of ['"__proto__"', '"constructor":{"prototype"']) {
      const end = field.includes('{') ? '}' : ''
      const body = `{"name":"A","systemPrompt":"x",${field}:${hidden}${end}}`
      for (const path of ['/api/v1/agents', '/trpc/agents.create']) {
        const answer = await request(server, 'POST', path, { body })
        const { agent } = answer.body.result?.data ?? answer.body
        expect(agent).toMatchObject({ visibility: 'organization', role: 'Assistant' })
      }
    }
    expect({}).not.toHaveProperty('role')
  })

  it('named id never changes the target, which is the id in the path', async () => {
    const other = (await request(server, 'POST', '/api/v1/agents', { body: valid })).body.id
    await request(server, 'PATCH', `/api/v1/agents/${other}`, { body: { id: agentId, role: 'Changed' } })
    expect((await call('REST', 'agents.get', { id: other })).body.agent.role).toBe('Changed')
    expect((await call('REST', 'agents.get', { id: agentId })).body.agent.role).toBe('Assistant')
    const refused = await request(server, 'GET', `/api/v1/agents/${other}?id=${agentId}`)
    expectError(refused, 400, 'Unknown parameter: id')
  })
})

describe('an unknown resource gives a 404', () => {
  it.each([
    ['GET', '/'],
    ['GET', '/api'],
    ['GET', '/api/v1'],
    ['GET', '/api/v1/'],
    ['GET', '/api/v1/nope'],
    ['GET', '/api/v2/agents'],
    ['GET', '//api/v1/agents'],
    ['GET', '/api/v1//agents'],
    ['GET', '/api/v1/agents/some/id'],
    ['GET', '/api/v1/Agents'],
    ['POST', '/api/v1/MEDIA'],
    ['GET', '/api/v1/Media/some-id/content'],
    ['GET', '/api/v1/executions/some-id/Events'],
    ['POST', '/api/v1/agents/some-id/Execute'],
    ['GET', '/trpc'],
    ['GET', '/.env'],
    ['GET', '/api/v1/../../healthz/..%2f'],
  ])('an unknown resource gives a 404 at %s %s: Not found', async (method, path) => {
    expectError(await request(server, method, path), 404, 'Not found')
  })

  it('also on an unknown path with an Idempotency-Key, and before authentication', async () => {
    const headers = { 'Idempotency-Key': 'x' }
    expectError(await request(server, 'POST', '/api/v1/nope', { token: null, headers }), 404, 'Not found')
  })

  it.each([
    ['GET', 'nope'],
    ['GET', 'agents'],
    ['GET', 'agents.nope'],
    ['GET', '__proto__'],
    ['GET', 'agents.__proto__'],
    ['GET', 'constructor.constructor'],
  ])('an unknown resource gives a 404 at %s /trpc/%s: Not found', async (method, path) => {
    const answer = await request(server, method, `/trpc/${path}`, { ...(method !== 'GET' && { body: {} }) })
    expectError({ ...answer, body: answer.body.error.data }, 404, 'Not found')
  })

  it('also for HEAD, without a body', async () => {
    const { status, body } = await request(server, 'HEAD', '/nope')
    expect({ status, body }).toEqual({ status: 404, body: null })
  })

  it.each([
    '%00',
    '%E0%A4%A',
    '%',
    'a%2Fb',
    'ä',
    '%C3%A4',
    '%20',
    "'--",
    'x'.repeat(10_000),
    '__proto__',
    'constructor',
    'undefined',
  ])('also if an agent or an execution is called %j', async (id) => {
    expectError(await request(server, 'GET', `/api/v1/agents/${id}`), 404, 'Agent not found')
    expectError(await request(server, 'GET', `/api/v1/executions/${id}`), 404, 'Execution not found')
  })
})

describe('a method that a path does not support gives a 405 with the supported ones', () => {
  it.each([
    ['PUT', '/api/v1/agents', 'GET, HEAD, POST'],
    ['DELETE', '/api/v1/agents/', 'GET, HEAD, POST'],
    ['OPTIONS', '/api/v1/agents', 'GET, HEAD, POST'],
    ['PROPFIND', '/api/v1/agents', 'GET, HEAD, POST'],
    ['POST', '/api/v1/agents/some-id', 'GET, HEAD, PATCH, DELETE'],
    ['GET', '/api/v1/agents/some-id/execute', 'POST'],
    ['HEAD', '/api/v1/agents/some-id/execute', 'POST'],
    ['POST', '/api/v1/executions/some-id/events', 'GET, HEAD'],
    ['DELETE', '/api/v1/media/some-id/content', 'GET, HEAD'],
    ['PUT', '/api/v1/media', 'GET, HEAD, POST'],
    ['POST', '/healthz', 'GET, HEAD'],
    ['POST', '/api/openapi.json', 'GET, HEAD'],
  ])('an unsupported method gives a 405 with the supported ones at %s %s: Allow: %s', async (method, path, allow) => {
    const answer = await request(server, method, path, { token: null })
    const { status, headers } = answer
    expect([status, headers.get('allow')?.split(', ').sort()]).toEqual([405, allow.split(', ').sort()])
    if (method !== 'HEAD') expectError(answer, 405, 'Method not allowed')
  })

  it.each([
    ['GET', 'agents.create', 'POST'],
    ['GET', 'agents.execute', 'POST'],
    ['POST', 'agents.list', 'GET, HEAD'],
    ['PUT', 'agents.list', 'GET, HEAD'],
    ['DELETE', 'agents.delete', 'POST'],
    ['HEAD', 'agents.create', 'POST'],
    ['HEAD', 'executions.events', 'GET'],
  ])(
    'an unsupported method gives a 405 with the supported ones at %s /trpc/%s: Allow: %s',
    async (method, path, allow) => {
      const hasBody = method !== 'GET' && method !== 'HEAD'
      const answer = await request(server, method, `/trpc/${path}`, { ...(hasBody && { body: {} }) })
      expect([answer.status, answer.headers.get('allow')]).toEqual([405, allow])
      if (method === 'HEAD') return
      expectError({ ...answer, body: answer.body.error.data }, 405, 'Method not allowed')
    },
  )
})

it.each([
  '/api/v1/agents',
  '/trpc/agents.list',
  '/graphql?query={__typename}',
  '/api/openapi.json',
  '/api/docs',
  '/healthz',
])('HEAD %s is answered as GET, without a body', async (path) => {
  const [head, get] = [await request(server, 'HEAD', path), await request(server, 'GET', path)]
  const described = ({ status, headers }: Answer) => [
    status,
    headers.get('content-type'),
    path.startsWith('/trpc') || headers.get('content-length'),
  ]
  expect(described(head)).toEqual(described(get))
  expect(head.body).toBeNull()
})

it.each(['/api/v1/agents/', '/trpc/agents.list/', '/graphql/?query={__typename}', '/api/openapi.json/', '/healthz/'])(
  'GET %s is answered as without the slash',
  async (path) => {
    const [answer, plain] = [
      await request(server, 'GET', path),
      await request(server, 'GET', path.replace(/\/(?=\?|$)/, '')),
    ]
    expect([answer.status, answer.body]).toEqual([200, plain.body])
  },
)

it('GET /api/docs/ is redirected to the page, whose addresses are relative', async () => {
  const { status, headers } = await request(server, 'GET', '/api/docs/')
  expect([status, headers.get('location')]).toEqual([302, '../docs'])
})

it('HEAD for the events of an active run is answered, and leaves the run alone', async () => {
  const { body } = await request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { body: { message: 'Hi' } })
  const { status, headers } = await request(server, 'HEAD', `/api/v1/executions/${body.executionId}/events`)
  expect([status, headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8'])
})

describe('an error of authentication', () => {
  const READER = { name: 'reader', scopes: ['agents:read'] }

  it.each(APIS)('%s: with 401 asks for a bearer token', async (api) => {
    const { status, headers } = await apis[api](server, 'agents.list', {}, { token: 'nonsense' })
    expect([status, headers.get('www-authenticate')]).toEqual([401, 'Bearer'])
  })

  it.each(APIS)('%s: with 403 names the scope that the token lacks', async (api) => {
    const { token } = (await request(server, 'POST', '/api/v1/keys', { body: READER })).body
    const { status, headers } = await apis[api](server, 'agents.create', valid, { token })
    const challenge = 'Bearer error="insufficient_scope", scope="agents:write"'
    expect([status, headers.get('www-authenticate')]).toEqual([403, challenge])
  })

  it('does not depend on the case of the word Bearer', async () => {
    for (const scheme of ['bearer', 'BEARER', 'Bearer']) {
      const headers = { Authorization: `${scheme} ${server.token}` }
      const { status } = await request(server, 'GET', '/api/v1/agents', { token: null, headers })
      expect(status).toBe(200)
    }
  })
})

describe('an unknown name is reported', () => {
  it.each([
    ['GET', '/api/v1/agents?limitt=5', 'limitt', 'Did you mean limit?'],
    ['GET', '/api/v1/agents?ownre=me', 'ownre', 'Did you mean owner?'],
    ['GET', '/api/v1/agents?constructor=1', 'constructor', undefined],
    ['GET', '/api/v1/executions?state=failed', 'state', undefined],
    ['DELETE', '/api/v1/agents/none?force=true', 'force', undefined],
    ['POST', '/api/v1/agents?dryRun=true', 'dryRun', 'There are no parameters here'],
    ['GET', '/api/v1/executions/none/events?aftr=1', 'aftr', 'Did you mean after?'],
    ['GET', '/api/v1/media/none/content?download=1', 'download', 'There are no parameters here'],
  ])('%s %s: as a 400 with a hint, for a parameter', async (method, path, name, detail) => {
    const answer = await request(server, method, path, method === 'POST' ? { body: valid } : {})
    expectError(answer, 400, `Unknown parameter: ${name}`)
    expect(answer.body).toMatchObject({ code: 'invalid_parameter', detail: detail ?? expect.any(String) })
    expect((await request(server, method, path, { token: null })).status).toBe(401)
  })

  it('an unknown name is reported except for parameters that caches and trackers add', async () => {
    const path = '/api/v1/agents?limit=1&_=123&utm_source=mail'
    expect((await request(server, 'GET', path)).status).toBe(200)
  })

  it('as a warning, for a field of a body', async () => {
    const body = { ...valid, modle: 'offline/echo', 'a\tb': 1 }
    const answer = await request(server, 'POST', '/api/v1/agents', { body })
    expect(answer.status).toBe(200)
    expect(answer.body.warnings).toEqual(['Unknown field: modle', 'Unknown field: a?b'])
    expect(answer.headers.get('x-muster-warnings')).toBe('2')
  })

  it('an unknown name is reported for at most 20 fields, with at most 100 characters each', async () => {
    const more = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`x${index}`.padEnd(300, 'y'), 1]))
    const { body, headers } = await request(server, 'POST', '/api/v1/agents', { body: { ...valid, ...more } })
    expect([body.warnings.length, body.warnings[0].length]).toEqual([20, 100])
    expect(headers.get('x-muster-warnings')).toBe('20')
  })

  it('an unknown name is reported in the answer of a run, beside the warnings of the run', async () => {
    const path = `/api/v1/agents/${agentId}/execute`
    const { body } = await request(server, 'POST', path, { body: { message: 'Hi', strem: true } })
    expect(body.warnings).toContain('Unknown field: strem')
  })

  it('an unknown name is reported except for aliases, and without an empty list of warnings', async () => {
    const body = { name: 'Ada', system_message: 'You are Ada.' }
    const answer = await request(server, 'POST', '/api/v1/agents', { body })
    expect([answer.body.warnings, answer.headers.get('x-muster-warnings')]).toEqual([undefined, null])
  })

  it('an unknown name is reported beside a missing field', async () => {
    const { status, body } = await request(server, 'POST', '/api/v1/agents', {
      body: { ...valid, name: undefined, nmae: 'Ada' },
    })
    expect([status, body.message]).toEqual([400, missing('name')])
    expect(body.detail).toBe('Unknown field: nmae. Did you mean name?')
  })

  it('agents and skills can be filtered by category', async () => {
    const { body } = await request(server, 'POST', '/api/v1/agents', { body: { ...valid, category: 'ops' } })
    const { agents, total } = (await request(server, 'GET', '/api/v1/agents?category=ops')).body
    expect([agents.map(({ id }: { id: string }) => id), total]).toEqual([[body.id], 1])
    expect((await request(server, 'GET', '/api/v1/agents?category=none&limit=1')).body.total).toBe(0)
    const skills = (await request(server, 'GET', '/api/v1/skills?category=other')).body.skills
    for (const { category } of Object.values(skills).flat() as { category: string }[]) expect(category).toBe('other')
  })
})

it('a percent-encoded id is decoded', async () => {
  const encode = (id: string) => id.replace(/./, (first) => `%${first.charCodeAt(0).toString(16)}`)
  expect((await request(server, 'GET', `/api/v1/agents/${encode(agentId)}`)).body.agent.id).toBe(agentId)
  const options = { body: { message: 'Hi', stream: true } }
  const stream = await request(server, 'POST', `/api/v1/agents/${encode(agentId)}/execute`, options)
  expect(stream.body).toMatch(/^id: 1\nevent: meta\n/)
  const { executionId } = await run('Hi')
  expect((await request(server, 'GET', `/api/v1/executions/${encode(executionId)}/events`)).status).toBe(200)
})

it.each([
  ['constructor', '/api/v1/agents?constructor=1&__proto__=x&toString=1&hasOwnProperty='],
  ['__proto__[limit]', '/api/v1/agents?__proto__[limit]=0&a[b]=c&&=&%'],
  ['', '/api/v1/agents?=&%'],
])("a query parameter with the name of an object's member is unknown: %s", async (name, path) => {
  expectError(await request(server, 'GET', path), 400, `Unknown parameter: ${name}`)
})

it.each([`/trpc/agents.list?constructor=1&__proto__=x&input=${encodeURIComponent('{"__proto__":{"limit":"x"}}')}`])(
  'unknown query fields of health checks are ignored: %s',
  async (path) => {
    expect((await request(server, 'GET', path)).status).toBe(200)
  },
)

describe('X-Request-Id', () => {
  const paths: [method: string, path: string, status: number][] = [
    ['GET', '/api/v1/agents', 200],
    ['GET', '/api/v1/agents/none', 404],
    ['GET', '/trpc/agents.list', 200],
    ['GET', '/trpc/agents.nope', 404],
    ['POST', '/trpc/agents.create', 415],
    ['GET', `/trpc/${Array(11).fill('agents.list').join()}?batch=1`, 400],
    ['GET', '/healthz', 200],
    ['GET', '/nope', 404],
  ]

  it.each(paths)('is returned unchanged if it is well-formed: %s %s', async (method, path, status) => {
    for (const id of ['abc', 'A.b:c-d_9', 'x'.repeat(128)]) {
      const answer = await request(server, method, path, { headers: { 'X-Request-Id': id } })
      expect([answer.status, answer.headers.get('x-request-id')]).toEqual([status, id])
      const error = answer.body.error?.data ?? (answer.body.error && answer.body)
      if (error) expect(error.requestId).toBe(id)
    }
  })

  it.each(['', 'a b', 'a\xe9', '<script>', 'x'.repeat(129), 'a,b'])('is a new one for %j', async (id) => {
    const answers = await Promise.all(
      [1, 2].map(() => request(server, 'GET', '/api/v1/agents', { headers: { 'X-Request-Id': id } })),
    )
    const [first, second] = answers.map(({ headers }) => headers.get('x-request-id'))
    expect(first).toMatch(/^\w{22}$/)
    expect(second).not.toBe(first)
  })
})

describe('an internal failure', () => {
  const CANARY = 'canary-5b1d7e'
  const failing = async (list: () => unknown, check: () => Promise<void>) => {
    const { models } = server.service.deps
    const { list: original } = models
    models.list = list as typeof original
    await check().finally(() => {
      models.list = original
    })
  }

  it.each([
    [
      'a thrown error',
      CANARY,
      () => {
        throw new Error(CANARY)
      },
    ],
    [
      'stored text that is no JSON, which the log omits',
      '"err":{"type":"SyntaxError","stack":"\\n    at JSON.parse',
      async () => JSON.parse(CANARY),
    ],
    ['an invalid answer', 'Output validation failed', async () => [{ id: 5, provider: CANARY }]],
  ])('gives a 500 without details, and is logged with its request id: %s', async (_, code, list) => {
    await failing(list, async () => {
      for (const api of APIS) {
        const answer = await apis[api](server, 'models.list')
        expectError(answer, 500, 'An unexpected error occurred')
        expect(JSON.stringify(answer.body)).not.toContain(CANARY)
        const logged = server.logs.find((line) => line.includes(answer.body.requestId) && line.includes('"level":50'))
        expect(logged).toContain(code)
      }
    })
  })

  it('is no 500 if the answer exceeds the longest possible text, but a 400', async () => {
    await failing(
      () => 'x'.repeat(2 ** 30),
      async () => {
        for (const api of APIS) {
          const answer = await apis[api](server, 'models.list')
          expectError(answer, 400, 'The answer would be too long: ask for fewer rows, or fewer long texts')
          const logged = server.logs.filter((line) => line.includes(answer.body.requestId))
          expect(logged.join()).not.toContain('"level":50')
        }
      },
    )
  })
})

it.each(['/healthz', '/healthz?x=1'])('GET http://muster.example%s is routed by its path', async (path) => {
  const answer = await raw(`GET http://muster.example${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`)
  expect([answer.status, answer.body]).toEqual([200, { success: true, status: 'ok' }])
})

it('a client that disconnects in the middle of a body causes no server error', async () => {
  server.logs.length = 0
  const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
  await once(socket, 'connect')
  const head = ['POST /api/v1/tasks HTTP/1.1', 'Host: localhost', `Authorization: Bearer ${server.token}`]
  const length = ['Content-Type: application/json', 'Content-Length: 100']
  const begun = [...head, ...length].join('\r\n')
  await new Promise((resolve) => socket.write(`${begun}\r\n\r\n{"title":`, resolve))
  socket.destroy()
  const logged = () => server.logs.map((line) => JSON.parse(line)).filter(({ path }) => path === '/api/v1/tasks')
  await expect.poll(logged).toHaveLength(1)
  expect(server.logs.filter((line) => JSON.parse(line).level >= 50)).toEqual([])
})

describe('the code of an error', () => {
  const reads = ['agents:read']
  it.each<[code: string, procedure: string, input: Record<string, unknown>, scopes?: string[]]>([
    ['missing_field', 'agents.create', {}],
    ['invalid_value', 'agents.create', { ...valid, name: 1 }],
    ['not_found', 'agents.get', { id: 'unknown' }],
    ['insufficient_scope', 'tasks.create', { title: 'x' }, reads],
    ['insufficient_scope', 'secrets.list', {}, reads],
  ])('%s is the same on REST, tRPC and GraphQL for %s %j', async (code, procedure, input, scopes) => {
    const { token } = await server.member(scopes ? { scopes } : {})
    const rest = await apis.REST(server, procedure, input, { token })
    const trpc = await apis.tRPC(server, procedure, input, { token })
    expect([rest.body.code, trpc.body.errorCode]).toEqual([code, code])
    expect(trpc.body.detail).toBe(rest.body.detail)
    if (scopes) expect(rest.body.detail).toMatch(/^The token needs the scope \w+:\w+$/)
    if (procedure !== 'agents.get') return
    const query = '{ agent(id: "unknown") { id } }'
    const graphql = await request(server, 'POST', '/graphql', { token, body: { query } })
    expect(graphql.body.errors[0].extensions.code).toBe(code)
  })

  it('is token_expired for an expired token', async () => {
    const { token } = await server.member({ expiresAt: new Date(Date.now() - 1000) })
    const answer = await request(server, 'GET', '/api/v1/agents', { token })
    expect(answer).toMatchObject({ status: 401, body: { code: 'token_expired' } })
  })
})

describe('a request that is hardly HTTP', () => {
  it.each([
    ['GARBAGE\r\n\r\n', 400, 'Malformed HTTP request'],
    ['GET /api/v1/agents HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n', 400, 'Malformed HTTP request'],
    ['POST /api/v1/agents HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n', 400, 'Malformed HTTP request'],
    ['GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'Malformed HTTP request'],
    ['GET /healthz HTTP/1.1\r\nHost: localhost\r\nExpect: foo\r\nConnection: close\r\n\r\n', 417, 'Expectation Failed'],
    [`GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'x'.repeat(70_000)}\r\n\r\n`, 431, 'Request Header Fields Too Large'],
  ])('such as %.40j gets the usual body: %i', async (bytes, status, message) => {
    const answer = await raw(bytes)
    expect(answer.status).toBe(status)
    expectError(answer, status, message)
  })

  it('keeps its connection for the answer while further pieces of it arrive', () => {
    const [, socket] = duplexPair()
    const piece = Object.assign(new Error('Parse Error'), { code: 'HPE_HEADER_OVERFLOW' })
    refuseMalformed(piece, socket)
    refuseMalformed(piece, socket)
    expect([socket.writableEnded, socket.destroyed]).toEqual([true, false])
    socket.destroy()
  })
})

const run = async (message: string): Promise<{ executionId: string }> =>
  (await request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { body: { message } })).body

/** The answer to bytes on a socket. */
async function raw(bytes: string): Promise<Answer> {
  const socket = connect(Number(new URL(server.url).port), '127.0.0.1')
  await once(socket, 'connect')
  socket.write(bytes, 'latin1')
  const [head = '', body = ''] = (await text(socket)).split('\r\n\r\n')
  const [first = '', ...lines] = head.split('\r\n')
  const headers = new Headers(lines.map((line) => line.split(': ', 2) as [string, string]))
  return { status: Number(first.split(' ')[1]), headers, body: JSON.parse(body) }
}
