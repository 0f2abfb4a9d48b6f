import { describe, expect, it } from 'vitest'
import { graphql } from '../graphql/support.ts'
import { APIS, apis, callerAs, expectError, ok } from '../support/api.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { startServer } from '../support/server.ts'
import { overtaken, together } from '../support/together.ts'
import { use } from '../support/use.ts'

// Skills and MCP servers on agents and spaces: contract.md sections 3, 6 and 7.

let now = Date.parse('2026-01-01T00:00:00Z')
const server = await use(startServer({}, { clock: { now: () => new Date(now) } }))
const people = await server.people('ann', 'ben', 'eve')
type Who = keyof typeof people

type Fields = Record<string, unknown>
const on = callerAs(server, people)
async function call(procedure: string, input: Fields = {}, who: Who = 'ann') {
  return ok(on('REST', procedure, input, who))
}

let made = 0
const skill = async (fields: Fields = {}, who: Who = 'ann'): Promise<string> =>
  (await call('skills.create', { name: `skill-${++made}`, description: 'd', prompt: 'p', ...fields }, who)).id
const mcp = async (mcpType = 'custom', who: Who = 'ann'): Promise<string> =>
  (await call('mcps.create', { name: 'M', mcpType, url: 'https://mcp.example.com/mcp' }, who)).id
const AGENT = { name: 'A', systemPrompt: 'x' }
const agent = async (fields: Fields = {}, who: Who = 'ann') =>
  (await call('agents.create', { ...AGENT, ...fields }, who)).agent
const space = async (fields: Fields = {}, who: Who = 'ann') =>
  (await call('spaces.create', { name: 'S', ...fields }, who)).space
const CORE = 'core-data-analysis'

describe('an agent', () => {
  it.each(APIS)('%s: has the skills and MCP servers that its maker can reach, in their order', async (api) => {
    const skillIds = [
      await skill({ visibility: 'public' }, 'eve'),
      CORE,
      await skill({}, 'ben'),
      await skill({ visibility: 'private' }),
    ]
    const mcpInstanceIds = [await mcp(), await mcp('x', 'ben')]
    const { body } = await on(api, 'agents.create', { ...AGENT, skillIds, mcpInstanceIds })
    expect(body.agent).toMatchObject({ skillIds, mcpInstanceIds })
    const fewer = { skillIds: skillIds.slice(1), mcpInstanceIds: mcpInstanceIds.slice(1) }
    await on(api, 'agents.update', { id: body.id, ...fewer })
    expect((await call('agents.get', { id: body.id })).agent).toMatchObject({ ...fewer, version: 2 })
    const { agents } = await call('agents.list')
    expect(agents.find(({ id }: Fields) => id === body.id)).toMatchObject(fewer)
    await on(api, 'agents.update', { id: body.id, skillIds: null, mcpInstanceIds: null })
    expect((await call('agents.get', { id: body.id })).agent).toMatchObject({ skillIds: [], mcpInstanceIds: [] })
  })

  it.each([
    ['skillIds', "somebody else's private one", () => skill({ visibility: 'private' }, 'ben')],
    ['skillIds', "another organization's", () => skill({}, 'eve')],
    ['skillIds', 'unknown', async () => 'x'.repeat(22)],
    ['skillIds', 'a server', () => mcp()],
    ['mcpInstanceIds', "another organization's", () => mcp('custom', 'eve')],
    ['mcpInstanceIds', 'unknown', async () => 'x'.repeat(22)],
    ['mcpInstanceIds', 'a skill', () => skill()],
  ])('refuses in %s one that is %s', async (field, _, make) => {
    const good = field === 'skillIds' ? await skill() : await mcp()
    const { id } = await agent({ [field]: [good] })
    const ids = [good, await make()]
    for (const api of APIS) {
      expectError(await on(api, 'agents.create', { ...AGENT, [field]: ids }), 400, `Invalid ${field}`)
      expectError(await on(api, 'agents.update', { id, [field]: ids }), 400, `Invalid ${field}`)
    }
    expect((await call('agents.get', { id })).agent).toMatchObject({ [field]: [good], version: 1 })
  })

  it('hides attachments that the caller cannot see, also in its old versions', async () => {
    const [open, secret] = [await skill(), await skill({ visibility: 'private' })]
    const { id } = await agent({ skillIds: [secret, open] })
    for (const [who, skillIds] of [
      ['ann', [secret, open]],
      ['ben', [open]],
    ] as const) {
      expect((await call('agents.get', { id }, who)).agent.skillIds).toEqual(skillIds)
      const { agents } = await call('agents.list', {}, who)
      expect(agents.find((one: Fields) => one.id === id).skillIds).toEqual(skillIds)
      const query = 'query ($id: ID!) { agent(id: $id) { skillIds skills { id prompt } } }'
      const { data } = await graphql(server, query, { id }, { token: people[who].token })
      expect(data.agent).toEqual({ skillIds, skills: skillIds.map((one) => ({ id: one, prompt: 'p' })) })
    }
  })

  it('loses deleted attachments', async () => {
    const [skillId, mcpId] = [await skill(), await mcp()]
    const { id } = await agent({ skillIds: [skillId, CORE], mcpInstanceIds: [mcpId] })
    await call('skills.delete', { id: skillId })
    await call('mcps.delete', { id: mcpId })
    const left = { skillIds: [CORE], mcpInstanceIds: [] }
    expect((await call('agents.get', { id })).agent).toMatchObject(left)
    // A client may write back what it has read.
    await call('agents.update', { id, ...left })
    const query = 'query ($id: ID!) { agent(id: $id) { skillIds mcpInstanceIds mcpServers { id } } }'
    const { data } = await graphql(server, query, { id }, { token: people.ann.token })
    expect(data.agent).toEqual({ ...left, mcpServers: [] })
  })

  it('is copied with the attachments that the caller can reach', async () => {
    const [open, secret, mcpId] = [await skill(), await skill({ visibility: 'private' }), await mcp()]
    const base = await agent({ skillIds: [secret, open], mcpInstanceIds: [mcpId] })
    const copy = await agent({ basedOnAgentId: base.id }, 'ben')
    expect(copy).toMatchObject({ skillIds: [open], mcpInstanceIds: [mcpId] })
    expect(await agent({ basedOnAgentId: base.id })).toMatchObject({ skillIds: [secret, open] })
    expect(await agent({ basedOnAgentId: base.id, skillIds: [CORE] }, 'ben')).toMatchObject({ skillIds: [CORE] })
  })

  it('an agent in a list takes two more statements for all skills and servers', async () => {
    const { token } = people.ann
    const ids = { skillIds: [await skill()], mcpInstanceIds: [await mcp()] }
    const statements = () => server.statementsOf(() => apis.REST(server, 'agents.list', {}, { token }))
    await statements()
    for (const more of [3, 20]) {
      for (let i = 0; i < more; i++) await agent(ids)
      // The token, the attachments, and the new rows themselves.
      expect(await statements()).toHaveLength(5)
      expect(await statements()).toHaveLength(4)
    }
  })

  it('an agent in a list of GraphQL takes one read for all skills and one for all servers', async () => {
    const ids = { skillIds: [await skill()], mcpInstanceIds: [await mcp('sort')] }
    now += 1000
    for (let i = 0; i < 5; i++) await agent(ids)
    const query = '{ agents(first: 5) { nodes { skillIds mcpInstanceIds skills { name } mcpServers { mcpType } } } }'
    const node = { ...ids, skills: [{ name: `skill-${made}` }], mcpServers: [{ mcpType: 'sort' }] }
    const sent = await server.statementsOf(async () => {
      const { data } = await graphql(server, query, {}, { token: people.ann.token })
      expect(data.agents.nodes).toEqual(Array.from({ length: 5 }, () => node))
    })
    // Prisma itself takes one more statement.
    expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(onPostgres ? 8 : 7)
  })
})

describe('a space', () => {
  it.each(APIS)('%s: attaches and detaches skills and MCP servers', async (api) => {
    const [a, b, m, n] = [await skill(), await skill({ visibility: 'public' }, 'eve'), await mcp(), await mcp()]
    now += 1000
    const { body } = await on(api, 'spaces.create', { name: 'S', addSkills: [a, CORE, a], addMcps: [m] })
    const added = { enabled: true, addedAt: new Date(now).toISOString(), addedBy: people.ann.userId }
    expect(body.space.skillIds.toSorted()).toEqual([a, CORE].toSorted())
    const pinned = { version: 1, latestVersion: 1, foreign: false }
    expect(body.space.skillRefs).toContainEqual({ skillId: a, ...pinned, ...added })
    expect(body.space).toMatchObject({ pluginIds: [m], mcpRefs: [{ mcpId: m, ...added }] })
    const { id } = body
    expect((await call('spaces.get', { id })).space).toEqual(body.space)

    now += 1000
    const changes = { addSkills: [b, a], removeSkills: [CORE, a, 'unknown'], addMcps: [n, m], removeMcps: [m] }
    const changed = (await on(api, 'spaces.update', { id, ...changes })).body.space
    expect(changed.skillIds.toSorted()).toEqual([a, b].toSorted())
    expect(changed.pluginIds.toSorted()).toEqual([m, n].toSorted())
    const { spaces } = await call('spaces.list')
    expect(spaces.find((one: Fields) => one.id === id)).toEqual(changed)
    const none = (await on(api, 'spaces.update', { id, removeSkills: [a, b], removeMcps: [m, n] })).body.space
    expect(none).toMatchObject({ skillIds: [], skillRefs: [], pluginIds: [], mcpRefs: [] })
  })

  it.each([
    ['addSkills', "somebody else's private one", () => skill({ visibility: 'private' }, 'ben')],
    ['addSkills', "another organization's", () => skill({}, 'eve')],
    ['addSkills', 'unknown', async () => 'unknown'],
    ['addMcps', "another organization's", () => mcp('custom', 'eve')],
    ['addMcps', 'unknown', async () => 'unknown'],
  ])('refuses in %s one that is %s', async (field, _, make) => {
    const good = field === 'addSkills' ? await skill() : await mcp()
    const { id } = await space()
    const ids = [good, await make()]
    for (const api of APIS) {
      expectError(await on(api, 'spaces.create', { name: 'S', [field]: ids }), 400, `Invalid ${field}`)
      expectError(await on(api, 'spaces.update', { id, [field]: ids, name: 'T' }), 400, `Invalid ${field}`)
    }
    expect((await call('spaces.get', { id })).space).toMatchObject({ name: 'S', skillRefs: [], mcpRefs: [] })
  })

  it('hides attachments that the caller cannot see, and loses deleted ones', async () => {
    const [open, secret, m] = [await skill(), await skill({ visibility: 'private' }), await mcp()]
    const theirs = await skill({ visibility: 'public' }, 'eve')
    const { id } = await space({ addSkills: [open, secret, theirs], addMcps: [m] })
    const seen = async (who: Who) => {
      const { skillIds, skillRefs, pluginIds } = (await call('spaces.get', { id }, who)).space
      expect(skillRefs.map(({ skillId }: Fields) => skillId)).toEqual(skillIds)
      return [...skillIds, ...pluginIds].toSorted()
    }
    expect(await seen('ann')).toEqual([open, secret, theirs, m].toSorted())
    expect(await seen('ben')).toEqual([open, theirs, m].toSorted())
    await call('skills.delete', { id: open })
    await call('skills.delete', { id: theirs }, 'eve')
    await call('mcps.delete', { id: m })
    expect(await seen('ann')).toEqual([secret])
    expect(await seen('ben')).toEqual([])
  })

  it('works the same in GraphQL', async () => {
    const [skillId, mcpId] = [await skill(), await mcp()]
    const fields =
      'skillIds pluginIds skillRefs { skillId enabled addedAt addedBy } mcpRefs { mcpId enabled addedAt addedBy }'
    const ask = async (query: string, input: Fields) => {
      const { data, errors } = await graphql(server, query, { input }, { token: people.ann.token })
      expect(errors).toBeUndefined()
      return data
    }
    const { createSpace } = await ask(
      `mutation ($input: CreateSpaceInput!) { createSpace(input: $input) { id ${fields} } }`,
      {
        name: 'S',
        addSkills: [skillId],
        addMcps: [mcpId],
      },
    )
    expect((await call('spaces.get', { id: createSpace.id })).space).toMatchObject(createSpace)
    expect(createSpace).toMatchObject({ skillIds: [skillId], pluginIds: [mcpId] })
    const { updateSpace } = await ask(
      `mutation ($input: UpdateSpaceInput!) { updateSpace(input: $input) { ${fields} } }`,
      {
        id: createSpace.id,
        removeSkills: [skillId],
        removeMcps: [mcpId],
      },
    )
    expect(updateSpace).toEqual({ skillIds: [], pluginIds: [], skillRefs: [], mcpRefs: [] })
  })

  it('answers each of many concurrent requests that attach the same', async () => {
    const [addSkills, addMcps] = [
      [await skill(), await skill(), CORE],
      [await mcp(), await mcp()],
    ]
    const { id } = await space()
    const answers = await Promise.all([1, 2, 3, 4].map(() => on('REST', 'spaces.update', { id, addSkills, addMcps })))
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    const { skillIds, pluginIds } = (await call('spaces.get', { id })).space
    expect([skillIds.toSorted(), pluginIds.toSorted()]).toEqual([addSkills.toSorted(), addMcps.toSorted()])
  })

  it.each([
    ['spaces.update', 'addMcps', 'mcps.delete'],
    ['spaces.update', 'addSkills', 'skills.delete'],
    ['spaces.create', 'addMcps', 'mcps.delete'],
    ['spaces.create', 'addSkills', 'skills.delete'],
  ])('%s: refuses a concurrently deleted one in %s', async (procedure, field, deletion) => {
    const { db } = server.service.deps
    const attached = field === 'addMcps' ? await mcp() : await skill()
    const input = procedure === 'spaces.update' ? { id: (await space()).id } : { name: 'S' }
    const { token } = people.ann
    // On SQLite a request's arrival is visible by its first read.
    const headers = { 'Idempotency-Key': attached }
    const write = () => apis.REST(server, procedure, { ...input, [field]: [attached] }, { token, headers })
    const remove = () => on('REST', deletion, { id: attached })
    const before = await db.space.count()
    const [written, removed] = onPostgres
      ? await overtaken(server, 'Space', write, remove)
      : (await together(server, '(Space|McpServer|Skill|IdempotencyRecord)', [remove, write])).reverse()
    expect(removed?.status).toBe(200)
    expectError(written!, 400, `Invalid ${field}`)
    expect([await db.space.count(), await db.spaceMcp.count({ where: { mcpId: attached } })]).toEqual([before, 0])
    expect(await db.spaceSkill.count({ where: { skillId: attached } })).toBe(0)
  })

  it('answers every concurrent attachment and deletion, and never has deleted attachments', async () => {
    const { id } = await space()
    const skills: string[] = []
    for (let round = 0; round < 10; round++) {
      const [skillId, mcpId] = [await skill(), await mcp()]
      const added = { addSkills: [skillId], addMcps: [mcpId] }
      const answers = await Promise.all([
        on('REST', 'spaces.update', { id, ...added }),
        on('REST', 'skills.delete', { id: skillId }),
        on('REST', 'spaces.create', { name: 'S', ...added }),
        on('REST', 'mcps.delete', { id: mcpId }),
      ])
      for (const { status, body } of answers) expect([200, 400], JSON.stringify(body)).toContain(status)
      skills.push(skillId)
    }
    expect(await server.service.deps.db.spaceSkill.count({ where: { skillId: { in: skills } } })).toBe(0)
  })
})

describe('MCP servers that a skill requires must be present', () => {
  const needs = (types: string) => `Skill needy-${made} requires the MCP servers: ${types}`
  const needy = () => skill({ name: `needy-${made + 1}`, requiredMCPs: ['github', 'linear'] })

  it('MCP servers that a skill requires must be present when it is attached to an agent', async () => {
    const [github, linear] = [await mcp('github'), await mcp('linear', 'ben')]
    const skillIds = [await needy()]
    for (const [mcpInstanceIds, missing] of [
      [[], 'github, linear'],
      [[github], 'linear'],
    ] as const) {
      expectError(await on('REST', 'agents.create', { ...AGENT, skillIds, mcpInstanceIds }), 400, needs(missing))
      const { id } = await agent({ mcpInstanceIds })
      expectError(await on('tRPC', 'agents.update', { id, skillIds }), 400, needs(missing))
    }
    const { id } = await agent({ mcpInstanceIds: [github, linear] })
    await call('agents.update', { id, skillIds })
    // The check happens at the attachment only.
    await call('agents.update', { id, skillIds: [...skillIds, CORE], mcpInstanceIds: [] })
    expect((await call('agents.get', { id })).agent).toMatchObject({ skillIds: [...skillIds, CORE] })
    expect(await agent({ skillIds, mcpInstanceIds: [linear, github] })).toMatchObject({ skillIds })
  })

  it('MCP servers that a skill requires must be present when it is attached to a space', async () => {
    const [github, linear] = [await mcp('github'), await mcp('linear', 'ben')]
    const addSkills = [await needy()]
    expectError(await on('REST', 'spaces.create', { name: 'S', addSkills }), 400, needs('github, linear'))
    const { id } = await space({ addMcps: [github] })
    expectError(await on('tRPC', 'spaces.update', { id, addSkills }), 400, needs('linear'))
    const swapped = { id, addSkills, addMcps: [linear], removeMcps: [github] }
    expectError(await on('REST', 'spaces.update', swapped), 400, needs('github'))
    expect((await call('spaces.update', { id, addSkills, addMcps: [linear] })).space.skillIds).toEqual(addSkills)
    expect((await space({ addSkills, addMcps: [github, linear] })).skillIds).toEqual(addSkills)
  })
})
