import { getIntrospectionQuery, parse } from 'graphql'
import { beforeAll, describe, expect, test } from 'vitest'
import { checkLimits } from '../../src/graphql/document-limits.ts'
import { LIMITS } from '../../src/graphql/limits.ts'
import { schema } from '../../src/graphql/schema.ts'
import { stopClock } from '../support/clock.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { hostile } from './hostile.ts'
import { callerOf, graphql, post } from './support.ts'

// The server records the last use of a token once a minute; here no minute passes.
const server = await use(startServer({}, { clock: stopClock(new Date().toISOString()) }))
// Records the first use of the token.
await graphql(server, '{ __typename }')

const GRAPHQL = { headers: { Accept: 'application/graphql-response+json' } }

describe('a query that asks for too much is refused before it runs', () => {
  test.each(Object.entries(hostile))('%s', async (_, query) => {
    const { status, data, errors } = await graphql(server, query, {}, GRAPHQL)
    expect({ status, data }).toEqual({ status: 400, data: undefined })
    expect(errors?.length).toBeLessThanOrEqual(LIMITS.errors + 1)
    for (const { extensions } of errors!) expect(extensions).toMatchObject({ error: true, statusCode: 400 })
    // The one statement authenticates the caller.
    expect(await server.statementsOf(() => post(server, { query }))).toHaveLength(1)
  })

  test.each([
    ['parents of parents', 'is nested too deeply. At most 15 levels'],
    ['aliases below', 'has too many aliases. At most 30'],
    ['two directives at every field', 'has too many directives. At most 30'],
    ['many mutations by a fragment', 'has too many fields at its root. At most 20'],
    ['many variables, all of them used', 'has too many variables. At most 50'],
    [
      'a list for each row',
      'asks for too much at once: agents would cost 261001. At most 250000; use agents(first: 957) or fewer fields',
    ],
    [
      'long texts of many rows',
      'asks for too much at once: agents would cost 432201. At most 250000; use agents(first: 115) or fewer fields',
    ],
    ['a long document', 'is too long. At most 100000 characters'],
    ['many tokens', 'has too many tokens. At most 2000'],
    ['deep lists', 'is nested too deeply. At most 15 levels'],
    [
      'a page of 1,000 for each of many',
      'asks for 1000 rows of each executions. At most 100 in a list; use executions(first: 100)',
    ],
    ['the same field again and again', 'selects too many fields of nodes. At most 200'],
    [
      'subagents of subagents',
      'asks for too much at once: agents would cost 1010103. At most 250000; use fewer fields',
    ],
  ])('%s is refused with the reason', async (name, why) => {
    const { message, errors } = await graphql(server, hostile[name]!)
    expect(message).toBe(`The document ${why}`)
    expect(errors?.[0]?.extensions.code).toBe('LIMIT_EXCEEDED')
  })

  test('brackets side by side are no nesting', async () => {
    const text = `{ agents(first: 1) { nodes { ${'versions(first: 1) { totalCount } '.repeat(105)} } } }`
    expect((await graphql(server, text)).errors).toBeUndefined()
  })

  test('variables count, and a query with smaller variables passes', async () => {
    const text =
      'query ($first: Int) { agents(first: $first) { nodes { executions(first: 100) { nodes { message result } } } } }'
    expect((await graphql(server, text, { first: 10 })).errors).toBeUndefined()
    const refused = await graphql(server, text, { first: 1000 })
    expect(refused.message).toBe(
      'The document asks for too much at once: agents would cost 2161001. At most 250000; use agents(first: 115) or fewer fields',
    )
    expect(refused.errors?.[0]?.extensions.code).toBe('LIMIT_EXCEEDED')
    expect((await graphql(server, text, { first: 10 })).errors).toBeUndefined()
  })
})

const times = (count: number, field: string) => Array.from({ length: count }, (_, i) => `a${i}: ${field}`).join(' ')

test.each([
  [
    'prompts of agent versions',
    `{ agents(first: 20) { nodes { versions(first: 100) { nodes { agent { ${times(30, 'systemPrompt')} } } } } } }`,
  ],
  ['texts of a model', events(`... on AssistantEvent { content { ... on TextBlock { ${times(26, 'text')} } } }`)],
  ['inputs of tools', events(`... on AssistantEvent { content { ... on ToolUseBlock { ${times(26, 'input')} } } }`)],
  ['results of tools', events(`... on ToolResultEvent { ${times(26, 'output')} }`)],
  [
    'calls of tools in messages',
    `{ chat(id: "x") { messages(first: 1000) { nodes { toolCalls { ${times(20, 'result')} } } } } }`,
  ],
  ['subagents of subagents', '{ agents(first: 1000) { nodes { subagents { subagents { id } } } } }'],
])('%s count towards the limit by length and number', (_, text) => {
  expect(() => checkLimits(schema, parse(text), {})).toThrow('asks for too much at once')
})

function events(selected: string): string {
  return `{ execution(id: "x") { events(first: 1000) { nodes { ${selected} } } } }`
}

describe('an answer of more than 20 million characters is refused', () => {
  test('an answer whose few long texts exceed the limit is refused, and the error has the remedy', async () => {
    const { db } = server.service.deps
    const { id: spaceId, organizationId, ownerId } = await db.space.findFirstOrThrow()
    const content = Buffer.alloc(1024 * 1024, 'x')
    const file = { spaceId, organizationId, content, size: content.length, updatedBy: ownerId, updatedAt: new Date() }
    await db.spaceFile.create({ data: { ...file, path: 'long' } })
    const ask = (count: number) =>
      graphql(server, `{ spaceFile(id: "${spaceId}", path: "long") { ${times(count, 'content')} } }`, {}, GRAPHQL)
    expect((await ask(19)).data.spaceFile.a18).toBe(content.toString())
    const refused = await ask(20)
    expect(refused).toMatchObject({ status: 400, data: undefined })
    expect(refused.message).toBe('The answer would be too long: ask for fewer rows, or fewer long texts')
    expect(refused.errors![0]!.extensions).toMatchObject({ code: 'LIMIT_EXCEEDED', error: true, statusCode: 400 })
  })

  test('an answer whose long aliases exceed the limit is refused, also on fields that fail', async () => {
    const name = 'n'.repeat(90_000)
    const { message } = await graphql(server, `{ __schema { types { fields { ${name}: name } } } }`)
    expect(message).toMatch(/^The answer would be too long/)
    const member = await server.member({ scopes: ['agents:read'] })
    // One after the other: on a busy machine the last of 200 transactions would wait too long for its turn.
    const agents = await Array.fromAsync({ length: 200 }, () =>
      callerOf(server).agents.create({ name: 'A', systemPrompt: 'p' }),
    )
    const failing = await graphql(server, `{ agents(first: 200) { nodes { ${name}: skills { id } } } }`, {}, member)
    expect(failing.message).toMatch(/^The answer would be too long/)
    for (const { id } of agents) await callerOf(server).agents.delete({ id })
  })
})

describe('a query within the limits runs', () => {
  const AGENT = `id name role systemPrompt visibility organizationId userId model description tags category image color
    initialGreeting skillIds mcpInstanceIds mcpTypes subagentIds allowedTools disallowedTools maxTurns version archived`

  test.each([
    [
      'the whole list of agents with all of their fields',
      `{ agents { totalCount pageInfo { endCursor } nodes { ${AGENT} } } }`,
    ],
    [
      'executions with their agents',
      '{ executions { nodes { id status preview usage { inputTokens } agent { id name } } } }',
    ],
    [
      'a list for one row',
      '{ agent(id: "x") { executions(first: 100) { nodes { id agent { name } } } versions(first: 100) { nodes { version } } } }',
    ],
    [
      'lists of the rows of a list',
      '{ agents(first: 50) { nodes { id executions(first: 20) { totalCount edges { cursor node { id status } } } } } }',
    ],
    [
      'a list for the only row of a list',
      '{ agents(first: 1) { nodes { executions(first: 100) { nodes { id result } } } } }',
    ],
    [
      'all events of a run',
      events(`__typename seq at ... on MetaEvent { chatId sessionId } ... on TextDeltaEvent { step text }
        ... on AssistantEvent { step content { ... on TextBlock { text } ... on ToolUseBlock { id name input } } }
        ... on ToolResultEvent { toolUseId output isError } ... on ApprovalEvent { approvalId toolUseId name }
        ... on ResultEvent { status usage { inputTokens outputTokens } } ... on ErrorEvent { status message }`),
    ],
    [
      'a chat with its tool calls',
      '{ chat(id: "x") { title messages(first: 100) { nodes { id role content toolCalls { id name input result isError } } } } }',
    ],
    ['a tree with its texts', '{ executionTree(id: "x") { executions { id status message result agent { name } } } }'],
    [
      'all spaces with their attachments',
      '{ spaces { nodes { id name agentRefs { agentId } skillRefs { skillId } mcpRefs { mcpId } } } }',
    ],
    ['one of many operations', 'query A { agents { totalCount } } query B { models { defaultModel } }'],
  ])('%s', (_, text) => {
    expect(() => checkLimits(schema, parse(text), {})).not.toThrow()
  })

  test.each([
    ['the standard one', {}],
    [
      'with all that it can ask for',
      {
        inputValueDeprecation: true,
        specifiedByUrl: true,
        schemaDescription: true,
        directiveIsRepeatable: true,
        oneOf: true,
      },
    ],
  ])('the introspection query runs: %s', async (_, options) => {
    const { data, errors } = await graphql(server, getIntrospectionQuery(options))
    expect(errors).toBeUndefined()
    expect(data.__schema.types.map(({ name }: { name: string }) => name)).toContain('Agent')
  })
})

describe("the limit of an answer's length", () => {
  const PROMPT = 'p'.repeat(100_000)
  let member: Member

  beforeAll(async () => {
    member = await server.member({ organization: 'Long' })
    const caller = callerOf(server, member.token)
    for (let i = 0; i < 10; i++) await caller.agents.create({ name: 'A', systemPrompt: PROMPT })
  })

  const times = (count: number, make: (i: number) => string) =>
    Array.from({ length: count }, (_, i) => make(i)).join(' ')
  const agents = (fields: string) => `agents(first: 10) { nodes { ${fields} } }`

  test.each([
    ['with many long rows', times(20, (i) => `a${i}: ${agents('systemPrompt')}`)],
    ['with the same text many times', agents(times(21, (i) => `a${i}: systemPrompt`))],
    ['with long related rows', times(20, (i) => `a${i}: chats(first: 10) { nodes { agent { systemPrompt } } }`)],
  ])('refuses an answer %s', async (_, fields) => {
    const options = { ...GRAPHQL, token: member.token }
    const { status, data, errors } = await graphql(server, `{ ${fields} }`, {}, options)
    expect({ status, data }).toEqual({ status: 400, data: undefined })
    expect(errors).toHaveLength(1)
    const { message, extensions } = errors![0]!
    expect(message).toBe('The answer would be too long: ask for fewer rows, or fewer long texts')
    expect(extensions).toMatchObject({ error: true, statusCode: 400, code: 'LIMIT_EXCEEDED' })
    expect(server.logs.join()).not.toContain('"level":50')
  })

  test('admits an answer of half the length', async () => {
    for (const fields of [
      times(10, (i) => `a${i}: ${agents('systemPrompt')}`),
      agents(times(10, (i) => `a${i}: systemPrompt`)),
    ]) {
      const { data, errors } = await graphql(server, `{ ${fields} }`, {}, member)
      expect(errors).toBeUndefined()
      expect(JSON.stringify(data).length).toBeGreaterThan(10_000_000)
    }
  })
})

test('a document of 2,000 tokens is parsed, and one of more is refused', async () => {
  const document = (tokens: number) => `{ # None in a comment.\n${'id '.repeat(tokens - 3)}"" }`
  const refusal = async (text: string) => (await graphql(server, text)).message
  expect(await refusal(document(2_000))).toBe('Syntax Error: Expected Name, found String "".')
  expect(await refusal(document(2_001))).toBe('The document has too many tokens. At most 2000')
  expect(await refusal(`{ ? ${'id '.repeat(2_000)}}`)).toBe('Syntax Error: Unexpected character: "?".')
})

test('a long literal is allowed until the whole document is too long', async () => {
  const text = (length: number) =>
    `mutation { createAgent(input: {name: "n", systemPrompt: "${'p'.repeat(length)}"}) { agent { id } } }`
  expect((await graphql(server, text(90_000))).errors).toBeUndefined()
  expect((await graphql(server, text(100_000))).message).toBe('The document is too long. At most 100000 characters')
  const query = 'mutation ($p: String) { createAgent(input: {name: "n", systemPrompt: $p}) { agent { id } } }'
  expect((await graphql(server, query, { p: 'p'.repeat(100_000) })).errors).toBeUndefined()
})

test('the server still answers after all hostile queries', async () => {
  for (const query of Object.values(hostile)) await post(server, { query })
  expect((await graphql(server, '{ __typename }')).data).toEqual({ __typename: 'Query' })
})
