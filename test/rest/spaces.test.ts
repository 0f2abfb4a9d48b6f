import { beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/lib/id.ts'
import { graphql } from '../graphql/support.ts'
import { APIS, apis, callerAs, expectError, invalid, ok, onEachApi } from '../support/api.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { comparableAnswer, request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { together } from '../support/together.ts'
import { use } from '../support/use.ts'

let now = Date.parse('2026-01-01T00:00:00Z')
const clock = { now: () => new Date(now) }

const server = await use(startServer({}, { clock }))
const people = await server.people('owner', 'admin', 'ann', 'ben', 'eve')
type Who = keyof typeof people

type Fields = Record<string, unknown>
const FORBIDDEN = "You don't have permission to access this resource"
const VISIBILITY = 'Invalid visibility value. Must be: private, organization, or public'

const on = callerAs(server, people)
const call = (procedure: string, input: Fields = {}, who: Who = 'ann') => on('REST', procedure, input, who)

async function create(fields: Fields = {}, who: Who = 'ann') {
  return (await ok(call('spaces.create', { name: 'Lab', ...fields }, who))).space
}
const get = async (id: string, who: Who = 'ann') => (await call('spaces.get', { id }, who)).body.space
const patch = (id: string, fields: Fields, who: Who = 'ann') => call('spaces.update', { id, ...fields }, who)
const agent = async (fields: Fields = {}, who: Who = 'ann'): Promise<string> =>
  (await call('agents.create', { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }, who)).body.id
const archivedAgent = async (): Promise<string> => {
  const id = await agent()
  await call('agents.delete', { id })
  return id
}
const general = async (who: Who = 'ann') =>
  (await call('spaces.list', {}, who)).body.spaces.find(({ isDefault }: Fields) => isDefault)
const audited = async (target: string) =>
  (await server.service.deps.db.auditEvent.findMany({ where: { target }, orderBy: { at: 'asc' } })).map(
    ({ action, actor }) => `${action} ${actor}`,
  )

const EMPTY = {
  description: null,
  instructions: null,
  permissions: [],
  isDefault: false,
  assignedAgents: [],
  skillIds: [],
  pluginIds: [],
  agentRefs: [],
  skillRefs: [],
  mcpRefs: [],
  secretKeys: [],
  chatCount: 0,
  fileCount: 0,
}

describe('POST /spaces', () => {
  it.each(APIS)('%s: answers its id and name beside the whole space', async (api) => {
    const { body } = await on(api, 'spaces.create', { name: 'Lab' })
    expect(body).toEqual({
      success: true,
      id: expect.stringMatching(/^\w{22}$/),
      name: 'Lab',
      space: {
        ...EMPTY,
        id: body.id,
        organizationId: people.ann.organizationId,
        name: 'Lab',
        visibility: 'organization',
        ownerId: people.ann.userId,
        createdAt: new Date(now).toISOString(),
        updatedAt: new Date(now).toISOString(),
      },
    })
    expect(await get(body.id)).toEqual(body.space)
    expect(await audited(body.id)).toEqual([`space.create ${people.ann.userId}`])
  })

  it('stores its fields, treats null as absent, and ignores read-only fields', async () => {
    const fields = { name: ' Lab ', description: 'Where we try', instructions: 'Be brief.', visibility: 'private' }
    const theirs = { id: 'x', ownerId: 'x', organizationId: 'x', isDefault: true, fileCount: 5, archivedAt: now }
    const space = await create({ ...fields, ...theirs })
    expect(await get(space.id)).toEqual({ ...space, ...EMPTY, ...fields, ownerId: people.ann.userId })
    expect(await create({ description: null, instructions: null, addAgents: null, visibility: null })).toMatchObject({
      ...EMPTY,
      visibility: 'organization',
    })
  })

  it.each(['addAgents', 'addCharacters', 'assignedAgents'])('attaches the agents in %s, each once', async (field) => {
    const [own, bens] = [await agent({ visibility: 'private' }), await agent({ visibility: 'unlisted' }, 'ben')]
    const space = await create({ [field]: [own, bens, own] })
    expect(space.assignedAgents.toSorted()).toEqual([own, bens].sort())
    const added = { enabled: true, addedAt: new Date(now).toISOString(), addedBy: people.ann.userId }
    expect(space.agentRefs).toContainEqual({ agentId: bens, ...added })
    expect(await get(space.id)).toEqual(space)
  })

  it.each(APIS)('%s: attaches skills and MCP servers by the names of its fields', async (api) => {
    const mcp = { name: 'M', url: 'https://mcp.example.com' }
    const pluginIds = [(await call('mcps.create', mcp)).body.id, (await call('mcps.create', mcp)).body.id]
    const skillIds = ['core-code-review', 'core-research-brief']
    const fields = { name: 'x', skillIds, addSkills: skillIds.slice(1), pluginIds, addMcps: pluginIds.slice(1) }
    const { space, warnings } = (await on(api, 'spaces.create', fields)).body
    expect([space.skillIds.toSorted(), space.pluginIds.toSorted()]).toEqual([skillIds, pluginIds.toSorted()])
    expect(warnings).toBeUndefined()
    expect(await get(space.id)).toEqual(space)
  })

  it('happens once per Idempotency-Key', async () => {
    const headers = { 'Idempotency-Key': newId() }
    const post = (body: Fields) => request(server, 'POST', '/api/v1/spaces', { body, headers, token: people.ann.token })
    const addAgents = [await agent()]
    const [first, second] = [await post({ name: 'Once', addAgents }), await post({ name: 'Once', addAgents })]
    expect(second.body).toEqual(first.body)
    expect(second.headers.get('idempotent-replayed')).toBe('true')
    const { spaces } = (await call('spaces.list')).body
    expect(spaces.filter(({ name }: Fields) => name === 'Once')).toEqual([first.body.space])
    expectError(await post({ name: 'Twice' }), 422, 'Idempotency-Key was used with another request')
  })
})

describe('GET /spaces', () => {
  it.each(APIS)('%s: lists the visible ones, newest first, page by page, with the total', async (api) => {
    const member = await server.member({ organization: `Pages of ${api}` })
    const list = async (input: Fields = {}) =>
      (await apis[api](server, 'spaces.list', input, { token: member.token })).body
    for (const name of ['a', 'b', 'c', 'd']) {
      now += 1
      await apis[api](server, 'spaces.create', { name }, { token: member.token })
    }
    const names = (page: { spaces: Fields[] }) => page.spaces.map(({ name }) => name).join('')
    const all = await list()
    expect(all).toMatchObject({ success: true, total: 5, nextCursor: null })
    expect(names(all)).toBe('dcbaGeneral')
    const first = await list({ limit: '2' })
    expect(first).toMatchObject({ total: 5, nextCursor: expect.any(String) })
    const second = await list({ limit: '3', cursor: first.nextCursor })
    expect(second).toMatchObject({ total: 5, nextCursor: null })
    expect(names(first) + names(second)).toBe('dcbaGeneral')
  })

  it.each(APIS)('%s: searches names and descriptions in any case, with the total', async (api) => {
    const { token } = await server.member({ organization: `Searched spaces ${api}` })
    const as = (procedure: string, input: Fields) => ok(apis[api](server, procedure, input, { token }))
    const { id } = await as('spaces.create', { name: 'ÄRGER', description: 'of Odysseus' })
    const found = async (search: string) => {
      const { spaces, total } = await as('spaces.list', { search })
      expect(total).toBe(spaces.length)
      return spaces.map(({ name }: Fields) => name)
    }
    expect(await found('GENERAL')).toEqual(['General'])
    for (const search of ['ärger', 'ODYSSEUS']) expect(await found(search)).toEqual(['ÄRGER'])
    await as('spaces.update', { id, description: 'of Athena' })
    expect(await found('odysseus')).toEqual([])
    await as('spaces.update', { id, name: 'Peace' })
    for (const search of ['PEACE', 'athena']) expect(await found(search)).toEqual(['Peace'])
    const query = '{ spaces(search: "PEACE", first: 1) { nodes { id } totalCount } }'
    expect((await graphql(server, query, {}, { token })).data.spaces).toEqual({ nodes: [{ id }], totalCount: 1 })
  })

  it('finds a space by both texts that two concurrent requests change', async () => {
    const { id } = await create({ name: 'Old', description: 'old' })
    const changes = [{ name: 'Harbour' }, { description: 'lighthouse' }]
    for (const answer of await together(
      server,
      'Space',
      changes.map((fields) => () => patch(id, fields)),
    )) {
      expect(answer.status).toBe(200)
    }
    for (const search of ['harbour', 'lighthouse']) {
      expect((await call('spaces.list', { search })).body.spaces.map((space: Fields) => space.id)).toEqual([id])
    }
  })

  it('counts the visible chats, and the files, and names the secrets', async () => {
    const { id, organizationId } = await create()
    const { db } = server.service.deps
    for (const name of ['B_KEY', 'A_KEY']) {
      const secret = { organizationId, scope: id, name, ciphertext: Buffer.from('canary'), updatedBy: 'x' }
      await db.secret.create({ data: { ...secret, createdAt: clock.now(), updatedAt: clock.now() } })
    }
    await call('chats.create', { spaceId: id })
    await call('chats.create', { spaceId: id, agentId: await agent({ visibility: 'private' }) })
    const { body } = await call('chats.create', { spaceId: id })
    await call('chats.delete', { id: body.id })
    await call('files.write', { id, path: 'a.md', content: 'a' })

    const seen = { secretKeys: ['A_KEY', 'B_KEY'], fileCount: 1 }
    for (const [who, chatCount] of [
      ['ann', 2],
      ['ben', 1],
      ['admin', 1],
    ] as const) {
      expect(await get(id, who)).toMatchObject({ ...seen, chatCount })
      const { spaces } = (await call('spaces.list', {}, who)).body
      expect(spaces.find((space: Fields) => space.id === id)).toEqual(await get(id, who))
      expect(JSON.stringify(spaces)).not.toContain('canary')
    }
  })

  it('names no agent that the caller cannot see, and no archived one', async () => {
    const [shared, secret, gone] = [await agent(), await agent({ visibility: 'private' }), await agent()]
    const { id } = await create({ addAgents: [shared, secret, gone] })
    await call('agents.delete', { id: gone })
    expect((await get(id)).assignedAgents.toSorted()).toEqual([shared, secret].sort())
    for (const who of ['ben', 'admin'] as const) {
      expect(await get(id, who)).toMatchObject({ assignedAgents: [shared], agentRefs: [{ agentId: shared }] })
    }
  })
})

describe('PATCH /spaces/{id}', () => {
  it.each(APIS)('%s: changes the given fields and leaves the rest', async (api) => {
    const update = { description: 'd', instructions: 'i', visibility: 'public' }
    const before = await create(update)
    now += 1000
    let expected = { ...before, updatedAt: new Date(now).toISOString() }
    const changes = { description: 'e', instructions: 'j', visibility: 'private', name: 'n' }
    for (const [field, value] of Object.entries(changes)) {
      const { body } = await on(api, 'spaces.update', { id: before.id, [field]: `${value}`, unknown: 1 })
      expected = { ...expected, [field]: value }
      const warnings = ['Unknown field: unknown']
      expect(body).toEqual({ success: true, space: expected, ...(api === 'REST' && { warnings }) })
    }
    await on(api, 'spaces.update', { id: before.id, description: null, instructions: null })
    expect(await get(before.id)).toEqual({ ...expected, description: null, instructions: null })
    expect((await audited(before.id))[1]).toBe(`space.update ${people.ann.userId}`)
  })

  it('PATCH /spaces/{id} without a field or with the present values changes nothing', async () => {
    const space = await create({ description: 'd' })
    now += 1000
    for (const fields of [{}, { addAgents: [] }, { removeAgents: null }, { description: 'd' }]) {
      expect((await patch(space.id, fields)).body.space).toEqual(space)
    }
    expect(await audited(space.id)).toHaveLength(1)
  })

  it.each([
    ['addAgents', 'removeAgents'],
    ['addCharacters', 'removeCharacters'],
  ])('attaches with %s and detaches with %s, also when repeated', async (add, remove) => {
    const [a, b, c] = [await agent(), await agent(), await agent()]
    const { id } = await create({ addAgents: [a] })
    now += 1000
    expect((await patch(id, { [add]: [a, b] })).body.space.assignedAgents).toEqual([a, b])
    expect((await patch(id, { [add]: [b, c], [remove]: [a, b] })).body.space.assignedAgents.toSorted()).toEqual(
      [b, c].sort(),
    )
    expect((await patch(id, { [remove]: [b, b, 'unknown'] })).body.space.assignedAgents).toEqual([c])
  })

  it('succeeds for two concurrent requests that attach the same agents', async () => {
    const ids = await Promise.all(Array.from({ length: 5 }, () => agent()))
    const { id } = await create()
    const answers = await Promise.all([1, 2, 3, 4].map(() => patch(id, { addAgents: ids })))
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect((await get(id)).assignedAgents.toSorted()).toEqual(ids.sort())
  })
})

describe('the default space', () => {
  it('exists from the start for every member, and may be renamed', async () => {
    const space = await general()
    expect(space).toMatchObject({ name: 'General', visibility: 'organization', ownerId: people.owner.userId })
    expect((await patch(space.id, { name: 'Home' }, 'owner')).body.space).toMatchObject({ id: space.id, name: 'Home' })
    expect((await patch(space.id, { name: 'General' }, 'admin')).body.space).toMatchObject({ name: 'General' })
  })

  it.each(APIS)('%s: can never be deleted or made private', async (api) => {
    const { id } = await general()
    for (const who of ['owner', 'admin'] as const) {
      expectError(await on(api, 'spaces.delete', { id }, who), 400, 'The default space cannot be deleted')
      const answer = await on(api, 'spaces.update', { id, visibility: 'private' }, who)
      expectError(answer, 400, 'The default space cannot be private')
    }
    expectError(await on(api, 'spaces.delete', { id }, 'ann'), 403, FORBIDDEN)
    expect(await general()).toMatchObject({ id, visibility: 'organization' })
  })
})

describe('DELETE /spaces/{id}', () => {
  it.each(APIS)('%s: archives it with its chats; no run starts in it, and old runs stay', async (api) => {
    const { id } = await create()
    const agentId = await agent()
    await call('files.write', { id, path: 'a.md', content: 'a' })
    const run = { id: agentId, message: 'Hi', spaceId: id }
    const { executionId, chatId, sessionId } = (await call('agents.execute', run)).body
    const { body } = await on(api, 'spaces.delete', { id })
    expect(body).toEqual({ success: true, message: 'Space deleted successfully' })

    for (const procedure of ['spaces.get', 'spaces.update', 'spaces.delete', 'files.list']) {
      expectError(await on(api, procedure, { id }), 404, 'Space not found')
    }
    for (const procedure of ['files.get', 'files.write', 'files.delete']) {
      expectError(await on(api, procedure, { id, path: 'a.md', content: 'b' }), 404, 'Space not found')
    }
    for (const procedure of ['chats.get', 'chats.messages', 'chats.update', 'chats.delete']) {
      expectError(await on(api, procedure, { id: chatId }), 404, 'Chat not found')
    }
    expectError(await on(api, 'agents.execute', run), 404, 'Space not found')
    expectError(await on(api, 'chats.create', { spaceId: id }), 404, 'Space not found')
    expectError(await on(api, 'agents.execute', { id: agentId, message: 'Hi', chatId }), 404, 'Chat not found')
    expectError(await on(api, 'agents.execute', { id: agentId, message: 'Hi', sessionId }), 404, 'Session not found')
    expect((await on(api, 'chats.list', { spaceId: id })).body.chats).toEqual([])
    const { spaces } = (await on(api, 'spaces.list')).body
    expect(spaces.map((space: Fields) => space.id)).not.toContain(id)
    expect((await on(api, 'executions.get', { id: executionId })).body.execution).toMatchObject({
      spaceId: id,
      chatId,
    })
    expect(await audited(id)).toContain(`space.archive ${people.ann.userId}`)
  })
})

describe('a missing or invalid value gives a 400 that names it', () => {
  const wrong: [procedure: string, input: Fields, message: string][] = [
    ...[undefined, null, '', ' \t'].map((name): [string, Fields, string] => [
      'spaces.create',
      { name },
      'Missing required field: name',
    ]),
    ['spaces.update', { name: null }, 'Missing required field: name'],
    ['spaces.update', { name: ' ' }, 'Missing required field: name'],
    ...['spaces.create', 'spaces.update'].flatMap((procedure): [string, Fields, string][] => [
      [procedure, { name: 5 }, invalid('name', 'string')],
      [procedure, { name: 'x'.repeat(201) }, invalid('name', 'at most 200 characters')],
      [procedure, { name: 'x', description: 5 }, invalid('description', 'string')],
      [procedure, { name: 'x', description: 'x'.repeat(2001) }, invalid('description', 'at most 2000 characters')],
      [procedure, { name: 'x', instructions: [] }, invalid('instructions', 'string')],
      [
        procedure,
        { name: 'x', instructions: 'x'.repeat(100_001) },
        invalid('instructions', 'at most 100000 characters'),
      ],
      ...['unlisted', '', 'Private', 5, []].map((visibility): [string, Fields, string] => [
        procedure,
        { name: 'x', visibility },
        VISIBILITY,
      ]),
      [procedure, { name: 'x', addAgents: 'a' }, invalid('addAgents', 'array')],
      [procedure, { name: 'x', addAgents: [1] }, invalid('addAgents.0', 'string')],
      [procedure, { name: 'x', addAgents: ['unknown'] }, 'Invalid addAgents'],
      [procedure, { name: 'x', addCharacters: ['unknown'] }, 'Invalid addCharacters'],
      [procedure, { name: 'x', addSkills: ['any'] }, 'Invalid addSkills'],
      [procedure, { name: 'x', addMcps: ['any'] }, 'Invalid addMcps'],
    ]),
    ['spaces.update', { visibility: null }, VISIBILITY],
    ['spaces.create', { name: 'x', assignedAgents: ['unknown'] }, 'Invalid assignedAgents'],
    ['spaces.create', { name: 'x', skillIds: ['unknown'] }, 'Invalid skillIds'],
    ['spaces.create', { name: 'x', pluginIds: ['unknown'] }, 'Invalid pluginIds'],
    ['spaces.update', { removeAgents: 'a' }, invalid('removeAgents', 'array')],
    ['spaces.list', { limit: '0' }, invalid('limit', 'at least 1')],
    ['spaces.list', { limit: '1001' }, invalid('limit', 'at most 1000')],
    ['spaces.list', { cursor: 'x' }, invalid('cursor', 'a nextCursor of this list')],
  ]

  let id: string
  beforeAll(async () => {
    id = (await create()).id
  })

  const rows = wrong.map(([procedure, input, message]) => [procedure, message, input] as const)
  it.each(onEachApi(rows))('%s %s: %s', async (api, procedure, message, input) => {
    expectError(await on(api, procedure, procedure === 'spaces.update' ? { id, ...input } : input), 400, message)
  })

  it.each([
    ['private to another user', () => agent({ visibility: 'private' }, 'ben')],
    ["another organization's, though public", () => agent({ visibility: 'public' }, 'eve')],
    ['archived', archivedAgent],
  ])('including an agent that is %s', async (_, make) => {
    const [wrongId, good] = [await make(), await agent()]
    for (const api of APIS) {
      expectError(await on(api, 'spaces.create', { name: 'x', addAgents: [wrongId] }), 400, 'Invalid addAgents')
      const answer = await on(api, 'spaces.update', { id, addAgents: [good, wrongId], name: 'changed' })
      expectError(answer, 400, 'Invalid addAgents')
    }
    expect(await get(id)).toMatchObject({ name: 'Lab', assignedAgents: [] })
  })
})

describe('the visibility of a space decides who may do what with it', () => {
  const SEEN = '✓'
  const ABSENT = '–'
  const COLUMNS = ['list', 'get', 'files', 'write a file', 'chat', 'run', 'update', 'delete'] as const
  const everything = [SEEN, 200, 200, 200, 200, 200, 200, 200] as const
  const use = [SEEN, 200, 200, 403, 200, 200, 403, 403] as const
  const nothing = [ABSENT, 404, 404, 404, 404, 404, 404, 404] as const
  const TABLE: [visibility: string, who: Who, row: readonly (string | number)[]][] = [
    ['private', 'ann', everything],
    ['private', 'ben', nothing],
    ['private', 'admin', everything],
    ['private', 'owner', everything],
    ['private', 'eve', nothing],
    ...['organization', 'public'].flatMap((visibility): [string, Who, readonly (string | number)[]][] => [
      [visibility, 'ann', everything],
      [visibility, 'ben', use],
      [visibility, 'admin', everything],
      [visibility, 'owner', everything],
      [visibility, 'eve', nothing],
    ]),
  ]

  it.each(onEachApi(TABLE))('on %s: %s, %s', async (api, visibility, who, expected) => {
    const { id } = await create({ visibility })
    const agentId = await agent({ visibility: 'public' })
    const attempt = async (procedure: string, input: Fields = {}) => {
      const answer = await on(api, procedure, { id, ...input }, who)
      if (answer.status === 404) expectError(answer, 404, 'Space not found')
      if (answer.status === 403) expectError(answer, 403, FORBIDDEN)
      return answer.status
    }
    const { spaces } = (await on(api, 'spaces.list', {}, who)).body
    const row = [
      spaces.some((space: Fields) => space.id === id) ? SEEN : ABSENT,
      await attempt('spaces.get'),
      await attempt('files.list'),
      await attempt('files.write', { path: 'a.md', content: 'a' }),
      await attempt('chats.create', { spaceId: id }),
      await attempt('agents.execute', { id: agentId, message: 'Hi', spaceId: id }),
      await attempt('spaces.update', { name: 'Changed' }),
      await attempt('spaces.delete'),
    ]
    const named = (values: readonly unknown[]) => Object.fromEntries(COLUMNS.map((name, i) => [name, values[i]]))
    expect(named(row)).toEqual(named(expected))
  })

  it('follows its visibility, also for things in it', async () => {
    const { id } = await create()
    const { chatId } = (await call('agents.execute', { id: await agent(), message: 'Hi', spaceId: id }, 'ben')).body
    for (const [visibility, status] of [
      ['private', 404],
      ['public', 200],
      ['private', 404],
    ] as const) {
      await patch(id, { visibility })
      for (const [procedure, input] of [
        ['spaces.get', { id }],
        ['files.list', { id }],
        ['chats.get', { id: chatId }],
        ['chats.messages', { id: chatId }],
      ] as const) {
        expect((await call(procedure, input, 'ben')).status, procedure).toBe(status)
      }
    }
  })
})

describe('a foreign id looks like one that never existed', () => {
  const ATTEMPTS: [what: string, method: string, path: (id: string) => string, body?: Fields][] = [
    ['get', 'GET', (id) => `/api/v1/spaces/${id}`],
    ['update', 'PATCH', (id) => `/api/v1/spaces/${id}`, { name: 'x' }],
    ['delete', 'DELETE', (id) => `/api/v1/spaces/${id}`],
    ['files', 'GET', (id) => `/api/v1/spaces/${id}/files`],
    ['file', 'GET', (id) => `/api/v1/spaces/${id}/files/content?path=a.md`],
    ['write', 'PUT', (id) => `/api/v1/spaces/${id}/files/content?path=a.md`, { content: 'x' }],
    ['delete a file', 'DELETE', (id) => `/api/v1/spaces/${id}/files/content?path=a.md`],
    ['chat', 'POST', () => '/api/v1/chats', { spaceId: '{id}' }],
    ['chats', 'GET', (id) => `/api/v1/chats?spaceId=${id}&count=true`],
    ['run', 'POST', () => '/api/v1/agents/{agent}/execute', { message: 'x', spaceId: '{id}' }],
    ['get', 'GET', (id) => `/trpc/spaces.get?input=${encodeURIComponent(JSON.stringify({ id }))}`],
    ['update', 'POST', () => '/trpc/spaces.update', { id: '{id}', name: 'x' }],
    ['write', 'POST', () => '/trpc/files.write', { id: '{id}', path: 'a.md', content: 'x' }],
  ]

  it.each(ATTEMPTS)('in a request to %s in a space (%s)', async (_, method, path, body) => {
    const [own, secret, archived] = [await create(), await create({ visibility: 'private' }), await create()]
    for (const { id } of [own, secret, archived]) await call('files.write', { id, path: 'a.md', content: 'x' })
    await call('spaces.delete', { id: archived.id })
    for (const [who, ids] of [
      ['eve', [own.id, secret.id, archived.id]],
      ['ben', [secret.id, archived.id]],
    ] as const) {
      const runnable = await agent({}, who)
      const { token } = people[who]
      const answers: Awaited<ReturnType<typeof comparableAnswer>>[] = []
      for (const id of [newId(), ...ids]) {
        const json = body && JSON.stringify(body).replace('{id}', id)
        const to = path(id).replace('{agent}', runnable)
        answers.push(await comparableAnswer(server, method, to, { body: json, token }))
      }
      expect([200, 404]).toContain(answers[0]?.status)
      for (const answer of answers) expect(answer).toEqual(answers[0])
    }
  })

  it.each(['addAgents', 'removeAgents'])(
    'a foreign id looks like one that never existed of an agent in %s',
    async (field) => {
      const ids = [newId(), await agent({ visibility: 'public' }, 'eve'), await agent({ visibility: 'private' }, 'ben')]
      const answers: unknown[] = []
      for (const id of ids) {
        const { status, body } = await patch((await create()).id, { [field]: [id] })
        const { requestId, space, ...rest } = JSON.parse(JSON.stringify(body).replaceAll(id, 'the id'))
        answers.push({ status, ...rest, agents: space?.agentRefs })
      }
      for (const answer of answers) expect(answer).toEqual(answers[0])
    },
  )
})

it.skipIf(onPostgres)('a list of 10 spaces takes as many statements as one of 100', async () => {
  const agentId = await agent()
  const skill = { name: 'of-spaces', description: 'd', prompt: 'p' }
  const addSkills = ['core-code-review', (await call('skills.create', skill)).body.id]
  const addMcps = [(await call('mcps.create', { name: 'M', url: 'https://mcp.example.com' })).body.id]
  const { db } = server.service.deps
  const counts: number[] = []
  let made = 0
  now += 1000
  for (const size of [10, 100]) {
    for (; made < size; made++) {
      const { id, organizationId } = await create({ addAgents: [agentId], addSkills, addMcps })
      await call('chats.create', { spaceId: id })
      const secret = { organizationId, scope: id, name: 'A', ciphertext: Buffer.from('x'), updatedBy: 'x' }
      await db.secret.create({ data: { ...secret, createdAt: clock.now(), updatedAt: clock.now() } })
    }
    for (const api of APIS) {
      const sent = await server.statementsOf(async () =>
        expect((await on(api, 'spaces.list', { limit: String(size) })).body.spaces).toHaveLength(size),
      )
      counts.push(sent.length)
    }
  }
  expect(new Set(counts).size, String(counts)).toBe(1)
  expect(counts[0]).toBeLessThanOrEqual(10)
})

it("a page of 1,000 spaces stays within the database's limits", async () => {
  const { token, organizationId, userId: ownerId } = await server.member({ organization: 'Large' })
  const { db } = server.service.deps
  const space = { organizationId, ownerId, name: 'x', visibility: 'organization' as const }
  const data = Array.from({ length: 1000 }, () => ({
    ...space,
    id: newId(),
    createdAt: clock.now(),
    updatedAt: clock.now(),
  }))
  await db.space.createMany({ data })
  for (const api of APIS) {
    const { body } = await apis[api](server, 'spaces.list', {}, { token })
    expect([body.spaces?.length, body.total]).toEqual([1000, 1001])
  }
})
