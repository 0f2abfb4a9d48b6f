import { expect, test } from 'vitest'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { textOf, violations } from './invariants.ts'
import { followed, maintenanceOf, nextTurn, startLab } from './lab.ts'

/** More than one statement takes. */
const COUNT = 600

test(`each of ${COUNT} concurrent runs renews its lease, and stops once its row is cancelled`, async () => {
  await using lab = await startLab({ LEASE_DURATION: '3', MAX_RUNNING: '1000' })
  const resume = Promise.withResolvers<void>()
  lab.model.fallback = { tokens: ['one ', resume.promise, 'two ', new Promise<void>(() => {})] }
  const rows = await Promise.all(Array.from({ length: COUNT }, () => lab.run()))

  const until = Math.max(...rows.map(({ leaseUntil }) => leaseUntil!.getTime()))
  lab.clock.advance(1_000)
  const kept = { leaseUntil: { gt: new Date(until) }, attempt: 1, status: 'running' as const }
  await expect.poll(() => lab.db.execution.count({ where: kept })).toBe(COUNT)

  const followers = [rows[0]!, rows[COUNT - 1]!].map((row) => followed(lab.engine, row))
  resume.resolve()
  await expect.poll(() => lab.db.executionEvent.count({ where: { events: { contains: 'two' } } })).toBe(COUNT)

  await lab.db.execution.updateMany({ where: {}, data: { wantsCancel: true } })
  const cancelled = () => lab.db.execution.count({ where: { status: 'cancelled', attempt: 1 } })
  await expect.poll(cancelled).toBe(COUNT)
  for (const events of await Promise.all(followers)) {
    expect(textOf(events)).toBe('one two ')
    expect(events.at(-1)).toMatchObject({ event: 'error', data: { status: 'cancelled' } })
  }
  expect(await violations(lab.db)).toEqual([])
})

test('all runs of a dead process are taken over in one go, and few run at once', async () => {
  await using lab = await startLab({ LEASE_DURATION: '600' })
  const { id: _, ...row } = await lab.run()
  await lab.idle()
  await lab.engine.drain()
  const left = Array.from({ length: 250 }, (_, index) => `left-${index}`)
  const dead = {
    ...row,
    mediaIds: [],
    files: [],
    overrides: {},
    modelsTried: [],
    status: 'running' as const,
    leaseUntil: new Date(0),
  }
  await lab.db.execution.createMany({ data: left.map((id, index) => ({ ...dead, id, queueSeq: index + 2 })) })
  const taken: string[] = []
  let atOnce = 0
  let most = 0
  const maintenance = maintenanceOf(lab, {
    async rescue({ id }) {
      most = Math.max(most, ++atOnce)
      await nextTurn()
      atOnce--
      taken.push(id)
    },
  })
  await maintenance.start(false)
  maintenance.stop()
  expect(taken.sort()).toEqual(left.sort())
  expect(most).toBeGreaterThan(1)
  expect(most).toBeLessThan(lab.server.service.deps.settings.DATABASE_POOL_SIZE)
})

test('a heartbeat stops a lost run, and spares one that began another attempt meanwhile', async () => {
  await using lab = await startLab({ LEASE_DURATION: '600' })
  lab.model.fallback = { tokens: ['one ', new Promise<void>(() => {})] }
  const [again, lost] = [await lab.run(), await lab.run()]
  await lab.db.execution.updateMany({ where: {}, data: { attempt: 2 } })
  const stopped: string[] = []
  /** Runs that are owned before the statement, and from then on. Several heartbeats may overlap. */
  let held: ExecutionRow[] = [again, lost]
  const later = [{ ...again, attempt: 2 }, lost]
  const maintenance = maintenanceOf(lab, {
    owner: again.leaseOwner!,
    settings: { ...lab.server.service.deps.settings, LEASE_DURATION: 30 },
    heldRows() {
      const now = held
      held = later
      return now
    },
    stop: (id, why) => stopped.push(`${id} ${why}`),
  })
  await maintenance.start(false)
  await expect.poll(() => stopped).toContain(`${lost.id} lost`)
  maintenance.stop()
  expect(stopped.filter((one) => one !== `${lost.id} lost`)).toEqual([])
})
