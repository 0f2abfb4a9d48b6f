import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { violations, watchTransitions } from '../engine/invariants.ts'
import { CROWDED, crash } from '../soak/crash.ts'
import { killedKeys } from '../soak/keys.ts'
import { createSubject, execute, executePath, type Subject, settled } from '../soak/service.ts'
import { request } from '../support/rest.ts'
import { openStream, type StreamEvent } from '../support/sse.ts'
import { use } from '../support/use.ts'

const stream = (subject: Subject, body: object = {}) =>
  openStream(subject, executePath(subject), { method: 'POST', body: { message: 'Hello', stream: true, ...body } })

const resume = (subject: Subject, executionId: string, last: StreamEvent) =>
  openStream(subject, `/api/v1/executions/${executionId}/events`, { headers: { 'Last-Event-ID': String(last.id) } })

const execution = async (subject: Subject, id: string) =>
  (await request(subject, 'GET', `/api/v1/executions/${id}`)).body.execution

// One real process, which the tests kill and restart one after the other. `npm run test:soak` has more rounds.
const subject: Subject = await use(createSubject({ ...CROWDED, DRAIN_TIMEOUT: '1.5' }))

test('kill -9 with 8 runs in flight, twice, loses no accepted run, and each ends once', async () => {
  const { accepted } = await crash(subject, 2)
  expect(accepted).toBeGreaterThan(8)
})

test('a retry after kill -9 between effect and answer gets the same id, for a row and for a run', async () => {
  expect(await killedKeys(subject, 2)).toMatchObject({ replayed: 4 })
  await settled(subject.db)
})

test('a stream cut by kill -9 resumes after the restart without a gap, to a later end', async () => {
  subject.model.script({ tokens: Array.from({ length: 300 }, (_, index) => `t${index} `), end: 'hang' })
  const cut = await stream(subject)
  const seen: StreamEvent[] = []
  while (seen.length < 280) seen.push((await cut.next())!)
  const { executionId } = seen[0]!.data
  await subject.kill()
  await cut.rest().catch(() => {})
  await subject.start()
  const rest = await (await resume(subject, executionId, seen.at(-1)!)).rest()
  expect(rest.at(-1)).toMatchObject({ event: 'error', data: { status: 'failed', executionId } })
  for (const { id } of rest) expect(id).toBeGreaterThan(seen.at(-1)!.id)
  expect(await execution(subject, executionId)).toMatchObject({ status: 'failed', error: 'interrupted', attempt: 2 })
  expect(await violations(subject.db)).toEqual([])
})

test('a subscriber of a chat gets each word once, though the server is killed twice with kill -9', async () => {
  const before = subject.model.requests.length
  const words = Array.from({ length: 120 }, (_, index) => `w${index} `)
  subject.model.script({ tokens: words, end: 'hang' })
  // The queued run of the same chat is asked before the second kill, and again after it.
  subject.model.script({ end: 'hang' })
  subject.model.script({ tokens: ['Second ', 'answer.'] })
  const { chatId, executionId, sessionId } = (await execute(subject, { message: 'First', background: true })).body
  const queued = await execute(subject, { message: 'Second', background: true, chatId, sessionId })
  const seen: StreamEvent[] = []
  const follow = () =>
    openStream(subject, `/api/v1/chats/${chatId}/events`, {
      headers: seen.length ? { 'Last-Event-ID': seen.at(-1)!.lastEventId } : {},
    })
  const readUntil = async (holds: () => boolean) => {
    const stream = await follow()
    while (!holds()) seen.push((await stream.next())!)
    return stream
  }
  const textOf = (id: string) =>
    seen.flatMap(({ data }) => (data.executionId === id ? (data.delta?.text ?? []) : [])).join('')
  const isOver = (id: string) =>
    seen.some(({ event, data }) => /^(result|error)$/.test(event) && data.executionId === id)

  let stream = await readUntil(() => textOf(executionId).includes('w90 '))
  await subject.kill()
  await stream.rest().catch(() => {})
  await subject.start()
  stream = await readUntil(() => isOver(executionId))
  expect(words.join('').startsWith(textOf(executionId))).toBe(true)
  expect(textOf(executionId).length).toBeGreaterThan(words.slice(0, 90).join('').length)

  await subject.model.request(before + 1)
  await subject.kill()
  await stream.rest().catch(() => {})
  await subject.start()
  await using _last = await readUntil(() => isOver(queued.body.executionId))
  expect(textOf(queued.body.executionId)).toBe('Second answer.')
  const ids = seen.map(({ lastEventId, event, data }) => `${lastEventId} ${event} ${data.status ?? ''}`)
  expect(ids).toEqual([...new Set(ids)])
})

test("after kill -9 the organization's count is right again, and pending runs start", async () => {
  const before = subject.model.requests.length
  const running = async () => (await subject.db.organization.findFirstOrThrow()).running
  subject.model.fallback = { end: 'hang' }
  const ids: string[] = []
  for (let index = 0; index < 9; index++) {
    const { body } = await execute(subject, { message: `m${index}`, background: true })
    ids.push(body.executionId)
  }
  await subject.model.request(before + 5)
  expect(await running()).toBe(6)
  await subject.kill()
  await subject.start()
  expect(await running()).toBe(6)
  await subject.model.request(before + 11)
  expect(await subject.db.execution.count({ where: { status: 'pending' } })).toBe(3)
  await subject.kill()
  subject.model.fallback = { tokens: 'Done.' }
  await subject.start()
  await settled(subject.db)
  expect(await subject.db.execution.count({ where: { id: { in: ids }, status: 'completed' } })).toBe(9)
  expect(await violations(subject.db)).toEqual([])
})

test('a process that is paused beyond its lease continues its runs without duplicates', async () => {
  await using subject = await createSubject({ LEASE_DURATION: '1' })
  const transitions = await watchTransitions(subject.db)
  const gate = Promise.withResolvers<void>()
  subject.model.script({ tokens: ['one ', gate.promise, 'two'] })
  const open = await stream(subject)
  const seen = [(await open.next())!, (await open.next())!]
  const pid = subject.process.child.pid!
  process.kill(pid, 'SIGSTOP')
  await sleep(2_500)
  gate.resolve()
  process.kill(pid, 'SIGCONT')
  const events = [...seen, ...(await open.rest())]
  expect(events.map(({ event }) => event)).toEqual(['meta', 'message', 'message', 'message', 'result'])
  expect(await execution(subject, seen[0]!.data.executionId)).toMatchObject({ result: 'one two', attempt: 1 })
  expect(await transitions()).toEqual([])
  expect(await violations(subject.db)).toEqual([])
})

describe('SIGTERM', () => {
  test('ends live runs, hands the rest back with resumable streams, and exits with 0', async () => {
    const before = subject.model.requests.length
    const began = new Date()
    const gate = Promise.withResolvers<void>()
    subject.model.script({ tokens: ['one ', gate.promise, 'two'] })
    const ending = await stream(subject)
    const ended = [(await ending.next())!, (await ending.next())!]
    subject.model.script({ tokens: ['three '], end: 'hang' })
    const staying = await stream(subject)
    const seen = [(await staying.next())!, (await staying.next())!]
    subject.model.script({ end: 'hang' })
    const silent = await stream(subject)
    const [meta] = [(await silent.next())!]
    await subject.model.request(before + 2)
    subject.model.script({ end: 'hang' })
    const asked = execute(subject, { message: 'wait' })
    await subject.model.request(before + 3)
    const waiting = await stream(subject, { sessionId: seen[0]!.data.sessionId })
    const pending = (await waiting.next())!

    const finished = subject.kill('SIGTERM')
    await expect.poll(async () => (await fetch(`${subject.url}/readyz`)).status).toBe(503)
    const refused = await execute(subject, { message: 'new', background: true })
    expect(refused).toMatchObject({ status: 503, body: { message: 'Service temporarily unavailable. Please retry.' } })
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/)
    // Stored events can be read until the end.
    expect((await execution(subject, meta.data.executionId)).status).toBe('running')
    gate.resolve()
    expect([...ended, ...(await ending.rest())].at(-1)).toMatchObject({ event: 'result' })
    for (const open of [staying, silent, waiting]) {
      const rest = await open.rest().catch(() => [])
      expect(rest.filter(({ event }) => event === 'result' || event === 'error')).toEqual([])
    }
    // A caller that repeated the request would run the agent twice.
    const detail = expect.stringContaining('instead of executing again')
    expect(await asked).toMatchObject({ status: 503, body: { detail, executionId: expect.stringMatching(/^exec-/) } })
    expect((await finished).code).toBe(0)

    subject.model.fallback = { tokens: 'Done.' }
    await subject.start()
    const after = async (event: StreamEvent) => (await resume(subject, event.data.executionId, event)).rest()
    const rest = await (await resume(subject, meta.data.executionId, seen[1]!)).rest()
    expect(rest.at(-1)).toMatchObject({ event: 'result' })
    expect((await after(pending)).at(-1)).toMatchObject({ event: 'result' })
    const cut = await (await resume(subject, seen[0]!.data.executionId, seen[1]!)).rest()
    expect(cut.map(({ event }) => event)).toEqual(['error'])
    await settled(subject.db)
    const outcomes = await subject.db.execution.findMany({
      where: { createdAt: { gte: began } },
      orderBy: { createdAt: 'asc' },
    })
    expect(outcomes.map(({ status, attempt }) => [status, attempt])).toEqual([
      ['completed', 1],
      ['failed', 2],
      ['completed', 2],
      ['completed', 2],
      ['completed', 1],
    ])
    expect(await violations(subject.db)).toEqual([])
  })

  test('SIGTERM without work ends at once, even if clients hold idle connections', async () => {
    await execute(subject, { message: 'Hello' })
    const { code, err } = await subject.kill('SIGTERM')
    expect([code, err]).toEqual([0, ''])
    await subject.start()
    // A terminal that closes.
    expect((await subject.kill('SIGHUP')).code).toBe(0)
  })
})
