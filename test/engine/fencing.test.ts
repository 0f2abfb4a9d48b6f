import { expect, test } from 'vitest'
import type { Db, Tx } from '../../src/db/client.ts'
import { rowLock } from '../../src/db/client.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import type { ClaimDeps } from '../../src/executions/engine/queue/claims.ts'
import { finish } from '../../src/executions/engine/queue/endings.ts'
import { isUnexpectedCount } from '../../src/lib/database-errors.ts'
import { races } from '../support/postgres-shared.ts'
import { violations, watchTransitions } from './invariants.ts'
import { ended, followed, type Lab, startLab } from './lab.ts'

const COUNT = races(100)
/** No lease is renewed during the test, because only the test moves the clock. */
const LEASE = { LEASE_DURATION: '600' }
const BEYOND_LEASE = 700_000

/** Claims COUNT runs. Returns them. */
const runAll = (lab: Lab): Promise<ExecutionRow[]> =>
  Promise.all(Array.from({ length: COUNT }, (_, index) => lab.run({ message: `run ${index}` })))

/** Every table that a run could write to. */
const everything = async (db: Db) => ({
  executions: await db.execution.findMany({ orderBy: { id: 'asc' } }),
  events: await db.executionEvent.findMany({ orderBy: [{ executionId: 'asc' }, { firstSeq: 'asc' }] }),
  messages: await db.message.findMany({ orderBy: { id: 'asc' } }),
  sessions: await db.session.findMany({ orderBy: { id: 'asc' } }),
  chats: await db.chat.findMany({ orderBy: { id: 'asc' } }),
})

/** A database that rolls back all transactions. */
const undone = (db: Db): Db =>
  new Proxy(db, {
    get(target, name) {
      if (name !== '$transaction') return Reflect.get(target, name)
      return async (work: (tx: Tx) => Promise<unknown>) => {
        let answer: unknown
        const undo = new Error('undone')
        await target
          .$transaction(async (tx) => {
            answer = await work(tx)
            // Before COMMIT, PostgreSQL reports updates that matched no row only with the next statement.
            await tx.execution.count({ where: { id: 'none' } })
            throw undo
          })
          .catch((error) => {
            if (isUnexpectedCount(error)) throw error
            expect(error).toBe(undo)
          })
        return answer
      }
    },
  })

test(`a worker paused beyond its lease writes nothing more for ${COUNT} of ${COUNT} runs`, async () => {
  await using lab = await startLab(LEASE)
  const transitions = await watchTransitions(lab.db)
  const resume = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: ['one ', resume.promise, 'two ', 'three'] }
  const rows = await runAll(lab)
  await expect.poll(() => lab.db.executionEvent.count()).toBe(COUNT)
  const follower = followed(lab.engine, rows[0]!)

  const other = lab.another()
  lab.clock.advance(BEYOND_LEASE)
  await other.start(false)
  const before = await everything(lab.db)
  expect(new Set(before.executions.map(({ status, error, attempt }) => `${status} ${error} ${attempt}`))).toEqual(
    new Set(['failed interrupted 2']),
  )
  resume.resolve()
  // Followers at the paused worker get the end that the other one wrote.
  const events = await follower
  expect(events.at(-1)).toMatchObject({ event: 'error', seq: (await lab.row(rows[0]!.id)).terminalSeq })
  await lab.engine.drain()
  await expect.poll(() => lab.model.active).toBe(0)
  expect(await everything(lab.db)).toEqual(before)
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
  await other.drain()
})

test('the fence keeps the first worker from ending a run that restarted elsewhere', async () => {
  await using lab = await startLab(LEASE)
  const transitions = await watchTransitions(lab.db)
  const late = Promise.withResolvers<void>()
  const resume = Promise.withResolvers<void>()
  lab.model.fallback = () => ({
    tokens: lab.model.requests.length <= COUNT ? [late.promise, 'Too late.'] : [resume.promise, 'In time.'],
  })
  const rows = await runAll(lab)
  await lab.model.request(COUNT - 1)
  const other = lab.another()
  lab.clock.advance(BEYOND_LEASE)
  await other.start(false)
  await lab.model.request(2 * COUNT - 1)

  const before = await everything(lab.db)
  expect(new Set(before.executions.map(({ status, attempt }) => `${status} ${attempt}`))).toEqual(
    new Set(['running 2']),
  )
  late.resolve()
  await expect.poll(() => lab.model.active).toBe(COUNT)
  await lab.engine.drain()
  expect(await everything(lab.db)).toEqual(before)

  // Repeats the final write of the first worker with its own attempt, and with the new one.
  const db = undone(lab.db)
  const { clock } = lab
  const limits = { running: undefined, pending: undefined }
  const lock = rowLock(lab.server.service.deps.settings)
  const deps: ClaimDeps = {
    db,
    clock,
    owner: 'anybody',
    leaseDuration: 1,
    rowLock: lock,
    freeRowLock: lock,
    limits,
    settings: lab.server.service.deps.settings,
    runHooks: [],
  }
  const usage = { inputTokens: 1, outputTokens: 1, usageEstimated: false }
  const remains = {
    text: 'Too late.',
    toolCalls: [],
    model: 'm',
    modelsTried: [],
    usage,
    warnings: [],
    replay: null,
    reasoning: null,
    events: [],
    mayBeStored: false,
    terminalSeq: 10_000,
    scattered: true,
  }
  const end = (row: ExecutionRow) =>
    finish(deps, row, { status: 'completed', result: 'Too late.', stopReason: 'end_turn' }, remains)
  let refused = 0
  let accepted = 0
  for (const row of rows) {
    if ((await end(row)) === null) refused++
    if ((await end({ ...row, attempt: 2 })) !== null) accepted++
  }
  expect({ refused, accepted }).toEqual({ refused: COUNT, accepted: COUNT })

  resume.resolve()
  const results = await Promise.all(rows.map((row) => ended(other, row)))
  expect(new Set(results.map(({ status, result, attempt }) => `${status} ${result} ${attempt}`))).toEqual(
    new Set(['completed In time. 2']),
  )
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
  await other.drain()
})

test('a flush of a replaced worker stores nothing, and its numbers are never used again', async () => {
  await using lab = await startLab(LEASE)
  const resume = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: ['one ', resume.promise, ...Array.from({ length: 300 }, () => 'more ')] }
  const row = await lab.run()
  await expect.poll(() => lab.db.executionEvent.count()).toBe(1)
  const other = lab.another()
  lab.clock.advance(BEYOND_LEASE)
  await other.start(false)
  resume.resolve()
  await expect.poll(() => lab.model.active).toBe(0)
  await lab.engine.drain()
  const [segment, ...more] = await lab.db.executionEvent.findMany()
  expect(more).toEqual([])
  // The first worker may have published any number up to its reservation.
  expect(segment!.lastSeq).toBeLessThan(row.seqReserved)
  expect((await lab.row(row.id)).terminalSeq).toBeGreaterThan(row.seqReserved)
  await other.drain()
})

test('a flush that finds one run replaced stores the events of the others', async () => {
  await using lab = await startLab(LEASE)
  const resume = Promise.withResolvers<void>()
  const end = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: ['one ', resume.promise, 'two ', end.promise] }
  const [lost, kept] = [await lab.run(), await lab.run()]
  const segments = ({ id: executionId }: { id: string }) => lab.db.executionEvent.count({ where: { executionId } })
  await expect.poll(async () => [await segments(lost), await segments(kept)]).toEqual([1, 1])
  await lab.db.execution.updateMany({ where: { id: lost.id }, data: { attempt: 2, leaseOwner: 'another' } })
  resume.resolve()
  await expect.poll(() => segments(kept)).toBe(2)
  end.resolve()
  expect(await ended(lab.engine, kept)).toMatchObject({ status: 'completed', attempt: 1 })
  expect(await segments(lost)).toBe(1)
})

test('only one of two workers that find the same dead runs takes each over', async () => {
  await using lab = await startLab(LEASE)
  const late = Promise.withResolvers<void>()
  lab.model.fallback = () => ({ tokens: lab.model.requests.length <= COUNT ? [late.promise, 'Too late.'] : 'Done.' })
  const rows = await runAll(lab)
  await lab.model.request(COUNT - 1)
  const others = [lab.another(), lab.another()]
  lab.clock.advance(BEYOND_LEASE)
  await Promise.all(others.map((engine) => engine.start(false)))
  const results = await Promise.all(rows.map((row) => ended(others[0]!, row)))
  expect(new Set(results.map(({ status, attempt }) => `${status} ${attempt}`))).toEqual(new Set(['completed 2']))
  expect(lab.model.requests).toHaveLength(2 * COUNT)
  late.resolve()
  await lab.engine.drain()
  expect(await violations(lab.db)).toEqual([])
  await Promise.all(others.map((engine) => engine.drain()))
})

test('only one of two workers that find the same pending runs starts each', async () => {
  await using lab = await startLab({ ...LEASE, MAX_RUNNING: '1' })
  const resume = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: [resume.promise, 'Done.'] }
  const rows = await runAll(lab)
  const settings = { ...lab.server.service.deps.settings, MAX_RUNNING: 1_000 }
  const others = [lab.another({ settings }), lab.another({ settings })]
  await Promise.all(others.map((engine) => engine.start(false)))
  resume.resolve()
  await lab.idle()
  const found = await lab.db.execution.findMany()
  expect(new Set(found.map(({ status, attempt }) => `${status} ${attempt}`))).toEqual(new Set(['completed 1']))
  expect(lab.model.requests).toHaveLength(rows.length)
  expect(await violations(lab.db)).toEqual([])
  await Promise.all(others.map((engine) => engine.drain()))
})

test('a worker that returns before a takeover still owns its runs', async () => {
  await using lab = await startLab(LEASE)
  const resume = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: ['one ', resume.promise, 'two'] }
  const row = await lab.run()
  await expect.poll(() => lab.db.executionEvent.count()).toBe(1)
  lab.clock.advance(BEYOND_LEASE)
  resume.resolve()
  expect(await ended(lab.engine, row)).toMatchObject({ status: 'completed', result: 'one two', attempt: 1 })
})
