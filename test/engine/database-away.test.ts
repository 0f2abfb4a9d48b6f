import { setTimeout as sleep } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import { expect, test } from 'vitest'
import type { Db } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { request } from '../support/rest.ts'
import { textOf, violations, watchTransitions } from './invariants.ts'
import { followed, type Lab, maintenanceOf, PLAIN, slowToAnswer, startLab } from './lab.ts'

/** Locks the database in another process. Returns a function that unlocks it. */
async function takeAway({ server }: Lab): Promise<() => void> {
  const other = new Sqlite(`${server.folder}/muster.db`, { timeout: 0 })
  // This process may have a transaction open, so it needs turns between two attempts.
  await expect.poll(() => other.exec('BEGIN EXCLUSIVE'), { interval: 1 }).toBeDefined()
  return () => {
    other.exec('ROLLBACK')
    other.close()
  }
}

// Longer than the retries of a statement (5 s), so that every kind of write fails meanwhile.
const AWAY = 6_500

test('runs and streams wait out a database outage, without a gap or a duplicate', async () => {
  await using lab = await startLab()
  const transitions = await watchTransitions(lab.db)
  // More events than are numbered ahead, so that each run must wait for the database.
  const tokens = Array.from({ length: 700 }, (_, index) => `t${index} `)
  lab.model.fallback = { tokens, delay: 1 }
  const rows = await Promise.all(Array.from({ length: 8 }, () => lab.run()))
  const ending = await lab.run({ message: 'ends meanwhile' })
  const streams = rows.map((row) => followed(lab.engine, row))
  await expect.poll(() => lab.db.executionEvent.count()).toBeGreaterThan(8)

  const giveBack = await takeAway(lab)
  const since = Date.now()
  const body = { message: 'meanwhile', background: true }
  const refused = await request(lab.server, 'POST', `/api/v1/agents/${lab.agentId}/execute`, { body })
  expect(refused).toMatchObject({ status: 503, body: { message: 'Service temporarily unavailable. Please retry.' } })
  expect(refused.headers.get('retry-after')).toMatch(/^\d+$/)
  expect((await request(lab.server, 'GET', `/api/v1/executions/${ending.id}`)).status).toBe(200)
  await sleep(since + AWAY - Date.now())
  giveBack()

  for (const events of await Promise.all(streams)) {
    expect(textOf(events)).toBe(tokens.join(''))
    expect(events.map(({ seq }) => seq)).toEqual([...new Set(events.map(({ seq }) => seq))].sort((a, b) => a - b))
    expect(events.at(-1)?.event).toBe('result')
  }
  await lab.idle()
  expect(await lab.db.execution.count({ where: { message: 'meanwhile' } })).toBe(0)
  expect((await request(lab.server, 'POST', `/api/v1/agents/${lab.agentId}/execute`, { body })).status).toBe(200)
  await lab.idle()
  expect(new Set((await lab.db.execution.findMany()).map(({ status, attempt }) => `${status} ${attempt}`))).toEqual(
    new Set(['completed 1']),
  )
  expect(await transitions()).toEqual([])
  expect(await violations(lab.db)).toEqual([])
})

/** The error of pg when a connection breaks while it waits for an answer. */
const broken = () => new Error('Connection terminated unexpectedly')

const requestOf = async ({ db, agentId, actor, spaceId }: Lab) => ({
  ...PLAIN,
  actor,
  conversation: { spaceId },
  agent: await db.agent.findUniqueOrThrow({ where: { id: agentId } }),
})

test('events, results and ends are stored once although every third write loses its answer', async () => {
  await using lab = await startLab()
  let writes = -1
  const pause = async () => {
    if (writes >= 0 && writes++ % 3 === 1) throw broken()
  }
  const engine = lab.another({ db: slowToAnswer(lab.db, pause) })
  const tokens = Array.from({ length: 40 }, (_, index) => `t${index} `)
  lab.model.fallback = { tokens, delay: 40 }
  const asked = await requestOf(lab)
  const rows = [await engine.accept(asked), await engine.accept(asked)]
  writes = 0
  for (const events of await Promise.all(rows.map((row) => followed(engine, row)))) {
    expect(textOf(events)).toBe(tokens.join(''))
    expect(events.at(-1)?.event).toBe('result')
  }
  expect(writes).toBeGreaterThan(4)
  await lab.idle()
  expect(await violations(lab.db)).toEqual([])
  await engine.drain()
})

test('a run that begins as the database goes away waits for it, and completes', async () => {
  await using lab = await startLab()
  let refused = 0
  const $queryRaw = (...args: [never]) => {
    if (refused++ < 2) return Promise.reject(broken())
    return lab.db.$queryRaw(...args)
  }
  const engine = lab.another({ db: overrideMembers(lab.db, { $queryRaw }) })
  const row = await engine.accept(await requestOf(lab))
  expect((await followed(engine, row)).at(-1)?.event).toBe('result')
  expect(refused).toBeGreaterThan(2)
  expect(await lab.row(row.id)).toMatchObject({ status: 'completed', attempt: 1 })
  await engine.drain()
})

/** The database, with some methods of its executions replaced. */
function withExecutions({ db }: Lab, methods: Record<string, unknown>): Db {
  return overrideMembers(db, { execution: overrideMembers(db.execution, methods) })
}

test('a live server still owns its runs after an outage longer than their leases', async () => {
  await using lab = await startLab({ LEASE_DURATION: '600', DRAIN_TIMEOUT: '0.1' })
  const resume = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: ['one ', resume.promise, 'two'] }
  const row = await lab.run()
  await expect.poll(() => lab.db.executionEvent.count()).toBe(1)
  let away = true
  let looks = 0
  const findMany = (...args: [never]) => {
    looks++
    return away ? Promise.reject(broken()) : lab.db.execution.findMany(...args)
  }
  const other = lab.another({ db: withExecutions(lab, { findMany }) })
  away = false
  await other.start(false)
  away = true
  lab.clock.advance(700_000)
  const seen = looks
  await expect.poll(() => looks).toBeGreaterThan(seen)
  away = false
  await expect.poll(() => looks).toBeGreaterThan(seen + 1)
  expect((await lab.row(row.id)).attempt).toBe(1)

  // The other process gives no sign of life and is still taken over a lease later.
  lab.clock.advance(700_000)
  await expect.poll(async () => (await lab.row(row.id)).attempt).toBe(2)
  resume.resolve()
  await other.drain()
})

test('after a database that hung without an error, live servers renew their leases first', async () => {
  await using lab = await startLab({ LEASE_DURATION: '0.3', DRAIN_TIMEOUT: '0.1' })
  lab.model.fallback = { end: 'hang' }
  const row = await lab.run()
  await lab.engine.drain()
  lab.clock.advance(1_000)
  const late = [lab.db.execution.findMany]
  const findMany = async (query: never) => {
    if (late.pop()) await sleep(150)
    return lab.db.execution.findMany(query)
  }
  const recovered: string[] = []
  const recover = async ({ id }: ExecutionRow) => void recovered.push(id)
  const maintenance = maintenanceOf(lab, { db: withExecutions(lab, { findMany }), rescue: recover })
  await maintenance.start(false)
  expect(recovered).toEqual([])
  lab.clock.advance(3_000)
  await expect.poll(() => recovered).toEqual([row.id])
  await maintenance.stop()
})

test('a hanging heartbeat does not delay the next one, and takes no lease back later', async () => {
  await using lab = await startLab({ LEASE_DURATION: '600' })
  lab.model.fallback = { end: 'hang' }
  const row = await lab.run()
  const settings = { ...lab.server.service.deps.settings, LEASE_DURATION: 300 }
  const answered = Promise.withResolvers<void>()
  let hung: Promise<unknown> | undefined
  const updateMany = (query: never) => {
    if (hung) return lab.db.execution.updateMany(query)
    hung = answered.promise.then(() => lab.db.execution.updateMany(query))
    return hung
  }
  await lab.db.execution.updateMany({ data: { leaseUntil: new Date(0) } })
  const maintenance = maintenanceOf(lab, {
    db: withExecutions(lab, { updateMany }),
    settings,
    owner: row.leaseOwner!,
    heldRows: () => [row],
  })
  await maintenance.start(false)
  await expect.poll(() => hung !== undefined).toBe(true)
  lab.clock.advance(60_000)
  const later = lab.clock.now().getTime()
  const leaseUntil = async () => (await lab.row(row.id)).leaseUntil!.getTime()
  await expect.poll(leaseUntil).toBeGreaterThan(later)
  answered.resolve()
  await maintenance.stop()
  expect(await leaseUntil()).toBeGreaterThan(later)
})
