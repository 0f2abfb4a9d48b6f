import { describe, expect, it } from 'vitest'
import { apis, expectError, ok, onEachApi } from '../support/api.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { overtaken, together } from '../support/together.ts'
import { type Body, MINUTE, START, startMissionLab } from './mission-lab.ts'

const {
  clock,
  server,
  scheduler,
  ann,
  admin,
  eve,
  call,
  createAgent,
  agentId,
  createSpace,
  create,
  get,
  patch,
  patched,
  act,
  run,
  runsOf,
  idle,
  tick,
  hold,
} = await startMissionLab()

describe('PATCH /missions/{id}', () => {
  it('changes each field by itself, and leaves the others unchanged', async () => {
    const { id } = await create()
    const [otherAgent, spaceId] = [await createAgent(), await createSpace()]
    const changes: Body[] = [
      { title: 'New' },
      { goal: 'Newer' },
      { icon: '🛰️' },
      { visibility: 'private' },
      { maxTurns: 3 },
      { agentType: 'watcher' },
      { agentId: otherAgent },
      { spaceId },
      { icon: null },
      { maxTurns: null },
      { agentType: null },
    ]
    let expected = await get(id)
    for (const change of changes) {
      clock.advance(1000)
      expected = { ...expected, ...change, updatedAt: clock.now().toISOString() }
      expect(await patched(id, change)).toEqual(expected)
    }
    expect((await patched(id, { spaceId: null })).spaceId).not.toBe(spaceId)
    expect(await patched(id, {})).toEqual(await get(id))
  })

  it('changes the schedule field by field, and restarts it if its times change', async () => {
    clock.set(START)
    const { id } = await create({ schedule: { type: 'cron', value: '0 9 * * *', timezone: 'Europe/Berlin' } })
    const schedule = async (change: Body | null) => (await patched(id, { schedule: change })).schedule
    expect(await schedule({ overlap: 'queue' })).toMatchObject({ overlap: 'queue', timezone: 'Europe/Berlin' })
    expect(await schedule({ value: '0 10 * * *' })).toMatchObject({
      type: 'cron',
      value: '0 10 * * *',
      timezone: 'Europe/Berlin',
      overlap: 'queue',
      nextRun: '2026-06-02T08:00:00.000Z',
    })
    expect(await schedule({ timezone: null })).toMatchObject({ timezone: 'UTC', nextRun: '2026-06-02T10:00:00.000Z' })
    expect(await schedule({ type: 'once', value: '2026-06-03T00:00Z' })).toMatchObject({
      nextRun: '2026-06-03T00:00:00.000Z',
    })
    expect(await schedule({ type: 'continuous' })).toMatchObject({ type: 'continuous', value: null, nextRun: START })
    expect(await schedule(null)).toMatchObject({ type: 'none', value: null, overlap: 'skip', nextRun: null })
  })

  it('PATCH /missions/{id} with the same schedule preserves a due fire time', async () => {
    clock.set(START)
    const once = { type: 'once', value: '2026-06-01T12:30' }
    const { id } = await create({ schedule: once })
    clock.advance(30 * MINUTE)
    expect((await patched(id, { title: 'New', schedule: { ...once, catchUp: 'last' } })).title).toBe('New')
    await tick()
    expect(await get(id)).toMatchObject({ status: 'completed', schedule: { runCount: 1 } })
  })

  it('PATCH /missions/{id} with a new time makes a completed mission wait for it', async () => {
    clock.set(START)
    const { id } = await create({ schedule: { type: 'once', value: '2026-06-01T12:30' } })
    clock.advance(30 * MINUTE)
    await tick()
    expect((await get(id)).status).toBe('completed')
    const mission = await patched(id, { schedule: { value: '2026-06-01T13:00' } })
    expect(mission).toMatchObject({ status: 'pending', schedule: { nextRun: '2026-06-01T13:00:00.000Z', runCount: 1 } })
    clock.advance(30 * MINUTE)
    await tick()
    expect(await get(id)).toMatchObject({ status: 'completed', schedule: { runCount: 2 } })
  })

  it('PATCH /missions/{id} with a new time for a paused mission takes effect when it resumes', async () => {
    clock.set(START)
    const { id } = await create()
    await act(id, 'pause')
    const change = { schedule: { type: 'cron', value: '* * * * *' } }
    expect(await patched(id, change)).toMatchObject({ status: 'paused', schedule: { type: 'cron', nextRun: null } })
    clock.advance(5 * MINUTE)
    await tick()
    const { mission } = await ok(act(id, 'resume'))
    expect(mission.schedule).toMatchObject({ runCount: 0, nextRun: '2026-06-01T12:06:00.000Z' })
    await ok(call('DELETE', `/missions/${id}`))
  })

  describe('during another change of the schedule', () => {
    const daily = { type: 'cron', value: '0 9 * * *' }

    it('changes only its own fields', async () => {
      clock.set(START)
      const { id } = await create({ schedule: daily })
      const changes = [
        { value: '0 13 * * *' },
        { overlap: 'queue' },
        { timezone: 'Europe/Berlin' },
        { catchUp: 'skip' },
      ]
      const answers = await together(
        server,
        'Mission',
        changes.map((schedule) => () => patch(id, { schedule })),
      )
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
      const nextRun = '2026-06-02T11:00:00.000Z'
      expect((await get(id)).schedule).toMatchObject({ ...Object.assign({}, ...changes), nextRun })
      await ok(call('DELETE', `/missions/${id}`))
    })

    it('runs the mission', async () => {
      clock.set(START)
      const { id } = await create({ schedule: daily })
      const [run, change] = [
        () => patch(id, { status: 'running', schedule: { value: '0 13 * * *' } }),
        () => patch(id, { schedule: { overlap: 'queue', timezone: 'Europe/Berlin' } }),
      ]
      const answers = onPostgres
        ? await overtaken(server, 'Chat', run, change)
        : await together(server, 'Mission', [change, run])
      expect(answers.map(({ status }) => status)).toEqual([200, 200])
      expect((await get(id)).schedule).toMatchObject({
        value: '0 13 * * *',
        overlap: 'queue',
        timezone: 'Europe/Berlin',
        nextRun: '2026-06-02T11:00:00.000Z',
        runCount: 1,
      })
      await idle()
      await ok(call('DELETE', `/missions/${id}`))
    })

    it.runIf(onPostgres)('a PATCH of the schedule during another one and the run’s end takes effect', async () => {
      clock.set(START)
      const release = hold()
      const { id } = await create({ schedule: { type: 'continuous' } })
      await scheduler.tick()
      await expect.poll(async () => (await get(id)).status).toBe('running')
      const news = {
        scheduleType: 'once',
        scheduleValue: '2026-07-01T00:00Z',
        nextRunAt: new Date('2026-07-01'),
      } as const
      const { db } = server.service.deps
      const waiting = () => db.$queryRaw<object[]>`
        SELECT 1 FROM pg_stat_activity WHERE "wait_event_type" = 'Lock' AND "datname" = current_database()`
      await db.$transaction(async (tx) => {
        await tx.mission.update({ where: { id }, data: news })
        release()
        await expect.poll(waiting, { interval: 5 }).toHaveLength(1)
      })
      await idle()
      expect(await db.mission.findUnique({ where: { id } })).toMatchObject({ ...news, status: 'pending' })
      await ok(call('DELETE', `/missions/${id}`))
    })

    it('a PATCH of the schedule during another one and a resume makes it wait for the new time', async () => {
      clock.set(START)
      const { id } = await create({ schedule: daily })
      await ok(act(id, 'pause'))
      const schedule = { value: '0 13 * * *' }
      const answers = await together(server, 'Mission', [() => patch(id, { schedule }), () => act(id, 'resume')])
      expect(answers.map(({ status }) => status)).toEqual([200, 200])
      const nextRun = '2026-06-01T13:00:00.000Z'
      expect(await get(id)).toMatchObject({ status: 'pending', schedule: { ...schedule, nextRun } })
      await ok(call('DELETE', `/missions/${id}`))
    })
  })

  it('a PATCH by an admin that makes a mission private is answered, and then it is its owner’s', async () => {
    const { id } = await create()
    expect(await patched(id, { visibility: 'private' }, admin)).toMatchObject({ id, visibility: 'private' })
    expectError(await call('GET', `/missions/${id}`, undefined, admin), 404, 'Mission not found')
    expect(await get(id)).toMatchObject({ visibility: 'private' })
  })

  it('PATCH /missions/{id} by an admin accepts only agents and spaces that its owner can use', async () => {
    const { id } = await create()
    const agent = await createAgent({ visibility: 'private' }, admin)
    const space = await createSpace({ visibility: 'private' }, admin)
    expectError(await patch(id, { agentId: agent }, admin), 404, 'Agent not found')
    expectError(await patch(id, { spaceId: space }, admin), 404, 'Space not found')
    expect(await get(id)).toMatchObject({ agentId })
    const shared = await createAgent({}, admin)
    expect(await patched(id, { agentId: shared }, admin)).toMatchObject({ agentId: shared })
  })

  it('a PATCH with a status runs, pauses and resumes a mission; the present one changes nothing', async () => {
    const { id } = await create()
    const release = hold()
    expect(await patched(id, { title: 'Go', status: 'running' })).toMatchObject({
      title: 'Go',
      status: 'running',
      schedule: { runCount: 1 },
    })
    expect(await patched(id, { status: 'running', title: 'Going' })).toMatchObject({
      title: 'Going',
      schedule: { runCount: 1 },
    })
    expect((await patched(id, { status: 'paused' })).status).toBe('paused')
    expect((await patched(id, { status: 'paused', icon: 'x' })).icon).toBe('x')
    expect((await patched(id, { status: 'pending' })).status).toBe('running')
    release()
    await idle()
    expect(await get(id)).toMatchObject({ status: 'completed', schedule: { runCount: 1 } })
    expect((await patched(id, { status: 'completed', icon: 'y' })).icon).toBe('y')
  })

  it('PATCH /missions/{id} with an impossible status is refused as a whole', async () => {
    const { id } = await create()
    const refused = async (status: string, code: number, message: string) => {
      const before = await get(id)
      expectError(await patch(id, { title: 'No', status }), code, message)
      expect(await get(id)).toEqual(before)
    }
    await refused('pending-ish', 400, 'Invalid status. Must be: pending, running, completed, paused, failed')
    await refused('failed', 400, 'Invalid status transition: pending to failed')
    await act(id, 'pause')
    await refused('running', 409, 'Mission is paused')
    await act(id, 'resume')
    await run(id)
    await idle()
    await refused('paused', 409, 'Mission is completed')
    await refused('pending', 409, 'Mission is not paused')
  })

  it('PATCH /missions/{id} that runs it uses its new fields', async () => {
    const { id } = await create()
    const changes = { title: 'New', goal: 'Look closer', agentId: await createAgent(), spaceId: await createSpace() }
    const schedule = { type: 'cron', value: '0 9 * * *' }
    const release = hold()
    const mission = await patched(id, { ...changes, maxTurns: 3, visibility: 'private', schedule, status: 'running' })
    expect(mission).toMatchObject({ ...changes, maxTurns: 3, visibility: 'private', schedule, status: 'running' })
    const { goal: message, agentId, spaceId } = changes
    const [run] = (await runsOf(id)).runs
    expect(run).toMatchObject({ message, agentId, spaceId })
    expect((await ok(call('GET', `/chats/${run.chatId}`))).chat).toMatchObject({ title: 'New', missionTitle: 'New' })
    release()
    await idle()
    expect(await get(id)).toMatchObject({ ...changes, status: 'pending', schedule: { ...schedule, runCount: 1 } })
  })

  describe('that would run it, and is refused, changes nothing', () => {
    const everything = { title: 'No', goal: 'No', icon: 'no', visibility: 'private', maxTurns: 3, agentType: 'no' }
    const refused = async (id: string, status: number, message: string, on = server, who = ann) => {
      const send = (method: string, body?: Body) =>
        request(on, method, `/api/v1/missions/${id}`, { token: who.token, ...(body && { body }) })
      const { db } = on.service.deps
      const written = async () => [(await send('GET')).body.mission, await db.chat.count(), await db.auditEvent.count()]
      const before = await written()
      const schedule = { type: 'cron', value: '0 9 * * *' }
      expectError(await send('PATCH', { ...everything, schedule, status: 'running' }), status, message)
      expect(await written()).toEqual(before)
    }

    it('a PATCH that would run a mission changes nothing if its space was deleted', async () => {
      const spaceId = await createSpace()
      const { id } = await create({ spaceId })
      await ok(call('DELETE', `/spaces/${spaceId}`))
      await refused(id, 404, 'Space not found')
    })

    it('a PATCH that would run a mission changes nothing if its foreign agent is private now', async () => {
      const foreign = await createAgent({ visibility: 'public' }, eve)
      const { id } = await create({ agentId: foreign })
      await ok(call('PATCH', `/agents/${foreign}`, { visibility: 'private' }, eve))
      await refused(id, 404, 'Agent not found')
    })

    it('a PATCH that would run a mission changes nothing if too many runs are pending', async () => {
      await using full = await startServer({ MAX_RUNNING_PER_ORGANIZATION: '1', MAX_PENDING_RUNS: '0' }, { clock })
      const who = await full.member()
      const make = async (path: string, body: Body) =>
        (await ok(request(full, 'POST', `/api/v1${path}`, { token: who.token, body }))).id
      const agentId = await make('/agents', { name: 'Ada', systemPrompt: 'You are Ada.' })
      const id = await make('/missions', { title: 'Watch', goal: 'Look around', agentId })
      await full.service.deps.db.organization.update({ where: { id: who.organizationId }, data: { running: 1 } })
      await refused(id, 429, 'Rate limit exceeded. Retry after 60 seconds.', full, who)
    })

    it('a PATCH that would run a mission changes nothing if it was paused meanwhile', async () => {
      const { id, title } = await create()
      const [run, pause] = [() => patch(id, { title: 'No', status: 'running' }), () => act(id, 'pause')]
      const [late] = onPostgres
        ? await overtaken(server, 'Chat', run, pause)
        : (await together(server, 'Mission', [pause, run])).toReversed()
      expectError(late!, 409, 'Mission is paused')
      expect(await get(id)).toMatchObject({ title, status: 'paused', schedule: { runCount: 0 } })
    })
  })

  it.each(
    onEachApi([
      ['Missing required field: title', { title: null }],
      ['Missing required field: goal', { goal: '' }],
      ['Missing required field: agentId', { agentId: null }],
      ['Missing required field: agentId', { agentId: '' }],
      ['Missing required field: schedule.type', { schedule: { type: ' ' } }],
      ['Missing required field: characterId', { characterId: null }],
      ['Invalid visibility value. Must be: private, organization, or public', { visibility: 'secret' }],
      [
        'Invalid value for field: schedule.value. Expected a cron expression of five or six fields',
        { schedule: { type: 'cron' } },
      ],
      [
        'Invalid value for field: schedule.timezone. Expected an IANA timezone, like Europe/Berlin',
        { schedule: { timezone: 'x' } },
      ],
      [
        'Invalid value for field: schedule.value. Expected a date in the years 1 to 9999 (UTC)',
        { schedule: { type: 'once', value: '9999-12-31T23:59-14:00' } },
      ],
    ]),
  )('%s: 400 %s', async (api, message, fields) => {
    const { id } = await create()
    const before = await get(id)
    expectError(await apis[api](server, 'missions.update', { id, ...fields }, { token: ann.token }), 400, message)
    expect(await get(id)).toEqual(before)
    expectError(await patch(id, { agentId: 'x' }), 404, 'Agent not found')
    for (const spaceId of ['x', '']) expectError(await patch(id, { spaceId }), 404, 'Space not found')
    expect(await get(id)).toEqual(before)
  })
})
