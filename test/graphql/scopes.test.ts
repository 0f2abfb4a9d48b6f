import { GraphQLList, GraphQLObjectType, GraphQLSchema, GraphQLString } from 'graphql'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createSchema } from '../../src/graphql/schema.ts'
import { guard } from '../../src/graphql/scopes.ts'
import type { Caller } from '../../src/router.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { callerOf, graphql, refusal, subscribe } from './support.ts'

let server: TestServer
let agentId: string
let executionId: string

beforeAll(async () => {
  server = await startServer()
  const caller = callerOf(server)
  agentId = (await caller.agents.create({ name: 'Ada', systemPrompt: 'secret prompt' })).id
  executionId = (await caller.agents.execute({ id: agentId, message: 'hi' })).executionId
})
afterAll(() => server[Symbol.asyncDispose]())

const FORBIDDEN = "You don't have permission to access this resource"
const SCOPES = [
  'agents:read',
  'agents:write',
  'agents:execute',
  'executions:read',
  'executions:write',
  'tasks:read',
  '*',
]

/** Each root field, with input that is well-formed and finds nothing, and the procedure that it stands for. */
const ROOTS: Record<string, [text: string, procedure: (caller: Caller) => Promise<unknown>]> = {
  'Query.agents': ['{ agents { total } }', (caller) => caller.agents.list({})],
  'Query.agent': ['{ agent(id: "x") { id } }', (caller) => caller.agents.get({ id: 'x' })],
  'Query.publicAgents': ['{ publicAgents { total } }', (caller) => caller.agents.listPublic({})],
  'Query.publicAgent': ['{ publicAgent(id: "x") { id } }', (caller) => caller.agents.getPublic({ id: 'x' })],
  'Query.executions': ['{ executions { total } }', (caller) => caller.executions.list({})],
  'Query.execution': ['{ execution(id: "x") { id } }', (caller) => caller.executions.get({ id: 'x' })],
  'Query.executionTree': [
    '{ executionTree(id: "x") { usage { inputTokens } } }',
    (caller) => caller.executions.tree({ id: 'x' }),
  ],
  'Query.executionLogs': ['{ executionLogs(id: "x") { nextAfter } }', (caller) => caller.executions.logs({ id: 'x' })],
  'Query.models': ['{ models { defaultModel } }', (caller) => caller.models.list()],
  'Mutation.createAgent': [
    'mutation { createAgent(input: {name: "x"}) { chatUrl } }',
    (caller) => caller.agents.create({ name: 'x' }),
  ],
  'Mutation.updateAgent': [
    'mutation { updateAgent(input: {id: "x"}) { message } }',
    (caller) => caller.agents.update({ id: 'x' }),
  ],
  'Mutation.deleteAgent': [
    'mutation { deleteAgent(id: "x") { message } }',
    (caller) => caller.agents.delete({ id: 'x' }),
  ],
  'Mutation.executeAgent': [
    'mutation { executeAgent(input: {id: "x", message: "m"}) { status } }',
    (caller) => caller.agents.execute({ id: 'x', message: 'm' }),
  ],
  'Mutation.cancelExecution': [
    'mutation { cancelExecution(id: "x") { message } }',
    (caller) => caller.executions.cancel({ id: 'x' }),
  ],
  'Subscription.executionEvents': [
    'subscription { executionEvents(executionId: "x") { seq } }',
    (caller) => caller.executions.events({ executionId: 'x' }),
  ],
}

const messageOf = async (text: string, token: string): Promise<unknown> => {
  if (!text.startsWith('subscription')) return (await graphql(server, text, {}, { token })).message
  const [first] = await Array.fromAsync(subscribe(server, text, {}, { token }))
  return first.errors[0].message
}

describe('a token', () => {
  test('every root field has a case', () => {
    const schema = createSchema()
    const types = [schema.getQueryType(), schema.getMutationType(), schema.getSubscriptionType()]
    const fields = types.flatMap((type) => Object.keys(type!.getFields()).map((field) => `${type!.name}.${field}`))
    expect(fields.sort()).toEqual(Object.keys(ROOTS).sort())
  })

  test.each(SCOPES)('with %s is let into the same root fields as into the procedures', async (scope) => {
    const { token } = await server.member({ scopes: [scope] })
    const caller = callerOf(server, token)
    const told: Record<string, unknown> = {}
    const expected: Record<string, unknown> = {}
    for (const [field, [text, procedure]] of Object.entries(ROOTS)) {
      told[field] = await messageOf(text, token)
      expected[field] = await procedure(caller).then(
        () => undefined,
        () => refusal(procedure(caller)).then(({ message }) => message),
      )
    }
    expect(told).toEqual(expected)
    if (scope === 'tasks:read') {
      const open = Object.keys(told).filter((field) => told[field] !== FORBIDDEN)
      expect(open).toEqual(['Query.models'])
    }
  })

  test.each([
    [
      'executions:read',
      'query ($id: ID!) { execution(id: $id) { id agent { systemPrompt } } }',
      ['execution', 'agent'],
    ],
    ['executions:read', '{ executions { nodes { id agent { systemPrompt } } } }', ['executions', 'nodes', 0, 'agent']],
    [
      'agents:read',
      'query ($agentId: ID!) { agent(id: $agentId) { id executions { message } } }',
      ['agent', 'executions'],
    ],
    ['agents:execute', 'query ($id: ID!) { execution(id: $id) { id agent { name } } }', ['execution', 'agent']],
    ['agents:execute', 'query ($id: ID!) { execution(id: $id) { id parent { id } } }', ['execution', 'parent']],
    ['agents:execute', 'query ($id: ID!) { execution(id: $id) { id children { id } } }', ['execution', 'children']],
  ])('with %s alone reads no rows of another type: %s', async (scope, text, path) => {
    const { db } = server.service.deps
    const { userId } = await db.execution.findUniqueOrThrow({ where: { id: executionId } })
    const { token, tokenId } = await server.member({ scopes: [scope] })
    // The run is their own: what they lack is the scope.
    await db.token.update({ where: { id: tokenId }, data: { userId } })
    const answer = await graphql(server, text, { id: executionId, agentId }, { token })
    expect(answer.errors).toMatchObject([
      { message: FORBIDDEN, path, extensions: { statusCode: 403, code: 'FORBIDDEN' } },
    ])
    expect(JSON.stringify(answer.data)).not.toMatch(/secret prompt|"hi"/)
    // The rest of the answer is there.
    expect(path.reduce((value, key) => value[key], answer.data)).toBeNull()
  })

  test('with agents:execute reads its own runs, and nobody else’s', async () => {
    const { token } = await server.member({ scopes: ['agents:execute'] })
    const text = 'mutation ($id: ID!) { executeAgent(input: {id: $id, message: "mine"}) { execution { id message } } }'
    const { data, errors } = await graphql(server, text, { id: agentId }, { token })
    expect(errors).toBeUndefined()
    const get = 'query ($id: ID!) { execution(id: $id) { message } }'
    const own = await graphql(server, get, { id: data.executeAgent.execution.id }, { token })
    expect(own.data).toEqual({ execution: { message: 'mine' } })
    const other = await graphql(server, get, { id: executionId }, { token })
    expect({ data: other.data, message: other.message }).toEqual({ data: { execution: null }, message: FORBIDDEN })
  })
})

describe('the schema', () => {
  type Extensions = Record<string, unknown>
  const rows = (extensions: Extensions) =>
    new GraphQLObjectType({ name: 'Row', fields: { id: { type: GraphQLString } }, extensions })
  const schemaOf = (type: GraphQLObjectType, extensions: Extensions = {}) =>
    new GraphQLSchema({
      query: new GraphQLObjectType({ name: 'Query', fields: { rows: { type: new GraphQLList(type), extensions } } }),
    })

  test('a type that shows rows must say which scopes it needs', () => {
    expect(() => guard(schemaOf(rows({ pothosPrismaModel: 'Row' }), { scopes: [] }))).toThrow(
      'The type Row shows rows and declares no scopes',
    )
    expect(() => guard(schemaOf(rows({ pothosPrismaModel: 'Row', scopes: ['agents:read'] })))).not.toThrow()
  })

  test('a root field must say which scopes it needs', () => {
    expect(() => guard(schemaOf(rows({})))).toThrow('The field Query.rows declares no scopes')
    expect(() => guard(schemaOf(rows({}), { scopes: [] }))).not.toThrow()
  })
})
