import { expect, test } from 'vitest'
import { event } from '../support/model-replies.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { ended, followed, PLAIN } from './lab.ts'
import { call, results, startToolLab } from './tool-lab.ts'

const toolLab = await use(startToolLab({ MODEL_RETRIES: '0', LEASE_DURATION: '600', DRAIN_TIMEOUT: '0.1' }))
const lab = toolLab.lab

const graphql = async (query: string) => (await request(lab.server, 'POST', '/graphql', { body: { query } })).body.data

test('a chat shows why the run of its last message failed, on REST and GraphQL', async () => {
  lab.model.script({ error: { status: 400, message: 'The request is wrong' } })
  const { row } = await toolLab.run(await toolLab.agent())
  const end = { stopReason: 'error', code: 'provider_error', detail: 'HTTP 400: The request is wrong' }
  expect(row).toMatchObject({ status: 'failed', stopReason: 'error' })
  const { body } = await request(lab.server, 'GET', `/api/v1/chats/${row.chatId}/messages`)
  expect(body.messages).toMatchObject([{ role: 'user', ...end }])
  const { chat } = await graphql(`{ chat(id: "${row.chatId}") { messages { nodes { stopReason code detail } } } }`)
  expect(chat.messages.nodes).toEqual([end])
})

test('only the last message of a run shows its end', async () => {
  lab.model.script({ tokens: 'Hi.' })
  const { row } = await toolLab.run(await toolLab.agent())
  const { chat } = await graphql(`{ chat(id: "${row.chatId}") { messages { nodes { stopReason code } } } }`)
  const none = { stopReason: null, code: null }
  expect(chat.messages.nodes).toEqual([none, { ...none, stopReason: 'end_turn' }])
  const { body } = await request(lab.server, 'GET', `/api/v1/chats/${row.chatId}/messages?limit=1`)
  expect(body.messages[0]).not.toHaveProperty('stopReason')
})

test('a run that waited continues with the model that answered last', async () => {
  const agent = await toolLab.agent({ model: 'compatible/first', fallbackModels: ['compatible/second'] }, [
    { tool: 'echo', mode: 'ask' },
  ])
  const busy = { error: { status: 503, message: 'busy' } }
  lab.model.script(busy, { tokens: 'May I?', toolCalls: [call('echo', { text: 'a' })] }, { tokens: 'Thank you.' })
  const begun = await lab.run({ agent })
  expect(begun.model).toBe('compatible/first')
  await expect.poll(() => lab.row(begun.id)).toMatchObject({ waitingFor: 'approval' })
  const { body } = await request(lab.server, 'GET', `/api/v1/approvals?executionId=${begun.id}`)
  await request(lab.server, 'POST', `/api/v1/approvals/${body.approvals[0].id}/approve`, { body: {} })
  const row = await ended(lab.engine, await lab.row(begun.id))
  expect(row).toMatchObject({ status: 'completed', model: 'compatible/second', modelsTried: ['compatible/first'] })
  expect(lab.model.requests.at(-1)!.body.model).toBe('second')
})

test('a tool name that the model invented is sent back in a form that providers accept', async () => {
  lab.model.script({ toolCalls: [call('do something!', {}, 'x')] }, { tokens: 'I see.' })
  const { events } = await toolLab.run(await toolLab.agent())
  expect(results(events)).toMatchObject([{ content: expect.stringMatching(/^There is no tool named do something!/) }])
  expect(JSON.stringify(lab.model.requests.at(-1)!.body.messages)).toContain('"name":"_do_something_"')
})

test('a run has the name of its model from its acceptance on', async () => {
  const accepted = async (fields: object) => {
    const agent = await toolLab.agent(fields)
    const row = await lab.run({ agent })
    await followed(lab.engine, row)
    return row.model
  }
  expect(await accepted({ model: 'offline/echo' })).toBe('offline/echo')
  expect(await accepted({ model: 'some-model' })).toBe('compatible/some-model')
  expect(await accepted({})).toMatch(/^compatible\/./)
})

/** Scripts a reply with its own finish reason. */
const reply = (delta: object, finish_reason: string) => ({
  tokens: [event({ choices: [{ index: 0, delta, finish_reason }] }), Buffer.from('data: [DONE]\n\n')],
  end: 'cut' as const,
})

test('a run that is taken over keeps its cut text, and reports its end', async () => {
  const agent = await toolLab.agent()
  const pieces = ['{"text":"whole"}', '{"text":"ha'].map((input, index) => ({
    index,
    id: `call_${index}`,
    function: { name: 'echo', arguments: input },
  }))
  const index = lab.model.requests.length
  lab.model.script(reply({ tool_calls: pieces }, 'length'), { end: 'hang' })
  const dying = lab.another()
  const row = await dying.accept({ ...PLAIN, actor: lab.actor, agent, conversation: { spaceId: lab.spaceId } })
  await lab.model.request(index + 1)
  lab.model.script(reply({ content: 'The answer is' }, 'length'))
  const heir = lab.another()
  lab.clock.advance(700_000)
  await heir.start(false)
  const end = { status: 'completed', attempt: 2, result: 'The answer is', stopReason: 'max_tokens' }
  expect(await ended(heir, row)).toMatchObject(end)
  const { body } = await request(lab.server, 'GET', `/api/v1/executions/${row.id}`)
  expect(body.execution).toMatchObject({ stopReason: 'max_tokens', warnings: [{ code: 'cut_off' }] })
  // Neither process made the incomplete call, and the model read so.
  const seen = await followed(lab.engine, await lab.row(row.id))
  expect(results(seen).map(({ isError }) => isError)).toEqual([false, true])
  expect(seen.at(-1)?.data).toMatchObject({ stopReason: 'max_tokens' })
  expect(JSON.stringify(lab.model.requests.at(-1)!.body.messages)).toMatch(/Not called/)
  await dying.drain()
  await heir.drain()
})

test('runs with a fallback model skip a failing provider until its pause is over', async () => {
  const model = `compatible/busy-${index()}`
  const agent = await toolLab.agent({ model, fallbackModels: ['openai/other'] })
  const plain = await toolLab.agent({ model })
  const busy = { error: { status: 503, message: 'busy' } }
  const asked = async (from: { id: string }) => {
    const before = lab.model.requests.length
    const { row } = await toolLab.run(from)
    return [row.model, ...lab.model.requests.slice(before).map(({ body }) => body.model)]
  }
  const [, id] = model.split('/')
  for (let failures = 0; failures < 5; failures++) {
    lab.model.script(busy)
    expect(await asked(plain)).toEqual([model, id])
  }
  expect(await asked(agent)).toEqual(['openai/other', 'other'])
  // A run without another model still asks it.
  lab.model.script(busy)
  expect(await asked(plain)).toEqual([model, id])
  lab.clock.advance(31_000)
  expect(await asked(agent)).toEqual([model, id])
  expect(await asked(agent)).toEqual([model, id])
})

test('a task shows why its last run failed, and its later success, on REST and GraphQL', async () => {
  const agent = await toolLab.agent()
  const body = { title: 'Try', description: 'Try it', assignTo: agent.id }
  const { id } = (await request(lab.server, 'POST', '/api/v1/tasks', { body })).body
  const outcome = async () => {
    const { task } = (await request(lab.server, 'GET', `/api/v1/tasks/${id}`)).body
    const found = await graphql(`{ task(id: "${id}") { lastError lastExecutionId } }`)
    const { lastError, lastExecutionId, status } = task
    expect(found.task).toEqual({ lastError, lastExecutionId })
    return { status, lastError }
  }
  lab.model.script({ error: { status: 400, message: 'The request is wrong' } })
  await request(lab.server, 'POST', `/api/v1/tasks/${id}/execute`, { body: {} })
  expect(await outcome()).toEqual({ status: 'pending', lastError: 'HTTP 400: The request is wrong' })
  lab.model.script(reply({ content: 'Half' }, 'length'))
  await request(lab.server, 'POST', `/api/v1/tasks/${id}/execute`, { body: {} })
  expect(await outcome()).toEqual({ status: 'pending', lastError: expect.stringContaining('max_tokens') })
  lab.model.script({ tokens: 'Done.' })
  await request(lab.server, 'POST', `/api/v1/tasks/${id}/execute`, { body: {} })
  expect(await outcome()).toEqual({ status: 'completed', lastError: null })
})

let count = 0
const index = () => ++count
