import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { permit } from '../../src/auth/actor.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { createScheduler } from '../../src/missions/scheduler.ts'
import { resumeIn } from '../../src/missions/status.ts'
import { stopClock } from '../support/clock.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { credentialsOf } from '../support/rest.ts'
import { seeded } from '../support/seeded.ts'
import { type MissionLab, type Other, startLab } from './lab.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const everyMinute = { type: 'cron', value: '* * * * *' } as const
const hourly = { type: 'cron', value: '0 * * * *' } as const

/** Returns the runs of each mission by number, and checks that each exists once. */
async function expectNumbered({ db }: MissionLab, ids: readonly string[], count: number): Promise<void> {
  const chats = await db.chat.findMany({
    where: { missionId: { in: [...ids] } },
    select: { missionId: true, runNumber: true },
  })
  const executions = await db.execution.groupBy({
    by: ['missionId'],
    where: { missionId: { in: [...ids] } },
    _count: true,
  })
  const numbers = Array.from({ length: count }, (_, index) => index + 1)
  for (const id of ids) {
    const own = chats.flatMap(({ missionId, runNumber }) => (missionId === id ? (runNumber ?? 0) : []))
    expect(own.sort((a, b) => a - b)).toEqual(numbers)
    expect(executions.find(({ missionId }) => missionId === id)?._count).toBe(count)
  }
}

/** Number of fire times of each of 20 missions of two servers. */
const MINUTES = process.env.NIGHTLY === '1' ? 25 : 10

describe('two servers', () => {
  it(`give ${20 * MINUTES} fire times as many runs without gap or duplicate while one server stops or dies`, async () => {
    await using lab = await startLab()
    const random = seeded(509)
    const ids = await lab.createMany(20, { schedule: { ...everyMinute, overlap: 'queue' } })
    let other: Other = await lab.another()
    let killed = 0
    for (let minute = 1; minute <= MINUTES; minute++) {
      lab.clock.advance(MINUTE)
      const ticks = [lab.scheduler.tick(), other.scheduler.tick().catch(() => {})]
      const fate = random(5)
      if (fate < 2) {
        await new Promise((resolve) => setTimeout(resolve, random(30)))
        if (fate === 0) {
          other.kill()
          killed++
          // The lease of the dead server expires.
          lab.clock.advance(16_000)
        } else await other.stop()
        other = await lab.another()
        if (fate === 0) lab.clock.advance(-16_000)
      }
      await Promise.all(ticks)
      await lab.idle()
      await Promise.all([lab.scheduler.tick(), other.scheduler.tick()])
      await lab.idle()
    }
    await other.stop()
    expect(killed).toBeGreaterThan(1)
    await expectNumbered(lab, ids, MINUTES)
    for (const id of ids) {
      expect(await lab.get(id)).toMatchObject({
        status: 'pending',
        schedule: {
          runCount: MINUTES,
          lastRun: `2026-06-01T12:${MINUTES}:00.000Z`,
          nextRun: `2026-06-01T12:${MINUTES + 1}:00.000Z`,
        },
      })
    }
  })

  it('two servers that look at the same moment start a due mission once', async () => {
    await using lab = await startLab()
    const ids = await lab.createMany(50, { schedule: everyMinute })
    const others = [await lab.another(), await lab.another()]
    lab.clock.advance(MINUTE)
    await Promise.all([lab.scheduler, ...others.map(({ scheduler }) => scheduler)].map((scheduler) => scheduler.tick()))
    await lab.idle()
    await expectNumbered(lab, ids, 1)
    for (const other of others) await other.stop()
  })
})

describe('a server that sleeps between looking and starting', () => {
  /** Has the sleeper look for due missions by its clock, wakes it after a number of them, and lets it start them. */
  async function fallAsleep({ server, idle }: MissionLab, clock: Clock, due: number): Promise<() => Promise<void>> {
    const { deps } = server.service
    const { promise, resolve } = Promise.withResolvers<void>()
    let asleep = 0
    const accept: typeof deps.engine.accept = async (request) => {
      asleep++
      await promise
      return deps.engine.accept(request)
    }
    const sleepy = createScheduler({ ...deps, clock, engine: { ...deps.engine, accept } })
    const ticking = sleepy.tick()
    await expect.poll(() => asleep).toBe(due)
    return async () => {
      resolve()
      await ticking
      await sleepy.stop()
      await idle()
    }
  }

  it('starts no mission that another server has started or that has changed meanwhile', async () => {
    await using lab = await startLab()
    const ids = await lab.createMany(10, { schedule: everyMinute })
    const [byHand = '', paused = '', deleted = ''] = ids
    lab.clock.advance(MINUTE)
    const wakeUp = await fallAsleep(lab, lab.clock, 10)
    await lab.tick()
    await lab.call('POST', `/missions/${byHand}/run`)
    await lab.idle()
    await lab.call('POST', `/missions/${paused}/pause`)
    await lab.call('DELETE', `/missions/${deleted}`)
    await wakeUp()
    await expectNumbered(lab, ids.slice(1), 1)
    await expectNumbered(lab, [byHand], 2)
  })

  it('continues no mission by a schedule that was replaced, or with a number that was given', async () => {
    await using lab = await startLab()
    const [id = '', byHand = ''] = await lab.createMany(2, { schedule: everyMinute })
    const wakeUp = await fallAsleep(lab, stopClock('2026-06-01T12:01:00Z'), 2)
    await lab.call('POST', `/missions/${byHand}/run`)
    await lab.idle()
    // By the clock of the other servers the new schedule begins with the same fire time.
    const { body } = await lab.call('PATCH', `/missions/${id}`, { schedule: { value: '1 * * * *' } })
    expect(body.mission.schedule.nextRun).toBe('2026-06-01T12:01:00.000Z')
    await wakeUp()
    await expectNumbered(lab, [byHand], 1)
    lab.clock.advance(MINUTE)
    await lab.tick()
    expect((await lab.get(id)).schedule).toMatchObject({ runCount: 1, nextRun: '2026-06-01T13:01:00.000Z' })
    await expectNumbered(lab, [byHand], 2)
  })
})

describe('pausing', () => {
  it('or deleting while 100 fire times come stops new runs once it is acknowledged', async () => {
    await using lab = await startLab()
    const ids = await lab.createMany(100, { schedule: everyMinute })
    const other = await lab.another()
    const { queries } = lab.server
    const seen = (pattern: RegExp) => queries.filter((sql) => pattern.test(sql)).length
    const answered = new Map<string, number>()
    const pauseOne = async (id: string, index: number) => {
      const [method, path] = index % 4 ? ['POST', `/missions/${id}/pause`] : ['DELETE', `/missions/${id}`]
      const answer = await lab.call(method, path)
      expect(answer.status).toBe(200)
      answered.set(id, (await lab.db.mission.findUniqueOrThrow({ where: { id } })).runCount)
    }
    // The first fires write before the pauses, because all of them read first.
    const { ended } = await lab.db.$transaction(async () => {
      queries.length = 0
      lab.clock.advance(MINUTE)
      const ticks = [lab.scheduler.tick(), other.scheduler.tick()]
      await expect.poll(() => seen(/FROM (\S+\.)?[`"]Agent[`"]/)).toBeGreaterThan(10)
      queries.length = 0
      const pauses = ids.map(pauseOne)
      await expect.poll(() => seen(/FROM (\S+\.)?[`"]Mission[`"].*LIMIT/s)).toBeGreaterThanOrEqual(100)
      return { ended: Promise.all([...ticks, ...pauses]) }
    })
    await ended
    for (let minute = 0; minute < 3; minute++) {
      lab.clock.advance(MINUTE)
      await Promise.all([lab.scheduler.tick(), other.scheduler.tick()])
    }
    await lab.idle()
    for (const [id, runCount] of answered) {
      const now = await lab.db.mission.findUniqueOrThrow({ where: { id } })
      expect(now).toMatchObject({ runCount, nextRunAt: null })
      expect(await lab.db.execution.count({ where: { missionId: id } })).toBe(runCount)
    }
    // Both outcomes must occur for the test to mean anything.
    const total = [...answered.values()].reduce((sum, count) => sum + count, 0)
    expect(total).toBeGreaterThan(0)
    expect(total).toBeLessThan(50)
    await other.stop()
  })
})

describe('a due mission', () => {
  it('starts even if a hundred others before it cannot', async () => {
    await using lab = await startLab({ MAX_PENDING_RUNS: '0', MAX_RUNNING_PER_ORGANIZATION: '1' })
    // The organization has a run, and no capacity for another.
    const eve = await lab.server.member({ organization: 'Evil', role: 'owner' })
    const agentId = await lab.createAgent({}, eve.token)
    await lab.createMany(120, { agentId, schedule: everyMinute }, eve.token)
    await lab.db.organization.update({ where: { id: eve.organizationId }, data: { running: 1 } })
    const { id } = await lab.create({ schedule: { type: 'once', value: '2026-06-01T12:01:10' } })
    lab.clock.advance(MINUTE + 10_000)
    await lab.tick()
    expect((await lab.get(id)).schedule.runCount).toBe(1)
    const [waiting] = (await lab.call('GET', '/missions?limit=1', undefined, eve.token)).body.missions
    expect((await lab.call('POST', `/missions/${waiting.id}/run`, undefined, eve.token)).status).toBe(429)
    expect((await lab.call('PATCH', `/missions/${waiting.id}`, { status: 'running' }, eve.token)).status).toBe(429)
    // They stay due, and run when there is capacity.
    await lab.db.organization.update({ where: { id: eve.organizationId }, data: { running: 0 } })
    await expect
      .poll(
        async () => {
          await lab.tick()
          return lab.db.mission.count({ where: { organizationId: eve.organizationId, runCount: 0 } })
        },
        { interval: 1 },
      )
      .toBe(0)
    expect(lab.server.logs.filter((line) => JSON.parse(line).level >= 50)).toEqual([])
  })

  it('is looked for by the server itself, repeatedly', async () => {
    await using lab = await startLab()
    const { id } = await lab.create({ schedule: everyMinute })
    for (const minute of [1, 2]) {
      lab.clock.advance(MINUTE)
      await expect.poll(async () => (await lab.get(id)).schedule.runCount).toBe(minute)
      await lab.idle()
    }
  })

  it('a due mission of a stopped scheduler is left to other servers', async () => {
    await using lab = await startLab()
    const stopped = createScheduler(lab.server.service.deps)
    await stopped.stop()
    const { id } = await lab.create({ schedule: everyMinute })
    lab.clock.advance(MINUTE)
    await stopped.tick()
    expect((await lab.db.mission.findUniqueOrThrow({ where: { id } })).runCount).toBe(0)
  })
})

describe('missed fire times', () => {
  let lab: MissionLab
  beforeAll(async () => {
    lab = await startLab()
  })
  afterAll(() => lab[Symbol.asyncDispose]())

  type Row = [schedule: object, after: number, runCount: number, lastRun: string | null, nextRun: string | null]
  // The missions are created at 12:00.
  const rows: Row[] = [
    [{ ...hourly, catchUp: 'last' }, 3 * HOUR + 5 * MINUTE, 1, '15:00', '16:00'],
    [{ ...hourly, catchUp: 'skip' }, 3 * HOUR + 5 * MINUTE, 0, null, '16:00'],
    [{ ...hourly, catchUp: 'skip', overlap: 'queue' }, 3 * HOUR + 5 * MINUTE, 0, null, '16:00'],
    [{ ...hourly, catchUp: 'last', overlap: 'queue' }, 3 * HOUR + 5 * MINUTE, 1, '15:00', '16:00'],
    // The last one does not count as missed: its delay is within that of a busy server.
    [{ ...hourly, catchUp: 'skip' }, 3 * HOUR + MINUTE / 2, 1, '15:00', '16:00'],
    [{ ...hourly, catchUp: 'skip' }, 3 * HOUR + MINUTE + 1, 0, null, '16:00'],
    [{ type: 'once', value: '2026-06-01T13:00', catchUp: 'last' }, 24 * HOUR, 1, '13:00', null],
    [{ type: 'once', value: '2026-06-01T13:00', catchUp: 'skip' }, 24 * HOUR, 0, null, null],
    [{ type: 'once', value: '2026-06-01T13:00', catchUp: 'skip' }, HOUR + MINUTE, 1, '13:00', null],
    [{ type: 'continuous', value: '10', catchUp: 'skip' }, 0, 1, '12:00', '12:00:10'],
  ]
  const at = (time: string | null) => time && new Date(`2026-06-01T${time.padEnd(8, ':00')}Z`).toISOString()

  it.each(rows)('%j, %i ms later: %i runs, last %s, next %s', async (schedule, after, runCount, lastRun, nextRun) => {
    lab.clock.set('2026-06-01T12:00:00Z')
    const { id } = await lab.create({ schedule })
    lab.clock.advance(after)
    await lab.tick()
    expect((await lab.get(id)).schedule).toMatchObject({ runCount, lastRun: at(lastRun), nextRun: at(nextRun) })
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('missed fire times of a continuous mission leave it active, whatever its policy for them', async () => {
    lab.clock.set('2026-06-01T12:00:00Z')
    const { id } = await lab.create({ schedule: { type: 'continuous', value: '10', catchUp: 'skip' } })
    await lab.tick()
    lab.clock.advance(24 * HOUR)
    await lab.tick()
    const { schedule } = await lab.get(id)
    expect(schedule).toMatchObject({ runCount: 2, nextRun: '2026-06-02T12:00:10.000Z' })
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('missed fire times of a slow server all run', async () => {
    lab.clock.set('2026-06-01T12:00:00.500Z')
    const { id } = await lab.create({ schedule: { type: 'cron', value: '*/10 * * * * *' } })
    lab.clock.advance(45_000)
    for (let round = 0; round < 6; round++) await lab.tick()
    expect((await lab.get(id)).schedule).toMatchObject({ runCount: 4, lastRun: '2026-06-01T12:00:40.000Z' })
    await lab.call('DELETE', `/missions/${id}`)
  })
})

describe('the health of a mission', () => {
  let model: ModelServer
  let lab: MissionLab
  beforeAll(async () => {
    model = await startModelServer()
    lab = await startLab({ OPENAI_BASE_URL: model.baseUrl })
  })
  afterAll(async () => {
    await lab[Symbol.asyncDispose]()
    await model.close()
  })

  it('a continuous mission that fails doubles its pause up to an hour, until a run completes', async () => {
    lab.clock.set('2026-06-01T12:00:00Z')
    const { id } = await lab.create({ schedule: { type: 'continuous', value: '600' } })
    const pauses = []
    for (const isFailing of [true, true, true, true, false]) {
      if (isFailing) model.script({ error: { status: 400 } })
      await lab.tick()
      const { schedule, failureCount } = await lab.get(id)
      const pause = Date.parse(schedule.nextRun) - lab.clock.now().getTime()
      pauses.push([failureCount, pause / 1000, schedule.backoffSeconds])
      lab.clock.advance(pause)
    }
    expect(pauses).toEqual([
      [1, 1200, 1200],
      [2, 2400, 2400],
      [3, 3600, 3600],
      [4, 3600, 3600],
      [0, 600, null],
    ])
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('a one-time mission ends as failed with its run, and can be run or scheduled again', async () => {
    lab.clock.set('2026-06-01T12:00:00Z')
    const { id } = await lab.create({ schedule: { type: 'once', value: '2026-06-01T13:00' } })
    model.script({ error: { status: 400 } })
    lab.clock.advance(HOUR)
    await lab.tick()
    expect(await lab.get(id)).toMatchObject({ status: 'failed', failureCount: 1, schedule: { nextRun: null } })
    expect((await lab.call('GET', '/missions?status=failed')).body).toMatchObject({ missions: [{ id }], count: 1 })
    expect((await lab.call('POST', `/missions/${id}/pause`)).body.message).toBe('Mission has failed')
    const later = { schedule: { value: '2026-06-01T15:00' } }
    expect((await lab.call('PATCH', `/missions/${id}`, later)).body.mission).toMatchObject({ status: 'pending' })
    await lab.call('POST', `/missions/${id}/run`)
    await lab.idle()
    expect(await lab.get(id)).toMatchObject({ status: 'pending', lastStatus: 'completed', failureCount: 0 })
    await lab.call('DELETE', `/missions/${id}`)
  })

  it.each([
    [{ catchUp: 'last' }, 2, 1],
    [{ catchUp: 'skip' }, 3, 0],
  ])('%j counts the fire times that it skips, and logs them in one line', async (policy, skippedCount, runCount) => {
    lab.clock.set('2026-06-01T12:00:00Z')
    const { id } = await lab.create({ schedule: { ...hourly, ...policy } })
    lab.clock.advance(3 * HOUR + 5 * MINUTE)
    await lab.tick()
    expect(await lab.get(id)).toMatchObject({ skippedCount, schedule: { runCount } })
    const lines = lab.server.logs.map((line) => JSON.parse(line)).filter(({ missionId }) => missionId === id)
    expect(lines).toMatchObject([
      { level: 40, skipped: skippedCount, reason: expect.any(String), msg: expect.stringContaining('fire times') },
    ])
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('a fire time that was set under a fast clock is set back, also after a run', async () => {
    lab.clock.set('2026-06-03T12:00:00Z')
    const ids = await Promise.all(
      [hourly, { type: 'continuous', value: '600' }, { type: 'once', value: '2026-06-04T12:00' }].map(
        async (schedule) => (await lab.create({ schedule })).id,
      ),
    )
    await lab.call('POST', `/missions/${ids[0]}/run`)
    await lab.tick()
    lab.clock.set('2026-06-01T12:00:00Z')
    await lab.tick()
    const times = await Promise.all(ids.map(async (id) => (await lab.get(id)).schedule.nextRun))
    expect(times).toEqual(['2026-06-01T13:00:00.000Z', '2026-06-01T12:10:00.000Z', '2026-06-04T12:00:00.000Z'])
    for (const id of ids) await lab.call('DELETE', `/missions/${id}`)
  })

  it('a mission fires at most maxRuns times', async () => {
    lab.clock.set('2026-06-01T12:00:00Z')
    const { id } = await lab.create({ schedule: { ...everyMinute, maxRuns: 2 } })
    for (let minute = 0; minute < 4; minute++) {
      lab.clock.advance(MINUTE)
      await lab.tick()
    }
    expect(await lab.get(id)).toMatchObject({ status: 'completed', schedule: { runCount: 2, nextRun: null } })
  })
})

describe('a fire time during the previous run', () => {
  let model: ModelServer
  let lab: MissionLab
  beforeAll(async () => {
    model = await startModelServer()
    lab = await startLab({ OPENAI_BASE_URL: model.baseUrl })
  })
  afterAll(async () => {
    await lab[Symbol.asyncDispose]()
    await model.close()
  })

  /** Creates a mission whose first run waits until the test releases it. */
  async function begin(schedule: object) {
    const { promise, resolve } = Promise.withResolvers<void>()
    model.script({ tokens: [promise, 'Done.'] })
    lab.clock.set('2026-06-01T12:00:00Z')
    const { id } = await lab.create({ schedule })
    lab.clock.advance(schedule && 'type' in schedule && schedule.type === 'continuous' ? 0 : MINUTE)
    await lab.scheduler.tick()
    await expect.poll(async () => (await lab.get(id)).status).toBe('running')
    return { id, release: resolve }
  }

  it('passes (skip), unless it is as old as the run', async () => {
    const { id, release } = await begin({ ...everyMinute, overlap: 'skip' })
    const nextRunAt = (time: string) => lab.db.mission.update({ where: { id }, data: { nextRunAt: new Date(time) } })
    await nextRunAt('2026-06-01T12:01:00Z')
    await lab.scheduler.tick()
    expect((await lab.get(id)).skippedCount).toBe(0)
    await nextRunAt('2026-06-01T12:02:00Z')
    for (let minute = 2; minute <= 4; minute++) {
      lab.clock.advance(MINUTE)
      await lab.scheduler.tick()
    }
    const mission = await lab.get(id)
    expect(mission).toMatchObject({ skippedCount: 3, schedule: { runCount: 1, nextRun: '2026-06-01T12:05:00.000Z' } })
    release()
    await lab.idle()
    await lab.tick()
    expect(await lab.get(id)).toMatchObject({
      status: 'pending',
      schedule: { runCount: 1, lastRun: '2026-06-01T12:01:00.000Z' },
    })
    lab.clock.advance(MINUTE)
    await lab.tick()
    expect((await lab.get(id)).schedule).toMatchObject({ runCount: 2, lastRun: '2026-06-01T12:05:00.000Z' })
    await lab.call('DELETE', `/missions/${id}`)
  })

  it.each([
    ['the run ends', false],
    ['another run follows', true],
  ])('stays due if %s before a slow server skips it', async (_, isFollowed) => {
    const { id, release } = await begin({ ...everyMinute, overlap: 'skip' })
    const { deps } = lab.server.service
    const { promise, resolve } = Promise.withResolvers<void>()
    let asked = false
    /** Finds the run, which ends before the scheduler has the answer. */
    const findUnique = async (args: Parameters<typeof deps.db.execution.findUnique>[0]) => {
      const found = await deps.db.execution.findUnique(args)
      asked = true
      await promise
      return found
    }
    const execution = overrideMembers(deps.db.execution, { findUnique })
    const db = overrideMembers(deps.db, { execution })
    const slow = createScheduler({ ...deps, db, clock: stopClock('2026-06-01T12:02:00Z') })
    const ticking = slow.tick()
    await expect.poll(() => asked).toBe(true)
    release()
    await lab.idle()
    const next = Promise.withResolvers<void>()
    if (isFollowed) {
      model.script({ tokens: [next.promise, 'Done.'] })
      await lab.call('POST', `/missions/${id}/run`)
    }
    resolve()
    await ticking
    await slow.stop()
    expect(await lab.get(id)).toMatchObject({ skippedCount: 0, schedule: { nextRun: '2026-06-01T12:02:00.000Z' } })
    next.resolve()
    await lab.idle()
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('waits for its end with all later ones, which run one after another (queue)', async () => {
    const { id, release } = await begin({ ...everyMinute, overlap: 'queue', catchUp: 'skip' })
    for (let minute = 2; minute <= 4; minute++) {
      lab.clock.advance(MINUTE)
      await lab.scheduler.tick()
    }
    expect((await lab.get(id)).schedule).toMatchObject({ runCount: 1, nextRun: '2026-06-01T12:02:00.000Z' })
    release()
    await lab.idle()
    // The server looks for due missions, too, so fewer may be left.
    for (const _ of [2, 3, 4, 5]) await lab.tick()
    expect(await lab.get(id)).toMatchObject({
      status: 'pending',
      schedule: { runCount: 4, lastRun: '2026-06-01T12:04:00.000Z', nextRun: '2026-06-01T12:05:00.000Z' },
    })
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('waits for its end, but only while a server is running', async () => {
    const { id, release } = await begin({ ...everyMinute, overlap: 'queue', catchUp: 'skip' })
    lab.clock.advance(MINUTE)
    release()
    await lab.idle()
    lab.clock.advance(HOUR)
    await lab.tick()
    // Only the fire time due now counts; the server may have found the earlier, waiting one.
    const { schedule } = await lab.get(id)
    expect(schedule).toMatchObject({ lastRun: '2026-06-01T13:02:00.000Z', nextRun: '2026-06-01T13:03:00.000Z' })
    expect(schedule.runCount).toBeLessThanOrEqual(3)
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('a fire time during the previous run of a continuous mission comes when the run has ended', async () => {
    const { id, release } = await begin({ type: 'continuous', value: '30' })
    expect((await lab.get(id)).schedule.nextRun).toBeNull()
    lab.clock.advance(HOUR)
    await lab.scheduler.tick()
    release()
    await lab.idle()
    expect(await lab.get(id)).toMatchObject({
      status: 'pending',
      schedule: { runCount: 1, nextRun: '2026-06-01T13:00:30.000Z' },
    })
    lab.clock.advance(29_999)
    await lab.tick()
    expect((await lab.get(id)).schedule.runCount).toBe(1)
    lab.clock.advance(1)
    await lab.tick()
    expect((await lab.get(id)).schedule).toMatchObject({ runCount: 2, nextRun: '2026-06-01T13:01:00.000Z' })
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('runs once if the mission was paused and resumed meanwhile', async () => {
    for (const overlap of ['skip', 'queue']) {
      const { id, release } = await begin({ ...everyMinute, overlap })
      expect((await lab.call('POST', `/missions/${id}/pause`)).body.mission).toMatchObject({
        status: 'paused',
        schedule: { nextRun: null },
      })
      lab.clock.advance(MINUTE)
      await lab.scheduler.tick()
      const { mission } = (await lab.call('POST', `/missions/${id}/resume`)).body
      expect(mission).toMatchObject({ status: 'running', schedule: { nextRun: '2026-06-01T12:03:00.000Z' } })
      lab.clock.advance(MINUTE)
      await lab.scheduler.tick()
      expect((await lab.get(id)).schedule.runCount).toBe(1)
      release()
      await lab.idle()
      await lab.tick()
      expect(await lab.get(id)).toMatchObject({
        status: 'pending',
        schedule: { runCount: overlap === 'queue' ? 2 : 1 },
      })
      await lab.call('DELETE', `/missions/${id}`)
    }
  })

  it('is not resumed by a request that knows an earlier run only', async () => {
    const { id, release } = await begin(everyMinute)
    await lab.call('POST', `/missions/${id}/pause`)
    const { deps } = lab.server.service
    const actor = await deps.actors.of(credentialsOf(`Bearer ${lab.server.token}`))
    const row = await deps.db.mission.findUniqueOrThrow({ where: { id } })
    const before = permit({ ...row, executionId: null }, true)
    const resumed = deps.db.$transaction((tx) => resumeIn(tx, actor, deps, before, lab.clock.now()))
    await expect(resumed).rejects.toThrow('Mission is not paused')
    release()
    await lab.idle()
    await lab.call('DELETE', `/missions/${id}`)
  })

  it('waits for the next one if the mission was paused until its run had ended', async () => {
    const { id, release } = await begin(everyMinute)
    await lab.call('POST', `/missions/${id}/pause`)
    release()
    await lab.idle()
    expect((await lab.get(id)).status).toBe('paused')
    lab.clock.advance(HOUR)
    await lab.tick()
    const { mission } = (await lab.call('POST', `/missions/${id}/resume`)).body
    expect(mission).toMatchObject({ status: 'pending', schedule: { runCount: 1, nextRun: '2026-06-01T13:02:00.000Z' } })
    await lab.call('DELETE', `/missions/${id}`)
  })
})
