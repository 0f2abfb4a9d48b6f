import { beforeEach, describe, expect, test } from 'vitest'
import { event, type Reply } from '../support/model-replies.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { violations } from './invariants.ts'
import { ended } from './lab.ts'
import { call, createMcp, messagesOf, offered, results, startToolLab } from './tool-lab.ts'

const toolLab = await use(startToolLab())
const lab = toolLab.lab
beforeEach(() => {
  toolLab.mcp.hold = Promise.resolve()
})

const NOT_AN_OBJECT =
  'The arguments were valid JSON, but not an object: call the tool again with a complete JSON object'
const NINE = /^[a-zA-Z0-9]{9}$/
const lastRequest = () => lab.model.requests.at(-1)!

describe('a run whose model calls a tool of an MCP server', () => {
  test('streams the call, its result and the answer, and counts the usage of both steps', async () => {
    const agent = await toolLab.agent()
    lab.model.script(
      { tokens: ['Let me add.'], toolCalls: [call('add', { a: 2, b: 3 })], usage: { input: 10, output: 4 } },
      { tokens: ['It is ', '5.'], usage: { input: 20, output: 2 } },
    )
    const { row, events } = await toolLab.run(agent)
    expect(messagesOf(events)).toEqual([
      {
        messageType: 'assistant',
        step: 1,
        text: 'Let me add.',
        content: [
          { type: 'text', text: 'Let me add.' },
          { type: 'tool_use', id: 'add-1', name: 'add', input: { a: 2, b: 3 } },
        ],
      },
      { messageType: 'tool_result', toolUseId: 'add-1', content: '5', isError: false },
      { messageType: 'assistant', step: 2, text: 'It is 5.', content: [{ type: 'text', text: 'It is 5.' }] },
    ])
    expect(row).toMatchObject({ status: 'completed', result: 'It is 5.', inputTokens: 30, outputTokens: 6 })
    expect(row.usageEstimated).toBe(false)
    expect(lastRequest().body.messages.slice(-2)).toMatchObject([
      {
        role: 'assistant',
        content: 'Let me add.',
        tool_calls: [{ id: expect.stringMatching(NINE), function: { name: 'add' } }],
      },
      { role: 'tool', tool_call_id: expect.stringMatching(NINE), content: '5' },
    ])
    expect(toolLab.mcp.calls.at(-1)).toEqual({ tool: 'add', input: { a: 2, b: 3 } })
    await expect.poll(() => toolLab.mcp.sessions).toBe(0)
  })

  test('gets a warning if the model wrote the call into its text', async () => {
    const agent = await toolLab.agent()
    lab.model.script({ tokens: '<tool_call>{"name": "add", "arguments": {}}</tool_call>' }, { tokens: 'Five.' })
    const { row } = await toolLab.run(agent)
    expect(row.warnings).toContain('The model wrote a call of a tool into its text')
    expect((await toolLab.run(agent)).row.warnings).toBeNull()
  })

  test('counts at most as many tokens as its row can hold, with a warning', async () => {
    const agent = await toolLab.agent()
    const usage = { input: 2 ** 31 - 1, output: 1 }
    lab.model.script({ toolCalls: [call('add', { a: 2, b: 3 })], usage }, { tokens: ['5'], usage })
    const { row } = await toolLab.run(agent)
    expect(row).toMatchObject({ status: 'completed', inputTokens: 2 ** 31 - 1, outputTokens: 2, usageEstimated: true })
  })

  test('sends reasoning that refers to a call back with the ids that the calls have then', async () => {
    const agent = await toolLab.agent()
    const detail = (id: string) => ({ type: 'reasoning.encrypted', data: 'S', id, index: 0 })
    const reasoning = event({ choices: [{ index: 0, delta: { reasoning_details: [detail('add-1')] } }] })
    lab.model.script(
      { tokens: [reasoning], toolCalls: [call('add', { a: 2, b: 3 })] },
      { tokens: '5' },
      { tokens: '6' },
    )
    const { chatId, sessionId, spaceId } = (await toolLab.run(agent)).row
    await ended(lab.engine, await lab.run({ agent, message: 'And?', conversation: { spaceId, chatId, sessionId } }))
    for (const { body } of lab.model.requests.slice(-2)) {
      const [answer] = body.messages.filter(({ role }) => role === 'assistant') as any[]
      expect(answer.reasoning_details).toEqual([detail(answer.tool_calls[0].id)])
    }
  })

  test("has the call in its chat's messages, and sends it to the next run of the session", async () => {
    const agent = await toolLab.agent()
    lab.model.script({ toolCalls: [call('add', { a: 1, b: 1 }), call('fail')] }, { tokens: 'Two.' }, { tokens: 'Yes.' })
    const { row } = await toolLab.run(agent)
    const { chatId, sessionId, spaceId } = row
    const { body } = await request(lab.server, 'GET', `/api/v1/chats/${chatId}/messages`)
    expect(body.messages[1]).toMatchObject({
      content: 'Two.',
      toolCalls: [
        { id: 'add-1', name: 'add', input: { a: 1, b: 1 }, result: '2', isError: false },
        { id: 'fail-1', name: 'fail', input: {}, isError: true },
      ],
    })
    await ended(lab.engine, await lab.run({ agent, message: 'Sure?', conversation: { spaceId, chatId, sessionId } }))
    expect(
      lastRequest()
        .body.messages.slice(1)
        .map(({ role }) => role),
    ).toEqual([...['user', 'assistant', 'tool', 'tool', 'assistant', 'user']])
    expect(lastRequest().body.messages[3]).toMatchObject({ role: 'tool', content: '2' })
  })

  test('continues if the tool fails, gets no object, or is missing', async () => {
    const agent = await toolLab.agent()
    lab.model.script(
      { toolCalls: [call('fail'), call('add', 'two'), call('add', { a: 'x' }, 'add-2'), call('nothing')] },
      { tokens: 'I see.' },
    )
    const { row, events } = await toolLab.run(agent)
    expect(row.result).toBe('I see.')
    expect(results(events).map(({ toolUseId, isError }) => [toolUseId, isError])).toEqual([
      ['fail-1', true],
      ['add-1', true],
      ['add-2', true],
      ['nothing-1', true],
    ])
    expect(results(events)[1]?.content).toContain('The arguments were not valid JSON')
    expect(results(events)[3]?.content).toBe(
      'There is no tool named nothing. The tools are: echo, add, fail, wait, much, show, headers',
    )
  })

  test('returns the syntax error of arguments that are no JSON, so that the model can call again', async () => {
    const agent = await toolLab.agent()
    lab.model.script(calling('add', '{"a": 2,'), { tokens: 'I see.' })
    const { events } = await toolLab.run(agent)
    expect(results(events)).toMatchObject([
      {
        content: expect.stringMatching(
          /^The arguments were not valid JSON: .+; call the tool again with a complete JSON object$/,
        ),
        isError: true,
      },
    ])
    expect(lastRequest().body.messages.at(-2)).toMatchObject({
      tool_calls: [{ function: { name: 'add', arguments: '{}' } }],
    })
  })

  test('asks for one call at a time if a server has put the arguments of several calls together', async () => {
    const agent = await toolLab.agent()
    lab.model.script(calling('add', '{"a": 2, "b": 3}{"text": "x"}'), { tokens: 'I see.' })
    const { events } = await toolLab.run(agent)
    const content = 'The arguments are those of several calls: make one call at a time'
    expect(results(events)).toMatchObject([{ content, isError: true }])
  })

  /** A reply that calls a tool with a valid or invalid input, and ends for a reason. */
  const calling = (name: string, input: unknown, reason = 'tool_calls'): Reply => ({
    tokens: [
      event({ choices: [{ delta: { tool_calls: [{ index: 0, id: 'c', function: { name, arguments: input } }] } }] }),
      event({ choices: [{ delta: {}, finish_reason: reason }] }),
    ],
    end: 'cut',
  })

  test.each([
    ['an object', { a: 2, b: 3 }, { content: '5', isError: false }],
    ['a list', [2, 3], { content: NOT_AN_OBJECT, isError: true }],
    ['a number', 5, { content: NOT_AN_OBJECT, isError: true }],
  ])('accepts %s as an input', async (_, input, result) => {
    const agent = await toolLab.agent()
    lab.model.script(calling('add', input), { tokens: 'I see.' })
    const { events } = await toolLab.run(agent)
    expect(results(events)).toMatchObject([result])
  })

  test.each(['', null, undefined])('calls it without an input if the model gives %j', async (input) => {
    const agent = await toolLab.agent()
    lab.model.script(calling('headers', input), { tokens: 'I see.' })
    const { events } = await toolLab.run(agent)
    expect(results(events)).toMatchObject([{ isError: false }])
    expect(toolLab.mcp.calls.at(-1)).toEqual({ tool: 'headers', input: {} })
  })

  test.each([
    ['length', ''],
    ['length', '{}'],
    ['length', '{"text":'],
    ['content_filter', '{"text":"a"}'],
  ])('does not call it or ask for approval when its reply was cut off (%s, %j)', async (reason, input) => {
    const agent = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
    const before = toolLab.mcp.calls.length
    lab.model.script(calling('echo', input, reason), calling('headers', input, reason), { tokens: 'I see.' })
    const { row, events } = await toolLab.run(agent)
    const result = { content: expect.stringMatching(/^Not called: the reply was cut off by /), isError: true }
    expect(results(events)).toMatchObject([result, result])
    expect(row.result).toBe('I see.')
    expect(lastRequest().body.messages.at(-1)).toMatchObject({ role: 'tool', content: result.content })
    expect(toolLab.mcp.calls.length).toBe(before)
  })

  test('calls it if its input was finished before the token limit cut the reply', async () => {
    const agent = await toolLab.agent()
    const tool_calls = [
      { index: 0, id: 'a', function: { name: 'add', arguments: '{"a":1,"b":2}' } },
      { index: 1, id: 'b', function: { name: 'echo', arguments: '{"text":"Hel' } },
    ]
    const tokens = [
      event({ choices: [{ delta: { tool_calls } }] }),
      event({ choices: [{ delta: {}, finish_reason: 'length' }] }),
    ]
    lab.model.script({ tokens, end: 'cut' }, { tokens: 'I see.' })
    const { row, events } = await toolLab.run(agent)
    expect(results(events)).toMatchObject([
      { toolUseId: 'a', content: '3', isError: false },
      { toolUseId: 'b', content: expect.stringContaining('before the input of this call was finished'), isError: true },
    ])
    expect(row).toMatchObject({ status: 'completed', stopReason: 'end_turn' })
  })

  test('distinguishes calls that the model gave one id, and limits the depth of their input', async () => {
    const agent = await toolLab.agent()
    let deep: object = {}
    for (let level = 0; level < 100; level++) deep = { deep }
    lab.model.script(
      { toolCalls: [call('add', { a: 1, b: 1 }, 'same'), call('add', { a: 2, b: 2 }, 'same'), call('echo', deep)] },
      { tokens: 'I see.' },
    )
    const { events } = await toolLab.run(agent)
    expect(results(events)).toMatchObject([
      { toolUseId: 'same', content: '2' },
      { toolUseId: expect.not.stringMatching(/^same$/), content: '4' },
      {
        toolUseId: 'echo-1',
        content: 'The arguments were nested too deep: call the tool again with a complete JSON object',
        isError: true,
      },
    ])
  })

  test('gives each call its own id, even if the model repeats an earlier one', async () => {
    const agent = await toolLab.agent()
    const given = ['x', 'x_3', 'x', 'x', '']
    lab.model.script({ toolCalls: given.map((id) => call('add', { a: 1, b: 1 }, id)) }, { tokens: 'I see.' })
    const { events } = await toolLab.run(agent)
    const ids = results(events).map(({ toolUseId }) => toolUseId)
    expect(ids.slice(0, 2)).toEqual(['x', 'x_3'])
    expect(new Set(ids).size).toBe(given.length)
  })

  test('continues if the tool exceeds its time limit', async () => {
    // Long enough to ask the server for its tools, also on a slow machine.
    await using hasty = await startToolLab({ TOOL_TIMEOUT: '2' })
    const agent = await hasty.agent()
    hasty.mcp.hold = new Promise(() => {})
    hasty.lab.model.script({ toolCalls: [call('wait')] }, { tokens: 'Too bad.' })
    const { row, events } = await hasty.run(agent)
    expect(results(events)).toMatchObject([{ content: 'Tool call timed out', isError: true }])
    expect(row).toMatchObject({ status: 'completed', result: 'Too bad.' })
    await expect.poll(() => hasty.mcp.sessions).toBe(0)
  })

  test('reads at most 512 KiB of a result, without characters that a database refuses', async () => {
    const agent = await toolLab.agent()
    lab.model.script(
      { toolCalls: [call('much', { characters: 1_000_000 }), call('echo', { text: 'a\0b\ud800' })] },
      { tokens: 'Much.' },
    )
    const { events } = await toolLab.run(agent)
    const [much, echo] = results(events)
    expect(Buffer.byteLength(much!.content)).toBeLessThanOrEqual(512 * 1024)
    expect(much!.content.length).toBeGreaterThan(50_000)
    expect(echo!.content).toBe('ab\ufffd')
  })

  test('can be cancelled during a call, which ends and stands in the history without a result', async () => {
    const agent = await toolLab.agent()
    toolLab.mcp.hold = new Promise(() => {})
    const before = toolLab.mcp.calls.length
    lab.model.script({ tokens: 'Well.', toolCalls: [call('wait')] })
    const row = await lab.run({ agent })
    await expect.poll(() => toolLab.mcp.calls.length, { interval: 5 }).toBe(before + 1)
    expect((await lab.engine.cancel(row, lab.actor)).status).toBe('cancelled')
    await expect.poll(() => toolLab.mcp.sessions).toBe(0)
    const answer = await lab.db.message.findFirstOrThrow({ where: { executionId: row.id, role: 'assistant' } })
    expect(answer).toMatchObject({ content: 'Well.', interrupted: true })
    expect(answer.toolCalls).toMatchObject([{ name: 'wait', result: null }])
  })
})

describe('maxTurns', () => {
  test('ends a run that would continue calling tools with its text so far, without the calls', async () => {
    const agent = await toolLab.agent({ maxTurns: 2 })
    const before = toolLab.mcp.calls.length
    const again = (id: string) => ({ tokens: [`Call ${id}.`], toolCalls: [call('echo', { text: id }, id)] })
    lab.model.script(again('a'), again('b'))
    const { row, events } = await toolLab.run(agent)
    expect(row).toMatchObject({ status: 'completed', result: 'Call b.' })
    expect(results(events)).toMatchObject([
      { toolUseId: 'a', content: 'a', isError: false },
      { toolUseId: 'b', content: 'Not called: the run has reached its limit of 2 turns', isError: true },
    ])
    expect(toolLab.mcp.calls.length - before).toBe(1)
  })
})

describe('the tools that a model gets', () => {
  const offers = async (fields: object) => {
    lab.model.script({ tokens: 'Hi.' })
    await toolLab.run(await toolLab.agent(fields))
    return offered(lastRequest())
  }

  test('are those of its servers, unless allowedTools and disallowedTools limit them', async () => {
    expect(await offers({})).toEqual(['echo', 'add', 'fail', 'wait', 'much', 'show', 'headers'])
    expect(await offers({ allowedTools: ['add', 'echo'] })).toEqual(['echo', 'add'])
    expect(await offers({ disallowedTools: ['fail', 'much', 'wait'] })).toEqual(['echo', 'add', 'show', 'headers'])
    expect(await offers({ allowedTools: ['add', 'echo'], disallowedTools: ['echo'] })).toEqual(['add'])
  })

  test('never include one forbidden by its agent, whatever server a member adds to the space', async () => {
    const id = await createMcp(lab.server, toolLab.mcp.url)
    await request(lab.server, 'PATCH', `/api/v1/spaces/${lab.spaceId}`, { body: { addMcps: [id] } })
    const both = await offers({})
    expect(both).toContain('Test_2__add')
    const others = await offers({ disallowedTools: ['add'] })
    expect(others).toEqual(both.filter((name) => !/add/.test(name)))
    expect(await offers({ allowedTools: ['add'] })).toEqual(['add'])
    expect(await offers({ allowedTools: [`${id}/add`] })).toEqual(['add'])
    expect(await offers({ allowedTools: ['Test__add', 'Test_2__add'] })).toEqual(['Test__add', 'Test_2__add'])
    await request(lab.server, 'PATCH', `/api/v1/spaces/${lab.spaceId}`, { body: { removeMcps: [id] } })
    expect(await offers({ allowedTools: ['Test__add'] })).toEqual(['add'])
  })

  test('are those of the service if its agent names them', async () => {
    expect(await offers({ allowedTools: ['list_tasks', 'read_file', 'add'] })).toEqual([
      ...['list_tasks', 'read_file', 'add'],
    ])
    expect(await offers({ mcpInstanceIds: [] })).toEqual([])
  })

  test('work within the rights of the run’s user', async () => {
    const agent = await toolLab.agent({ mcpInstanceIds: [], allowedTools: ['create_task'] })
    lab.model.script({ toolCalls: [call('create_task', { title: 'Water the plants' })] }, { tokens: 'Noted.' })
    const { events } = await toolLab.run(agent)
    expect(results(events)).toMatchObject([{ isError: false }])
    expect(await lab.db.task.findFirstOrThrow()).toMatchObject({ title: 'Water the plants', createdBy: agent.id })
  })
})

test('a run without tools takes one statement about tools', async () => {
  lab.model.script({ tokens: 'Hi.' })
  const statements = await lab.server.statementsOf(async () => ended(lab.engine, await lab.run()))
  const ofTools = statements.filter((sql) => /ExecutionStep|ToolCall|Approval|Skill|Mcp/.test(sql))
  // It reads the space, and counts its attachments.
  expect(ofTools, ofTools.join('\n')).toHaveLength(1)
})

test('every run of this file has ended', async () => {
  await lab.idle()
  expect(await violations(lab.db)).toEqual([])
})
