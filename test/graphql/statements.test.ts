import {
  type GraphQLField,
  type GraphQLObjectType,
  getNamedType,
  getNullableType,
  isInterfaceType,
  isLeafType,
  isListType,
  isNonNullType,
  isObjectType,
  parse,
} from 'graphql'
import { expect, test } from 'vitest'
import { checkLimits } from '../../src/graphql/document-limits.ts'
import { schema } from '../../src/graphql/schema.ts'
import { newId } from '../../src/lib/id.ts'
import { stopClock } from '../support/clock.ts'
import { walksOf } from '../support/plan.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { fill, type Hubs, MANY } from './many.ts'
import { graphql } from './support.ts'

const server = await use(startServer({}, { clock: stopClock(new Date().toISOString()) }))
// A member, because the visibility rules of a member need more tables.
const member = await server.member({ organization: 'Many' })
const hubs = await fill(server, member)
const admin = await server.member({ organization: 'Many', role: 'admin' })
// Records the first use of the token. No further one follows, because no minute passes.
for (const who of [member, admin]) await graphql(server, '{ __typename }', {}, who)

type Field = GraphQLField<unknown, unknown>

const query = schema.getQueryType()!
const objects = Object.values(schema.getTypeMap()).filter(
  (type): type is GraphQLObjectType => isObjectType(type) && !type.name.startsWith('__'),
)
const fieldsOf = (type: unknown): Field[] =>
  isObjectType(type) || isInterfaceType(type) ? Object.values(type.getFields()) : []
const rowsOf = (connection: unknown) => getNamedType(fieldsOf(connection).find(({ name }) => name === 'nodes')!.type)
const isConnection = ({ type }: Field) => getNamedType(type).name.endsWith('Connection')
const isRow = (type: GraphQLObjectType) => !/(Connection|Edge|Payload)$/.test(type.name) && type.name !== 'PageInfo'

/**
 * Returns a field with everything below it that needs no arguments, `depth` rows deep. Returns null if that is nothing.
 */
function ask(field: Field, depth: number): string | null {
  const type = getNamedType(field.type)
  if (field.args.some(({ type }) => isNonNullType(type))) return null
  if (isLeafType(type)) return field.name
  if (depth === 0) return null
  if (!isConnection(field)) return `${field.name} { ${all(type, depth - 1)} }`
  const nodes = rowsOf(type)
  const counted = fieldsOf(type).some(({ name }) => name === 'totalCount') ? 'totalCount' : ''
  return `${field.name}(first: 2) { ${counted} nodes { ${all(nodes, depth - 1)} } }`
}

const all = (type: unknown, depth: number): string =>
  ['__typename', ...fieldsOf(type).flatMap((field) => ask(field, depth) ?? [])].join(' ')

/** Rows of a list. With few of them one document may select many fields of each. */
const SOME = 6
const MORE = 12

type List = { name: string; path: string; texts: string[] }

/** Puts as much into each document as the limits allow. */
function pack(parts: readonly string[], document: (of: string) => string): string[] {
  const whole = document(parts.join(' '))
  if (parts.length === 1 || isAllowed(whole)) return [whole]
  const half = Math.ceil(parts.length / 2)
  return [...pack(parts.slice(0, half), document), ...pack(parts.slice(half), document)]
}

/** The types of rows in the lists of Query. */
const inQuery = new Set(
  fieldsOf(query)
    .filter(isConnection)
    .map(({ type }) => getNamedType(rowsOf(getNamedType(type)))),
)

/**
 * The connections of the schema, each with documents that select all fields of its rows and of related rows. The lists
 * of Query also select the rows to which those refer, which are loaded by the same code from any list.
 */
const LISTS: List[] = objects.flatMap((type) =>
  fieldsOf(type)
    .filter(isConnection)
    .map((field) => {
      const row = type.name.charAt(0).toLowerCase() + type.name.slice(1)
      const one = row === 'organization' ? row : `${row}(id: "HUB")`
      const wrap = (inner: string) => (type === query ? `{ ${inner} }` : `{ ${one} { ${inner} } }`)
      const connection = getNamedType(field.type)
      const nodes = rowsOf(connection)
      const counted = fieldsOf(connection).some(({ name }) => name === 'totalCount') ? 'totalCount' : ''
      const where = field.args.some(({ name, type }) => name === 'id' && isNonNullType(type)) ? ', id: "OWN"' : ''
      const document = (of: string) =>
        `query ($n: Int) ${wrap(`${field.name}(first: $n${where}) { ${counted} edges { cursor node { __typename ${of} } } }`)}`
      const depth = type === query || !inQuery.has(getNamedType(nodes)) || process.env.NIGHTLY === '1' ? 2 : 1
      const parts = fieldsOf(nodes).flatMap((of) => {
        const asked = [ask(of, depth), ask(of, 1), `${of.name} { __typename }`]
        return asked.find((part) => part && isAllowed(document(part))) ?? []
      })
      return { name: `${type.name}.${field.name}`, path: type.name, texts: pack(parts, document) }
    }),
)

function isAllowed(text: string): boolean {
  try {
    checkLimits(schema, parse(text), { n: MORE })
    return true
  } catch {
    return false
  }
}

const rowsIn = (data: any): unknown[] => {
  const [value] = Object.values(data) as any[]
  return value.edges ?? rowsIn(value)
}

const FOR_ADMINS = ['Query.auditEvents', 'Query.invitations', 'Query.webhooks', 'Webhook.deliveries']

test.each(LISTS)('$name takes as many statements for twelve rows as for six', async ({ name, path, texts }) => {
  for (const text of texts) {
    async function statements(n: number): Promise<number> {
      const document = text.replace('HUB', hubs[path as keyof Hubs]).replace('OWN', member.organizationId)
      const sent = await server.statementsOf(async () => {
        const { data, errors } = await graphql(server, document, { n }, FOR_ADMINS.includes(name) ? admin : member)
        expect(errors).toBeUndefined()
        expect(rowsIn(data)).toHaveLength(n)
      })
      return sent.length
    }
    expect(await statements(MORE), text).toBe(await statements(SOME))
  }
})

test.each(LISTS)('$name reads only the rows that it shows', async ({ path, texts }) => {
  for (const text of texts) {
    // Counting has to read them.
    const document = text
      .replace('HUB', hubs[path as keyof Hubs])
      .replace('OWN', member.organizationId)
      .replaceAll('totalCount', '')
    const sent = await server.statementsOf(() => graphql(server, document, { n: SOME }, member))
    for (const sql of sent) expect(walksOf(server, sql), sql).toEqual([])
  }
})

test('a tree takes as many statements for a hundred rows as for ten', async () => {
  const ofRun = 'id agent { name } user { name } chat { title messageCount } task { title } parent { id }'
  const statements = (id: string, rows: number) =>
    server.statementsOf(async () => {
      const text = `{ executionTree(id: "${id}") { executions { ${ofRun} } } }`
      const { data, errors } = await graphql(server, text, {}, member)
      expect(errors).toBeUndefined()
      expect(data.executionTree.executions).toHaveLength(rows)
    })
  expect(await statements(hubs.Execution, 2 * MANY)).toHaveLength((await statements(hubs.few, 11)).length)
})

test('usage takes as many statements for a hundred agents as for ten', async () => {
  const statements = (end: string, rows: number) =>
    server.statementsOf(async () => {
      const fields = `orgId: "${member.organizationId}", start: "2026-01-01", end: "${end}", period: monthly`
      const text = `{ usage(${fields}) { usage { byAgent { agentId agent { name user { name } } } } } }`
      const { data, errors } = await graphql(server, text, {}, member)
      expect(errors).toBeUndefined()
      expect(data.usage.usage[0].byAgent).toHaveLength(rows)
      expect(data.usage.usage[0].byAgent[0].agent.user.name).toMatch(/^U/)
    })
  expect(await statements('2026-01-02', MANY)).toHaveLength((await statements('2026-01-01', 10)).length)
})

test('a former member takes as many statements with twenty things as with one', async () => {
  const organization = 'Left behind'
  const owner = await server.member({ organization, role: 'owner' })
  // The first use of a token is recorded.
  await graphql(server, '{ __typename }', {}, owner)
  const { db } = server.service.deps
  async function leave() {
    const { organizationId, userId, token } = await server.member({ organization })
    await graphql(server, 'mutation { createChat(input: {title: "T"}) { id } }', {}, { token })
    await db.membership.deleteMany({ where: { organizationId, userId } })
    return userId
  }
  const statements = (of: string, rows: number) =>
    server.statementsOf(async () => {
      const text = `{ formerMembers(id: "${owner.organizationId}") { name things { kind count } } ${of} }`
      const { data, errors } = await graphql(server, text, {}, owner)
      expect(errors).toBeUndefined()
      expect(data.formerMembers).toHaveLength(rows)
    })
  const userId = await leave()
  const things = `formerMemberThings(id: "${owner.organizationId}", userId: "${userId}") { kind id name }`
  const one = await statements(things, 1)
  for (let left = 1; left < 20; left++) await leave()
  expect(await statements(things, 20)).toHaveLength(one.length)
})

/**
 * Fields of listed rows that are rows of a table themselves: one row, or a list, which takes one statement to find and
 * one to read.
 */
const RELATIONS = fieldsOf(query)
  .filter(isConnection)
  .flatMap((list) =>
    fieldsOf(rowsOf(getNamedType(list.type))).flatMap((field) => {
      const type = getNamedType(field.type)
      const rows = isConnection(field) ? rowsOf(type) : type
      if (!rows.extensions.pothosPrismaModel) return []
      const [leaf] = fieldsOf(rows).filter(({ name }) => ['id', 'role', 'version', 'path'].includes(name))
      const inner = `{ ${leaf!.name} }`
      return {
        list: list.name,
        field: field.name,
        // The messages of chats take one more, which finds their branches.
        ...(isConnection(field)
          ? { inner: `(first: 2) { nodes ${inner} }`, most: field.name === 'messages' ? 3 : 2 }
          : { inner, most: 1 }),
      }
    }),
  )

test.each(RELATIONS)(
  '$field of $list takes one read for all rows of the list',
  async ({ list, field, inner, most }) => {
    const statements = (of: string) =>
      server.statementsOf(async () => {
        const who = FOR_ADMINS.includes(`Query.${list}`) ? admin : member
        const { errors } = await graphql(server, `{ ${list}(first: 10) { nodes { __typename ${of} } } }`, {}, who)
        expect(errors).toBeUndefined()
      })
    const alone = await statements('')
    const sent = await statements(field + inner)
    expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(alone.length + most)
  },
)

test.each([
  ['a row that a row of a row names', 'executions { nodes { chat { agent { user { name } } } } }', 4],
  [
    'a row that each of a list of each names',
    // One more finds the branches of chats that have some.
    'chats { nodes { messages(first: 2) { nodes { execution { status } } } } }',
    5,
  ],
  [
    'a list of each of a list of each',
    'agents { nodes { missions(first: 2) { nodes { runs(first: 2) { nodes { status } } } } } }',
    5,
  ],
])('%s is read in one statement', async (_, text, most) => {
  const sent = await server.statementsOf(() => graphql(server, `{ ${text} }`, {}, member))
  // One statement authenticates the caller.
  expect(sent.length, sent.join('\n')).toBe(most + 1)
})

test('the longest allowed lists within lists are read', async () => {
  const { db } = server.service.deps
  const { token, organizationId, userId: ownerId } = await server.member({ organization: 'Long lists' })
  const spaces = Array.from({ length: 370 }, () => newId())
  const now = new Date()
  const times = { createdAt: now, updatedAt: now }
  await db.space.createMany({
    data: spaces.map((id) => ({ id, organizationId, name: 'S', visibility: 'organization', ownerId, ...times })),
  })
  await db.$executeRaw`
    INSERT INTO "Task" ("id", "organizationId", "title", "description", "status", "priority", "spaceId", "createdBy", "createdAt", "updatedAt")
    WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 100)
    SELECT s."id" || '-' || n.i, s."organizationId", 'T', '', 'pending', 'low', s."id", s."ownerId", s."createdAt", s."createdAt"
    FROM "Space" s JOIN n ON TRUE WHERE s."organizationId" = ${organizationId} AND s."name" = 'S'`
  const text = '{ spaces(first: 370) { nodes { tasks(first: 100) { nodes { id } } } } }'
  const { data, errors } = await graphql(server, text, {}, { token })
  expect(errors?.[0]).toBeUndefined()
  expect(data.spaces.nodes.flatMap((space: any) => space.tasks.nodes)).toHaveLength(37_000)
})

/** Lists without a connection: they must be selected within their row, or be tested above. */
test('no list of the schema is untested', () => {
  const asked = new Set(LISTS.flatMap(({ texts }) => texts.flatMap((text) => text.match(/\w+/g) ?? [])))
  const plain = objects.filter(isRow).flatMap((type) =>
    fieldsOf(type)
      .filter((field) => isListType(getNullableType(field.type)) && !isLeafType(getNamedType(field.type)))
      .map((field) => ({ name: `${type.name}.${field.name}`, field: field.name })),
  )
  const left = plain.filter(({ field }) => !asked.has(field)).map(({ name }) => name)
  // These are no rows, or tested above.
  expect(left.sort()).toEqual([
    'ClientToolEvent.calls',
    'CurrentSession.organizations',
    'FormerMember.things',
    'ModelList.models',
    'Mutation.claimFormerMemberThings',
    'Profile.organizations',
    'Query.browserSessions',
    'Query.formerMemberThings',
    'Query.formerMembers',
    'Query.limits',
    'Query.mcpCatalogue',
    'Query.mcpTools',
    'Query.organizationMembers',
    'Query.organizations',
    'Query.providers',
    'Query.serviceAccountKeys',
    'Query.serviceAccounts',
    'UsageEntry.byAgent',
    'UsageEntry.byModel',
    'UsageEntry.byUser',
  ])
})
