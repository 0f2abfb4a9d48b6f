import { describe, expect, test } from 'vitest'
import { stopClock } from '../support/clock.ts'
import { ROOTS } from '../support/graphql-api.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { fill } from './many.ts'
import { graphql } from './support.ts'

// The server records the last use of a token once a minute; here no minute passes.
const server = await use(startServer({}, { clock: stopClock(new Date().toISOString()) }))
const ann = await server.member({ organization: 'Known', role: 'owner' })
const hubs = await fill(server, ann)
const { db } = server.service.deps
const where = { organizationId: ann.organizationId }
const first = async (find: Promise<{ id: string } | null>) => (await find)!.id
const ids: Record<string, string> = {
  ...hubs,
  Approval: await first(db.approval.findFirst({ where })),
  Key: ann.tokenId,
  Mcp: await first(db.mcpServer.findFirst({ where })),
  Media: await first(db.media.findFirst({ where })),
  Message: await first(db.message.findFirst({ where })),
  Organization: ann.organizationId,
  Skill: await first(db.skill.findFirst({ where })),
  User: ann.userId,
}
// These are no nodes.
delete ids.few
delete ids.Webhook

const NODE = 'query ($id: ID!) { node(id: $id) { __typename id } }'
const ask = (text: string, variables: object, member = ann) => graphql(server, text, { ...variables }, member)

const LISTS = ROOTS.filter(
  ({ operation, field: { args } }) => operation === 'query' && args.some(({ name }) => name === 'after'),
).map(({ field }) => ({ list: field.name, needsId: field.args.some(({ name }) => name === 'id') }))

test.each(LISTS)('$list refuses an invalid cursor with the error of every list', async ({ list, needsId }) => {
  const of = needsId ? `, id: "${ann.organizationId}"` : ''
  for (const after of ['bad', 'WzFd', btoa('1.'), btoa("1.a' OR 1")]) {
    const { message } = await ask(`query ($after: String) { ${list}(after: $after${of}) { totalCount } }`, { after })
    expect(message).toBe('Invalid value for field: after. Expected an endCursor of this list')
  }
})

describe('node', () => {
  test('finds every row by its id', async () => {
    for (const [__typename, id] of Object.entries(ids)) {
      expect((await ask(NODE, { id })).data).toEqual({ node: { __typename, id } })
    }
  })

  test("gives the fields and relations of the row's type", async () => {
    const text = `query ($id: ID!) {
      node(id: $id) { id ... on Agent { name tags user { name } executions(first: 1) { totalCount nodes { id } } } ... on Task { title } }
    }`
    const { data, errors } = await ask(text, { id: hubs.Agent })
    expect(errors).toBeUndefined()
    expect(data.node).toMatchObject({ id: hubs.Agent, name: 'A0', tags: [], user: { name: 'U0' } })
    expect(data.node.executions.nodes).toHaveLength(1)
    expect((await ask(text, { id: hubs.Task })).data.node).toEqual({ id: hubs.Task, title: 'T' })
    // Authentication, the table of the id, the row.
    expect(await server.statementsOf(() => ask(NODE, { id: hubs.Agent }))).toHaveLength(3)
  })

  test('finds a skill that comes with the service', async () => {
    const { data } = await ask('{ skills(first: 1000) { nodes { id source } } }', {})
    const { id } = data.skills.nodes.find(({ source }: { source: string }) => source === 'core')
    expect((await ask(NODE, { id })).data.node).toEqual({ __typename: 'Skill', id })
  })

  test('answers an unreachable id like one that never existed', async () => {
    const stranger = await server.member({ organization: 'Elsewhere', role: 'owner' })
    const expected = await ask(NODE, { id: 'never' }, stranger)
    expect(expected).toMatchObject({ data: { node: null }, message: 'Node not found' })
    const strip = ({ errors }: typeof expected) => errors!.map(({ extensions: { requestId, ...rest } }) => rest)
    for (const id of Object.values(ids)) {
      const answer = await ask(NODE, { id }, stranger)
      expect([answer.data, answer.message, strip(answer)]).toEqual([expected.data, expected.message, strip(expected)])
    }
  })

  test("needs the scope of the row's type", async () => {
    const reader = await server.member({ organization: 'Known', scopes: ['tasks:read'] })
    expect((await ask(NODE, { id: hubs.Task }, reader)).data.node).toEqual({ __typename: 'Task', id: hubs.Task })
    for (const id of [hubs.Agent, hubs.Space, hubs.Execution, ids.Skill, ids.User]) {
      const { data, errors } = await ask(NODE, { id }, reader)
      expect(data).toEqual({ node: null })
      expect(errors).toMatchObject([{ extensions: { statusCode: 403 } }])
    }
  })
})

describe('a connection', () => {
  test('continues after any of its rows', async () => {
    const text = `query ($first: Int, $after: String, $id: ID!) {
      chat(id: $id) { messages(first: $first, after: $after) {
        totalCount edges { cursor node { id createdAt } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
      } }
    }`
    const page = async (first: number, after: string | null) =>
      (await ask(text, { id: hubs.Chat, first, after })).data.chat.messages
    const all = await page(100, null)
    expect(all.pageInfo).toMatchObject({ hasNextPage: true, hasPreviousPage: false })
    const middle = await page(5, all.edges[9].cursor)
    expect(middle.edges).toEqual(all.edges.slice(10, 15))
    expect(middle.pageInfo).toEqual({
      hasNextPage: true,
      hasPreviousPage: true,
      startCursor: all.edges[10].cursor,
      endCursor: all.edges[14].cursor,
    })
    expect(middle.totalCount).toBe(all.totalCount)
    const rest = await page(100, all.pageInfo.endCursor)
    expect(rest.pageInfo.hasNextPage).toBe(false)
    const seen = [...all.edges, ...rest.edges].map(({ node }: any) => node.id)
    expect(new Set(seen).size).toBe(all.totalCount)
    expect(seen).toHaveLength(all.totalCount)
  })

  test('refuses a cursor with a number that no column holds', async () => {
    const places: [string, (number: number) => unknown[]][] = [
      [`chat(id: "${hubs.Chat}") { list: messages`, (number) => [{ at: 0 }, number, 'a']],
      [`agent(id: "${hubs.Agent}") { list: versions`, (number) => [number]],
      [`execution(id: "${hubs.Execution}") { list: events`, (number) => [number]],
    ]
    for (const [place, cursorOf] of places) {
      for (const number of [2 ** 31, -(2 ** 31) - 1, 2 ** 53 - 1]) {
        const after = Buffer.from(JSON.stringify(cursorOf(number))).toString('base64url')
        const { message } = await ask(`query ($after: String) { ${place}(after: $after) { nodes { __typename } } } }`, {
          after,
        })
        expect(message).toBe('Invalid value for field: after. Expected an endCursor of this list')
      }
    }
  })

  test('a connection of many rows gives each the same as one alone', async () => {
    const CHATS = 'chats(first: 3) { totalCount nodes { id title } pageInfo { hasNextPage endCursor } }'
    const { data } = await ask(`{ agents(first: 1000) { nodes { id ${CHATS} } } }`, {})
    expect(data.agents.nodes.length).toBeGreaterThan(100)
    for (const agent of data.agents.nodes.slice(-15)) {
      const one = await ask(`query ($id: ID!) { agent(id: $id) { id ${CHATS} } }`, { id: agent.id })
      expect(agent).toEqual(one.data.agent)
    }
    expect(data.agents.nodes.some((agent: any) => agent.chats.pageInfo.hasNextPage)).toBe(true)
  })

  test("gives its rows' fields under any alias", async () => {
    for (const text of [
      '{ list: chats { nodes { NAME: agent { name } messageCount } } }',
      '{ list: spaces { nodes { NAME: owner { name } chatCount } } }',
    ]) {
      const [plain, aliased] = [
        await ask(text.replace('NAME', 'plain'), {}),
        await ask(text.replace('NAME', 'aliased'), {}),
      ]
      expect([plain.errors, aliased.errors]).toEqual([undefined, undefined])
      const expected = plain.data.list.nodes.map(({ plain, ...rest }: any) => ({ ...rest, aliased: plain }))
      expect(aliased.data.list.nodes).toEqual(expected)
    }
  })

  test('hides private rows from other users, also from its total', async () => {
    const { db } = server.service.deps
    const ben = await server.member({ organization: 'Known' })
    const text = `{ spaces(first: 3) { nodes { id } } agents(first: 3) { nodes { id executions(first: 5) { totalCount nodes { id } } } } }`
    const before = (await ask(text, {}, ben)).data
    const [agent] = before.agents.nodes
    expect(agent.executions).toMatchObject({ totalCount: 1 })
    const { spaceId } = await db.execution.findUniqueOrThrow({ where: { id: agent.executions.nodes[0].id } })
    await db.space.update({ where: { id: spaceId }, data: { visibility: 'private', ownerId: ann.userId } })
    const after = (await ask(text, {}, ben)).data
    expect(after.agents.nodes[0].executions).toEqual({ totalCount: 0, nodes: [] })
    expect(after.spaces.nodes.map(({ id }: any) => id)).not.toContain(spaceId)
    expect((await ask(text, {}, ann)).data.agents.nodes[0].executions.totalCount).toBe(1)
  })
})

test('an organization lists its members without their e-mail addresses', async () => {
  const text = `query ($after: String) {
    organization { id name slug members(first: 100, after: $after) { nodes { role user { id name } } pageInfo { endCursor } } }
  }`
  const first = await ask(text, {})
  expect(first.data.organization.members.nodes).toHaveLength(100)
  const { data, errors } = await ask(text, { after: first.data.organization.members.pageInfo.endCursor })
  expect(errors).toBeUndefined()
  expect(data.organization).toMatchObject({ id: ann.organizationId, name: 'Known', slug: 'known' })
  expect(data.organization.members.nodes).toContainEqual({
    role: 'owner',
    user: expect.objectContaining({ id: ann.userId }),
  })
  expect((await ask('{ organization { members { nodes { user { email } } } } }', {})).message).toMatch(/Cannot query/)
})
