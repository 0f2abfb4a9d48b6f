import { setTimeout as sleep } from 'node:timers/promises'
import type { LanguageModelV4, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { expect, test } from 'vitest'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { textModel } from '../../src/executions/engine/models/text-model.ts'
import { TimeoutError } from '../../src/executions/engine/run/abort.ts'
import { ask } from '../../src/executions/engine/run/ask.ts'
import type { RunInput } from '../../src/executions/engine/run/run.ts'
import { request } from '../support/rest.ts'
import { openStream } from '../support/sse.ts'
import { textOf, violations } from './invariants.ts'
import { ended, followed, gates, type Lab, PLAIN, setTimeLimits, startLab } from './lab.ts'

/** Checks that the session continues: its next message is answered, with the earlier ones in its history. */
async function expectToContinue(lab: Lab, { spaceId, chatId, sessionId }: ExecutionRow): Promise<void> {
  // A slow machine takes longer than the limit of the run before.
  setTimeLimits(lab, { MODEL_IDLE_TIMEOUT: 60_000, EXECUTION_TIMEOUT: 60_000 })
  lab.model.script({ tokens: 'Here I am.' })
  const next = await lab.run({ message: 'Are you there?', conversation: { spaceId, chatId, sessionId } })
  expect(await ended(lab.engine, next)).toMatchObject({ status: 'completed', result: 'Here I am.' })
  expect((await lab.db.chat.findUniqueOrThrow({ where: { id: chatId } })).status).toBe('done')
  expect(await violations(lab.db)).toEqual([])
}

test('a model that never answers ends its run as timeout and closes its connection', async () => {
  await using lab = await startLab({ MODEL_IDLE_TIMEOUT: '0.4' })
  lab.model.script({ end: 'hang' })
  const row = await lab.run()
  const { aborted } = await lab.model.request(0)
  expect(await ended(lab.engine, row)).toMatchObject({ status: 'failed', error: 'timeout' })
  await aborted
  expect((await followed(lab.engine, row)).map(({ event }) => event)).toEqual(['meta', 'error'])
  expect((await lab.db.chat.findFirstOrThrow({ where: { id: row.chatId } })).status).toBe('error')
  await expectToContinue(lab, row)
})

test('a model that stops in mid-token ends its run as timeout with the text so far', async () => {
  await using lab = await startLab({ MODEL_IDLE_TIMEOUT: '1' })
  lab.model.script({ tokens: ['one ', 'two '], end: 'hang' })
  const row = await lab.run()
  const { aborted } = await lab.model.request(0)
  const events = await followed(lab.engine, row)
  await aborted
  expect(textOf(events)).toBe('one two ')
  expect(events.at(-1)).toMatchObject({ event: 'error', data: { message: 'Chat execution failed', status: 'failed' } })
  expect(await lab.row(row.id)).toMatchObject({ status: 'failed', error: 'timeout' })
  const answer = await lab.db.message.findFirst({ where: { executionId: row.id, role: 'assistant' } })
  expect(answer).toMatchObject({ content: 'one two ', interrupted: true })
  await expectToContinue(lab, row)
})

test('a model that stops and ignores its signal ends its run as timeout, without an answer', async () => {
  await using lab = await startLab({ MODEL_IDLE_TIMEOUT: '0.4' })
  const left = Promise.withResolvers<unknown>()
  const stream = new ReadableStream<LanguageModelV4StreamPart>({
    start: (controller) => controller.enqueue({ type: 'text-delta', id: 't', delta: 'one ' }),
    cancel: left.resolve,
  })
  const model = textModel({ provider: 'test', doStream: async () => ({ stream }) } as unknown as LanguageModelV4)
  const { models } = lab.server.service.deps
  const engine = lab.another({ models: { ...models, resolve: async () => ({ id: 'test/deaf', model }) } })
  const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: lab.agentId } })
  const row = await engine.accept({ ...PLAIN, actor: lab.actor, agent, conversation: { spaceId: lab.spaceId } })
  expect(await ended(engine, row)).toMatchObject({ status: 'failed', error: 'timeout' })
  expect(await left.promise).toBeInstanceOf(TimeoutError)
  const answer = await lab.db.message.findFirst({ where: { executionId: row.id, role: 'assistant' } })
  expect(answer).toMatchObject({ content: 'one ', interrupted: true })
  await engine.drain()
})

test('a model that is slow but not silent does not time out', async () => {
  await using lab = await startLab({ MODEL_IDLE_TIMEOUT: '1.5' })
  lab.model.script({ tokens: Array.from({ length: 12 }, () => 'slow '), delay: 150 })
  expect(await ended(lab.engine, await lab.run())).toMatchObject({ status: 'completed' })
})

test('a model that never stops talking ends its run as timeout after EXECUTION_TIMEOUT', async () => {
  await using lab = await startLab({ EXECUTION_TIMEOUT: '1' })
  lab.model.script({ tokens: Array.from({ length: 10_000 }, () => 'more '), delay: 5 })
  const row = await lab.run()
  const { aborted } = await lab.model.request(0)
  const events = await followed(lab.engine, row)
  await aborted
  expect(await lab.row(row.id)).toMatchObject({ status: 'failed', error: 'timeout' })
  expect(textOf(events)).toMatch(/^(more )+$/)
  await expectToContinue(lab, row)
})

test('EXECUTION_TIMEOUT continues to count when another process takes the run over', async () => {
  await using lab = await startLab({ EXECUTION_TIMEOUT: '3600', LEASE_DURATION: '600', DRAIN_TIMEOUT: '0.1' })
  lab.model.fallback = { end: 'hang' }
  const row = await lab.run()
  await lab.model.request(0)
  lab.clock.advance(2 * 3_600_000)
  const other = lab.another()
  await other.start(false)
  expect(await ended(other, row)).toMatchObject({ status: 'failed', error: 'timeout', attempt: 2 })
  await other.drain()
  await lab.engine.drain()
  expect(await violations(lab.db)).toEqual([])
})

test('a run that is pending beyond QUEUE_TIMEOUT ends as timeout, anywhere in the queue', async () => {
  await using lab = await startLab({ MAX_RUNNING: '2' })
  const open = gates(lab)
  const running = await lab.run({ message: 'running' })
  const conversation = { spaceId: lab.spaceId, chatId: running.chatId, sessionId: running.sessionId }
  await lab.run({ message: 'other' })
  const waiting = [
    await lab.run({ message: 'for its session', conversation }),
    await lab.run({ message: 'behind it', conversation }),
    await lab.run({ message: 'for room' }),
  ]
  const path = `/api/v1/agents/${lab.agentId}/execute`
  const body = { message: 'waits', sessionId: running.sessionId }
  const stream = await openStream(lab.server, path, { method: 'POST', body: { ...body, stream: true } })
  const answer = request(lab.server, 'POST', path, { body })
  await expect.poll(() => lab.db.execution.count({ where: { status: 'pending' } })).toBe(5)
  lab.clock.advance(3_600_000 + 1_000)
  for (const row of waiting) {
    expect(await ended(lab.engine, row)).toMatchObject({ status: 'failed', error: 'timeout', attempt: 0 })
  }
  const { chatId, id: executionId } = waiting[2]!
  const { messages } = (await request(lab.server, 'GET', `/api/v1/chats/${chatId}/messages`)).body
  expect(messages).toMatchObject([{ role: 'user', content: 'for room', code: 'timeout', executionId }])
  expect((await answer).body).toMatchObject({ statusCode: 500, message: 'Chat execution failed' })
  expect((await stream.rest()).map(({ event }) => event)).toEqual(['meta', 'error'])
  expect((await lab.row(running.id)).status).toBe('running')
  open('running')
  open('other')
  expect((await ended(lab.engine, running)).status).toBe('completed')
  await lab.idle()
  // The questions of the session stand behind the answer of the run for which they waited.
  const chat = (await request(lab.server, 'GET', `/api/v1/chats/${running.chatId}/messages`)).body
  const refused = ['for its session', 'behind it', 'waits', 'waits'].map((content) => ({ content, code: 'timeout' }))
  expect(chat.messages).toMatchObject([{ content: 'running' }, { role: 'assistant' }, ...refused])
  expect((await lab.db.session.findUniqueOrThrow({ where: { id: running.sessionId } })).messageCount).toBe(6)
  expect(await violations(lab.db)).toEqual([])
})

test('a wait for the database beyond MODEL_IDLE_TIMEOUT does not count as silence of the model', async () => {
  async function* stream() {
    yield [
      { type: 'text-start', id: '1' },
      { type: 'text-delta', id: '1', delta: 'Hello.' },
    ]
    yield [{ type: 'finish', finishReason: { unified: 'stop' }, usage: { inputTokens: {}, outputTokens: {} } }]
  }
  const model = { provider: 'test', modelId: 'model', doStream: async () => ({ stream: stream() }) }
  const asking = {
    current: () => ({ id: 'test/model', model }),
    request: (prompt: object) => ({ prompt }),
    answered: () => {},
    recover: async () => null,
  }
  const input = { asking, tools: [], idleTimeout: 50, controller: new AbortController() }
  const usage = { inputTokens: 0, outputTokens: 0, usageEstimated: false }
  const reply = await ask(input as unknown as RunInput, [], 1, usage, () => sleep(200))
  expect(reply.parts).toMatchObject([{ type: 'text', text: 'Hello.' }])
})
