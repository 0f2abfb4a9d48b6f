import { describe, expect, test } from 'vitest'
import { Prisma } from '../../src/db/client.ts'
import type { Engine } from '../../src/executions/engine/engine.ts'
import type { ExecutionEvent, ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { createAgent } from '../support/api.ts'
import { onPostgres, races } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { createTrigger } from '../support/trigger.ts'
import { storedEvents, textOf, violations, watchTransitions } from './invariants.ts'
import { asked, ended, followed, type Lab, PLAIN, startLab } from './lab.ts'
import { call, startToolLab } from './tool-lab.ts'

const MANY = races(60)
const LEASE = { LEASE_DURATION: '600', DRAIN_TIMEOUT: '0.1' }

/** Starts another process, which finds this lab's runs dead. */
async function takeOver(lab: Lab, overrides: Parameters<Lab['another']>[0] = {}): Promise<Engine> {
  const other = lab.another(overrides)
  lab.clock.advance(700_000)
  await other.start(false)
  return other
}

const hanging = async (lab: Lab, tokens: string[] = []): Promise<ExecutionRow> => {
  const index = lab.model.requests.length
  const stored = await lab.db.executionEvent.count()
  lab.model.script({ tokens, end: 'hang' })
  const row = await lab.run()
  await lab.model.request(index)
  if (tokens.length) await expect.poll(() => lab.db.executionEvent.count()).toBe(stored + 1)
  return row
}

/** Makes the database refuse this word in a column of this table. */
async function refuse({ db }: Lab, table: string, column: string, word: string): Promise<void> {
  const name = `_refused${table}`
  await db.$executeRaw(Prisma.raw(`CREATE TABLE "${name}" ("reason" TEXT NOT NULL)`))
  const when = `NEW."${column}" LIKE '%${word}%'`
  await createTrigger(db, { name, event: 'BEFORE INSERT', table, when, effect: `INSERT INTO "${name}" VALUES (NULL)` })
}

/** Starts a run that has made one call and waits at its second step without any text. */
async function afterCall(lab: Lab): Promise<ExecutionRow> {
  lab.model.script({ toolCalls: [{ id: 't1', name: 'nothing', input: {} }] }, { end: 'hang' })
  const row = await lab.run()
  await lab.model.request(1)
  await expect.poll(async () => (await storedEvents(lab.db, row.id)).length).toBe(2)
  return row
}

const promptOf = async (engine: Engine, row: ExecutionRow) =>
  (await followed(engine, row)).flatMap(({ event, data }) => (event === 'message' ? data : []))

describe('a run with a write that the database refuses', () => {
  const REFUSED = { status: 'failed', error: 'An unexpected error occurred', result: null, attempt: 1 }

  test('announces no calls that are not stored, because its successor would announce them again', async () => {
    await using lab = await startLab()
    await refuse(lab, 'ExecutionStep', 'reply', 'poison')
    lab.model.script({ tokens: ['Let me see.'], toolCalls: [{ id: 't1', name: 'poison', input: {} }] })
    const row = await lab.run()
    const events = (await followed(lab.engine, row)).map(({ event, data }) =>
      'messageType' in data ? data.messageType : event,
    )
    expect(events).toEqual(['meta', 'stream_event', 'error'])
  })

  test('fails without it, and the next run of its session starts', async () => {
    await using lab = await startLab()
    await refuse(lab, 'Message', 'content', 'poison')
    lab.model.script({ tokens: 'Well, poison.' })
    const row = await lab.run()
    const { spaceId, chatId, sessionId } = row
    expect((await followed(lab.engine, row)).at(-1)).toMatchObject({ event: 'error', data: { status: 'failed' } })
    expect(await lab.row(row.id)).toMatchObject({ ...REFUSED, usageEstimated: true, inputTokens: 0 })
    const next = await lab.run({ conversation: { spaceId, chatId, sessionId } })
    expect(await ended(lab.engine, next)).toMatchObject({ status: 'completed' })
    expect(await violations(lab.db)).toEqual([])
  })

  test('fails without it also after its process has died', async () => {
    await using lab = await startLab(LEASE)
    await refuse(lab, 'Message', 'content', 'poison')
    const row = await hanging(lab, ['Well, ', 'poison'])
    const other = await takeOver(lab)
    expect(await ended(other, row)).toMatchObject({ ...REFUSED, attempt: 2 })
    await other.drain()
  })

  test('fails even if it would have waited for an approval', async () => {
    await using toolLab = await startToolLab()
    const { lab } = toolLab
    await refuse(lab, 'Approval', 'input', 'poison')
    const agent = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
    lab.model.script({ tokens: 'May I?', toolCalls: [call('echo', { text: 'poison' })] })
    const { row } = await toolLab.run(agent)
    expect(row).toMatchObject(REFUSED)
    expect(await violations(lab.db)).toEqual([])
  })
})

describe('a run whose process died', () => {
  test('a run whose process died before any output runs again, with one question and one answer', async () => {
    await using lab = await startLab(LEASE)
    const transitions = await watchTransitions(lab.db)
    const row = await hanging(lab)
    lab.model.script({ tokens: 'Second try.' })
    const other = await takeOver(lab)
    const events = await followed(other, row)
    expect(events.map(({ event }) => event)).toEqual([
      'meta',
      ...textOf(events)
        .split(' ')
        .map(() => 'message'),
      'message',
      'result',
    ])
    const outcome = { status: 'completed', result: 'Second try.', attempt: 2 }
    // The first request may have been counted.
    expect(await lab.row(row.id)).toMatchObject({ ...outcome, usageEstimated: true })
    expect(asked(lab)).toEqual(['Hello', 'Hello'])
    const messages = await lab.db.message.findMany({ orderBy: { position: 'asc' } })
    expect(messages.map(({ content }) => content)).toEqual(['Hello', 'Second try.'])
    await lab.engine.drain()
    expect(await transitions()).toEqual([])
    expect(await violations(lab.db)).toEqual([])
    await other.drain()
  })

  test('a run whose process died after some text ends as interrupted, and the next run starts', async () => {
    await using lab = await startLab(LEASE)
    const row = await hanging(lab, ['one ', 'two '])
    const { spaceId, chatId, sessionId } = row
    const next = await lab.run({ message: 'And then?', conversation: { spaceId, chatId, sessionId } })
    lab.model.script({ tokens: 'Three.' })
    const other = await takeOver(lab)
    expect(await lab.row(row.id)).toMatchObject({ status: 'failed', error: 'interrupted', result: null })
    const events = await followed(other, row)
    expect(textOf(events)).toBe('one two ')
    expect(events.at(-1)).toMatchObject({ event: 'error', data: { status: 'failed' } })
    expect((await ended(other, next)).result).toBe('Three.')
    const prompt = lab.model.requests
      .at(-1)!
      .body.messages.slice(1)
      .map(({ content }) => content)
    expect(prompt).toEqual(['Hello', 'one two ', 'And then?'])
    await lab.engine.drain()
    expect(await violations(lab.db)).toEqual([])
    await other.drain()
  })

  test('a run whose process died after a tool call resumes behind that step, with an event', async () => {
    await using lab = await startLab(LEASE)
    const row = await afterCall(lab)
    lab.model.script({ tokens: 'There is none.' })
    const other = await takeOver(lab)
    const messages = await promptOf(other, row)
    expect(messages.map((data) => data.messageType)).toEqual([
      ...['assistant', 'tool_result', 'resumed'],
      ...['stream_event', 'stream_event', 'stream_event', 'assistant'],
    ])
    expect(messages[2]).toEqual({ messageType: 'resumed', step: 2 })
    expect(await lab.row(row.id)).toMatchObject({ status: 'completed', result: 'There is none.', attempt: 2 })
    expect(lab.model.requests[2]?.body.messages).toEqual(lab.model.requests[1]?.body.messages)
    await lab.engine.drain()
    expect(await violations(lab.db)).toEqual([])
    await other.drain()
  })

  test('continues with its original agent, from its beginning or behind a step', async () => {
    await using lab = await startLab(LEASE)
    lab.model.script({ toolCalls: [{ id: 't1', name: 'nothing', input: {} }] }, { end: 'hang' })
    const behind = await lab.run()
    await lab.model.request(1)
    await expect.poll(async () => (await storedEvents(lab.db, behind.id)).length).toBe(2)
    const rows = [behind, await hanging(lab)]
    const body = { systemPrompt: 'You are new.' }
    expect((await request(lab.server, 'PATCH', `/api/v1/agents/${lab.agentId}`, { body })).status).toBe(200)
    const other = await takeOver(lab)
    for (const row of rows) expect(await ended(other, row)).toMatchObject({ status: 'completed', agentVersion: 1 })
    const prompts = lab.model.requests.map(({ body }) => body.messages[0]?.content)
    expect(prompts).toEqual(Array(5).fill('You are Ada.'))
    await other.drain()
  })

  test('a run whose process died after a cancel ends as cancelled', async () => {
    await using lab = await startLab(LEASE)
    const rows = [await hanging(lab), await hanging(lab, ['one '])]
    await lab.db.execution.updateMany({ data: { wantsCancel: true } })
    const other = await takeOver(lab)
    for (const { id } of rows) expect(await lab.row(id)).toMatchObject({ status: 'cancelled', error: null })
    expect(lab.model.requests).toHaveLength(2)
    await lab.engine.drain()
    expect(await violations(lab.db)).toEqual([])
    await other.drain()
  })

  test('is not repeated for a former member, or with an archived agent', async () => {
    await using lab = await startLab(LEASE)
    const row = await hanging(lab)
    await lab.db.agent.update({ where: { id: lab.agentId }, data: { archivedAt: lab.clock.now() } })
    const other = await takeOver(lab)
    expect(await lab.row(row.id)).toMatchObject({ status: 'failed', error: 'Agent not found' })
    expect(lab.model.requests).toHaveLength(1)
    await lab.engine.drain()
    expect(await violations(lab.db)).toEqual([])
    await other.drain()
  })

  test('a run of a dead process that cannot be ended blocks neither other runs nor the start', async () => {
    await using lab = await startLab(LEASE)
    const poison = await hanging(lab, ['one '])
    const rows = [await hanging(lab, ['one ']), await hanging(lab, ['one '])]
    const onRunEnded = async (_: unknown, { id }: ExecutionRow) => {
      if (id === poison.id) throw new Error('It cannot be ended')
    }
    const other = await takeOver(lab, { runHooks: [{ onRunEnded }] })
    for (const { id } of rows) expect(await lab.row(id)).toMatchObject({ status: 'failed', error: 'interrupted' })
    expect(await lab.row(poison.id)).toMatchObject({ status: 'running' })
    const third = await takeOver(lab)
    expect(await lab.row(poison.id)).toMatchObject({ status: 'failed', error: 'interrupted' })
    await Promise.all([lab.engine.drain(), other.drain(), third.drain()])
    expect(await violations(lab.db)).toEqual([])
  })

  test(`is recovered among ${MANY} of them, each with two waiting behind it`, async () => {
    await using lab = await startLab({ ...LEASE, MAX_RUNNING: '10000' })
    lab.model.fallback = { end: 'hang' }
    for (let index = 0; index < MANY; index++) {
      const { spaceId, chatId, sessionId } = await lab.run({ message: `first ${index}` })
      for (let behind = 0; behind < 2; behind++) {
        await lab.run({ message: `behind ${index}`, conversation: { spaceId, chatId, sessionId } })
      }
    }
    await lab.model.request(MANY - 1)
    lab.model.fallback = { tokens: 'Done.' }
    const other = await takeOver(lab)
    await lab.idle()
    const counts = await lab.db.execution.groupBy({
      by: ['status', 'attempt'],
      _count: true,
      orderBy: { attempt: 'asc' },
    })
    expect(counts.map(({ status, attempt, _count }) => [status, attempt, _count])).toEqual([
      ['completed', 1, 2 * MANY],
      ['completed', 2, MANY],
    ])
    await lab.engine.drain()
    expect(await violations(lab.db)).toEqual([])
    await other.drain()
  })
})

describe('a run whose process died, without capacity for it', () => {
  /** Another process after this lab's has ended, with the same settings except this one. */
  async function next(lab: Lab, MAX_RUNNING: number): Promise<Engine> {
    await lab.engine.drain()
    lab.clock.advance(1)
    return lab.another({ settings: { ...lab.server.service.deps.settings, MAX_RUNNING } })
  }

  test('waits with its time standing still, while a run that only ends does so at once', async () => {
    await using lab = await startLab({ ...LEASE, MAX_RUNNING_PER_ORGANIZATION: '10' })
    const transitions = await watchTransitions(lab.db)
    const running = async () => (await lab.db.organization.findFirstOrThrow()).running
    const waiting = await hanging(lab)
    const interrupted = await hanging(lab, ['one '])
    const other = await next(lab, 1)
    const resume = Promise.withResolvers<void>()
    lab.model.script({ tokens: [resume.promise, 'Mine.'] }, { tokens: 'At last.' })
    const { actor, spaceId } = lab
    const agent = await lab.db.agent.findUniqueOrThrow({ where: { id: lab.agentId } })
    const mine = await other.accept({ ...PLAIN, actor, agent, conversation: { spaceId } })
    await other.start(false)
    expect(await lab.row(interrupted.id)).toMatchObject({ status: 'failed', error: 'interrupted' })
    const lease = { leaseOwner: null, leaseUntil: null }
    expect(await lab.row(waiting.id)).toMatchObject({ status: 'pending', waitingFor: null, ...lease })
    expect(await running()).toBe(1)

    // Longer than QUEUE_TIMEOUT, which does not count because the run has begun before.
    const HOURS = 10_000_000
    lab.clock.advance(HOURS)
    resume.resolve()
    await ended(other, mine)
    expect(await ended(other, waiting)).toMatchObject({ status: 'completed', result: 'At last.' })
    expect((await lab.row(waiting.id)).waitedMs).toBeGreaterThanOrEqual(HOURS)
    expect(await running()).toBe(0)
    expect(await transitions()).toEqual([])
    expect(await violations(lab.db)).toEqual([])
    await other.drain()
  })

  test('resumes behind its last step, with one event for its followers', async () => {
    await using lab = await startLab(LEASE)
    const row = await afterCall(lab)
    const full = await next(lab, 0)
    await full.start(false)
    expect(await lab.row(row.id)).toMatchObject({ status: 'pending', usageEstimated: true })
    lab.model.script({ tokens: 'There is none.' })
    const other = await takeOver(lab)
    const messages = await promptOf(other, row)
    expect(messages.map((data) => data.messageType)).toEqual([
      ...['assistant', 'tool_result', 'resumed'],
      ...['stream_event', 'stream_event', 'stream_event', 'assistant'],
    ])
    expect(await lab.row(row.id)).toMatchObject({ status: 'completed', result: 'There is none.' })
    expect(lab.model.requests[2]?.body.messages).toEqual(lab.model.requests[1]?.body.messages)
    expect(await violations(lab.db)).toEqual([])
    await Promise.all([full.drain(), other.drain()])
  })

  test('resumes even without capacity if another run waits for it', async () => {
    await using lab = await startLab(LEASE)
    const sue = await createAgent(lab.server, { name: 'Sue' })
    const id = await createAgent(lab.server, { name: 'Boss', subagentIds: [sue] })
    const agent = await lab.db.agent.findUniqueOrThrow({ where: { id } })
    lab.model.script({ toolCalls: [call('delegate_to_sue', { message: 'Find it' })] }, { end: 'hang' })
    const boss = await lab.run({ agent })
    await lab.model.request(1)
    const found = () => lab.db.execution.findFirst({ where: { parentExecutionId: boss.id } })
    await expect.poll(found).toMatchObject({ status: 'running' })
    const full = await next(lab, 0)
    lab.model.script({ tokens: 'Found.' })
    await full.start(false)
    expect(await ended(full, (await found())!)).toMatchObject({ status: 'completed', result: 'Found.' })
    expect(await lab.row(boss.id)).toMatchObject({ status: 'pending' })
    lab.model.script({ tokens: 'Sue found it.' })
    const other = await takeOver(lab)
    expect(await ended(other, boss)).toMatchObject({ status: 'completed', result: 'Sue found it.' })
    expect(await violations(lab.db)).toEqual([])
    await Promise.all([full.drain(), other.drain()])
  })

  test('also cancels its delegates if its agent was deleted meanwhile', async () => {
    await using lab = await startLab(LEASE)
    const sue = await createAgent(lab.server, { name: 'Sue' })
    const id = await createAgent(lab.server, { name: 'Boss', subagentIds: [sue] })
    const agent = await lab.db.agent.findUniqueOrThrow({ where: { id } })
    lab.model.script({ toolCalls: [call('delegate_to_sue', { message: 'Find it' })] }, { end: 'hang' }, { end: 'hang' })
    const boss = await lab.run({ agent })
    await lab.model.request(1)
    const full = await next(lab, 0)
    await full.start(false)
    await lab.model.request(2)
    expect(await lab.row(boss.id)).toMatchObject({ status: 'pending' })
    await lab.db.agent.update({ where: { id }, data: { archivedAt: lab.clock.now() } })
    const other = lab.another()
    await other.start(false)
    expect(await ended(other, boss)).toMatchObject({ status: 'failed', error: 'Agent not found' })
    const found = () => lab.db.execution.findFirst({ where: { parentExecutionId: boss.id } })
    await expect.poll(found).toMatchObject({ status: 'running', wantsCancel: true })
    await full.drain()
    await expect.poll(found).toMatchObject({ status: 'cancelled' })
    expect(await violations(lab.db)).toEqual([])
    await other.drain()
  })
})

test.runIf(onPostgres)('a run whose row a hanging server has locked keeps no other from being taken over', async () => {
  await using lab = await startLab(LEASE)
  const [locked, free] = [await hanging(lab, ['one ']), await hanging(lab, ['one '])]
  const other = await lab.db.$transaction(async (tx) => {
    await tx.execution.update({ where: { id: locked.id }, data: { updatedAt: lab.clock.now() } })
    return takeOver(lab)
  })
  expect(await lab.row(free.id)).toMatchObject({ status: 'failed', error: 'interrupted' })
  expect(await lab.row(locked.id)).toMatchObject({ status: 'running', attempt: 1 })
  const third = await takeOver(lab)
  expect(await lab.row(locked.id)).toMatchObject({ status: 'failed', error: 'interrupted' })
  await Promise.all([other.drain(), third.drain()])
})

describe('a process that shuts down', () => {
  test('has stored all published events when it hands a run back', async () => {
    await using lab = await startLab({ DRAIN_TIMEOUT: '0.3' })
    lab.model.fallback = { tokens: Array.from({ length: 100_000 }, (_, index) => `t${index} `), delay: 1 }
    const rows = await Promise.all(Array.from({ length: 5 }, () => lab.run()))
    const seen = rows.map((): ExecutionEvent[] => [])
    const following = rows.map(async (row, index) => {
      const { signal } = new AbortController()
      for await (const batch of lab.engine.follow(row, 0, signal)) seen[index]!.push(...batch)
    })
    const ends = Promise.allSettled(following)
    await expect.poll(() => Math.min(...seen.map(({ length }) => length))).toBeGreaterThan(5)
    await lab.engine.drain()
    for (const end of await ends) expect(end).toMatchObject({ status: 'rejected', reason: { status: 503 } })
    for (const [index, row] of rows.entries()) {
      expect(await lab.row(row.id)).toMatchObject({ status: 'running', attempt: 1 })
      const stored = await storedEvents(lab.db, row.id)
      expect(seen[index]!.at(-1)!.seq).toBeLessThanOrEqual(stored.at(-1)!.seq)
    }
    // At once, although the leases would have lasted for a while.
    const next = lab.another()
    lab.clock.advance(1)
    await next.start(false)
    for (const { id } of rows) expect(await lab.row(id)).toMatchObject({ status: 'failed', error: 'interrupted' })
    expect(await violations(lab.db)).toEqual([])
    await next.drain()
  })

  test('lets a run that is just being accepted finish its acceptance', async () => {
    await using lab = await startLab({ DRAIN_TIMEOUT: '60' })
    const accepting = Array.from({ length: 10 }, () => lab.run())
    await lab.engine.drain()
    for (const row of await Promise.all(accepting)) expect((await lab.row(row.id)).status).toBe('completed')
    await expect(lab.run()).rejects.toMatchObject({ status: 503 })
  })

  test('starts no more runs, asks their readers to come again, and the next process starts them', async () => {
    await using lab = await startLab({ MAX_RUNNING: '1', DRAIN_TIMEOUT: '60' })
    const resume = Promise.withResolvers<void>()
    lab.model.script({ tokens: [resume.promise, 'First.'] })
    const first = await lab.run({ message: 'first' })
    const { spaceId, chatId, sessionId } = first
    const waiting = [
      await lab.run({ message: 'behind', conversation: { spaceId, chatId, sessionId } }),
      await lab.run({ message: 'for room' }),
    ]
    await lab.model.request(0)
    const following = Promise.allSettled(
      waiting.map((row) => Array.fromAsync(lab.engine.follow(row, 0, new AbortController().signal))),
    )
    const drained = lab.engine.drain()
    resume.resolve()
    await drained
    for (const end of await following) expect(end).toMatchObject({ status: 'rejected', reason: { status: 503 } })
    expect((await lab.row(first.id)).status).toBe('completed')
    for (const { id } of waiting) expect((await lab.row(id)).status).toBe('pending')
    const next = lab.another()
    await next.start(true)
    for (const row of waiting) expect((await ended(next, row)).status).toBe('completed')
    expect(await violations(lab.db)).toEqual([])
    await next.drain()
  })
})
