import { beforeAll, describe, expect, it } from 'vitest'
import { BUILT_IN_TOOLS } from '../../src/lib/built-in-tools.ts'
import { CORE_SKILLS } from '../../src/skills/core.ts'
import { graphql } from '../graphql/support.ts'
import { APIS, apis, callerAs, expectError, invalid, ok, onEachApi } from '../support/api.ts'
import { planOf } from '../support/plan.ts'
import { comparableAnswer, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

let now = Date.parse('2026-01-01T00:00:00Z')
const clock = { now: () => new Date(now) }

const server = await use(startServer({}, { clock }))
const people = await server.people('owner', 'admin', 'ann', 'ben', 'eve')
type Who = keyof typeof people

type Fields = Record<string, unknown>
const FORBIDDEN = "You don't have permission to access this resource"
const CORE = CORE_SKILLS.length

const on = callerAs(server, people)
const call = (procedure: string, input: Fields = {}, who: Who = 'ann') => on('REST', procedure, input, who)

let made = 0
/** A skill as lists show it. */
const withoutPrompt = ({ prompt, ...skill }: Fields): Fields => skill

const newName = () => `skill-${++made}`

async function create(fields: Fields = {}, who: Who = 'ann') {
  const input = { name: newName(), description: 'What for.', prompt: '# How', ...fields }
  return (await ok(call('skills.create', input, who))).skill
}
const get = async (id: string, who: Who = 'ann') => (await call('skills.get', { id }, who)).body.skill
const audited = async (target: string) =>
  (await server.service.deps.db.auditEvent.findMany({ where: { target }, orderBy: { at: 'asc' } })).map(
    ({ action, actor }) => `${action} ${actor}`,
  )

const ALL_FIELDS = {
  displayName: 'Release notes!',
  description: 'Writes them.',
  prompt: '# Notes\n\nBe brief.',
  category: 'file-handling',
  builtInTools: ['write_file', 'list_tasks'],
  requiredMCPs: ['github'],
  visibility: 'private',
}

describe('POST /skills', () => {
  it.each(APIS)('%s: answers its id and name beside the whole skill', async (api) => {
    const name = `${newName()}-of-ann`
    const { body } = await on(api, 'skills.create', { name, description: 'd', prompt: 'p' })
    expect(body).toEqual({
      success: true,
      id: expect.stringMatching(/^\w{22}$/),
      name,
      skill: {
        id: body.id,
        name,
        displayName: expect.stringMatching(/^Skill-\d+ Of Ann$|^Skill \d+ Of Ann$/),
        description: 'd',
        prompt: 'p',
        category: 'other',
        builtInTools: [],
        requiredMCPs: [],
        visibility: 'organization',
        source: 'organization',
        organizationId: people.ann.organizationId,
        ownerId: people.ann.userId,
        version: 1,
        createdAt: new Date(now).toISOString(),
        updatedAt: new Date(now).toISOString(),
      },
    })
    expect(await get(body.id)).toEqual(body.skill)
    expect(await audited(body.id)).toEqual([`skill.create ${people.ann.userId}`])
  })

  it('stores its fields, and ignores read-only ones', async () => {
    const theirs = { id: 'x', ownerId: 'x', organizationId: 'x', version: 7, source: 'core', createdAt: 'x' }
    const skill = await create({ ...ALL_FIELDS, ...theirs })
    expect(skill).toMatchObject({ ...ALL_FIELDS, ownerId: people.ann.userId, version: 1, source: 'organization' })
    expect(await get(skill.id)).toEqual(skill)
    expect(await create({ builtInTools: null, requiredMCPs: null, visibility: null })).toMatchObject({
      builtInTools: [],
      requiredMCPs: [],
      visibility: 'organization',
    })
  })

  it.each(APIS)('%s: refuses a name that is used in the organization, also by a private skill', async (api) => {
    const { name } = await create({ visibility: 'private' })
    const fields = { name, description: 'd', prompt: 'p' }
    for (const who of ['ann', 'ben'] as const) {
      expectError(await on(api, 'skills.create', fields, who), 409, 'Skill name already exists')
    }
    const other = await create({}, 'ben')
    const answer = await on(api, 'skills.update', { id: other.id, name }, 'ben')
    expectError(answer, 409, 'Skill name already exists')
    expect(await get(other.id)).toEqual(other)
    expect((await on(api, 'skills.create', fields, 'eve')).status).toBe(200)
  })

  it('makes one of two concurrent skills with the same name', async () => {
    const fields = { name: newName(), description: 'd', prompt: 'p' }
    const answers = await Promise.all([1, 2, 3, 4].map(() => call('skills.create', fields)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409])
  })

  it('makes one per Idempotency-Key, and stores nothing for a used name', async () => {
    const taken = await create()
    const headers = { 'Idempotency-Key': crypto.randomUUID() }
    const post = (name: string) =>
      request(server, 'POST', '/api/v1/skills', {
        body: { name, description: 'd', prompt: 'p' },
        headers,
        token: people.ann.token,
      })
    expectError(await post(taken.name), 409, 'Skill name already exists')
    const name = newName()
    const [first, second] = [await post(name), await post(name)]
    expect([first.status, second.body]).toEqual([200, first.body])
  })
})

describe('a missing or invalid value gives a 400 that names it', () => {
  const WRONG: [input: Fields, message: string][] = [
    ...['name', 'description', 'prompt'].flatMap((field): [Fields, string][] =>
      [null, '', ' \n'].map((value) => [{ [field]: value }, `Missing required field: ${field}`]),
    ),
    ...['Name', 'a b', '-a', 'a-', 'a--b', 'ä', 'a_b', 'a/b', '../a'].map((name): [Fields, string] => [
      { name },
      invalid('name', 'kebab-case'),
    ]),
    [{ name: 5 }, invalid('name', 'string')],
    [{ name: 'x'.repeat(65) }, invalid('name', 'at most 64 characters')],
    [{ description: 'x'.repeat(1025) }, invalid('description', 'at most 1024 characters')],
    [{ prompt: 'x'.repeat(100_001) }, invalid('prompt', 'at most 100000 characters')],
    ...['', 'Research', 5].map((category): [Fields, string] => [
      { category },
      'Invalid category. Must be: research, writing, data, code, marketing, productivity, file-handling, other',
    ]),
    ...['unlisted', ''].map((visibility): [Fields, string] => [
      { visibility },
      'Invalid visibility value. Must be: private, organization, or public',
    ]),
    [{ builtInTools: 'list_tasks' }, invalid('builtInTools', 'array')],
    [{ requiredMCPs: [5] }, invalid('requiredMCPs.0', 'string')],
  ]
  let id: string
  beforeAll(async () => {
    id = (await create()).id
  })

  it.each(onEachApi(WRONG.map(([input, message]) => [message, input] as const)))(
    'on %s: %s',
    async (api, message, input) => {
      const whole = { name: newName(), description: 'd', prompt: 'p', ...input }
      expectError(await on(api, 'skills.create', whole), 400, message)
      expectError(await on(api, 'skills.update', { id, ...input }), 400, message)
    },
  )
})

describe('PATCH /skills/{id}', () => {
  it.each(APIS)('%s: changes the given fields, leaves the rest, and increases the version', async (api) => {
    let expected = await create()
    for (const [field, value] of Object.entries({ ...ALL_FIELDS, name: newName() })) {
      now += 1000
      expected = { ...expected, [field]: value, version: expected.version + 1, updatedAt: new Date(now).toISOString() }
      const { body } = await on(api, 'skills.update', { id: expected.id, [field]: value, unknown: 1, version: 99 })
      const warnings = ['Unknown field: unknown', 'Unknown field: version']
      expect(body).toEqual({ success: true, skill: expected, ...(api === 'REST' && { warnings }) })
    }
    expect(await get(expected.id)).toEqual(expected)
    const none = { id: expected.id, builtInTools: null, requiredMCPs: null }
    expect((await on(api, 'skills.update', none)).body.skill).toMatchObject({ builtInTools: [], requiredMCPs: [] })
    expect((await audited(expected.id))[1]).toBe(`skill.update ${people.ann.userId}`)
  })

  it.each(APIS)('%s: resets an optional field with null', async (api) => {
    const nothing = { displayName: null, category: null, builtInTools: null, requiredMCPs: null }
    const expected = { displayName: expect.stringMatching(/^Skill-\d+ B$/), category: 'other', builtInTools: [] }
    const { id } = await create(ALL_FIELDS)
    const name = `${newName()}-b`
    const changed = await on(api, 'skills.update', { id, name, ...nothing })
    expect(changed.body.skill).toMatchObject({
      name,
      ...expected,
      requiredMCPs: [],
      description: ALL_FIELDS.description,
    })
    await on(api, 'skills.update', { id, displayName: 'Told' })
    const again = await on(api, 'skills.update', { id, displayName: null })
    expect(again.body.skill).toMatchObject({ ...expected, version: 4 })
    expect(await create({ name: `${newName()}-b`, ...nothing })).toMatchObject(expected)
  })

  it('PATCH /skills/{id} without a change makes no version', async () => {
    const skill = await create(ALL_FIELDS)
    now += 1000
    for (const changes of [{}, ALL_FIELDS, { name: skill.name }]) {
      expect((await call('skills.update', { id: skill.id, ...changes })).body.skill).toEqual(skill)
    }
    expect(await audited(skill.id)).toHaveLength(1)
  })

  it('counts each of many concurrent changes', async () => {
    const { id } = await create()
    await Promise.all([1, 2, 3, 4, 5].map((n) => call('skills.update', { id, description: `${n}` })))
    expect((await get(id)).version).toBe(6)
  })
})

const ABSENT = '–'
const COLUMNS = ['list', 'get', 'attach', 'update', 'delete'] as const
// contract.md sections 2 and 7: private skills belong to their owner alone, and all callers may use public ones.
const TABLE: [visibility: string, who: Who, ...row: (string | number)[]][] = [
  ['private', 'ann', 'organization', 200, 200, 200, 200],
  ['private', 'ben', ABSENT, 404, 400, 404, 404],
  ['private', 'admin', ABSENT, 404, 400, 404, 404],
  ['private', 'owner', ABSENT, 404, 400, 404, 404],
  ['private', 'eve', ABSENT, 404, 400, 404, 404],
  ['organization', 'ann', 'organization', 200, 200, 200, 200],
  ['organization', 'ben', 'organization', 200, 200, 403, 403],
  ['organization', 'admin', 'organization', 200, 200, 200, 200],
  ['organization', 'owner', 'organization', 200, 200, 200, 200],
  ['organization', 'eve', ABSENT, 404, 400, 404, 404],
  ['public', 'ann', 'organization', 200, 200, 200, 200],
  ['public', 'ben', 'organization', 200, 200, 403, 403],
  ['public', 'admin', 'organization', 200, 200, 200, 200],
  ['public', 'owner', 'organization', 200, 200, 200, 200],
  ['public', 'eve', 'marketplace', 200, 200, 403, 403],
  ['core', 'ann', 'core', 200, 200, 403, 403],
  ['core', 'owner', 'core', 200, 200, 403, 403],
  ['core', 'eve', 'core', 200, 200, 403, 403],
]

describe('the visibility of a skill decides who may do what with it', () => {
  it.each(onEachApi(TABLE))('on %s: %s, %s', async (api, visibility, who, ...expected) => {
    const id = visibility === 'core' ? 'core-task-planning' : (await create({ visibility })).id
    const { skills } = (await on(api, 'skills.list', {}, who)).body
    const places = Object.entries(skills as Record<string, Fields[]>).flatMap(([source, list]) =>
      list.some((skill) => skill.id === id) ? source : [],
    )
    const attempt = async (procedure: string, input: Fields = {}) => {
      const answer = await on(api, procedure, { id, ...input }, who)
      if (answer.status === 404) expectError(answer, 404, 'Skill not found')
      if (answer.status === 403) expectError(answer, 403, FORBIDDEN)
      if (answer.status === 400) expectError(answer, 400, 'Invalid skillIds')
      return answer.status
    }
    const row = [
      places.join() || ABSENT,
      await attempt('skills.get'),
      await attempt('agents.create', { name: 'A', systemPrompt: 'x', skillIds: [id] }),
      await attempt('skills.update', { description: 'Changed' }),
      await attempt('skills.delete'),
    ]
    const named = (values: readonly unknown[]) => Object.fromEntries(COLUMNS.map((name, i) => [name, values[i]]))
    expect(named(row)).toEqual(named(expected))
  })

  it.each(APIS)('%s: as soon as it is private, other users cannot reach it', async (api) => {
    const { id } = await create({ visibility: 'public' })
    for (const who of ['ben', 'eve'] as const) expect((await on(api, 'skills.get', { id }, who)).status).toBe(200)
    await on(api, 'skills.update', { id, visibility: 'private' })
    for (const who of ['ben', 'admin', 'eve'] as const) {
      expectError(await on(api, 'skills.get', { id }, who), 404, 'Skill not found')
    }
  })

  it.each([
    ['GET', {}],
    ['PATCH', { description: 'x' }],
    ['DELETE', undefined],
  ] as const)('%s: a foreign skill looks like one that never existed', async (method, body) => {
    const answers = []
    const gone = await create({ visibility: 'public' })
    await call('skills.delete', { id: gone.id })
    const ids = [(await create({ visibility: 'private' })).id, (await create()).id, gone.id, 'core-none']
    for (const id of ['x'.repeat(22), ...ids]) {
      const options = { token: people.eve.token, ...(method !== 'GET' && { body }) }
      answers.push(await comparableAnswer(server, method, `/api/v1/skills/${id}`, options))
    }
    expect(answers[0]).toMatchObject({ status: 404 })
    for (const answer of answers) expect(answer).toEqual(answers[0])
  })
})

describe('GET /skills', () => {
  it.each(APIS)('%s: shows the source of each, newest first, with the total', async (api) => {
    const [mine, yours] = [
      await server.member({ organization: 'Mine' }),
      await server.member({ organization: 'Yours' }),
    ]
    const as = (who: Member, procedure: string, input: Fields = {}) =>
      apis[api](server, procedure, input, { token: who.token })
    const before = (await as(mine, 'skills.list')).body
    const add = async (who: Member, visibility: string) => {
      now += 1000
      return (await as(who, 'skills.create', { name: newName(), description: 'd', prompt: 'p', visibility })).body.skill
    }
    const [own, hidden, open] = [
      await add(mine, 'private'),
      await add(yours, 'organization'),
      await add(yours, 'public'),
    ]
    const newer = await add(mine, 'public')
    const { skills, total, nextCursor } = (await as(mine, 'skills.list')).body
    expect(skills.core).toEqual(CORE_SKILLS.map(withoutPrompt))
    expect(skills.organization).toEqual([newer, own].map(withoutPrompt).concat(before.skills.organization))
    const foreign = withoutPrompt({ ...open, source: 'marketplace' })
    expect(skills.marketplace).toEqual([foreign, ...before.skills.marketplace])
    expect(JSON.stringify(skills)).not.toContain(hidden.id)
    expect([total, nextCursor]).toEqual([before.total + 3, null])
  })

  it.each(APIS)('shows own and core skills before any number of foreign ones: %s', async (api) => {
    const [mine, yours] = [
      await server.member({ organization: `Reader ${api}` }),
      await server.member({ organization: `Flood ${api}` }),
    ]
    const add = (who: Member, input: Fields) =>
      request(server, 'POST', '/api/v1/skills', {
        token: who.token,
        body: { name: newName(), description: 'd', prompt: 'p', ...input },
      })
    const { id } = (await add(mine, {})).body
    now += 1000
    for (let n = 0; n < 12; n++) await add(yours, { visibility: 'public' })
    const limit = CORE_SKILLS.length + 1
    const first = (await apis[api](server, 'skills.list', { limit: `${limit}` }, { token: mine.token })).body
    expect(first.skills.organization.map((skill: Fields) => skill.id)).toEqual([id])
    expect(first.skills.core).toHaveLength(CORE_SKILLS.length)
    expect(first.skills.marketplace).toEqual([])
    const next = { limit: `${limit}`, cursor: first.nextCursor }
    const second = (await apis[api](server, 'skills.list', next, { token: mine.token })).body
    expect(second.skills).toMatchObject({ core: [], organization: [] })
    expect(second.skills.marketplace).toHaveLength(limit)
  })

  it.each(APIS)('%s: searches names and descriptions in any case, also of shipped skills', async (api) => {
    const mine = await server.member({ organization: `Searcher ${api}` })
    const as = async (procedure: string, input: Fields) =>
      ok(apis[api](server, procedure, input, { token: mine.token }))
    const added = { name: newName(), displayName: 'ÄRGER', description: 'of Odysseus', prompt: 'p' }
    const { id } = await as('skills.create', added)
    const found = async (search: string, more: Fields = {}) => {
      const { skills, total } = await as('skills.list', { search, ...more })
      const all = Object.values(skills as Record<string, Fields[]>).flat()
      expect(total).toBe(all.length)
      return all.map(({ name }) => name)
    }
    for (const search of ['ärger', 'ODYSSEUS', added.name]) expect(await found(search)).toEqual([added.name])
    expect(await found('ärger', { category: 'code' })).toEqual([])
    expect(await found('Research brief')).toContain('research-brief')
    await as('skills.update', { id, displayName: 'Peace' })
    expect(await found('ärger')).toEqual([])
    expect(await found('peace')).toEqual([added.name])
    const { data } = await graphql(
      server,
      '{ skills(search: "PEACE", first: 1) { nodes { id } totalCount } }',
      {},
      mine,
    )
    expect(data.skills).toEqual({ nodes: [{ id }], totalCount: 1 })
  })

  it.each([1, 2, 5])('GET /skills in pages of %i is the same list, each once', async (limit) => {
    const all = (await call('skills.list')).body
    const ids = (skills: Record<string, Fields[]>) =>
      Object.values(skills)
        .flat()
        .map(({ id }) => id)
    const seen: unknown[] = []
    for (let cursor = ''; ; ) {
      const { body } = await call('skills.list', { limit: `${limit}`, ...(cursor && { cursor }) })
      expect(ids(body.skills).length).toBeLessThanOrEqual(limit)
      expect(body.total).toBe(all.total)
      seen.push(...ids(body.skills))
      if (!body.nextCursor) break
      cursor = body.nextCursor
    }
    expect(seen.toSorted()).toEqual(ids(all.skills).toSorted())
    expect(seen).toHaveLength(all.total)
  })

  it('takes few statements, which read three ranges of an index and no more', async () => {
    await call('skills.list')
    const sent = await server.statementsOf(() => call('skills.list', { limit: '2' }))
    expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(5)
    const lists = sent.filter((sql) => sql.includes('FROM "Skill"'))
    expect(lists).toHaveLength(3)
    for (const sql of lists) {
      const plan = planOf(server, sql).join()
      expect(plan).toMatch(
        /^SEARCH Skill USING (COVERING )?INDEX Skill_\w+ \([^,<>]*visibility=\?( AND ownerId=\?)?\)$/,
      )
    }
  })
})

describe('the skills that come with the service', () => {
  const categories = ['research', 'writing', 'data', 'code', 'productivity', 'file-handling']

  it('are six over the categories, named as their ids, with existing tools', () => {
    expect(CORE_SKILLS.map(({ category }) => category).toSorted()).toEqual(categories.toSorted())
    for (const { id, name, builtInTools, visibility } of CORE_SKILLS) {
      expect([id, visibility]).toEqual([`core-${name}`, 'public'])
      expect(BUILT_IN_TOOLS).toEqual(expect.arrayContaining(builtInTools))
      expect(builtInTools).not.toEqual([])
    }
  })

  it.each(CORE_SKILLS.map((skill) => [skill.name, skill] as const))(
    'include %s, which passes the checks of user skills',
    async (_, skill) => {
      const { id: __, visibility: ___, ...fields } = skill
      const { prompt, displayName, builtInTools } = await create({ ...fields, visibility: 'private' })
      expect({ prompt, displayName, builtInTools }).toEqual({ prompt: skill.prompt, displayName, builtInTools })
      const lines = prompt.trimEnd().split('\n')
      expect(lines.length).toBeGreaterThanOrEqual(30)
      expect(lines.length).toBeLessThanOrEqual(90)
      // Its text explains each of its tools.
      for (const tool of builtInTools) expect(prompt).toContain(`\`${tool}\``)
    },
  )
})

it('unknown built-in tools are stored with warnings, and common names are translated', async () => {
  const body = {
    name: 'tools',
    description: 'd',
    prompt: 'p',
    builtInTools: ['Read', 'read_file', 'Glob', 'Bash', 'rm'],
  }
  const made = await request(server, 'POST', '/api/v1/skills', { body })
  expect(made.body.skill.builtInTools).toEqual(['read_file', 'list_files', 'Bash', 'rm'])
  expect(made.body.warnings).toEqual(['Unknown built-in tool: Bash', 'Unknown built-in tool: rm'])
  const query = 'query ($id: ID!) { skill(id: $id) { unknownTools } }'
  const { data } = await graphql(server, query, { id: made.body.id })
  expect(data).toEqual({ skill: { unknownTools: ['Bash', 'rm'] } })
  const path = `/api/v1/skills/${made.body.id}`
  const changed = await request(server, 'PATCH', path, { body: { builtInTools: ['Write', 'Bash'], colour: 'red' } })
  expect(changed.body.warnings).toEqual(['Unknown built-in tool: Bash', 'Unknown field: colour'])
  expect(changed.headers.get('x-muster-warnings')).toBe('2')
  const { skill, ...rest } = (await request(server, 'PATCH', path, { body: { builtInTools: ['Write'] } })).body
  expect([skill.builtInTools, rest]).toEqual([['write_file'], { success: true }])
})

it('permissions of built-in tools that do not exist are stored with warnings', async () => {
  const list = [
    { tool: '*', mode: 'ask' },
    { tool: 'read_file', mode: 'deny' },
    { tool: 'Bash', mode: 'deny' },
  ]
  const send = async (method: string, path: string, body: object) => {
    const { body: answer, headers } = await request(server, method, `/api/v1${path}`, { body })
    expect([path, answer.warnings, headers.get('x-muster-warnings')]).toEqual([
      path,
      ['Unknown built-in tool: Bash'],
      '1',
    ])
    return answer
  }
  const { agent } = await send('POST', '/agents', { name: 'Ada', systemPrompt: 'x', permissions: list })
  expect(agent.permissions).toEqual(list)
  await send('PATCH', `/agents/${agent.id}`, { permissions: list })
  const { space } = await send('POST', '/spaces', { name: 'Lab', permissions: list })
  expect((await send('PATCH', `/spaces/${space.id}`, { permissions: list })).space.permissions).toEqual(list)
  const { policy } = await send('PATCH', `/organizations/${agent.organizationId}/policy`, { builtInTools: list })
  expect(policy.builtInTools).toEqual(list)
  const path = `/api/v1/organizations/${agent.organizationId}/policy`
  expect((await request(server, 'PATCH', path, { body: { builtInTools: [] } })).body.warnings).toBeUndefined()
})

describe('skills over GraphQL', () => {
  const FIELDS = `id name displayName description prompt category builtInTools requiredMCPs visibility source
    organizationId ownerId version createdAt updatedAt`
  const ask = (query: string, variables: Fields, who: Who = 'ann') =>
    graphql(server, query, variables, { token: people[who].token })

  it('are read and written as over REST', async () => {
    const input = { name: newName(), ...ALL_FIELDS }
    const created = await ask(`mutation ($input: CreateSkillInput!) { createSkill(input: $input) { ${FIELDS} } }`, {
      input,
    })
    const skill = created.data.createSkill
    expect(skill).toEqual(await get(skill.id))
    const change = { id: skill.id, description: 'New' }
    const updated = await ask(`mutation ($input: UpdateSkillInput!) { updateSkill(input: $input) { ${FIELDS} } }`, {
      input: change,
    })
    expect(updated.data.updateSkill).toEqual(await get(skill.id))
    const one = await ask(`query ($id: ID!) { skill(id: $id) { ${FIELDS} } }`, { id: skill.id })
    expect(one.data.skill).toEqual(await get(skill.id))
    const { data } = await ask(
      `{ skills(first: 1000) { nodes { ${FIELDS} } totalCount pageInfo { hasNextPage } } }`,
      {},
    )
    const { skills, total, nextCursor } = (await call('skills.list')).body
    expect({ totalCount: total, pageInfo: { hasNextPage: nextCursor !== null } }).toEqual({
      totalCount: data.skills.totalCount,
      pageInfo: data.skills.pageInfo,
    })
    for (const source of ['core', 'organization', 'marketplace']) {
      const nodes = data.skills.nodes.filter((node: Fields) => node.source === source)
      expect(nodes.map(withoutPrompt)).toEqual(skills[source])
    }
    const deleted = await ask(`mutation ($id: ID!) { deleteSkill(id: $id) { deletedId } }`, { id: skill.id })
    expect(deleted.data.deleteSkill).toEqual({ deletedId: skill.id })
    expect((await ask(`query ($id: ID!) { skill(id: $id) { id } }`, { id: skill.id })).message).toBe('Skill not found')
  })

  it('have the errors of REST', async () => {
    const input = { name: newName(), description: 'd', prompt: 'p' }
    const query = `mutation ($input: CreateSkillInput!) { createSkill(input: $input) { id } }`
    expect((await ask(query, { input: { ...input, category: 'x' } })).message).toMatch(/^Invalid category. Must be: /)
    expect((await ask(query, { input: { ...input, name: 'A' } })).message).toMatch(/kebab-case$/)
    const { id } = await create({ visibility: 'private' })
    expect((await ask(`query ($id: ID!) { skill(id: $id) { id } }`, { id }, 'ben')).message).toBe('Skill not found')
  })
})

it('include the shipped ones in the total', async () => {
  const { body } = await apis.REST(
    server,
    'skills.list',
    {},
    { token: (await server.member({ organization: 'New' })).token },
  )
  expect(body.skills.core).toHaveLength(CORE)
  expect(body.skills.organization).toEqual([])
})
