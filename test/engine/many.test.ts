import { expect, test } from 'vitest'
import { textOf, violations } from './invariants.ts'
import { followed, startLab } from './lab.ts'

/** More than one statement takes. */
const COUNT = 600
const PATIENCE = { timeout: 20_000, interval: 50 }

test(`of ${COUNT} runs at once each keeps its lease, and is cancelled once its row says so`, async () => {
  await using lab = await startLab({ LEASE_DURATION: '3', MAX_RUNNING: '1000' })
  const goOn = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: ['one ', goOn.promise, 'two ', new Promise<void>(() => {})] }
  const rows = await Promise.all(Array.from({ length: COUNT }, () => lab.run()))

  const until = Math.max(...rows.map(({ leaseUntil }) => leaseUntil!.getTime()))
  lab.clock.advance(1_000)
  const kept = { leaseUntil: { gt: new Date(until) }, attempt: 1, status: 'running' as const }
  await expect.poll(() => lab.db.execution.count({ where: kept }), PATIENCE).toBe(COUNT)

  const followers = [rows[0]!, rows[COUNT - 1]!].map((row) => followed(lab.engine, row))
  goOn.resolve()
  await expect.poll(() => lab.db.executionEvent.count({ where: { events: { contains: 'two' } } }), PATIENCE).toBe(COUNT)

  await lab.db.execution.updateMany({ where: {}, data: { wantsCancel: true } })
  const cancelled = () => lab.db.execution.count({ where: { status: 'cancelled', attempt: 1 } })
  await expect.poll(cancelled, PATIENCE).toBe(COUNT)
  for (const events of await Promise.all(followers)) {
    expect(textOf(events)).toBe('one two ')
    expect(events.at(-1)).toMatchObject({ event: 'error', data: { status: 'cancelled' } })
  }
  expect(await violations(lab.db)).toEqual([])
}, 60_000)
