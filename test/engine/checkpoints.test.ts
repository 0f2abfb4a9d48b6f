import type { LanguageModelV4, LanguageModelV4CallOptions, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { expect, test } from 'vitest'
import type { Engine } from '../../src/executions/engine/engine.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import type { Models } from '../../src/executions/engine/models/models.ts'
import { textModel } from '../../src/executions/engine/models/text-model.ts'
import { createStepStore, loadSteps } from '../../src/executions/engine/run/steps.ts'
import { request } from '../support/rest.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'
import { storedEvents, violations } from './invariants.ts'
import { ended, followed, type Lab, PLAIN } from './lab.ts'
import { call, messagesOf, results, startToolLab } from './tool-lab.ts'

const LEASE = { LEASE_DURATION: '600', DRAIN_TIMEOUT: '0.1' }

const toolLab = await use(startToolLab(LEASE))
const lab = toolLab.lab

/** Starts another process, which finds a lab's runs dead. */
async function takeOver(overrides: Parameters<Lab['another']>[0] = {}, of = lab): Promise<Engine> {
  const other = of.another(overrides)
  of.clock.advance(700_000)
  await other.start(false)
  return other
}

/** Starts a run that has made one call and waits at its second step without any text. */
async function atSecondStep({ fields = {}, actor = lab.actor } = {}): Promise<ExecutionRow> {
  const agent = await toolLab.agent(fields)
  const index = lab.model.requests.length
  lab.model.script({ toolCalls: [call('add', { a: 1, b: 2 })] }, { end: 'hang' })
  const row = await lab.run({ agent, actor })
  await lab.model.request(index + 1)
  // A later write would renew its lease.
  await expect.poll(async () => (await storedEvents(lab.db, row.id)).length).toBe(2)
  return lab.row(row.id)
}

test('a two-step run reads the same wherever its stream is cut, for every one of its events', async () => {
  const agent = await toolLab.agent()
  lab.model.script(
    { tokens: ['Let me ', 'see.'], toolCalls: [call('add', { a: 1, b: 2 }), call('fail')] },
    { tokens: ['It ', 'is ', '3.'] },
  )
  const { row, events } = await toolLab.run(agent)
  expect(events.length).toBeGreaterThan(8)
  for (const { seq } of events) {
    const expected = events
      .filter((event) => event.seq > seq)
      .map(({ seq: id, event, data }) => ({ id, event, data: { type: event, ...data } }))
    for (const resume of [{ headers: { 'Last-Event-ID': String(seq) } }, `?after=${seq}`]) {
      const path = `/api/v1/executions/${row.id}/events${typeof resume === 'string' ? resume : ''}`
      const stream = await openStream(lab.server, path, typeof resume === 'string' ? {} : resume)
      expect((await stream.rest()).map(({ id, event, data }) => ({ id, event, data }))).toEqual(expected)
    }
  }
})

test('a stored tool result without an event is published once by the process that resumes', async () => {
  const row = await atSecondStep()
  // Simulates a process that died between the two writes.
  await lab.db.executionEvent.deleteMany({ where: { executionId: row.id } })
  lab.model.script({ tokens: 'Three.' })
  const other = await takeOver()
  await ended(other, row)
  const messages = messagesOf(await followed(other, row))
  expect(messages.map((data) => data.messageType)).toEqual(['resumed', 'assistant', 'tool_result', 'assistant'])
  expect(results(await followed(other, row))).toMatchObject([{ toolUseId: 'add-1', content: '3' }])
  expect(await lab.row(row.id)).toMatchObject({ status: 'completed', result: 'Three.', usageEstimated: true })
  await other.drain()
})

test('a worker that lost its run stores no step, no start of a call and no result', async () => {
  const row = await atSecondStep()
  const index = lab.model.requests.length
  lab.model.script({ end: 'hang' })
  const other = await takeOver()
  await lab.model.request(index)
  const stale = createStepStore({ ...lab.server.service.deps, leaseDuration: 1, signal: AbortSignal.abort() }, row)
  const [step] = await loadSteps(lab.db, row.id)
  const [made] = step!.calls
  for (const write of [
    () => stale.save({ ...step!, step: 2 }),
    () => stale.begin(1, made!),
    () => stale.complete(1, made!, { content: 'wrong', isError: true }),
    () => lab.db.$transaction((tx) => stale.adopt(tx, 1, made!, 'child')),
  ]) {
    await expect(write()).rejects.toMatchObject({ reason: 'lost' })
  }
  expect(await loadSteps(lab.db, row.id)).toEqual([step])
  await other.cancel(await lab.row(row.id), lab.actor)
  await other.drain()
})

test('a run that is taken over continues within the scopes of the token that started it', async () => {
  const actor = { ...lab.actor, scopes: ['agents:execute'] }
  const row = await atSecondStep({ fields: { allowedTools: ['add', 'list_tasks'] }, actor })
  lab.model.script({ toolCalls: [call('list_tasks')] }, { tokens: 'No.' })
  const other = await takeOver()
  expect((await ended(other, row)).result).toBe('No.')
  const content = "This run's token lacks the scope tasks:read"
  expect(results(await followed(other, row)).at(-1)).toMatchObject({ content, isError: true })
  await other.drain()
})

test.each([
  ['agent', 'Agent not found'],
  ['space', 'Space not found'],
] as const)(
  'a run whose %s is gone fails with the reason, and its history has its calls so far',
  async (what, error) => {
    const row = await atSecondStep()
    const archive = (archivedAt: Date | null) =>
      what === 'agent'
        ? lab.db.agent.update({ where: { id: row.agentId }, data: { archivedAt } })
        : lab.db.space.update({ where: { id: row.spaceId }, data: { archivedAt } })
    await archive(lab.clock.now())
    const other = await takeOver()
    await archive(null)
    expect(await lab.row(row.id)).toMatchObject({ status: 'failed', error })
    const message = await lab.db.message.findFirstOrThrow({ where: { executionId: row.id, role: 'assistant' } })
    expect(message.toolCalls).toMatchObject([{ name: 'add', result: '3' }])
    await other.drain()
  },
)

test('a run cancelled while its process died ends as cancelled, and makes no call', async () => {
  const row = await atSecondStep()
  await lab.db.execution.update({ where: { id: row.id }, data: { wantsCancel: true } })
  const other = await takeOver()
  expect(await lab.row(row.id)).toMatchObject({ status: 'cancelled' })
  await other.drain()
})

test('a provider gets back its own metadata of earlier steps, also after a restart', async () => {
  const prompts: LanguageModelV4CallOptions['prompt'][] = []
  const signed = (value: string) => ({ test: { signature: value } })
  const chunks: LanguageModelV4StreamPart[] = [
    { type: 'reasoning-start', id: 'r' },
    { type: 'reasoning-delta', id: 'r', delta: 'Hm.' },
    { type: 'reasoning-end', id: 'r', providerMetadata: signed('thought') },
    { type: 'text-start', id: 't' },
    { type: 'text-delta', id: 't', delta: 'Let me add.' },
    { type: 'text-end', id: 't' },
    { type: 'tool-call', toolCallId: 'c', toolName: 'add', input: '{"a":1,"b":2}', providerMetadata: signed('call') },
  ]
  const done: LanguageModelV4StreamPart[] = [
    { type: 'text-start', id: 't' },
    { type: 'text-delta', id: 't', delta: 'Three.' },
    { type: 'text-end', id: 't' },
  ]
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  }
  const hung = Promise.withResolvers<void>()
  const model = (hangs: boolean) =>
    ({
      provider: 'test',
      modelId: 'signed',
      async doStream({ prompt, abortSignal }: LanguageModelV4CallOptions) {
        const index = prompts.push(structuredClone(prompt)) - 1
        const stream = new ReadableStream<LanguageModelV4StreamPart>({
          start(controller) {
            for (const part of index === 0 ? chunks : done) controller.enqueue(part)
            if (index > 0 && hangs) {
              hung.resolve()
              abortSignal?.addEventListener('abort', () => controller.error(abortSignal.reason))
              return
            }
            controller.enqueue({ type: 'finish', finishReason: { unified: 'stop', raw: undefined }, usage })
            controller.close()
          },
        })
        return { stream }
      },
    }) as unknown as LanguageModelV4
  const models = (hangs: boolean): Models => ({
    ...lab.server.service.deps.models,
    resolve: async () => ({ id: 'test/signed', model: textModel(model(hangs)) }),
  })
  await using own = await startToolLab(LEASE)
  const { actor, engine, spaceId } = own.lab
  const agent = await own.agent()
  // The other processes that could take it over have other models.
  await engine.drain()
  const first = own.lab.another({ models: models(true) })
  const row = await first.accept({ ...PLAIN, actor, agent, conversation: { spaceId } })
  await hung.promise
  const other = await takeOver({ models: models(false) }, own.lab)
  expect((await ended(other, row)).status).toBe('completed')
  expect(prompts).toHaveLength(3)
  expect(prompts[2]).toEqual(prompts[1])
  expect(prompts[2]!.at(-2)).toEqual({
    role: 'assistant',
    content: [
      { type: 'reasoning', text: 'Hm.', providerOptions: signed('thought') },
      { type: 'text', text: 'Let me add.' },
      {
        type: 'tool-call',
        toolCallId: expect.stringMatching(/^[a-zA-Z0-9]{9}$/),
        toolName: 'add',
        input: { a: 1, b: 2 },
        providerOptions: signed('call'),
      },
    ],
  })
  await Promise.all([first.drain(), other.drain()])
})

test('during a database outage a run waits, and makes no call that is not stored', async () => {
  const agent = await toolLab.agent()
  const { db } = lab
  let away = 0
  const failing = new Proxy(db, {
    get: (target, name) => {
      if (name !== '$transaction' || away === 0) return Reflect.get(target, name)
      away--
      return async () => {
        throw Object.assign(new Error('The database is away'), { code: 'P1001' })
      }
    },
  })
  const other = lab.another({ db: failing })
  const before = toolLab.mcp.calls.length
  lab.model.script(
    () => {
      away = 2
      return { toolCalls: [call('add', { a: 2, b: 2 })] }
    },
    { tokens: 'Four.' },
  )
  const row = await other.accept({
    ...PLAIN,
    actor: lab.actor,
    agent,
    conversation: { spaceId: lab.spaceId },
  })
  expect(await ended(other, row)).toMatchObject({ status: 'completed', result: 'Four.' })
  expect(toolLab.mcp.calls.length - before).toBe(1)
  await other.drain()
})

test('every run of this file has ended', async () => {
  await lab.idle()
  expect(await violations(lab.db)).toEqual([])
  const { body } = await request(lab.server, 'GET', '/api/v1/executions?status=running')
  expect(body.executions).toEqual([])
})
