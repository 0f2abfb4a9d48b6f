import { beforeEach, describe, expect, it } from 'vitest'
import type { Prisma } from '../../src/db/client.ts'
import { newId } from '../../src/lib/id.ts'
import { APIS, apis, expectError, ok, onEachApi } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { type Answer, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

let agent: string
const model = await use(startModelServer())
const server = await use(startServer(model.env))
const { ann, ben, eve } = await server.people('ann', 'ben', 'eve')
beforeEach(async () => {
  agent = await create()
})

type Fields = Record<string, unknown>

async function create(fields: Fields = {}, { token } = ann): Promise<string> {
  const body = { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }
  return (await request(server, 'POST', '/api/v1/agents', { body, token })).body.id
}

const execute = (fields: Fields, { token } = ann, id = agent): Promise<Answer> =>
  request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi', ...fields }, token })

const run = async (fields: Fields, who = ann, id = agent) => {
  return ok(execute(fields, who, id))
}

const get = async (id: string, { token } = ann) =>
  (await request(server, 'GET', `/api/v1/executions/${id}`, { token })).body.execution

/** The messages of the last request to the model, as `role: content`. */
const asked = () => model.requests.at(-1)?.body.messages.map(({ role, content }) => `${role}: ${content}`)

const space = async (
  { organizationId, userId: ownerId }: Member,
  fields: Partial<Prisma.SpaceUncheckedCreateInput> = {},
) => {
  const at = new Date()
  const own = { id: newId(), organizationId, ownerId, name: 'S', visibility: 'organization' as const }
  return (await server.service.deps.db.space.create({ data: { ...own, createdAt: at, updatedAt: at, ...fields } })).id
}

describe('a run that the caller waits for', () => {
  it.each(APIS)('returns the whole reply, and is stored (%s)', async (api) => {
    model.script({ tokens: ['Good ', 'day, ', 'Ann.'], usage: { input: 17, output: 5 } })
    const { status, body } = await apis[api](server, 'agents.execute', { id: agent, message: 'Hello' }, ann)
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        success: true,
        executionId: expect.stringMatching(/^exec-\d{13}-[0-9A-Za-z]{22}$/),
        chatId: expect.stringMatching(/^\w{31}$/),
        sessionId: expect.stringMatching(/^\w{31}$/),
        status: 'completed',
        result: 'Good day, Ann.',
      },
    })
    const { executionId: id, chatId, sessionId, result } = body
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    const execution = await get(id)
    expect(execution).toMatchObject({
      id,
      executionId: id,
      agentId: agent,
      agentVersion: 1,
      organizationId: ann.organizationId,
      userId: ann.userId,
      status: 'completed',
      message: 'Hello',
      result,
      model: 'compatible/test',
      usage: { input_tokens: 17, output_tokens: 5 },
      usageEstimated: false,
      chatId,
      sessionId,
      spaceId: expect.stringMatching(/^\w{22}$/),
      depth: 0,
      attempt: 1,
      executionTime: Date.parse(execution.completedAt) - Date.parse(execution.startedAt),
      createdAt: time,
      startedAt: time,
      completedAt: time,
      updatedAt: time,
    })
  })

  it('asks the model once, with the system prompt and the message', async () => {
    const before = model.requests.length
    await run({ message: ' Hello\n' })
    expect(model.requests.length).toBe(before + 1)
    expect(asked()).toEqual(['system: You are Ada.', 'user:  Hello\n'])
    expect(model.requests.at(-1)?.body).toMatchObject({ model: 'test', stream: true })
  })

  it('returns any text unchanged', async () => {
    const tokens = ['"\n\n', 'data: x\r\n', '\u2028', '👩🏽', '‍💻', ' \\u0000 ', '</script>']
    model.script({ tokens })
    const { executionId, result } = await run({})
    expect(result).toBe(tokens.join(''))
    expect((await get(executionId)).result).toBe(tokens.join(''))
  })

  it.each([
    [['a\ud83d', '\ude00b'], 'a😀b'],
    [['a\ud83d', '\0', '\ude00'], 'a😀'],
    [['a\ud83d'], 'a\ufffd'],
    [['a\ud83d', '\ud83d', 'b\ude00', 'c'], 'a\ufffd\ufffdb\ufffdc'],
  ])('streams lone and paired surrogates, %j, consistently with its result', async (tokens, text) => {
    model.script({ tokens })
    const { executionId, result } = await run({})
    expect(result).toBe(text)
    expect((await get(executionId)).result).toBe(text)
    const path = `/api/v1/executions/${executionId}/logs`
    const { logs } = (await request(server, 'GET', path, { token: ann.token })).body
    expect(logs.map(({ data }: any) => data.delta?.text ?? '').join('')).toBe(text)
  })

  it('has a summary of whole characters, up to the maximum length', async () => {
    const long = (length: number) => '😀'.repeat(length)
    const lengthsOf = async (message: string) => {
      model.script({ tokens: [long(201)] })
      const { chatId } = await run({ message })
      const { body } = await request(server, 'GET', `/api/v1/executions?chatId=${chatId}`, { token: ann.token })
      const { chat } = (await request(server, 'GET', `/api/v1/chats/${chatId}`, { token: ann.token })).body
      return { title: chat.title, lastMessage: chat.lastMessage, message: body.executions[0].message }
    }
    expect(await lengthsOf(long(80))).toEqual({ title: long(80), lastMessage: long(200), message: long(80) })
    expect(await lengthsOf(long(201))).toEqual({ title: long(80), lastMessage: long(200), message: long(200) })
    expect(await lengthsOf(`x${long(300)}`)).toMatchObject({ title: `x${long(79)}`, message: `x${long(199)}` })
  })

  it('fails if the model returns no text at all, and completes if it returns blanks', async () => {
    model.script({ tokens: ['\n', ' \n'] })
    expect((await execute({})).status).toBe(200)
    model.script({ tokens: [] }, { tokens: [] })
    const answer = await execute({})
    expectError(answer, 500, 'Chat execution failed')
    expect(answer.body).toMatchObject({
      code: 'provider_error',
      detail: expect.stringContaining('returned an empty answer'),
    })
  })

  it('records the version of its agent, and a changed prompt applies from the next run on', async () => {
    const { executionId: first } = await run({})
    const body = { systemPrompt: 'You are new.' }
    await request(server, 'PATCH', `/api/v1/agents/${agent}`, { body, token: ann.token })
    const { executionId: second } = await run({})
    expect(asked()?.[0]).toBe('system: You are new.')
    expect([(await get(first)).agentVersion, (await get(second)).agentVersion]).toEqual([1, 2])
  })

  it('a run that waited for its session starts with the current agent, and records its version', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    model.script({ tokens: [promise, 'One.'] }, { tokens: 'Two.' })
    const { executionId: first, chatId, sessionId } = await run({ background: true })
    const { executionId: second, status } = await run({ background: true, chatId, sessionId })
    expect(status).toBe('pending')
    const body = { systemPrompt: 'You are new.' }
    await request(server, 'PATCH', `/api/v1/agents/${agent}`, { body, token: ann.token })
    resolve()
    await expect.poll(async () => (await get(second)).result).toBe('Two.')
    expect(asked()?.[0]).toBe('system: You are new.')
    expect([(await get(first)).agentVersion, (await get(second)).agentVersion]).toEqual([1, 2])
  })

  it('adds the instructions of its space to the prompt', async () => {
    const spaceId = await space(ann, { instructions: 'Be brief.' })
    const { executionId } = await run({ spaceId })
    expect(asked()?.[0]).toBe('system: You are Ada.\n\nBe brief.')
    expect((await get(executionId)).spaceId).toBe(spaceId)
  })

  it.each([
    [{ input: 0, output: 0 }, { input_tokens: 0, output_tokens: 0 }, false],
    [{ input: 123_456, output: 1 }, { input_tokens: 123_456, output_tokens: 1 }, false],
    [null, { input_tokens: 0, output_tokens: 0 }, true],
  ])('counts the reported usage %j, and estimates none', async (usage, expected, usageEstimated) => {
    model.script({ tokens: 'Hi', usage })
    const { executionId } = await run({})
    expect(await get(executionId)).toMatchObject({ usage: expected, usageEstimated })
  })

  it.each([-5, 3e9, 1e16, 1e19])(
    'a run with an impossible report of %d tokens counts none, and stays readable',
    async (input) => {
      const member = await server.member({ organization: `Wrong ${input}` })
      const { token, organizationId } = member
      const id = await create({}, member)
      model.script({ tokens: 'Hi', usage: { input, output: 1 } })
      const { executionId, status } = await run({}, member, id)
      expect(status).toBe('completed')
      const usage = { input_tokens: 0, output_tokens: 1 }
      expect(await get(executionId, member)).toMatchObject({ usage, usageEstimated: true })
      const read = async (path: string) => (await request(server, 'GET', path, { token })).body
      expect(await read('/api/v1/executions')).toMatchObject({ executions: [{ usage }] })
      expect(await read(`/api/v1/executions/${executionId}/tree`)).toMatchObject({ tree: { usage }, usage })
      expect(await read(`/api/usage/organization/${organizationId}`)).toMatchObject({ totals: usage })
      const query = `{ execution(id: "${executionId}") { usage { inputTokens outputTokens } } }`
      const { body } = await request(server, 'POST', '/graphql', { body: { query }, token })
      expect(body).toEqual({ data: { execution: { usage: { inputTokens: 0, outputTokens: 1 } } } })
    },
  )
})

describe('a tool call of an agent', () => {
  const calls = [
    { id: 'list', name: 'list_tasks', input: {} },
    { id: 'create', name: 'create_task', input: { title: 'Made by the run' } },
    { id: 'write', name: 'write_file', input: { path: 'a.md', content: 'x' } },
  ]

  it.each([
    [['agents:execute'], ['tasks:read', 'tasks:write', 'spaces:write']],
    [
      ['agents:execute', 'tasks:write'],
      [null, null, 'spaces:write'],
    ],
    [['*'], [null, null, null]],
  ])('stays within the scopes %j of the token that started the run, which continues', async (scopes, missing) => {
    const who = await server.member({ organization: 'Acme', scopes })
    const id = await create({ allowedTools: calls.map(({ name }) => name) })
    const { task } = (await request(server, 'POST', '/api/v1/tasks', { token: ann.token, body: { title: 'Secret' } }))
      .body
    const spaceId = await space(who)
    model.script({ toolCalls: calls }, { tokens: 'Done.' })
    const { executionId, result } = await run({ spaceId }, who, id)
    expect(result).toBe('Done.')
    const { logs } = (await request(server, 'GET', `/api/v1/executions/${executionId}/logs`, { token: who.token })).body
    const results = logs.flatMap(({ data }: { data: Fields }) => (data.messageType === 'tool_result' ? data : []))
    expect(results).toMatchObject(
      missing.map((scope) =>
        scope ? { isError: true, content: `This run's token lacks the scope ${scope}` } : { isError: false },
      ),
    )
    const { db } = server.service.deps
    expect(JSON.stringify(logs).includes(task.id)).toBe(missing[0] === null)
    expect(await db.task.count({ where: { createdBy: id } })).toBe(missing[1] === null ? 1 : 0)
    expect(await db.spaceFile.count({ where: { spaceId } })).toBe(missing[2] === null ? 1 : 0)
    expect(Object.keys(await get(executionId))).not.toContain('scopes')
  })
})

describe('a conversation', () => {
  it.each(onEachApi([['sessionId'], ['chatId'], ['both']]))('%s: continues by its %s, in order', async (api, by) => {
    const turn = async (message: string, answer: string, more: Fields = {}) => {
      model.script({ tokens: answer })
      const { body } = await apis[api](server, 'agents.execute', { id: agent, message, ...more }, ann)
      expect(body.result).toBe(answer)
      return body
    }
    const { chatId, sessionId } = await turn('One?', 'First.')
    const more = { ...(by !== 'sessionId' && { chatId }), ...(by !== 'chatId' && { sessionId }) }
    expect(await turn('Two?', 'Second.', more)).toMatchObject({ chatId, sessionId })
    expect(await turn('Three?', 'Third.', more)).toMatchObject({ chatId, sessionId })
    const history = ['user: One?', 'assistant: First.', 'user: Two?', 'assistant: Second.']
    expect(asked()).toEqual(['system: You are Ada.', ...history, 'user: Three?'])
  })

  it('is new without either', async () => {
    const first = await run({ message: 'One?' })
    const second = await run({ message: 'Two?' })
    expect(asked()).toEqual(['system: You are Ada.', 'user: Two?'])
    expect(new Set([first.chatId, second.chatId, first.sessionId, second.sessionId]).size).toBe(4)
  })

  it('a conversation of two agents in one chat has a session for each', async () => {
    const other = await create({ systemPrompt: 'You are Bea.' })
    const { chatId, sessionId } = await run({ message: 'To Ada' })
    const second = await run({ message: 'To Bea', chatId }, ann, other)
    expect(second).toMatchObject({ chatId })
    expect(second.sessionId).not.toBe(sessionId)
    expect(asked()).toEqual(['system: You are Bea.', 'user: To Bea'])
    expect(await run({ message: 'Again', chatId })).toMatchObject({ chatId, sessionId })
    expect(asked()?.slice(1)).toEqual(['user: To Ada', 'assistant: A reply of the test model.', 'user: Again'])
  })

  it("can be continued by any member who can reach it, in that member's name", async () => {
    const { chatId, sessionId } = await run({ message: 'Ann here' })
    const { executionId } = await run({ message: 'Ben here', sessionId }, ben)
    expect(asked()?.at(1)).toBe('user: Ann here')
    expect(await get(executionId)).toMatchObject({ userId: ben.userId, chatId })
  })

  it('preserves the text of a cancelled run', async () => {
    const never = Promise.withResolvers<void>()
    model.script({ tokens: ['I was ', 'saying ', never.promise] })
    const { executionId, sessionId } = await run({ message: 'Tell me', background: true })
    const events = await fetch(`${server.url}/api/v1/executions/${executionId}/events`, {
      headers: { Authorization: `Bearer ${ann.token}` },
    })
    let text = ''
    for await (const chunk of events.body!.pipeThrough(new TextDecoderStream())) {
      text += chunk
      if (text.includes('saying ')) break
    }
    await request(server, 'POST', `/api/v1/executions/${executionId}/cancel`, { token: ann.token })
    never.resolve()
    await run({ message: 'Go on', sessionId })
    expect(asked()?.slice(1)).toEqual(['user: Tell me', 'assistant: I was saying ', 'user: Go on'])
    const { db } = server.service.deps
    const message = await db.message.findFirst({ where: { executionId, role: 'assistant' } })
    expect(message).toMatchObject({ content: 'I was saying ', interrupted: true })
  })

  it('reopens a closed chat, whose status shows the outcome', async () => {
    const { db } = server.service.deps
    const { chatId } = await run({})
    const chat = () => db.chat.findUnique({ where: { id: chatId } })
    expect(await chat()).toMatchObject({ status: 'done', lastMessage: 'A reply of the test model.' })
    await db.chat.update({ where: { id: chatId }, data: { closedAt: new Date() } })
    model.script({ error: { status: 500 } })
    await execute({ chatId })
    expect(await chat()).toMatchObject({ status: 'error', closedAt: null })
  })
})

describe('an id that the caller cannot use', () => {
  const UNKNOWN = 'x'.repeat(22)
  type Made = { chatId: string; sessionId: string; spaceId?: string }

  const rows: [what: string, resource: string, make: () => Promise<Fields>][] = [
    ['an unknown space', 'Space', async () => ({ spaceId: UNKNOWN })],
    ['an unknown chat', 'Chat', async () => ({ chatId: UNKNOWN })],
    ['an unknown session', 'Session', async () => ({ sessionId: UNKNOWN })],
    ['an unknown parent', 'Execution', async () => ({ parentExecutionId: UNKNOWN })],
    ['an empty space', 'Space', async () => ({ spaceId: '' })],
    ['an empty chat', 'Chat', async () => ({ chatId: '' })],
    ['an empty session', 'Session', async () => ({ sessionId: '' })],
    ['an empty session of a chat', 'Session', async () => ({ chatId: (await run({})).chatId, sessionId: '' })],
    ['an empty space beside a chat', 'Space', async () => ({ chatId: (await run({})).chatId, spaceId: '' })],
    ['an empty parent', 'Execution', async () => ({ parentExecutionId: '' })],
    ["another organization's space", 'Space', async () => ({ spaceId: await space(eve) })],
    ["another user's private space", 'Space', async () => ({ spaceId: await space(ben, { visibility: 'private' }) })],
    ['an archived space', 'Space', async () => ({ spaceId: await space(ann, { archivedAt: new Date() }) })],
    ["another organization's chat", 'Chat', async () => ({ chatId: (await foreign()).chatId })],
    ["another organization's session", 'Session', async () => ({ sessionId: (await foreign()).sessionId })],
    ['a chat in a private space', 'Chat', async () => ({ chatId: (await inPrivate()).chatId })],
    ['a session in a private space', 'Session', async () => ({ sessionId: (await inPrivate()).sessionId })],
    ['a chat with a private agent', 'Chat', async () => ({ chatId: (await withPrivate()).chatId })],
    [
      'a session of another agent',
      'Session',
      async () => ({ sessionId: (await run({}, ann, await create())).sessionId }),
    ],
    [
      'a session of another chat',
      'Session',
      async () => ({ chatId: (await run({})).chatId, sessionId: (await run({})).sessionId }),
    ],
    [
      'an unknown chat beside an existing session',
      'Chat',
      async () => ({ chatId: UNKNOWN, sessionId: (await run({})).sessionId }),
    ],
    [
      'another space than that of the chat',
      'Space',
      async () => ({ chatId: (await run({})).chatId, spaceId: await space(ann) }),
    ],
    [
      'another space than that of the session',
      'Space',
      async () => ({ sessionId: (await run({})).sessionId, spaceId: await space(ann) }),
    ],
    [
      "another organization's execution as parent",
      'Execution',
      async () => ({ parentExecutionId: (await foreign()).executionId }),
    ],
  ]
  const foreign = async () => run({}, eve, await create({}, eve))
  const inPrivate = async (): Promise<Made> => run({ spaceId: await space(ben, { visibility: 'private' }) }, ben)
  const withPrivate = async (): Promise<Made> => run({}, ben, await create({ visibility: 'private' }, ben))

  it.each(onEachApi(rows))(
    '%s: %s gives a 404 that names it (%s), and nothing starts',
    async (api, _, resource, make) => {
      const input = await make()
      const before = await server.service.deps.db.execution.count()
      const count = model.requests.length
      const answer = await apis[api](server, 'agents.execute', { id: agent, message: 'Hi', ...input }, ann)
      expectError(answer, 404, `${resource} not found`)
      const stream = await apis.REST(
        server,
        'agents.execute',
        { id: agent, message: 'Hi', stream: true, ...input },
        ann,
      )
      expectError(stream, 404, `${resource} not found`)
      expect([await server.service.deps.db.execution.count(), model.requests.length]).toEqual([before, count])
    },
  )

  it('counts as absent if it is null, and may equal the implied one', async () => {
    const nothing = { spaceId: null, chatId: null, sessionId: null, model: null, onBusy: null, stream: null }
    const { chatId, sessionId, executionId } = await run(nothing)
    const { spaceId } = await get(executionId)
    expect(await run({ spaceId, chatId, sessionId })).toMatchObject({ chatId, sessionId })
    expect(await run({ spaceId, chatId })).toMatchObject({ chatId, sessionId })
  })
})

describe('the model of a run', () => {
  it.each([
    ['the default one', {}, {}, 'compatible/test'],
    ["the agent's", { model: 'compatible/agents-own' }, {}, 'compatible/agents-own'],
    ["the request's, for this run", { model: 'compatible/agents-own' }, { model: 'callers' }, 'compatible/callers'],
  ])('is %s', async (_, fields, more, expected) => {
    const id = await create(fields)
    const { executionId, sessionId } = await run(more, ann, id)
    expect((await get(executionId)).model).toBe(expected)
    expect(`compatible/${model.requests.at(-1)?.body.model}`).toBe(expected)
    await run({ sessionId }, ann, id)
    expect(`compatible/${model.requests.at(-1)?.body.model}`).toBe('model' in fields ? fields.model : 'compatible/test')
  })

  it.each(['anthropic/claude-x', 'google/gemini-x'])(
    'fails the run with a remedy if it is unavailable: %s',
    async (name) => {
      const answer = await execute({ model: name })
      expectError(answer, 500, 'Chat execution failed')
      const { body } = await request(server, 'GET', `/api/v1/executions?agentId=${agent}`, { token: ann.token })
      expect(body.executions).toMatchObject([{ status: 'failed' }])
      expect(body.executions[0].error).toContain(`The model ${name} is not available`)
    },
  )
})

describe('a background run', () => {
  it.each(APIS)('is acknowledged as soon as it is accepted (%s)', async (api) => {
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: [gate.promise, 'Done.'] })
    const input = { id: agent, message: 'Hi', background: true }
    const { status, body } = await apis[api](server, 'agents.execute', input, ann)
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        success: true,
        executionId: expect.any(String),
        chatId: expect.any(String),
        sessionId: expect.any(String),
        status: 'running',
      },
    })
    expect(body).not.toHaveProperty('result')
    expect(await get(body.executionId)).toMatchObject({ status: 'running', executionId: body.executionId })
    expect(Object.keys(await get(body.executionId))).not.toContain('completedAt')
    gate.resolve()
    await expect.poll(async () => (await get(body.executionId)).status).toBe('completed')
    expect((await get(body.executionId)).result).toBe('Done.')
  })

  it('continues after its caller disconnects', async () => {
    const gate = Promise.withResolvers<void>()
    const index = model.requests.length
    model.script({ tokens: [gate.promise, 'Done.'] })
    const controller = new AbortController()
    const waiting = fetch(`${server.url}/api/v1/agents/${agent}/execute`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${ann.token}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ message: 'Hi' }),
      signal: controller.signal,
    })
    await model.request(index)
    controller.abort()
    await expect(waiting).rejects.toThrow()
    gate.resolve()
    const list = () => request(server, 'GET', `/api/v1/executions?agentId=${agent}`, { token: ann.token })
    await expect.poll(async () => (await list()).body.executions[0].status).toBe('completed')
  })
})
