import Sqlite from 'better-sqlite3'
import fc from 'fast-check'
import { expect, test, vi } from 'vitest'
import { rowLock } from '../../src/db/client.ts'
import { unavailable } from '../../src/errors.ts'
import { createCompaction } from '../../src/executions/engine/events/compaction.ts'
import { createEventLog, type EventLog } from '../../src/executions/engine/events/event-log.ts'
import {
  type ExecutionEvent,
  type ExecutionRow,
  META_SEQ,
  type MessageData,
  readEvents,
} from '../../src/executions/engine/events/events.ts'
import { createNotices } from '../../src/executions/engine/events/notices.ts'
import { drain, type RunStream, unsubscribe, waitForMore } from '../../src/executions/engine/events/run-stream.ts'
import { followRun } from '../../src/executions/engine/events/subscribe.ts'
import { accept } from '../../src/executions/engine/queue/accept.ts'
import type { ClaimDeps } from '../../src/executions/engine/queue/claims.ts'
import { finish } from '../../src/executions/engine/queue/endings.ts'
import { onPostgres, times } from '../support/postgres-shared.ts'
import { storedEvents, textOf, violations } from './invariants.ts'
import { type Lab, nextTurn, PLAIN, startLab } from './lab.ts'

const NEVER = new AbortController().signal

const delta = (text: string, step = 1): MessageData => ({
  messageType: 'stream_event',
  step,
  delta: { type: 'text_delta', text },
})

/** A run whose worker is the test, which appends its events by hand. */
type Puppet = {
  row: ExecutionRow
  eventLog: EventLog
  /** A callback after the eventLog has stored events. */
  hooks: { onStored: () => void }
  stream: RunStream
  follow(after: number, pace: () => Promise<void>, signal?: AbortSignal): Promise<ExecutionEvent[]>
  complete(result: string): Promise<ExecutionRow>
}

/** Starts it in its own eventLog, or in a shared one. */
async function puppet(lab: Lab, beside?: Puppet): Promise<Puppet> {
  const { db, clock, actor } = lab
  const { log, bus, settings } = lab.server.service.deps
  const owner = 'the test'
  const limits = { running: undefined, pending: undefined }
  const lock = rowLock(settings)
  const locks = { rowLock: lock, freeRowLock: lock }
  const deps: ClaimDeps = {
    db,
    clock,
    owner,
    leaseDuration: 600_000,
    ...locks,
    limits,
    settings,
    runHooks: [],
  }
  const agent = await db.agent.findFirstOrThrow()
  const asked = { actor, agent, ...PLAIN, conversation: { spaceId: lab.spaceId }, modelName: 'offline/echo' }
  const row = await accept(deps, asked, true)
  const hooks = beside?.hooks ?? { onStored: () => {} }
  const onStored = () => hooks.onStored()
  const eventLog = beside?.eventLog ?? createEventLog({ db, clock, log, owner, rowLock: lock, onStored })
  const notices = createNotices(bus)
  const stream = eventLog.open(row, () => {
    throw new Error('The run was taken away')
  })
  return {
    row,
    eventLog,
    hooks,
    stream,
    async follow(after, pace, signal = new AbortController().signal) {
      const events: ExecutionEvent[] = []
      for await (const batch of followRun({ db, eventLog, notices, stopped: NEVER }, row, after, signal)) {
        expect(batch).not.toHaveLength(0)
        events.push(...batch)
        await pace()
      }
      return events
    },
    async complete(result) {
      const usage = { inputTokens: 0, outputTokens: 0, usageEstimated: false }
      const remains = {
        text: result,
        toolCalls: [],
        model: 'm',
        modelsTried: [],
        usage,
        warnings: [],
        replay: null,
        reasoning: null,
        ...(await eventLog.seal(stream)),
      }
      const ended = await finish(deps, row, { status: 'completed', result, stopReason: 'end_turn' }, remains)
      expect(ended).not.toBeNull()
      eventLog.close(stream, ended!.execution)
      bus.publish('execution', [row.id])
      const compaction = createCompaction(db)
      if (remains.scattered) compaction.add(row.id)
      await compaction.run()
      return ended!.execution
    },
  }
}

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('append' as const), count: fc.integer({ min: 1, max: 40 }) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('append much' as const), kib: fc.integer({ min: 1, max: 300 }) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('tool' as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('flush' as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), turns: fc.integer({ min: 1, max: 20 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('join' as const),
      after: fc.double({ min: 0, max: 1, noNaN: true }),
      pace: fc.constantFrom(0, 0, 1, 30),
    }),
  },
)

/** Events after a number, without their times, which may be those of writing or of storing. */
const plain = (events: readonly ExecutionEvent[]) => events.map(({ seq, event, data }) => ({ seq, event, data }))

test('a subscriber that joins at any time and pace gets exactly the events after its number', async () => {
  await using lab = await startLab()
  const check = async (steps: (typeof step extends fc.Arbitrary<infer Step> ? Step : never)[]) => {
    const run = await puppet(lab)
    const emitted: MessageData[] = []
    const subscribers: { after: number; events: Promise<ExecutionEvent[]> }[] = []
    const say = async (data: MessageData) => {
      emitted.push(data)
      await run.eventLog.append(run.stream, data)
    }
    let turn = 1
    for (const next of steps) {
      if (next.do === 'append') {
        for (let index = 0; index < next.count; index++) await say(delta(`${emitted.length} `, turn))
      } else if (next.do === 'append much') await say(delta('x'.repeat(next.kib * 1024), turn))
      else if (next.do === 'tool') {
        await say({ messageType: 'tool_result', toolUseId: `t${turn}`, content: '', isError: true })
        turn++
      } else if (next.do === 'flush') await run.eventLog.flush()
      else if (next.do === 'wait') for (let index = 0; index < next.turns; index++) await nextTurn()
      else {
        const after = Math.round(next.after * (emitted.length + META_SEQ))
        const pace = async () => {
          for (let index = 0; index < next.pace; index++) await nextTurn()
        }
        subscribers.push({ after, events: run.follow(after, pace) })
      }
    }
    const ended = await run.complete('done')
    const whole = [
      { seq: META_SEQ, event: 'meta' },
      ...emitted.map((data, index) => ({ seq: META_SEQ + 1 + index, event: 'message', data })),
      { seq: ended.terminalSeq, event: 'result' },
    ]
    for (const { after, events } of subscribers) {
      const expected = whole.filter(({ seq }) => seq! > after)
      const received = plain(await events)
      expect(received).toHaveLength(expected.length)
      expect(received).toMatchObject(expected)
    }
    const stored = await storedEvents(lab.db, run.row.id)
    expect(stored.map(({ data }) => data)).toEqual(emitted)
    expect(run.eventLog.find(run.row.id)).toBeUndefined()
  }
  await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 50 }), check), { numRuns: times(60) })
})

test('numbers are reserved before a subscriber sees them, whatever their count', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  const seen: ExecutionEvent[] = []
  const watching = (async () => {
    const signal = new AbortController().signal
    const { db } = lab
    const notices = createNotices(lab.server.service.deps.bus)
    for await (const batch of followRun({ db, eventLog: run.eventLog, notices, stopped: NEVER }, run.row, 0, signal)) {
      seen.push(...batch)
      const { seqReserved, terminalSeq } = await lab.row(run.row.id)
      expect(terminalSeq ?? seqReserved).toBeGreaterThanOrEqual(batch.at(-1)!.seq)
    }
  })()
  for (let index = 0; index < 2_000; index++) await run.eventLog.append(run.stream, delta('x'))
  await run.complete('x'.repeat(2_000))
  await watching
  expect(seen).toHaveLength(2_002)
  expect(await violations(lab.db)).toEqual([])
})

test('a subscriber sees nothing of a run before an event of it is stored', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  const stopping = new AbortController()
  const following = run.follow(
    META_SEQ,
    async () => {
      expect(await lab.db.executionEvent.count()).toBeGreaterThan(0)
      stopping.abort()
    },
    stopping.signal,
  )
  run.eventLog.append(run.stream, delta('one '))
  run.eventLog.append(run.stream, delta('two '))
  expect(await following).toHaveLength(2)
  await run.complete('one two ')
})

test('the last event arrives together with the end, or as soon as it is stored without it', async () => {
  await using lab = await startLab()
  for (const isStored of [false, true]) {
    const run = await puppet(lab)
    const notices = createNotices(lab.server.service.deps.bus)
    const batches: string[][] = []
    const following = (async () => {
      const source = { db: lab.db, eventLog: run.eventLog, notices, stopped: NEVER }
      for await (const batch of followRun(source, run.row, META_SEQ, NEVER)) {
        batches.push(batch.map(({ data, event }) => ('messageType' in data ? data.messageType : event)))
      }
    })()
    run.eventLog.append(run.stream, delta('Done.'))
    await expect.poll(() => batches).toEqual([['stream_event']])
    run.eventLog.append(run.stream, {
      messageType: 'assistant',
      step: 1,
      text: 'Done.',
      content: [{ type: 'text', text: 'Done.' }],
    })
    if (isStored) {
      await run.eventLog.flush()
      await expect.poll(() => batches.slice(1)).toEqual([['assistant']])
    }
    await run.complete('Done.')
    await following
    expect(batches.slice(1)).toEqual(isStored ? [['assistant'], ['result']] : [['assistant', 'result']])
  }
})

test('the last event stays hidden until it is stored, even while earlier events are stored', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  const subscriber = run.eventLog.subscribe(run.stream, 0)
  // It is appended between the write of earlier events and its acknowledgement.
  run.hooks.onStored = () => {
    run.hooks.onStored = () => {}
    run.eventLog.append(run.stream, {
      messageType: 'assistant',
      step: 1,
      text: 'Done.',
      content: [{ type: 'text', text: 'Done.' }],
    })
  }
  run.eventLog.append(run.stream, delta('Done.'))
  expect(await waitForMore(subscriber)).toBe(true)
  expect(drain(subscriber).map(({ data }) => 'messageType' in data && data.messageType)).toEqual(['stream_event'])
  await run.complete('Done.')
  expect(drain(subscriber).map(({ event }) => event)).toEqual(['message', 'result'])
})

test('a subscriber that does not read holds at most 256 KiB, and then reads from the database', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  run.eventLog.append(run.stream, delta('Done.'))
  await run.eventLog.flush()
  const subscriber = run.eventLog.subscribe(run.stream, 0)
  for (let count = 0; count < 25; count++) run.eventLog.append(run.stream, delta('x'.repeat(5_000)))
  expect(subscriber.waiting).toHaveLength(25)
  run.eventLog.append(run.stream, delta('x'.repeat(5_000)))
  expect(subscriber.waiting).toEqual([])
  expect(await waitForMore(subscriber)).toBe(false)
  await run.complete('Done.')
})

test('a subscriber takes a long queue in parts, and what waited before it counts', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  run.eventLog.append(run.stream, delta('Done.'))
  await run.eventLog.flush()
  const { lastPublishedSeq: stored } = run.stream
  for (let count = 0; count < 40; count++) run.eventLog.append(run.stream, delta('x'.repeat(5_000)))
  const subscriber = run.eventLog.subscribe(run.stream, stored + 10)
  const [first, rest] = [drain(subscriber), drain(subscriber)]
  expect([first.length, rest.length, subscriber.size]).toEqual([13, 13, 4 * 10_200])
  expect([...first, ...rest].map(({ seq }) => seq)).toEqual(Array.from({ length: 26 }, (_, at) => stored + 11 + at))
  // With what waited already, these are too many.
  for (let count = 0; count < 22; count++) run.eventLog.append(run.stream, delta('x'.repeat(5_000)))
  expect(await waitForMore(subscriber)).toBe(false)
  await run.complete('Done.')
})

test('a subscriber that was sent to the database between its wake and its read takes nothing', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  run.eventLog.append(run.stream, delta('Done.'))
  await run.eventLog.flush()
  const subscriber = run.eventLog.subscribe(run.stream, run.stream.lastPublishedSeq)
  const more = waitForMore(subscriber)
  for (let count = 0; count < 30; count++) run.eventLog.append(run.stream, delta('x'.repeat(5_000)))
  expect(await more).toBe(true)
  expect(drain(subscriber)).toEqual([])
  expect(await waitForMore(subscriber)).toBe(false)
  await run.complete('Done.')
})

test('a subscriber of an ended run gets all events, even before this process learns of the end', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  run.eventLog.append(run.stream, delta('Done.'))
  // Its last write is on the disk, but not acknowledged yet.
  const { close } = run.eventLog
  const closing = Promise.withResolvers<void>()
  run.eventLog.close = (...closed) => void closing.promise.then(() => close(...closed))
  const ended = await run.complete('Done.')
  const notices = createNotices(lab.server.service.deps.bus)
  const seen: ExecutionEvent[] = []
  const source = { db: lab.db, eventLog: run.eventLog, notices, stopped: NEVER }
  for await (const batch of followRun(source, ended, META_SEQ, NEVER)) seen.push(...batch)
  expect(seen.map(({ event }) => event)).toEqual(['message', 'result'])
  closing.resolve()
})

test('a subscriber whose access has changed gets the refusal, and one that leaves gets no error', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  const follow = (reason?: unknown) => {
    const leaving = new AbortController()
    return run.follow(0, async () => leaving.abort(reason), leaving.signal)
  }
  expect(await follow()).toMatchObject([{ event: 'meta' }])
  await expect(follow(unavailable())).rejects.toMatchObject({ status: 503 })
  await run.complete('')
})

test('events with a waiting subscriber are stored at once, others after the interval', async () => {
  await using lab = await startLab()
  const alone = await puppet(lab)
  const followed = await puppet(lab, alone)
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    alone.eventLog.append(alone.stream, delta('one '))
    const following = followed.follow(META_SEQ, async () => {})
    followed.eventLog.append(followed.stream, delta('two '))
    await untilStored(lab, followed)
    expect(await storedEvents(lab.db, alone.row.id)).toEqual([])
    vi.advanceTimersByTime(50)
    await untilStored(lab, alone)
    for (const run of [alone, followed]) await run.complete('')
    expect(await following).toHaveLength(2)
  } finally {
    vi.useRealTimers()
  }
})

test('events without a subscriber are stored however many subscribers wait for others', async () => {
  await using lab = await startLab()
  const alone = await puppet(lab)
  const followed = await puppet(lab, alone)
  const following = followed.follow(META_SEQ, async () => {})
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    // Another event finds a subscriber whenever one is stored.
    const say = () => {
      alone.eventLog.append(alone.stream, delta('word '))
      followed.eventLog.append(followed.stream, {
        messageType: 'tool_result',
        toolUseId: 't',
        content: '',
        isError: false,
      })
    }
    alone.hooks.onStored = say
    say()
    let turns = 0
    while (turns++ < 5_000 && (await storedEvents(lab.db, alone.row.id)).length < 20) {
      vi.advanceTimersByTime(5)
      await nextTurn()
    }
    expect(turns).toBeLessThan(5_000)
    alone.hooks.onStored = () => {}
    for (const run of [alone, followed]) await run.complete('')
    await following
  } finally {
    vi.useRealTimers()
  }
})

test('an outage causes no write per token, and all tokens are stored afterwards', async () => {
  await using lab = await startLab()
  let tries = 0
  let away = true
  const db = new Proxy(lab.db, {
    get(target, name) {
      if (name !== '$transaction' || !away) return Reflect.get(target, name)
      return async () => {
        tries++
        throw new Error('away')
      }
    },
  })
  const run = await puppet(lab)
  const { log, settings } = lab.server.service.deps
  const hooks = { rowLock: rowLock(settings), onStored: () => {} }
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    const eventLog = createEventLog({ db, clock: lab.clock, log, owner: 'the test', ...hooks })
    const stream = eventLog.open(run.row, () => {})
    const subscriber = eventLog.subscribe(stream, 0)
    const first = waitForMore(subscriber)
    for (let index = 0; index < 50; index++) {
      eventLog.append(stream, delta('word '))
      await nextTurn()
    }
    expect(tries).toBe(1)
    away = false
    vi.advanceTimersByTime(500)
    expect(await first).toBe(true)
    expect(drain(subscriber)).toHaveLength(50)
    unsubscribe(subscriber)
  } finally {
    vi.useRealTimers()
  }
  await run.complete('')
})

test('one flush stores the events of 600 runs, although one transaction takes fewer', async () => {
  await using lab = await startLab()
  const runs = [await puppet(lab)]
  // A busy machine has no connection in time for the last of 600 at once.
  while (runs.length < 600) runs.push(...(await Promise.all(runs.slice(0, 50).map(() => puppet(lab, runs[0])))))
  for (const { eventLog, stream } of runs) eventLog.append(stream, delta('word '))
  await runs[0]!.eventLog.flush()
  expect(await lab.db.executionEvent.count()).toBe(runs.length)
  expect(runs.filter(({ stream }) => stream.unpersisted.length)).toEqual([])
})

/** The fake clock stands still, so no timer fires. */
async function untilStored({ db }: Lab, { row }: Puppet): Promise<void> {
  while (!(await db.executionEvent.count({ where: { executionId: row.id } }))) await nextTurn()
}

test.skipIf(onPostgres)(
  'a reply stored token by token takes under 64 KiB per 1,000 tokens, and reads back the same',
  async () => {
    await using lab = await startLab()
    const file = new Sqlite(`${lab.server.folder}/muster.db`, { readonly: true })
    const size = () => (file.prepare('SELECT sum("pgsize") AS "size" FROM "dbstat"').get() as { size: number }).size
    const count = 500
    const say = async () => {
      const run = await puppet(lab)
      const tokens = Array.from({ length: count }, (_, index) => `token${index % 10} `)
      for (const token of tokens) {
        await run.eventLog.append(run.stream, delta(token))
        await run.eventLog.flush()
      }
      const text = tokens.join('')
      await run.eventLog.append(run.stream, {
        messageType: 'assistant',
        step: 1,
        text,
        content: [{ type: 'text', text }],
      })
      await run.complete(text)
      const events = await storedEvents(lab.db, run.row.id)
      expect(events).toHaveLength(count + 1)
      expect(plain(events.slice(0, -1)).map(({ data }) => data)).toEqual(tokens.map((token) => delta(token)))
    }
    await say()
    const before = size()
    await say()
    await say()
    expect((size() - before) / 2).toBeLessThan((64 * 1024 * count) / 1_000)
    expect(await violations(lab.db)).toEqual([])
    file.close()
  },
)

test('the event log buffers only a small part of a reply, whatever the size of its fragments', async () => {
  await using lab = await startLab()
  const sizes: number[] = []
  for (const [count, length] of [
    [2_000, 2_000],
    [60, 100_000],
  ] as const) {
    const run = await puppet(lab)
    for (let index = 0; index < count; index++) await run.eventLog.append(run.stream, delta('x'.repeat(length)))
    await run.complete('x'.repeat(count * length))
    let total = 0
    for await (const batch of readEvents(lab.db, run.row.id, 0)) {
      sizes.push(textOf(batch).length)
      total += sizes.at(-1)!
    }
    expect(total).toBe(count * length)
  }
  // 64 KiB, and two segments of 32 KiB, each with a token that exceeds the limit.
  expect(Math.max(...sizes)).toBeLessThan(64 * 1024 + 2 * (32 * 1024 + 100_000))
})

test('readers of stored events take turns, one in each turn of the event loop', async () => {
  let turn = 0
  const reads: number[] = []
  const findMany = async () => {
    reads.push(turn)
    return []
  }
  const db = { executionEvent: { findMany } } as unknown as Lab['db']
  const reading = Promise.all([1, 2, 3, 4].map(() => Array.fromAsync(readEvents(db, 'exec', 0))))
  for (; reads.length < 4; turn++) await nextTurn()
  await reading
  expect(new Set(reads).size).toBe(4)
})

test('megabytes at the end of a run are stored in several transactions before the end', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  let stored = 0
  run.hooks.onStored = () => stored++
  const part = 'x'.repeat(300_000)
  for (let index = 0; index < 6; index++) void run.eventLog.append(run.stream, delta(part))
  const text = part.repeat(6)
  const content = [{ type: 'text' as const, text }]
  void run.eventLog.append(run.stream, { messageType: 'assistant', step: 1, text, content })
  await run.complete(text)
  expect(stored).toBeGreaterThanOrEqual(6)
  const readBack: ExecutionEvent[] = []
  for await (const batch of readEvents(lab.db, run.row.id, 0)) readBack.push(...batch)
  expect(readBack.map(({ seq }) => seq)).toEqual([2, 3, 4, 5, 6, 7, 8])
  expect(textOf(readBack.slice(0, -1)) === text).toBe(true)
})

test('merging text preserves steps and tools between them, and concurrent readers lose nothing', async () => {
  await using lab = await startLab()
  const run = await puppet(lab)
  const emitted: MessageData[] = []
  const say = async (data: MessageData) => {
    emitted.push(data)
    await run.eventLog.append(run.stream, data)
    await run.eventLog.flush()
  }
  for (let turn = 1; turn <= 5; turn++) {
    for (let index = 0; index < 30; index++) await say(delta(`${turn}-${index} `, turn))
    if (turn === 3) await say(delta('x'.repeat(40_000), turn))
    await say({ messageType: 'tool_result', toolUseId: `t${turn}`, content: 'ok', isError: false })
  }
  const before = await lab.db.executionEvent.count()
  // Readers that started before the merge, each at another place, and continue after it.
  const resume = Promise.withResolvers<void>()
  const readers = [0, 1, 17, 100].map((after) => ({ after, events: run.follow(after, () => resume.promise) }))
  for (let turn = 0; turn < 20; turn++) await nextTurn()
  const ended = await run.complete('done')
  resume.resolve()
  expect(await lab.db.executionEvent.count()).toBeLessThan(before / 8)
  const whole = [...emitted.map((data, index) => ({ seq: index + 2, data })), { seq: ended.terminalSeq }]
  for (const { after, events } of readers) {
    const received = plain(await events).filter(({ event }) => event !== 'meta')
    expect(received).toMatchObject(whole.filter(({ seq }) => seq! > after))
  }
  expect((await storedEvents(lab.db, run.row.id)).map(({ data }) => data)).toEqual(emitted)
})
