import { describe, expect, test } from 'vitest'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { callerOf, graphql, refusal } from './support.ts'

const server = await use(startServer())
const member = await server.member()
const foreigner = await server.member({ organization: 'Elsewhere' })

const LISTED = `id name slug role systemPrompt visibility organizationId userId model description tags category image color
  initialGreeting skillIds mcpInstanceIds mcpTypes subagentIds allowedTools disallowedTools advanced_tools maxTurns
  version archived createdAt updatedAt fallbackModels contextWindow history requireTools modelSettings output { name schema }`
/** A list of 1,000 agents with all of these fields would exceed the complexity limit. */
const FIELDS = `${LISTED} permissions { tool mode } skillRefs { skillId version latestVersion foreign }`

const CREATE = `mutation ($input: CreateAgentInput!) { createAgent(input: $input) { chatUrl agent { ${FIELDS} } } }`
const UPDATE = `mutation ($input: UpdateAgentInput!) { updateAgent(input: $input) { message agent { ${FIELDS} } } }`
const DELETE = 'mutation ($id: ID!) { deleteAgent(id: $id) { deletedId message } }'
const GET = `query ($id: ID!) { agent(id: $id) { ${FIELDS} } }`
const LIST = `query ($owner: AgentOwner, $visibility: AgentVisibility, $tag: String, $search: String, $first: Int, $after: String) {
  agents(owner: $owner, visibility: $visibility, tag: $tag, search: $search, first: $first, after: $after) {
    nodes { ${LISTED} } totalCount pageInfo { hasNextPage endCursor }
  }
}`

type Visibility = 'private' | 'organization' | 'public' | 'unlisted'

const create = (visibility: Visibility, token = server.token, name: string = visibility) =>
  callerOf(server, token).agents.create({ name, systemPrompt: 'secret prompt', visibility, tags: ['a', 'b'] })

describe('agents over GraphQL and tRPC', () => {
  test('are created with all of their fields, and read back', async () => {
    const input = {
      name: 'Ada',
      systemPrompt: 'p',
      role: 'R',
      visibility: 'unlisted',
      model: 'offline/echo',
      description: 'd',
      tags: ['x', 'y', 'x'],
      category: 'c',
      image: 'https://example.com/i.png',
      color: 'red',
      initialGreeting: 'hello',
      mcpTypes: ['t'],
      allowedTools: ['a'],
      disallowedTools: ['b'],
      advanced_tools: ['c'],
      slug: 'ada-l',
      maxTurns: 7,
      modelSettings: {
        temperature: 0.5,
        maxOutputTokens: 100,
        reasoningEffort: 'low',
        providerOptions: { compatible: { top_k: 5 } },
      },
      fallbackModels: ['openai/x'],
      contextWindow: 8000,
      history: 'summarize',
      requireTools: true,
      output: { name: 'answer', schema: { type: 'object' } },
    }
    const { data, errors } = await graphql(server, CREATE, { input })
    expect(errors).toBeUndefined()
    const { agent, chatUrl } = data.createAgent
    expect(agent).toMatchObject({ ...input, tags: ['x', 'y'], version: 1, archived: false })
    expect(chatUrl).toMatch(/^\/default\/spaces\/\w+\/chats\/\w+$/)
    expect((await callerOf(server).agents.get({ id: agent.id })).agent).toEqual(agent)
    expect((await graphql(server, GET, { id: agent.id })).data.agent).toEqual(agent)
  })

  test('keep their own prompt as a copy, because a null system prompt counts as absent', async () => {
    const { id: basedOnAgentId } = await create('organization')
    const input = { name: 'Copy', basedOnAgentId, systemPrompt: null }
    const { data, errors } = await graphql(server, CREATE, { input })
    expect(errors).toBeUndefined()
    expect(data.createAgent.agent.systemPrompt).toBe('secret prompt')
  })

  test.each([
    ['no name', { systemPrompt: 'p' }],
    ['a null name', { name: null, systemPrompt: 'p' }],
    ['an empty name', { name: '', systemPrompt: 'p' }],
    ['a blank name', { name: ' \n', systemPrompt: 'p' }],
    ['a name of another type', { name: 7, systemPrompt: 'p' }],
    ['a long name', { name: 'n'.repeat(201), systemPrompt: 'p' }],
    ['no system prompt', { name: 'n' }],
    ['an empty system prompt', { name: 'n', systemPrompt: '' }],
    ['a null system prompt', { name: 'n', systemPrompt: null }],
    ['a long system prompt', { name: 'n', systemPrompt: 'p'.repeat(100_001) }],
    ['an unknown visibility', { name: 'n', systemPrompt: 'p', visibility: 'secret' }],
    ['tags that are no list', { name: 'n', systemPrompt: 'p', tags: { a: 1 } }],
    ['maxTurns of another type', { name: 'n', systemPrompt: 'p', maxTurns: 'many' }],
    ['maxTurns out of bounds', { name: 'n', systemPrompt: 'p', maxTurns: 501 }],
    ['an unknown subagent', { name: 'n', systemPrompt: 'p', subagentIds: ['nobody'] }],
    ['an unknown base', { name: 'n', basedOnAgentId: 'nobody' }],
    ['a character that cannot be stored', { name: 'a\0b', systemPrompt: 'p' }],
  ])('report %s with the same error', async (_, input) => {
    const expected = await refusal(callerOf(server).agents.create(input as never))
    const { message, errors } = await graphql(server, CREATE, { input })
    expect(message).toBe(expected.message)
    expect(errors?.[0]?.extensions).toMatchObject({ error: true, statusCode: expected.status })
  })

  test('report an invalid value with the same error, at its place in the document', async () => {
    const text = 'mutation { createAgent(input: {name: "n", systemPrompt: "p", visibility: secret}) { chatUrl } }'
    expect((await graphql(server, text)).message).toBe(
      'Invalid visibility value. Must be: private, organization, public, or unlisted',
    )
  })

  test.each([
    ['search', { search: 's'.repeat(201) }],
    ['search', { search: 'a\0b' }],
    ['visibility', { visibility: 'secret' }],
    ['owner', { owner: 'you' }],
  ])('report an invalid %s of a list with the same error', async (_, input) => {
    const expected = await refusal(callerOf(server).agents.list(input as never))
    expect((await graphql(server, LIST, input)).message).toBe(expected.message)
  })

  test.each([
    [{ first: 0 }, 'Invalid value for field: first. Expected at least 1'],
    [{ first: 1001 }, 'Invalid value for field: first. Expected at most 1000'],
    [{ first: 'x' }, 'Invalid value for field: first. Expected number'],
    [{ after: 'nonsense' }, 'Invalid value for field: after. Expected an endCursor of this list'],
    [{ after: 'WzFd' }, 'Invalid value for field: after. Expected an endCursor of this list'],
    // In the year 10000.
    [
      { after: Buffer.from('[{"at":253402300800000},"a"]').toString('base64url') },
      'Invalid value for field: after. Expected an endCursor of this list',
    ],
  ])('report an invalid page of a list: %j', async (input, message) => {
    expect((await graphql(server, LIST, input)).message).toBe(message)
  })

  test.each(['organization', 'public', 'unlisted', 'private'] as const)(
    'agents over GraphQL and tRPC with %s visibility are found by the same users',
    async (visibility) => {
      const { id } = await create(visibility)
      for (const token of [server.token, member.token, foreigner.token]) {
        const caller = callerOf(server, token)
        const got = await graphql(server, GET, { id }, { token })
        const expected = await caller.agents.get({ id }).catch((error: Error) => error)
        if (expected instanceof Error) {
          expect(got.message).toBe(expected.message)
          expect(got.data).toEqual({ agent: null })
          expect(JSON.stringify(got)).not.toContain('secret prompt')
        } else expect(got.data.agent).toEqual(expected.agent)

        for (const input of [{}, { owner: 'me' }, { visibility }, { tag: 'a', search: visibility }] as const) {
          const { agents, total: totalCount } = await caller.agents.list(input)
          const nodes = agents.map(({ permissions, skillRefs, ...listed }) => listed)
          const { data } = await graphql(server, LIST, input, { token })
          expect(data.agents).toMatchObject({ nodes, totalCount, pageInfo: { hasNextPage: false } })
        }
      }
    },
  )

  test('give unknown, archived, foreign and private agents the same error', async () => {
    const archived = await create('organization')
    await callerOf(server).agents.delete({ id: archived.id })
    const foreign = await create('organization', foreigner.token)
    const hidden = await create('private', member.token)
    const answers = await Promise.all(
      ['nothing', archived.id, foreign.id, hidden.id].map((id) => graphql(server, GET, { id })),
    )
    for (const { status, data, errors } of answers) {
      expect({ status, data }).toEqual({ status: 200, data: { agent: null } })
      const { requestId, ...extensions } = errors![0]!.extensions
      expect(errors![0]!.message).toBe('Agent not found')
      expect(requestId).toEqual(expect.any(String))
      expect(extensions).toEqual({
        error: true,
        statusCode: 404,
        statusMessage: 'Not Found',
        code: 'not_found',
        detail: expect.any(String),
      })
    }
  })

  test('are listed page by page to the last one', async () => {
    const { token } = await server.member({ organization: 'Paged', role: 'owner' })
    for (let i = 0; i < 5; i++) await create('organization', token, `agent ${i}`)
    const seen: string[] = []
    let after: string | null = null
    do {
      const { data, errors } = await graphql(server, LIST, { first: 2, after }, { token })
      expect(errors).toBeUndefined()
      expect(data.agents.totalCount).toBe(5)
      seen.push(...data.agents.nodes.map(({ name }: { name: string }) => name))
      const { hasNextPage, endCursor } = data.agents.pageInfo
      after = hasNextPage ? endCursor : null
    } while (after)
    expect(seen.sort()).toEqual(['agent 0', 'agent 1', 'agent 2', 'agent 3', 'agent 4'])
  })

  test('are changed by their creator, and the answer has the change', async () => {
    const { id } = await create('organization', member.token)
    const input = { id, name: 'Grace', tags: null, description: 'new' }
    const { data } = await graphql(server, UPDATE, { input }, { token: member.token })
    expect(data.updateAgent.message).toBe('Agent updated successfully')
    expect(data.updateAgent.agent).toMatchObject({ name: 'Grace', tags: [], description: 'new', version: 2 })
    expect((await callerOf(server).agents.get({ id })).agent).toEqual(data.updateAgent.agent)
  })

  test('refuse a change by a member who sees them, and look absent to one who does not', async () => {
    const shared = await create('organization')
    const hidden = await create('private')
    for (const [agent, message, statusCode] of [
      [shared, "You don't have permission to access this resource", 403],
      [hidden, 'Agent not found', 404],
    ] as const) {
      const input = { id: agent.id, name: 'mine' }
      expect(await refusal(callerOf(server, member.token).agents.update(input))).toMatchObject({ message })
      for (const [text, variables] of [
        [UPDATE, { input }],
        [DELETE, { id: agent.id }],
      ] as const) {
        const answer = await graphql(server, text, variables, { token: member.token })
        expect(answer.message).toBe(message)
        expect(answer.errors?.[0]?.extensions).toMatchObject({ statusCode })
        expect(answer.data).toBeNull()
      }
    }
    expect((await callerOf(server).agents.get({ id: shared.id })).agent).toMatchObject({
      name: 'organization',
      version: 1,
    })
  })

  test('are gone after their deletion', async () => {
    const { id } = await create('organization')
    const { data } = await graphql(server, DELETE, { id })
    expect(data.deleteAgent).toEqual({ deletedId: id, message: 'Agent deleted successfully' })
    expect((await graphql(server, DELETE, { id })).message).toBe('Agent not found')
  })

  test('list their versions, newest first', async () => {
    const { id } = await create('organization')
    await callerOf(server).agents.update({ id, name: 'Second' })
    const text = `query ($id: ID!) { agent(id: $id) { versions(first: 10) { nodes { version userId createdAt agent { ${FIELDS} } } } } }`
    const { data } = await graphql(server, text, { id })
    const { versions } = await callerOf(server).agents.versions({ id })
    expect(data.agent.versions.nodes).toEqual(versions)
    expect(versions.map(({ version }) => version)).toEqual([2, 1])
  })

  test('list, now and in old versions, only the agents and skills that the caller can reach', async () => {
    const skill = async (visibility: 'private' | 'organization') =>
      (await callerOf(server).skills.create({ name: `s-${visibility}`, description: 'd', prompt: 'p', visibility })).id
    const ids = {
      subagentIds: [(await create('organization')).id, (await create('private')).id],
      skillIds: [await skill('organization'), await skill('private')],
    }
    const { id } = await callerOf(server).agents.create({ name: 'Chief', systemPrompt: 'p', ...ids })
    await callerOf(server).agents.update({ id, name: 'Boss' })
    const lists = 'subagentIds skillIds'
    const text = `query ($id: ID!) { agent(id: $id) { ${lists} versions { nodes { agent { ${lists} } } } } }`
    for (const [token, count] of [
      [server.token, 2],
      [member.token, 1],
    ] as const) {
      const { versions, ...agent } = (await graphql(server, text, { id }, { token })).data.agent
      expect(agent).toEqual({ subagentIds: ids.subagentIds.slice(0, count), skillIds: ids.skillIds.slice(0, count) })
      expect(versions.nodes).toEqual([{ agent }, { agent }])
    }
  })
})

describe('public agents', () => {
  const CARD = 'id name slug role description tags organizationName'

  test('are shown to everyone as cards, never with their prompt', async () => {
    const reachable = await create('public', foreigner.token, 'Shown')
    const unlisted = await create('unlisted', foreigner.token, 'Unlisted')
    const { publicAgents } = (
      await graphql(server, `{ publicAgents(search: "shown") { nodes { ${CARD} } totalCount } }`)
    ).data
    const { agents: nodes, total } = await callerOf(server).agents.listPublic({ search: 'shown' })
    expect(publicAgents).toEqual({ nodes, totalCount: total })
    expect(nodes).toMatchObject([{ id: reachable.id, organizationName: 'Elsewhere' }])

    const one = await graphql(server, `query ($id: ID!) { publicAgent(id: $id) { ${CARD} } }`, { id: unlisted.id })
    expect(one.data.publicAgent).toEqual((await callerOf(server).agents.getPublic({ id: unlisted.id })).agent)
    const refused = await graphql(server, 'query ($id: ID!) { publicAgent(id: $id) { systemPrompt } }', {
      id: reachable.id,
    })
    expect(refused.message).toBe('Cannot query field "systemPrompt" on type "AgentCard".')
  })

  test.each(['private', 'organization'] as const)(
    'public agents with visibility %s have no card',
    async (visibility) => {
      const { id } = await create(visibility, foreigner.token)
      expect((await graphql(server, 'query ($id: ID!) { publicAgent(id: $id) { id } }', { id })).message).toBe(
        'Agent not found',
      )
    },
  )
})

test('models lists the models', async () => {
  const { data } = await graphql(server, '{ models { models { id provider available } defaultModel } }')
  const { models, defaultModel } = await callerOf(server).models.list()
  expect(data.models).toEqual({ models, defaultModel })
})
