import {
  type GraphQLInputType,
  GraphQLList,
  GraphQLObjectType,
  GraphQLSchema,
  GraphQLString,
  getNamedType,
  getNullableType,
  isEnumType,
  isInputObjectType,
  isLeafType,
  isListType,
  isNonNullType,
  type OperationTypeNode,
} from 'graphql'
import { describe, expect, test } from 'vitest'
import { covers, type Scope } from '../../src/auth/scopes.ts'
import { extensionsOf } from '../../src/graphql/builder.ts'
import { schema } from '../../src/graphql/schema.ts'
import { guard } from '../../src/graphql/scopes.ts'
import { appRouter } from '../../src/router.ts'
import { sample } from '../support/sample.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { callerOf, graphql, subscribe } from './support.ts'

const server = await use(startServer())
const caller = callerOf(server)
const agentId: string = (await caller.agents.create({ name: 'Ada', systemPrompt: 'secret prompt' })).id
const executionId = (await caller.agents.execute({ id: agentId, message: 'hi' })).executionId

const PROCEDURES = appRouter._def.procedures as unknown as Record<string, unknown>

const FORBIDDEN = "You don't have permission to access this resource"

type RootField = { name: string; text: string; procedure: string; scopes: readonly Scope[] }

/** Each field of Query, Mutation and Subscription, with values that match nothing. */
const ROOTS: RootField[] = (['query', 'mutation', 'subscription'] as const).flatMap((operation) => {
  const root = schema.getRootType(operation as OperationTypeNode)!
  return Object.values(root.getFields()).map((field) => {
    const args = field.args.flatMap(({ name, type }) =>
      isNonNullType(type) || (operation === 'subscription' && ['id', 'executionId', 'since'].includes(name))
        ? `${name}: ${literal(getNullableType(type), name)}`
        : [],
    )
    const given = args.length ? `(${args.join(', ')})` : ''
    const selection = isLeafType(getNamedType(field.type)) ? '' : '{ __typename }'
    const { procedure, scopes: own = [] } = extensionsOf(field)
    const [path = 'none'] = Object.entries(PROCEDURES).find(([, known]) => known === procedure) ?? []
    const { meta } = (procedure?._def ?? {}) as { meta?: { scopes?: readonly Scope[] } }
    const scopes = procedure ? (meta?.scopes ?? []) : own
    return {
      name: `${root.name}.${field.name}`,
      text: `${operation} { ${field.name}${given} ${selection} }`,
      procedure: path,
      scopes,
    }
  })
})

/** Returns a literal of the type. An organization is the caller's, because another one gives a 403 of its own. */
function literal(type: GraphQLInputType, name = ''): string {
  if (isNonNullType(type)) return literal(type.ofType, name)
  if (/^org(anization)?Id$/.test(name)) return '"ORGANIZATION"'
  if (isListType(type)) return `[${literal(type.ofType)}]`
  if (isEnumType(type)) return type.getValues()[0]!.name
  if (isInputObjectType(type)) {
    const required = Object.values(type.getFields()).filter((field) => isNonNullType(field.type))
    return `{${required.map((field) => `${field.name}: ${literal(field.type, field.name)}`).join(', ')}}`
  }
  return { Int: '1', Float: '1', Boolean: 'true', DateTime: '"2100-01-01T00:00:00Z"' }[type.name] ?? '"x"'
}

/** Fields without a procedure. */
const OF_GRAPHQL = ['Query.node', 'Query.organization', 'Subscription.chatChanges', 'Subscription.taskChanges']

/** Returns the code of the error. A missing role and a missing scope are both 403, with different codes. */
const codeOf = async (root: RootField, { token, organizationId }: Member): Promise<unknown> => {
  const text = root.text.replace('ORGANIZATION', organizationId)
  const [answer] = text.startsWith('subscription')
    ? await Array.fromAsync(subscribe(server, text, {}, { token }))
    : [await graphql(server, text, {}, { token })]
  return answer.errors?.[0].extensions.code
}

describe('a token', () => {
  test('meets one procedure per root field, except those of GraphQL alone', () => {
    const names = ROOTS.filter(({ name }) => !OF_GRAPHQL.includes(name)).map(({ procedure }) => procedure)
    expect(names).not.toContain('none')
    expect(names).toEqual([...new Set(names)])
  })

  const scopes = [...new Set(['usage:read', '*', ...ROOTS.flatMap(({ scopes }) => scopes)])]
  const isClosed = (scope: string, root: RootField) =>
    root.scopes.length > 0 && !root.scopes.some((needed) => covers([scope], needed))
  // In the sample is each root field with each scope that it needs and with one that does not suffice.
  const calls = sample(
    scopes.flatMap((scope) => ROOTS.map((root) => ({ scope, root }))),
    ({ scope, root }) => [
      `${root.name} ${isClosed(scope, root) ? 'closed' : root.scopes.length ? scope : 'open'}`,
      `${scope} ${isClosed(scope, root)}`,
    ],
  )

  test.each(scopes)(
    'a token with %s can use the root fields whose procedures need it, and no others',
    async (scope) => {
      const member = await server.member({ scopes: [scope] })
      const refused: Record<string, boolean> = {}
      const expected: Record<string, boolean> = {}
      for (const call of calls) {
        if (call.scope !== scope) continue
        const { root } = call
        refused[root.name] = (await codeOf(root, member)) === 'insufficient_scope'
        expected[root.name] = isClosed(scope, root)
      }
      expect(Object.keys(refused)).not.toEqual([])
      expect(refused).toEqual(expected)
    },
  )

  test.each([
    [
      'executions:read',
      'query ($id: ID!) { execution(id: $id) { id agent { systemPrompt } } }',
      ['execution', 'agent'],
    ],
    ['executions:read', '{ executions { nodes { id agent { systemPrompt } } } }', ['executions', 'nodes', 0, 'agent']],
    [
      'agents:read',
      'query ($agentId: ID!) { agent(id: $agentId) { id executions { nodes { message } } } }',
      ['agent', 'executions'],
    ],
    ['agents:execute', 'query ($id: ID!) { execution(id: $id) { id agent { name } } }', ['execution', 'agent']],
    ['agents:execute', 'query ($id: ID!) { execution(id: $id) { id parent { id } } }', ['execution', 'parent']],
    [
      'agents:execute',
      'query ($id: ID!) { execution(id: $id) { id children { nodes { id } } } }',
      ['execution', 'children'],
    ],
  ])('a token with %s alone reads no rows of another type: %s', async (scope, text, path) => {
    const { db } = server.service.deps
    const { userId } = await db.execution.findUniqueOrThrow({ where: { id: executionId } })
    const { token, tokenId } = await server.member({ scopes: [scope] })
    // The run belongs to its user, so only the scope is missing.
    await db.token.update({ where: { id: tokenId }, data: { userId } })
    const answer = await graphql(server, text, { id: executionId, agentId }, { token })
    expect(answer.errors).toMatchObject([
      { message: FORBIDDEN, path, extensions: { statusCode: 403, code: 'insufficient_scope' } },
    ])
    expect(JSON.stringify(answer.data)).not.toMatch(/secret prompt|"hi"/)
    // The rest of the answer is present.
    expect(path.reduce((value, key) => value[key], answer.data)).toBeNull()
  })

  test('a token with agents:execute reads its own runs, and no others', async () => {
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

  test('refuses a type of rows without scopes', () => {
    expect(() => guard(schemaOf(rows({ pothosPrismaModel: 'Row' }), { scopes: [] }))).toThrow(
      'The type Row returns rows but declares no scopes',
    )
    expect(() => guard(schemaOf(rows({ pothosPrismaModel: 'Row', scopes: ['agents:read'] })))).not.toThrow()
  })

  test('refuses a root field without scopes', () => {
    expect(() => guard(schemaOf(rows({})))).toThrow('The field Query.rows declares no scopes')
    expect(() => guard(schemaOf(rows({}), { scopes: [] }))).not.toThrow()
  })
})
