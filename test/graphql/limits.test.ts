import { getIntrospectionQuery, parse } from 'graphql'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { checkLimits, LIMITS } from '../../src/graphql/limits.ts'
import { createSchema } from '../../src/graphql/schema.ts'
import { stopClock } from '../support/clock.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { hostile } from './hostile.ts'
import { graphql, post } from './support.ts'

let server: TestServer

beforeAll(async () => {
  // That a token was used is written once a minute: no minute passes.
  server = await startServer({}, { clock: stopClock(new Date().toISOString()) })
  // The first use of a token is written down.
  await graphql(server, '{ __typename }')
})
afterAll(() => server[Symbol.asyncDispose]())

const GRAPHQL = { headers: { Accept: 'application/graphql-response+json' } }

describe('what asks for too much is refused before anything of it runs', () => {
  test.each(Object.entries(hostile))('%s', async (_, query) => {
    const { status, data, errors } = await graphql(server, query, {}, GRAPHQL)
    expect({ status, data }).toEqual({ status: 400, data: undefined })
    expect(errors?.length).toBeLessThanOrEqual(LIMITS.errors + 1)
    for (const { extensions } of errors!) expect(extensions).toMatchObject({ error: true, statusCode: 400 })
    // The one that tells who asks.
    expect(await server.statementsOf(() => post(server, { query }))).toHaveLength(1)
  })

  test.each([
    ['parents of parents', 'is nested too deeply. At most 12 levels'],
    ['aliases below', 'has too many aliases. At most 30'],
    ['two directives at every field', 'has too many directives. At most 30'],
    ['many mutations by a fragment', 'has too many fields at its root. At most 20'],
    ['many variables, all of them used', 'has too many variables. At most 50'],
    ['a list for each row', 'asks for too much at once (202001). At most 75000; give a smaller first'],
    ['long texts of many rows', 'asks for too much at once (101001). At most 75000; give a smaller first'],
    ['a long document', 'is too long. At most 100000 characters'],
  ])('%s, and it says why', async (name, why) => {
    const { message, errors } = await graphql(server, hostile[name]!)
    expect(message).toBe(`The document ${why}`)
    expect(errors?.[0]?.extensions.code).toBe('LIMIT_EXCEEDED')
  })

  test('by what the variables say, too, and not for those who say less', async () => {
    const text = 'query ($first: Int) { executions(first: $first) { nodes { message result } } }'
    expect((await graphql(server, text, { first: 10 })).errors).toBeUndefined()
    const refused = await graphql(server, text, { first: 1000 })
    expect(refused.message).toBe('The document asks for too much at once (101001). At most 75000; give a smaller first')
    expect(refused.errors?.[0]?.extensions.code).toBe('LIMIT_EXCEEDED')
    expect((await graphql(server, text, { first: 10 })).errors).toBeUndefined()
  })
})

describe('what asks for enough is let in', () => {
  const schema = createSchema()
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
  ])('the introspection query: %s', async (_, options) => {
    const { data, errors } = await graphql(server, getIntrospectionQuery(options))
    expect(errors).toBeUndefined()
    expect(data.__schema.types.map(({ name }: { name: string }) => name)).toContain('Agent')
  })
})

test('a long literal is no reason to refuse, a longer document is', async () => {
  const text = (length: number) =>
    `mutation { createAgent(input: {name: "n", systemPrompt: "${'p'.repeat(length)}"}) { agent { id } } }`
  expect((await graphql(server, text(90_000))).errors).toBeUndefined()
  expect((await graphql(server, text(100_000))).message).toBe('The document is too long. At most 100000 characters')
  const query = 'mutation ($p: String) { createAgent(input: {name: "n", systemPrompt: $p}) { agent { id } } }'
  expect((await graphql(server, query, { p: 'p'.repeat(100_000) })).errors).toBeUndefined()
})

/** In microseconds of the processor, client and server together: the least of many, since others share it. */
async function costOf(query: string): Promise<number> {
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < 10; i++) {
    const before = process.cpuUsage()
    await (await post(server, { query })).text()
    const { user, system } = process.cpuUsage(before)
    least = Math.min(least, user + system)
  }
  return least
}

test('refusing them costs at most five times what `{ __typename }` costs', async () => {
  await costOf('{ __typename }')
  const dear: Record<string, number> = {}
  for (const [name, query] of Object.entries(hostile)) {
    // Side by side, and again where something came between.
    for (let i = 0; i < 5; i++) {
      const ratio = (await costOf(query)) / (await costOf('{ __typename }'))
      dear[name] = Math.min(dear[name] ?? ratio, ratio)
      if (dear[name] <= 5) break
    }
  }
  expect(Object.fromEntries(Object.entries(dear).filter(([, ratio]) => ratio > 5))).toEqual({})
})

test('the server goes on after all of them', async () => {
  for (const query of Object.values(hostile)) await post(server, { query })
  expect((await graphql(server, '{ __typename }')).data).toEqual({ __typename: 'Query' })
})
