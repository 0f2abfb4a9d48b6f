import { type ExecutionResult, parse, subscribe as run } from 'graphql'
import { describe, expect, test, vi } from 'vitest'
import type { ExecutionEvent } from '../../src/executions/engine/events/events.ts'
import { schema } from '../../src/graphql/schema.ts'
import { chainBelow } from '../support/chain.ts'
import { tickingClock } from '../support/clock.ts'
import { startModelServer } from '../support/model-server.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { callerOf, graphql, post, refusal, subscribe } from './support.ts'

const model = await use(startModelServer())
const server = await use(startServer(model.env, { clock: tickingClock() }))
const member = await server.member()
const foreigner = await server.member({ organization: 'Elsewhere' })

const createAgent = async (visibility: 'private' | 'organization' | 'public' = 'organization', token = server.token) =>
  (await callerOf(server, token).agents.create({ name: 'Ada', systemPrompt: 'secret prompt', visibility })).id
const agentId: string = await createAgent()

const EXECUTE = `mutation ($input: ExecuteAgentInput!) {
  executeAgent(input: $input) { executionId chatId sessionId status result execution { id status result message } }
}`
const CANCEL = 'mutation ($id: ID!) { cancelExecution(id: $id) { message execution { id status } } }'
const FIELDS = `id agentId agentVersion organizationId userId status waitingFor message result error model
  usage { inputTokens outputTokens } usageEstimated modelsTried stopReason tokenId warnings { code text } mediaIds files chatId sessionId spaceId taskId missionId parentExecutionId depth
  attempt executionTime createdAt startedAt completedAt updatedAt`
const GET = `query ($id: ID!) { execution(id: $id) { ${FIELDS} } }`
const EVENTS = `subscription ($id: ID!, $after: Int) {
  executionEvents(executionId: $id, after: $after) {
    __typename seq at
    ... on MetaEvent { executionId chatId sessionId }
    ... on TextDeltaEvent { step text }
    ... on AssistantEvent { step content { __typename ... on TextBlock { text } ... on ToolUseBlock { id name input } } }
    ... on ToolResultEvent { toolUseId output isError }
    ... on ResultEvent { executionId sessionId status usage { inputTokens outputTokens } }
    ... on ErrorEvent { executionId status message }
  }
}`

const execute = async (input: Record<string, unknown>, token = server.token) => {
  const { data, errors } = await graphql(
    server,
    EXECUTE,
    { input: { id: agentId, message: 'hi', ...input } },
    { token },
  )
  if (errors) throw new Error(errors[0]!.message)
  return data.executeAgent
}

const eventsOf = async (id: string, after?: number) => {
  const events: any[] = []
  for await (const { data, errors } of subscribe(server, EVENTS, { id, ...(after !== undefined && { after }) })) {
    expect(errors).toBeUndefined()
    events.push(data.executionEvents)
  }
  return events
}

describe('executeAgent', () => {
  test('answers with the result, and its session continues', async () => {
    model.script({ tokens: 'Hello to you.' }, { tokens: 'Again.' })
    const first = await execute({})
    expect(first).toMatchObject({ status: 'completed', result: 'Hello to you.' })
    const { executionId: id } = first
    expect(first.execution).toEqual({ id, status: 'completed', result: 'Hello to you.', message: 'hi' })
    const second = await execute({ sessionId: first.sessionId, message: 'and?' })
    expect(second).toMatchObject({ chatId: first.chatId, sessionId: first.sessionId, result: 'Again.' })
    const asked = model.requests.at(-1)!.body.messages.map(({ content }) => content)
    expect(asked).toEqual(['secret prompt', 'hi', 'Hello to you.', 'and?'])
  })

  test.each([
    ['no message', { message: undefined }],
    ['a null message', { message: null }],
    ['a blank message', { message: ' ' }],
    ['a message of another type', { message: 7 }],
    ['an unknown onBusy', { onBusy: 'wait' }],
    ['an unknown agent', { id: 'nobody' }],
    ['an unknown space', { spaceId: 'nowhere' }],
    ['an unknown chat', { chatId: 'nothing' }],
    ['an unknown session', { sessionId: 'nothing' }],
  ])('executeAgent with %s gives the same error as tRPC', async (_, given) => {
    const input = { id: agentId, message: 'hi', ...given }
    const expected = await refusal(callerOf(server).agents.execute(input as never))
    const { message, errors } = await graphql(server, EXECUTE, { input })
    expect(message).toBe(expected.message)
    expect(errors?.[0]?.extensions.statusCode).toBe(expected.status)
  })

  test('reports a failure of the model, with the reason', async () => {
    model.script({ error: { status: 500, message: 'out of memory' } })
    const { errors, message, data } = await graphql(server, EXECUTE, { input: { id: agentId, message: 'hi' } })
    expect(message).toBe('Chat execution failed')
    expect(errors?.[0]?.extensions).toMatchObject({
      statusCode: 500,
      code: 'provider_error',
      detail: expect.stringContaining('out of memory'),
    })
    expect(data).toBeNull()
  })

  test('finds no private agent of another user', async () => {
    const id = await createAgent('private')
    const { message } = await graphql(server, EXECUTE, { input: { id, message: 'hi' } }, { token: member.token })
    expect(message).toBe('Agent not found')
  })
})

describe('reading executions', () => {
  test('gives the same execution as tRPC', async () => {
    const { executionId: id } = await execute({})
    const { execution } = await callerOf(server).executions.get({ id })
    const { executionId: _, usage, ...rest } = execution
    const { data } = await graphql(server, GET, { id })
    expect(data.execution).toEqual({
      waitingFor: null,
      error: null,
      taskId: null,
      missionId: null,
      parentExecutionId: null,
      ...rest,
      usage: { inputTokens: usage.input_tokens, outputTokens: usage.output_tokens },
    })
  })

  test('lists the same rows, filtered and in pages', async () => {
    const other = await createAgent()
    for (const message of ['one', 'two', 'three']) await execute({ id: other, message })
    const text = `query ($agentId: ID, $status: ExecutionStatus, $since: DateTime, $first: Int, $after: String) {
      executions(agentId: $agentId, status: $status, since: $since, first: $first, after: $after) {
        nodes { id preview } pageInfo { hasNextPage endCursor } totalCount
      }
    }`
    for (const input of [
      { agentId: other },
      { agentId: other, first: 2 },
      { agentId: other, status: 'completed' as const },
      { agentId: other, status: 'failed' as const },
      { agentId: other, since: '2000-01-01T00:00:00Z' },
      { agentId: other, since: '2100-01-01T00:00:00Z' },
    ]) {
      const { first, ...rest } = { first: 1000, ...input }
      const { executions, nextCursor, total } = await callerOf(server).executions.list({
        ...rest,
        limit: first,
        count: true,
      })
      const nodes = executions.map(({ id, message }) => ({ id, preview: message }))
      const { data } = await graphql(server, text, input)
      const pageInfo = { hasNextPage: nextCursor !== null }
      expect(data.executions).toMatchObject({ nodes, pageInfo, totalCount: total })
    }
    const { executions } = (await graphql(server, text, { agentId: other, first: 2 })).data
    const next = (await graphql(server, text, { agentId: other, first: 2, after: executions.pageInfo.endCursor })).data
      .executions
    expect([...executions.nodes, ...next.nodes].map(({ preview }) => preview)).toEqual(['three', 'two', 'one'])

    const expected = await refusal(callerOf(server).executions.list({ status: 'done' } as never))
    expect((await graphql(server, text, { status: 'done' })).message).toBe(expected.message)
    for (const since of ['yesterday', '0000-01-01T00:00:00Z', '0001-01-01T00:00:00+14:00']) {
      const { message } = await refusal(callerOf(server).executions.list({ since }))
      expect((await graphql(server, text, { since })).message).toBe(message)
    }
  })

  test('gives unknown, foreign and hidden executions the same error', async () => {
    const hidden = await execute({ id: await createAgent('private') })
    for (const [id, token] of [
      ['nothing', server.token],
      [hidden.executionId, foreigner.token],
      [hidden.executionId, member.token],
    ] as const) {
      const answer = await graphql(server, GET, { id }, { token })
      expect({ data: answer.data, message: answer.message }).toEqual({
        data: { execution: null },
        message: 'Execution not found',
      })
    }
  })

  test("shows id, name and version of another organization's agent, and never the agent", async () => {
    const id = await createAgent('public', foreigner.token)
    const { executionId } = await execute({ id })
    const text = `query ($id: ID!) { execution(id: $id) { agentId agentName agentVersion agent { id systemPrompt } } }`
    const { data, errors } = await graphql(server, text, { id: executionId })
    expect(errors).toBeUndefined()
    expect(data.execution).toEqual({ agentId: id, agentName: 'Ada', agentVersion: 1, agent: null })

    // After the agent became private, its new name stays with its owner.
    await callerOf(server, foreigner.token).agents.update({ id, visibility: 'private', name: 'Secret' })
    expect((await graphql(server, text, { id: executionId })).data.execution.agentName).toBeNull()
    // They also see none of its runs.
    const owner = 'query ($id: ID!) { agent(id: $id) { executions { nodes { id } } } }'
    expect((await graphql(server, owner, { id }, { token: foreigner.token })).data.agent.executions.nodes).toEqual([])
  })

  test('gives the executions of a tree from the root down, with links between parent and children', async () => {
    const root = (await execute({ message: 'root' })).executionId
    const child = (await execute({ message: 'child', parentExecutionId: root })).executionId
    const text = `query ($id: ID!) {
      executionTree(id: $id) { executions { id depth } usage { inputTokens outputTokens } }
      execution(id: $id) { parent { id } children { nodes { id } } }
    }`
    const { data } = await graphql(server, text, { id: child })
    expect(data.executionTree.executions).toEqual([
      { id: root, depth: 0 },
      { id: child, depth: 1 },
    ])
    const { usage } = await callerOf(server).executions.tree({ id: child })
    expect(data.executionTree.usage).toEqual({ inputTokens: usage.input_tokens, outputTokens: usage.output_tokens })
    expect(data.execution).toEqual({ parent: { id: root }, children: { nodes: [] } })
    expect((await graphql(server, text, { id: root })).data.execution).toEqual({
      parent: null,
      children: { nodes: [{ id: child }] },
    })
  })

  test("gives a tree's requested run its long texts, and the others short ones, as REST does", async () => {
    const long = 'x'.repeat(200_000)
    const root = (await execute({ message: long })).executionId
    for (let i = 0; i < 5; i++) await execute({ message: long, parentExecutionId: root })
    const text = 'query ($id: ID!) { executionTree(id: $id) { executions { id message result } } }'
    const { data } = await graphql(server, text, { id: root })
    const { tree } = await callerOf(server).executions.tree({ id: root })
    expect(tree.message).toBe(long)
    expect(tree.children.map(({ message }) => message.length)).toEqual([200, 200, 200, 200, 200])
    const nodes = [tree, ...tree.children].map(({ id, message, result = null }) => ({ id, message, result }))
    expect(data.executionTree.executions).toEqual(nodes)
  })

  test('reports usage of a tree beyond 32-bit integers', async () => {
    const usage = { input: 2_000_000_000, output: 2_000_000_000 }
    model.script({ tokens: 'x', usage }, { tokens: 'x', usage })
    const root = (await execute({})).executionId
    await execute({ parentExecutionId: root })
    const text = 'query ($id: ID!) { executionTree(id: $id) { usage { inputTokens outputTokens } } }'
    const { data } = await graphql(server, text, { id: root })
    expect(data.executionTree.usage).toEqual({ inputTokens: 4_000_000_000, outputTokens: 4_000_000_000 })
  })
})

test('a tree of a thousand levels lists all of them, the root first', async () => {
  const { executionId } = await execute({})
  const ids = await chainBelow(server.service.deps.db, executionId, 1_000)
  const { data } = await graphql(server, 'query ($id: ID!) { executionTree(id: $id) { executions { id } } }', {
    id: ids[700],
  })
  expect(data.executionTree.executions.map(({ id }: { id: string }) => id)).toEqual(ids)
})

test('relations show only the state of own runs whose agent became unreachable', async () => {
  const [mine, theirs] = [await createAgent(), await createAgent('organization', member.token)]
  const run = (id: string, parent?: string) => execute({ id, ...(parent && { parentExecutionId: parent }) })
  const above = (await run(theirs)).executionId
  const between = (await run(mine, above)).executionId
  const below = (await run(theirs, between)).executionId
  const text = `query ($id: ID!) {
    execution(id: $id) { parent { id } children { nodes { id } } agent { id } }
    executionTree(id: $id) { executions { id } }
  }`
  const before = (await graphql(server, text, { id: between })).data
  expect(before.execution).toEqual({ parent: { id: above }, children: { nodes: [{ id: below }] }, agent: { id: mine } })
  expect(before.executionTree.executions).toEqual([{ id: above }, { id: between }, { id: below }])

  await callerOf(server, member.token).agents.update({ id: theirs, visibility: 'private' })
  const after = (await graphql(server, text, { id: between })).data
  expect(after).toEqual(before)
  const texts = `query ($id: ID!) {
    executionTree(id: $id) { executions { id message preview result agentName restricted events { nodes { __typename } } } }
  }`
  const { executions } = (await graphql(server, texts, { id: between })).data.executionTree
  const closed = { message: '', preview: '', result: null, agentName: null, restricted: true }
  const nodes = [{ __typename: 'MetaEvent' }, { __typename: 'ResultEvent' }]
  expect(executions).toMatchObject([
    { id: above, ...closed, events: { nodes } },
    { id: between, message: expect.stringMatching(/./), restricted: null },
    { id: below, ...closed, events: { nodes } },
  ])
  await callerOf(server).agents.delete({ id: mine })
  expect((await graphql(server, text, { id: between })).data.execution.agent).toBeNull()
})

test("a token with only agents:execute sees its user's part of a tree", async () => {
  const email = 'climber@example.com'
  const narrow = await server.member({ email, scopes: ['agents:execute'] })
  const wide = await server.member({ email })
  const root = (await execute({ message: 'of another' }, wide.token)).executionId
  const own = (await execute({ parentExecutionId: root }, wide.token)).executionId
  // In earlier versions a user could attach a run to another user's run.
  await server.service.deps.db.execution.update({ where: { id: root }, data: { userId: member.userId } })
  const text = 'query ($id: ID!) { executionTree(id: $id) { executions { id message result } } }'
  const { data, errors } = await graphql(server, text, { id: own }, narrow)
  expect(errors).toBeUndefined()
  expect(data.executionTree.executions).toMatchObject([{ id: own }])
  expect((await graphql(server, text, { id: own }, wide)).data.executionTree.executions).toHaveLength(2)
  const relations = 'query ($id: ID!) { execution(id: $id) { id parent { message } } }'
  const related = await graphql(server, relations, { id: own }, narrow)
  expect(related.data.execution).toEqual({ id: own, parent: null })
  expect(related.message).toBe("You don't have permission to access this resource")
})

describe('executionEvents', () => {
  test('follows a background run live, from meta to result', async () => {
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['One ', 'two ', gate.promise, 'three.'] })
    const { executionId: id, status } = await execute({ background: true })
    expect(status).toBe('running')
    const events: any[] = []
    for await (const { data } of subscribe(server, EVENTS, { id })) {
      events.push(data.executionEvents)
      if (data.executionEvents.text === 'two ') gate.resolve()
    }
    expect(events.map(({ __typename }) => __typename)).toEqual([
      'MetaEvent',
      'TextDeltaEvent',
      'TextDeltaEvent',
      'TextDeltaEvent',
      'AssistantEvent',
      'ResultEvent',
    ])
    expect(events.map(({ text }) => text ?? '').join('')).toBe('One two three.')
    expect(events[4].content).toEqual([{ __typename: 'TextBlock', text: 'One two three.' }])
    expect(events[5]).toMatchObject({
      executionId: id,
      status: 'completed',
      usage: { inputTokens: 10, outputTokens: 3 },
    })
    const numbers = events.map(({ seq }) => seq)
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b))
  })

  test('replays the events of an ended run from any sequence number', async () => {
    const { executionId: id } = await execute({})
    const events = await eventsOf(id)
    const expected: { seq: number; event: string; data: any }[] = []
    const followed = (await callerOf(server).executions.events({ executionId: id })) as AsyncIterable<any>
    for await (const [, event] of followed) expected.push(event)
    expect(events.map(({ seq, at }) => ({ seq, at }))).toEqual(
      expected.map(({ seq, at }: any) => ({ seq, at: at.toISOString() })),
    )
    const from = events[2].seq
    expect(await eventsOf(id, from)).toEqual(events.slice(3))
    const text = `query ($id: ID!, $after: String) {
      execution(id: $id) { events(first: 2, after: $after) { nodes { __typename seq at } pageInfo { hasNextPage endCursor } } }
    }`
    const received: unknown[] = []
    for (let after: string | null = null, more = true; more; ) {
      const { nodes, pageInfo }: any = (await graphql(server, text, { id, after })).data.execution.events
      received.push(...nodes)
      more = pageInfo.hasNextPage
      after = pageInfo.endCursor
    }
    expect(received).toEqual(events.map(({ __typename, seq, at }) => ({ __typename, seq, at })))
  })

  test('ends with an error event for a cancelled run', async () => {
    model.script({ tokens: ['One '], end: 'hang' })
    const { executionId: id } = await execute({ background: true })
    const events: any[] = []
    for await (const { data } of subscribe(server, EVENTS, { id })) {
      events.push(data.executionEvents)
      if (data.executionEvents.text === 'One ') {
        const { data: cancelled } = await graphql(server, CANCEL, { id })
        expect(cancelled.cancelExecution).toEqual({
          message: 'Execution cancelled successfully',
          execution: { id, status: 'cancelled' },
        })
      }
    }
    expect(events.at(-1)).toMatchObject({
      __typename: 'ErrorEvent',
      executionId: id,
      status: 'cancelled',
      message: 'Execution was cancelled',
    })
    expect((await graphql(server, CANCEL, { id })).message).toBe('Cannot cancel execution with status: cancelled')
  })

  test('refuses a run that the caller cannot follow before the first event', async () => {
    const { executionId: id } = await execute({ id: await createAgent('private') })
    for (const [wanted, token] of [
      ['nothing', server.token],
      [id, member.token],
    ] as const) {
      const answers = await Array.fromAsync(subscribe(server, EVENTS, { id: wanted }, { token }))
      expect(answers).toMatchObject([{ errors: [{ message: 'Execution not found', extensions: { statusCode: 404 } }] }])
    }
    const after = await Array.fromAsync(subscribe(server, EVENTS, { id, after: -1 }))
    expect(after).toMatchObject([{ errors: [{ message: 'Invalid value for field: after. Expected at least 0' }] }])
  })

  test('ends with its client, while the run continues', async () => {
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['One ', gate.promise, 'two.'] })
    const { executionId: id } = await execute({ background: true })
    const follow = vi.spyOn(server.service.deps.engine, 'follow')
    const gone = new AbortController()
    const events = subscribe(server, EVENTS, { id }, { signal: gone.signal })
    await events.next()
    const [, , signal] = follow.mock.lastCall!
    const stopped = new Promise((resolve) => signal.addEventListener('abort', resolve))
    expect(signal.aborted).toBe(false)
    gone.abort()
    await stopped
    follow.mockRestore()
    gate.resolve()
    expect((await eventsOf(id)).at(-1)).toMatchObject({ __typename: 'ResultEvent' })
  })

  test('ends when the token is revoked', async () => {
    model.script({ tokens: ['One '], end: 'hang' })
    const asked = model.requests.length
    const reader = await server.member()
    const { executionId: id } = await execute({ background: true })
    await model.request(asked)
    const events = subscribe(server, EVENTS, { id }, { token: reader.token })
    expect((await events.next()).done).toBe(false)
    const { db, bus } = server.service.deps
    await db.token.update({ where: { id: reader.tokenId }, data: { revokedAt: new Date() } })
    bus.publish('token', [reader.tokenId])
    const rest = await Array.fromAsync(events)
    expect(rest.map(({ data }) => data.executionEvents.__typename)).not.toContain('ResultEvent')
    await graphql(server, CANCEL, { id })
  })

  test('asks proxies not to buffer the stream', async () => {
    const { executionId: id } = await execute({})
    const response = await post(
      server,
      { query: EVENTS, variables: { id } },
      { headers: { Accept: 'text/event-stream' } },
    )
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
    // A proxy that compresses events would keep them back.
    expect(response.headers.get('cache-control')).toBe('no-cache, no-transform')
    expect(response.headers.get('content-encoding')).toBeNull()
    expect(response.headers.get('x-accel-buffering')).toBe('no')
    await response.body?.cancel()
  })

  test('has all fields of every kind of event', async () => {
    const at = new Date(0)
    const message = (data: object) => ({ seq: 2, at, event: 'message', data }) as ExecutionEvent
    const events: ExecutionEvent[] = [
      { seq: 1, at, event: 'meta', data: { executionId: 'e', chatId: 'c', sessionId: 's' } },
      message({ messageType: 'stream_event', step: 1, delta: { type: 'text_delta', text: 't' } }),
      message({
        messageType: 'assistant',
        step: 1,
        content: [{ type: 'tool_use', id: 'u', name: 'n', input: { a: [1] } }],
      }),
      message({ messageType: 'tool_result', toolUseId: 'u', content: 'c', isError: true }),
      {
        seq: 3,
        at,
        event: 'error',
        data: { executionId: 'e', status: 'failed', message: 'm', code: 'internal', stopReason: 'error' },
      },
    ]
    const batches = (async function* () {
      yield events
    })()
    const caller = { executions: { events: async () => ({ batches }) } }
    const contextValue = { caller, actor: { scopes: ['*'] } }
    const variableValues = { id: 'e' }
    const answers = await run({ schema, document: parse(EVENTS), contextValue, variableValues })
    const results = (await Array.fromAsync(answers as AsyncIterable<ExecutionResult<any>>)).map(({ data, errors }) => {
      expect(errors).toBeUndefined()
      const { at: _, seq: __, ...rest } = data.executionEvents
      return rest
    })
    expect(results).toEqual([
      { __typename: 'MetaEvent', executionId: 'e', chatId: 'c', sessionId: 's' },
      { __typename: 'TextDeltaEvent', step: 1, text: 't' },
      {
        __typename: 'AssistantEvent',
        step: 1,
        content: [{ __typename: 'ToolUseBlock', id: 'u', name: 'n', input: { a: [1] } }],
      },
      { __typename: 'ToolResultEvent', toolUseId: 'u', output: 'c', isError: true },
      { __typename: 'ErrorEvent', executionId: 'e', status: 'failed', message: 'm' },
    ])
  })
})
