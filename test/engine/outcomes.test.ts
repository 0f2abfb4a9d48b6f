import { afterAll, beforeAll, expect, test } from 'vitest'
import { request } from '../support/rest.ts'
import { call, type Equipped, results, startEquipped } from './equipped.ts'
import { ended, followed, type Lab } from './lab.ts'

let equipped: Equipped
let lab: Lab
beforeAll(async () => {
  equipped = await startEquipped({ MODEL_RETRIES: '0' })
  lab = equipped.lab
})
afterAll(() => equipped[Symbol.asyncDispose]())

const graphql = async (query: string) => (await request(lab.server, 'POST', '/graphql', { body: { query } })).body.data

test('a chat tells of its last message why the run failed, on REST and GraphQL', async () => {
  lab.model.script({ error: { status: 400, message: 'The request is wrong' } })
  const { row } = await equipped.run(await equipped.agent())
  const end = { stopReason: 'error', code: 'provider_error', detail: 'HTTP 400: The request is wrong' }
  expect(row).toMatchObject({ status: 'failed', stopReason: 'error' })
  const { body } = await request(lab.server, 'GET', `/api/v1/chats/${row.chatId}/messages`)
  expect(body.messages).toMatchObject([{ role: 'user', ...end }])
  const { chat } = await graphql(`{ chat(id: "${row.chatId}") { messages { nodes { stopReason code detail } } } }`)
  expect(chat.messages.nodes).toEqual([end])
})

test('only the last message of a run tells how it ended', async () => {
  lab.model.script({ tokens: 'Hi.' })
  const { row } = await equipped.run(await equipped.agent())
  const { chat } = await graphql(`{ chat(id: "${row.chatId}") { messages { nodes { stopReason code } } } }`)
  const none = { stopReason: null, code: null }
  expect(chat.messages.nodes).toEqual([none, { ...none, stopReason: 'end_turn' }])
  const { body } = await request(lab.server, 'GET', `/api/v1/chats/${row.chatId}/messages?limit=1`)
  expect(body.messages[0]).not.toHaveProperty('stopReason')
})

test('a run that waited goes on with the model that answered last', async () => {
  const agent = await equipped.agent({ model: 'compatible/first', fallbackModels: ['compatible/second'] }, [
    { tool: 'echo', mode: 'ask' },
  ])
  const busy = { error: { status: 503, message: 'busy' } }
  lab.model.script(busy, { tokens: 'May I?', toolCalls: [call('echo', { text: 'a' })] }, { tokens: 'Thank you.' })
  const begun = await lab.run({ agent })
  expect(begun.model).toBe('compatible/first')
  await expect.poll(() => lab.row(begun.id), { timeout: 10_000 }).toMatchObject({ waitingFor: 'approval' })
  const { body } = await request(lab.server, 'GET', `/api/v1/approvals?executionId=${begun.id}`)
  await request(lab.server, 'POST', `/api/v1/approvals/${body.approvals[0].id}/approve`, { body: {} })
  const row = await ended(lab.engine, await lab.row(begun.id))
  expect(row).toMatchObject({ status: 'completed', model: 'compatible/second', modelsTried: ['compatible/first'] })
  expect(lab.model.requests.at(-1)!.body.model).toBe('second')
})

test('the name that a model made up for a tool goes back as one that providers take', async () => {
  lab.model.script({ toolCalls: [call('do something!', {}, 'x')] }, { tokens: 'I see.' })
  const { events } = await equipped.run(await equipped.agent())
  expect(results(events)).toMatchObject([{ content: expect.stringMatching(/^There is no tool named do something!/) }])
  expect(JSON.stringify(lab.model.requests.at(-1)!.body.messages)).toContain('"name":"_do_something_"')
})

test('a run has the name of its model from its acceptance on', async () => {
  const accepted = async (fields: object) => {
    const agent = await equipped.agent(fields)
    const row = await lab.run({ agent })
    await followed(lab.engine, row)
    return row.model
  }
  expect(await accepted({ model: 'offline/echo' })).toBe('offline/echo')
  expect(await accepted({ model: 'some-model' })).toBe('compatible/some-model')
  expect(await accepted({})).toMatch(/^compatible\/./)
})
