import { beforeAll, describe, expect, test } from 'vitest'
import { rangeOf } from '../../src/http/media.ts'
import { everything, type Ids, inputWith } from '../security/fixtures.ts'
import { apis, expectError, procedures } from '../support/api.ts'
import { type Answer, request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/** Conditional requests, Idempotency-Key on PATCH and DELETE, compression and ranges. */

const server = await use(startServer())
const member = await server.member({ role: 'owner' })

const call = (method: string, path: string, headers: Record<string, string> = {}, body?: unknown) =>
  request(server, method, path, { token: member.token, headers, ...(body !== undefined && { body }) })

const routeOf = (name: string) => procedures[name]!._def.meta.openapi ?? { method: '', path: '' }
const CHANGES = Object.keys(procedures).filter((name) => /PATCH|DELETE/.test(routeOf(name).method))
const isReplay = ({ headers }: Answer) => headers.get('idempotent-replayed') === 'true'
const plain = ({ requestId: _, ...body }: Answer['body']) => body

describe('Idempotency-Key on PATCH and DELETE', () => {
  let own: Required<Ids>
  let done = 0
  beforeAll(async () => {
    own = await everything(server, member, 'keys')
  })

  // Deletes the targets of references last.
  const order = [...CHANGES].sort((a, b) => Number(/space|agent/.test(a)) - Number(/space|agent/.test(b)))
  test.each(order)('%s happens once, and its repetition gets the first answer', async (name) => {
    const headers = { 'Idempotency-Key': `key-${name}` }
    const input = inputWith(name, null, undefined, own)
    const first = await apis.REST(server, name, input, { token: member.token, headers })
    const second = await apis.REST(server, name, input, { token: member.token, headers })
    expect(plain(second.body)).toEqual(plain(first.body))
    expect([isReplay(first), isReplay(second)]).toEqual([false, first.status === 200])
    if (first.status === 200) done++
  })

  test('covers most routes', () => {
    expect(done).toBeGreaterThan(CHANGES.length / 2)
  })

  test('refuses another body, and checks the scope again', async () => {
    const { body } = await call('POST', '/api/v1/tasks', {}, { title: 'A' })
    const path = `/api/v1/tasks/${body.id}`
    const key = { 'Idempotency-Key': 'other' }
    expect((await call('PATCH', path, key, { title: 'B' })).status).toBe(200)
    const refused = await call('PATCH', path, key, { title: 'C' })
    expectError(refused, 422, 'Idempotency-Key was used with another request')
    const { token } = await server.member({ ...member, scopes: ['tasks:read'] })
    const lacking = await request(server, 'PATCH', path, { token, headers: key, body: { title: 'B' } })
    expect(lacking.status).toBe(403)
    expect((await call('DELETE', path, key)).status).toBe(200)
    expect(isReplay(await call('DELETE', path, key))).toBe(true)
  })

  test('a change in one transaction with its precondition puts no agent into the shared cache', async () => {
    const { id } = (await call('POST', '/api/v1/agents', {}, { name: 'Ada', systemPrompt: 'You are Ada.' })).body
    const path = `/api/v1/agents/${id}`
    const etag = (await call('GET', path)).headers.get('etag') ?? ''
    const { agentCache } = server.service.deps
    agentCache.clear()
    expect((await call('PATCH', path, { 'If-Match': etag }, { name: 'Grace' })).status).toBe(200)
    expect(agentCache.has(id)).toBe(false)
  })

  test('starts one run for a mission that is set running', async () => {
    const { body: agent } = await call('POST', '/api/v1/agents', {}, { name: 'Ada', systemPrompt: 'You are Ada.' })
    const mission = { title: 'M', goal: 'Go', agentId: agent.id }
    const { body } = await call('POST', '/api/v1/missions', {}, mission)
    const path = `/api/v1/missions/${body.id}`
    const key = { 'Idempotency-Key': 'run' }
    const answers = [
      await call('PATCH', path, key, { status: 'running' }),
      await call('PATCH', path, key, { status: 'running' }),
    ]
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    expect(answers.map(isReplay)).toEqual([false, true])
    expect((await call('GET', `${path}/runs`)).body.runs).toHaveLength(1)
    const stale = await call('PATCH', path, { 'If-Match': '"old"' }, { status: 'running' })
    expect([412, 409]).toContain(stale.status)
  })
})

describe('ETag', () => {
  let own: Required<Ids>
  beforeAll(async () => {
    own = await everything(server, member, 'etag')
  })
  const singles = () =>
    [
      ...(['agent', 'chat', 'execution', 'media', 'mcp', 'mission', 'skill', 'space', 'task'] as const).map(
        (kind) => `/api/v1/${kind}${kind === 'media' ? '' : 's'}/${own[kind]}`,
      ),
      '/api/v1/profile',
      `/api/v1/organizations/${own.organization}/policy`,
      '/api/openapi.json',
    ] as const

  test('is on every single resource, and its If-None-Match gives a 304', async () => {
    for (const path of singles()) {
      const { headers, status } = await call('GET', path)
      const etag = headers.get('etag') ?? ''
      expect([path, status, etag]).toEqual([path, 200, expect.stringMatching(/^"[\w-]+"$/)])
      for (const known of [etag, `W/${etag}`, etag.replace(/"$/, '-gzip"'), `"x", ${etag}`, '*']) {
        const again = await call('GET', path, { 'If-None-Match': known })
        expect([path, again.status, again.body, again.headers.get('etag')]).toEqual([path, 304, null, etag])
      }
      expect((await call('GET', path, { 'If-None-Match': '"other"' })).status).toBe(200)
      expect((await call('HEAD', path)).headers.get('etag')).toBe(etag)
    }
    expect((await call('GET', '/api/v1/agents')).headers.get('etag')).toBeNull()
  })

  const bodies: Record<string, object> = {
    agent: { role: 'New' },
    chat: { title: 'New' },
    mcp: { description: 'New' },
    mission: { goal: 'New' },
    skill: { description: 'New' },
    space: { description: 'New' },
    task: { description: 'New' },
  }
  test.each(Object.keys(bodies))('lets one of ten concurrent changes to one %s succeed', async (kind) => {
    const path = `/api/v1/${kind}s/${own[kind as 'agent']}`
    const etag = (await call('GET', path)).headers.get('etag') ?? ''
    const change = (index: number) =>
      call(
        'PATCH',
        path,
        { 'If-Match': `W/${etag}` },
        Object.fromEntries(Object.keys(bodies[kind]!).map((key) => [key, `New ${index}`])),
      )
    const answers = await Promise.all(Array.from({ length: 10 }, (_, index) => change(index)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(9).fill(412)])
    expectError(answers.find(({ status }) => status === 412)!, 412, 'The resource has changed')
    expectError(await call('DELETE', path, { 'If-Match': etag }), 412, 'The resource has changed')
    expect((await call('PATCH', path, { 'If-Match': '*' }, bodies[kind])).status).toBe(200)
    expect((await call('PATCH', `/api/v1/${kind}s/none`, { 'If-Match': etag }, bodies[kind])).status).toBe(404)
  })

  test('ETag of an agent is its version, which a body may name on every API', async () => {
    const path = `/api/v1/agents/${own.agent}`
    const { version } = (await call('GET', path)).body.agent
    expect((await call('GET', path)).headers.get('etag')).toBe(`"v${version}"`)
    const input = { id: own.agent, role: 'Other', version: version + 1 }
    for (const api of [apis.REST, apis.tRPC]) {
      expectError(await api(server, 'agents.update', input, { token: member.token }), 412, 'The resource has changed')
    }
    const query = `mutation { updateAgent(input: {id: "${own.agent}", role: "Other", version: ${version + 1}}) { message } }`
    const { body } = await call('POST', '/graphql', {}, { query })
    expect(body.errors[0]).toMatchObject({ message: 'The resource has changed', extensions: { statusCode: 412 } })
    expect((await call('PATCH', path, {}, { role: 'Other', version })).status).toBe(200)
  })

  test('is absent from some resources, whose If-Match gives a 412 with the reason', async () => {
    const answer = await call('DELETE', `/api/v1/keys/${own.key}`, { 'If-Match': '"x"' })
    expectError(answer, 412, 'The resource has changed')
    expect(answer.body.detail).toContain('has no ETag')
  })
})

describe('answers of more than 1 KB', () => {
  const get = async (path: string, encoding: string) =>
    fetch(server.url + path, { headers: { Authorization: `Bearer ${member.token}`, 'Accept-Encoding': encoding } })

  test.each([
    ['br', 'br'],
    ['gzip', 'gzip'],
    ['gzip, deflate, br', 'br'],
    ['gzip;q=1, br;q=0.5', 'gzip'],
    ['br;q=0, gzip', 'gzip'],
    ['*', 'br'],
    ['identity', null],
    ['identity;q=1, br;q=0.5', null],
    ['deflate', null],
    ['', null],
  ])('answers of more than 1 KB for "%s" are sent as %s', async (accepted, expected) => {
    const answer = await get('/api/v1/skills', accepted)
    expect(answer.headers.get('content-encoding')).toBe(expected)
    expect((await answer.json()).success).toBe(true)
    if (expected) expect(answer.headers.get('vary')).toContain('Accept-Encoding')
  })

  test.each(['br', 'gzip'])('are sent whole as %s if they are long', async (encoding) => {
    const { bytes: plain } = await bytesOf('identity')
    expect(plain.length).toBeGreaterThan(200_000)
    const { bytes, used } = await bytesOf(encoding)
    expect([used, bytes.equals(plain)]).toEqual([encoding, true])
  })

  async function bytesOf(encoding: string) {
    const answer = await get('/api/openapi.json', encoding)
    return { bytes: Buffer.from(await answer.arrayBuffer()), used: answer.headers.get('content-encoding') }
  }

  test('are compressed over GraphQL and tRPC, too', async () => {
    const query = encodeURIComponent('{ skills { nodes { id description prompt } } }')
    for (const path of [`/graphql?query=${query}`, '/trpc/skills.list']) {
      const answer = await get(path, 'gzip')
      expect([path, answer.headers.get('content-encoding')]).toEqual([path, 'gzip'])
      expect(JSON.stringify(await answer.json())).toContain('description')
    }
  })

  test('stay uncompressed if they stream, are short, or show a secret', async () => {
    expect((await get('/healthz', 'br')).headers.get('content-encoding')).toBeNull()
    const key = { name: '\u{1f511}'.repeat(100), scopes: Array(40).fill('agents:read') }
    const query = 'mutation ($input: CreateKeyInput!) { createKey(input: $input) { token key { name scopes } } }'
    for (const [path, body] of [
      ['/api/v1/keys', key],
      ['/trpc/keys.create', key],
      ['/graphql', { query, variables: { input: key } }],
    ] as const) {
      const answer = await fetch(server.url + path, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${member.token}`,
          'Content-Type': 'application/json',
          'Accept-Encoding': 'br',
        },
        body: JSON.stringify(body),
      })
      const length = (await answer.bytes()).length
      expect([path, answer.status, answer.headers.get('content-encoding'), length]).toEqual([
        ...[path, 200, null],
        expect.toSatisfy((bytes) => bytes > 1024),
      ])
    }
  })
})

describe('a range of a file', () => {
  const text = 'abcdefghij'
  let path: string
  beforeAll(async () => {
    const form = new FormData()
    form.append('file', new Blob([text]), 'a.txt')
    const headers = { Authorization: `Bearer ${member.token}` }
    const answer = await fetch(`${server.url}/api/v1/media`, { method: 'POST', headers, body: form })
    path = `/api/v1/media/${(await answer.json()).id}/content`
  })

  test.each([
    ['bytes=0-3', 206, 'abcd', 'bytes 0-3/10'],
    ['bytes=8-', 206, 'ij', 'bytes 8-9/10'],
    ['bytes=-2', 206, 'ij', 'bytes 8-9/10'],
    ['bytes=-20', 206, text, 'bytes 0-9/10'],
    ['bytes=9-100', 206, 'j', 'bytes 9-9/10'],
    ['bytes=0-1,4-5', 200, text, null],
    ['lines=0-1', 200, text, null],
    ['bytes=5-2', 200, text, null],
    ['bytes=10-', 416, null, 'bytes */10'],
    ['bytes=-0', 416, null, 'bytes */10'],
  ])('%s gives a %i', async (range, status, content, contentRange) => {
    const answer = await call('GET', path, { Range: range })
    expect([answer.status, answer.headers.get('content-range')]).toEqual([status, contentRange])
    if (content !== null) expect(answer.body).toBe(content)
    else expectError(answer, 416, 'Range not satisfiable')
  })

  test('is sent only from the version that If-Range names', async () => {
    const { headers } = await call('HEAD', path)
    const etag = headers.get('etag') ?? ''
    expect(headers.get('accept-ranges')).toBe('bytes')
    expect((await call('GET', path, { Range: 'bytes=0-0', 'If-Range': etag })).status).toBe(206)
    expect((await call('GET', path, { Range: 'bytes=0-0', 'If-Range': '"other"' })).status).toBe(200)
    expect((await call('GET', path, { 'If-None-Match': etag })).status).toBe(304)
  })

  test('is impossible for an empty file', () => {
    expect(rangeOf({ headers: { range: 'bytes=0-' } }, 0, '"x"')).toBe('none')
  })
})
