import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Db, Tx } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { newId } from '../../src/lib/id.ts'
import { createScheduler, type Scheduler } from '../../src/missions/scheduler.ts'
import { CreateMission } from '../../src/missions/schema.ts'
import { create as createMission } from '../../src/missions/service.ts'
import { removeMember } from '../../src/organizations/service.ts'
import { graphql } from '../graphql/support.ts'
import { APIS, apis, callerAt, expectError, invalid, missing, ok, onEachApi } from '../support/api.ts'
import { stopClock } from '../support/clock.ts'
import { misfit } from '../support/model-replies.ts'
import { startModelServer } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { type Answer, credentialsOf, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { overtaken, together } from '../support/together.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const NOT_FOUND = 'Mission not found'
const MINUTE = 60_000
const START = '2026-06-01T12:00:00.000Z'

const clock = stopClock(START)

const model = await use(startModelServer())
const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl }, { clock }))
const scheduler: Scheduler = createScheduler(server.service.deps)
const { ann, ben, admin, eve } = await server.people('ann', 'ben', 'admin', 'eve')
afterAll(() => scheduler.stop())

type Body = Record<string, any>
type Options = { token?: string; key?: string }
const call = callerAt(server, ann)
const createAgent = async (fields: Body = {}, who = ann): Promise<string> =>
  (await ok(call('POST', '/agents', { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }, who))).id
const agentId: string = await createAgent()
const createSpace = async (fields: Body = {}, who = ann): Promise<string> =>
  (await ok(call('POST', '/spaces', { name: 'S', ...fields }, who))).id
const create = async (fields: Body = {}, who = ann) =>
  (await ok(call('POST', '/missions', { title: 'Watch', goal: 'Look around', agentId, ...fields }, who))).mission
const get = async (id: string, who = ann) => (await ok(call('GET', `/missions/${id}`, undefined, who))).mission
const patch = (id: string, fields: Body, who = ann) => call('PATCH', `/missions/${id}`, fields, who)
const patched = async (id: string, fields: Body, who = ann) => (await ok(patch(id, fields, who))).mission
const act = (id: string, verb: 'run' | 'pause' | 'resume', options?: Options) =>
  call('POST', `/missions/${id}/${verb}`, undefined, options)
const run = async (id: string, who = ann) => ok(act(id, 'run', who))
const runsOf = async (id: string, query = '') => ok(call('GET', `/missions/${id}/runs${query}`))

/** Waits until nothing is pending or running. */
const idle = () =>
  expect
    .poll(() => server.service.deps.db.execution.count({ where: { status: { in: ['pending', 'running'] } } }), {
      interval: 10,
    })
    .toBe(0)
const tick = async () => {
  // The first look may be one that had started before, without the new time.
  await scheduler.tick()
  await scheduler.tick()
  await idle()
}

/** The next run stays active until the test releases it. */
function hold(): () => void {
  const { promise, resolve } = Promise.withResolvers<void>()
  model.script({ tokens: [promise, 'Done.'] })
  return resolve
}

describe('POST /missions', () => {
  it('answers the new mission, with the given fields and defaults for the rest', async () => {
    const body = await ok(call('POST', '/missions', { title: 'Watch', goal: 'Look around', agentId }))
    const { id: spaceId } = await server.service.deps.db.space.findFirstOrThrow({
      where: { organizationId: ann.organizationId, isDefault: true },
    })
    const at = clock.now().toISOString()
    const mission = {
      id: expect.stringMatching(/^\w{22}$/),
      title: 'Watch',
      goal: 'Look around',
      agentId,
      agentType: null,
      spaceId,
      icon: null,
      visibility: 'organization',
      maxTurns: null,
      output: null,
      organizationId: ann.organizationId,
      userId: ann.userId,
      tokenId: expect.any(String),
      status: 'pending',
      lastStatus: null,
      lastError: null,
      lastExecutionId: null,
      failureCount: 0,
      skippedCount: 0,
      schedule: {
        type: 'none',
        value: null,
        timezone: 'UTC',
        overlap: 'skip',
        catchUp: 'last',
        lastRun: null,
        nextRun: null,
        runCount: 0,
        maxRuns: null,
        backoffSeconds: null,
      },
      createdAt: at,
      updatedAt: at,
    }
    expect(body).toEqual({
      success: true,
      id: body.mission.id,
      title: 'Watch',
      status: 'pending',
      schedule: mission.schedule,
      mission,
    })
    expect(await get(body.id)).toEqual(body.mission)
  })

  it('stores every field, and treats null as the default of an optional field', async () => {
    const spaceId = await createSpace()
    const schedule = {
      type: 'cron',
      value: '0 9 * * 1-5',
      timezone: 'Europe/Berlin',
      overlap: 'queue',
      catchUp: 'skip',
    }
    const full = { spaceId, icon: '🛰️', visibility: 'private', maxTurns: 7, agentType: 'watcher' }
    expect(await create({ ...full, schedule })).toMatchObject({
      ...full,
      schedule: { ...schedule, nextRun: '2026-06-02T07:00:00.000Z' },
    })
    const none = { spaceId: null, icon: null, maxTurns: null, agentType: null, schedule: null, visibility: null }
    const defaults = { icon: null, maxTurns: null, visibility: 'organization', schedule: { type: 'none' } }
    expect(await create(none)).toMatchObject(defaults)
    const nulls = { type: 'none', value: null, timezone: null, overlap: null, catchUp: null }
    expect((await create({ schedule: nulls })).schedule).toMatchObject({
      timezone: 'UTC',
      overlap: 'skip',
      catchUp: 'last',
    })
  })

  it('accepts the agent as characterId too, and agentId before it', async () => {
    const other = await createAgent()
    expect((await create({ agentId: undefined, characterId: other })).agentId).toBe(other)
    expect((await create({ agentId, characterId: other })).agentId).toBe(agentId)
    expect((await patched((await create()).id, { characterId: other })).agentId).toBe(other)
  })

  it('ignores read-only fields of the body', async () => {
    const own = {
      id: 'mine',
      organizationId: eve.organizationId,
      userId: eve.userId,
      status: 'running',
      pauseReason: 'x',
    }
    const counts = { type: 'none', runCount: 7, lastRun: START, nextRun: START }
    const mission = await create({ ...own, runCount: 7, schedule: counts })
    expect(mission).toMatchObject({ userId: ann.userId, organizationId: ann.organizationId, status: 'pending' })
    expect(mission.pauseReason).toBeUndefined()
    expect(mission.schedule).toMatchObject({ runCount: 0, lastRun: null, nextRun: null })
  })

  it('is for agents and spaces that the caller can use', async () => {
    const secret = await createAgent({ visibility: 'private' })
    const hidden = await createSpace({ visibility: 'private' })
    const foreign = await createAgent({ visibility: 'public' }, eve)
    const shy = await createAgent({}, eve)
    const base = { title: 'x', goal: 'x' }
    for (const id of [secret, shy, 'x', 'x'.repeat(22)]) {
      expectError(await call('POST', '/missions', { ...base, agentId: id }, ben), 404, 'Agent not found')
    }
    for (const spaceId of [hidden, 'x', '']) {
      expectError(await call('POST', '/missions', { ...base, agentId, spaceId }, ben), 404, 'Space not found')
    }
    expect((await create({ agentId: secret, spaceId: hidden })).agentId).toBe(secret)
    expect((await create({ agentId: foreign }, ben)).agentId).toBe(foreign)
  })

  const cron = (value: unknown, rest: Body = {}) => ({ schedule: { type: 'cron', value, ...rest } })
  const VISIBILITY = 'Invalid visibility value. Must be: private, organization, or public'
  type Bad = [message: string | RegExp, fields: Body]
  const bad: Bad[] = [
    [missing('title'), { title: undefined }],
    [missing('title'), { title: ' ' }],
    [missing('goal'), { goal: null }],
    [missing('agentId'), { agentId: undefined }],
    [missing('agentId'), { agentId: '' }],
    [missing('agentId'), { agentId: ' ' }],
    [missing('agentId'), { agentId: null }],
    [missing('characterId'), { agentId: undefined, characterId: '' }],
    [missing('schedule.type'), { schedule: { type: '' } }],
    [missing('schedule.type'), { schedule: { type: null } }],
    [invalid('title', 'string'), { title: 7 }],
    [invalid('title', 'at most 200 characters'), { title: 'x'.repeat(201) }],
    [invalid('goal', 'at most 100000 characters'), { goal: 'x'.repeat(100_001) }],
    [invalid('agentId', 'string'), { agentId: [] }],
    [VISIBILITY, { visibility: 'unlisted' }],
    [invalid('maxTurns', 'at least 1'), { maxTurns: 0 }],
    [invalid('maxTurns', 'at most 500'), { maxTurns: 501 }],
    [invalid('maxTurns', 'integer'), { maxTurns: 1.5 }],
    [invalid('maxTurns', 'number'), { maxTurns: '7' }],
    [invalid('schedule', 'object'), { schedule: '* * * * *' }],
    [missing('schedule.type'), { schedule: {} }],
    [invalid('schedule.type', 'one of: none, once, cron, continuous'), { schedule: { type: 'interval' } }],
    [invalid('schedule.overlap', 'one of: skip, queue'), cron('* * * * *', { overlap: 'allow' })],
    [invalid('schedule.catchUp', 'one of: last, skip'), cron('* * * * *', { catchUp: 'all' })],
    [invalid('schedule.value', 'string'), cron(5)],
    [invalid('schedule.value', 'a cron expression of five or six fields'), cron(undefined)],
    [invalid('schedule.value', 'a cron expression of five or six fields'), cron('@daily')],
    [invalid('schedule.value', 'a cron expression of five or six fields'), cron('0 0 0 1 1 * 2030')],
    [/^Invalid value for field: schedule\.value\. Expected a cron expression\. .*minute: 61/, cron('61 * * * *')],
    [invalid('schedule.value', 'a cron expression with at least one fire time'), cron('0 0 30 2 *')],
    [
      invalid('schedule.timezone', 'an IANA timezone, like Europe/Berlin'),
      cron('* * * * *', { timezone: 'Mars/Phobos' }),
    ],
    [invalid('schedule.timezone', 'an IANA timezone, like Europe/Berlin'), cron('* * * * *', { timezone: '+02:00' })],
    [invalid('schedule.value', 'an ISO 8601 date and time'), { schedule: { type: 'once', value: '2027-02-30T10:00' } }],
    [invalid('schedule.value', 'a date in the future'), { schedule: { type: 'once', value: '2020-01-01T10:00Z' } }],
    ...[
      { value: '9999-12-31T23:59-14:00' },
      { value: '9999-12-31T23:59', timezone: 'America/New_York' },
      { value: '9999-12-31T23:59:59.999-00:01' },
    ].map(
      (schedule): Bad => [
        invalid('schedule.value', 'a date in the years 1 to 9999 (UTC)'),
        { schedule: { type: 'once', ...schedule } },
      ],
    ),
    [invalid('schedule.value', 'seconds from 1 to 2592000'), { schedule: { type: 'continuous', value: '0' } }],
  ]
  it.each(onEachApi(bad))('%s: 400 %s', async (api, message, fields) => {
    const body = JSON.parse(JSON.stringify({ title: 'x', goal: 'x', agentId, ...fields }))
    const before = await server.service.deps.db.mission.count()
    const answer = await apis[api](server, 'missions.create', body, { token: ann.token })
    expectError(answer, 400, message instanceof RegExp ? expect.stringMatching(message) : message)
    expect(await server.service.deps.db.mission.count()).toBe(before)
  })

  it('accepts a time up to the last minute of the year 9999', async () => {
    const { id, schedule } = await create({ schedule: { type: 'once', value: '9999-12-31T23:59Z' } })
    expect(schedule.nextRun).toBe('9999-12-31T23:59:00.000Z')
    expect((await ok(call('GET', `/missions/${id}/next`))).next).toEqual([schedule.nextRun])
    expect((await ok(call('GET', '/missions'))).missions.map((mission: Body) => mission.id)).toContain(id)
  })

  it('makes one mission per Idempotency-Key', async () => {
    const body = { title: 'Once', goal: 'x', agentId }
    const first = await call('POST', '/missions', body, { key: 'create-1' })
    const again = await call('POST', '/missions', body, { key: 'create-1' })
    expect(again.body).toEqual(first.body)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    const other = await call('POST', '/missions', { ...body, title: 'Other' }, { key: 'create-1' })
    expectError(other, 422, 'Idempotency-Key was used with another request')
    expect(await server.service.deps.db.mission.count({ where: { title: 'Once' } })).toBe(1)
  })
})

it('a mission of a member whose membership a concurrent request ends is not created', async () => {
  const { deps } = server.service
  const { userId, token } = await server.member({ organization: 'Acme' })
  const actor = await deps.actors.of(credentialsOf(`Bearer ${token}`))
  const db = overrideMembers(deps.db, {
    $transaction: async (work: (tx: Tx) => Promise<unknown>) => {
      await deps.db.membership.deleteMany({ where: { userId } })
      return deps.db.$transaction(work)
    },
  }) as Db
  const input = CreateMission.parse({ title: 'Watch', goal: 'Look around', agentId })
  await expect(createMission(actor, { ...deps, db }, input)).rejects.toMatchObject({ status: 403 })
  expect(await deps.db.mission.count({ where: { userId } })).toBe(0)
})

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

describe('POST /missions/{id}/run', () => {
  it('runs it now, in its own titled chat, and completes it then', async () => {
    const mission = await create({ title: 'Rounds', goal: 'Do your rounds' })
    const release = hold()
    const answer = await run(mission.id)
    expect(answer).toEqual({
      success: true,
      executionId: expect.stringMatching(/^exec-/),
      chatId: expect.any(String),
      sessionId: expect.any(String),
      status: 'running',
      mission: {
        ...mission,
        status: 'running',
        updatedAt: expect.any(String),
        schedule: { ...mission.schedule, runCount: 1, lastRun: clock.now().toISOString() },
      },
    })
    release()
    await idle()
    expect((await get(mission.id)).status).toBe('completed')
    const { execution } = await ok(call('GET', `/executions/${answer.executionId}`))
    expect(execution).toMatchObject({
      status: 'completed',
      message: 'Do your rounds',
      missionId: mission.id,
      agentId,
      userId: ann.userId,
      chatId: answer.chatId,
    })
    const { chat } = await ok(call('GET', `/chats/${answer.chatId}`))
    expect(chat).toMatchObject({ title: 'Rounds', missionTitle: 'Rounds', runNumber: 1, status: 'done' })
  })

  it('runs it again, each in another chat, and the runs are listed newest first', async () => {
    const { id } = await create({ title: 'Thrice' })
    const started = []
    for (let count = 0; count < 3; count++) {
      clock.advance(1000)
      started.unshift(await run(id))
      await idle()
    }
    expect(new Set(started.map(({ chatId }) => chatId)).size).toBe(3)
    const { runs, nextCursor, total } = await runsOf(id)
    expect([nextCursor, total]).toEqual([null, undefined])
    expect(runs.map(({ id: run, chatId, missionId }: Body) => [run, chatId, missionId])).toEqual(
      started.map(({ executionId, chatId }) => [executionId, chatId, id]),
    )
    expect(runs[0]).not.toHaveProperty('result')
    const first = await runsOf(id, '?limit=2&count=true')
    const second = await runsOf(id, `?limit=2&cursor=${first.nextCursor}`)
    expect([...first.runs, ...second.runs]).toEqual(runs)
    expect([first.total, second.nextCursor]).toEqual([3, null])
    const { chats } = await ok(call('GET', '/chats?mission=true'))
    const own = chats.filter(({ missionTitle }: Body) => missionTitle === 'Thrice')
    expect(own.map(({ runNumber }: Body) => runNumber)).toEqual([3, 2, 1])
    const others = (await ok(call('GET', '/chats?mission=false'))).chats
    const all = (await ok(call('GET', '/chats'))).chats
    expect(others.some(({ missionTitle }: Body) => missionTitle)).toBe(false)
    expect(others.length).toBe(all.length - chats.length)
    expect((await get(id)).schedule.runCount).toBe(3)
  })

  it('leaves it pending after a failed run, which can be read', async () => {
    const { id } = await create()
    model.script({ error: { status: 500 } })
    const { executionId } = await run(id)
    await idle()
    expect(await get(id)).toMatchObject({ status: 'pending', schedule: { runCount: 1 } })
    expect((await runsOf(id)).runs[0]).toMatchObject({ id: executionId, status: 'failed' })
    await run(id)
    await idle()
    expect(await get(id)).toMatchObject({ status: 'completed', schedule: { runCount: 2 } })
  })

  it('counts a failure by hand, and a success resets the count', async () => {
    const { id } = await create()
    const ends = []
    for (const status of ['failed', 'failed', 'completed'] as const) {
      if (status === 'failed') model.script({ error: { status: 400 } })
      const { executionId } = await run(id)
      await idle()
      const { lastExecutionId, lastStatus, lastError, failureCount } = await get(id)
      expect([lastExecutionId, lastStatus]).toEqual([executionId, status])
      ends.push([failureCount, lastError === null])
    }
    expect(ends).toEqual([
      [1, false],
      [2, false],
      [0, true],
    ])
  })

  it('has the first 1,000 characters of the error of its run', async () => {
    const { output, answer } = misfit()
    const { id } = await create({ output })
    for (const tokens of [[answer], [answer]]) model.script({ tokens })
    const { executionId } = await run(id)
    await idle()
    const { execution } = await ok(call('GET', `/executions/${executionId}`))
    expect(execution.error.length).toBeGreaterThan(1000)
    expect((await get(id)).lastError).toBe(execution.error.slice(0, 1000))
  })

  it('POST /missions/{id}/run that runs again is left alone by the end of the run before', async () => {
    const { id } = await create()
    const finishFirst = hold()
    const asked = model.request(model.requests.length)
    const first = await run(id)
    await asked
    await patched(id, { status: 'completed' })
    const finishSecond = hold()
    await run(id)
    finishFirst()
    const statusOf = async () => (await ok(call('GET', `/executions/${first.executionId}`))).execution.status
    await expect.poll(statusOf).toBe('completed')
    expect(await get(id)).toMatchObject({ status: 'running', lastExecutionId: null })
    finishSecond()
    await idle()
  })

  it('counts a run that ends while its mission is paused', async () => {
    const { id } = await create()
    const { promise, resolve } = Promise.withResolvers<void>()
    model.script({ tokens: [promise], end: 'drop' })
    await run(id)
    await ok(act(id, 'pause'))
    resolve()
    await idle()
    expect(await get(id)).toMatchObject({ status: 'paused', lastStatus: 'failed', failureCount: 1 })
  })

  it('shows the error of a run only to callers who can read the run', async () => {
    const secret = await createAgent({ visibility: 'private' }, ben)
    const { id } = await create()
    model.script({ error: { status: 400 } })
    const { executionId } = await run(id)
    await idle()
    expect((await get(id, ben)).lastError).toEqual(expect.any(String))
    // The run belongs to an agent that other users can no longer reach.
    const { db } = server.service.deps
    await db.execution.update({ where: { id: executionId }, data: { agentId: secret } })
    expect(await get(id)).toMatchObject({ lastStatus: 'failed', lastError: null, failureCount: 1 })
    const graphql = await request(server, 'POST', '/graphql', {
      token: ann.token,
      body: { query: `{ mission(id: "${id}") { lastError lastStatus failureCount } }` },
    })
    expect(graphql.body.data.mission).toEqual({ lastError: null, lastStatus: 'failed', failureCount: 1 })
  })

  it('completes it after maxRuns runs, and it continues when more are allowed', async () => {
    const schedule = { type: 'cron', value: '0 * * * *', maxRuns: 2 }
    const { id } = await create({ schedule })
    await run(id)
    await idle()
    expect(await get(id)).toMatchObject({ status: 'pending', schedule: { maxRuns: 2, nextRun: expect.any(String) } })
    expect((await ok(call('GET', `/missions/${id}/next`))).next).toHaveLength(1)
    model.script({ error: { status: 400 } })
    await run(id)
    await idle()
    const over = await get(id)
    expect(over).toMatchObject({ status: 'completed', lastStatus: 'failed', schedule: { runCount: 2, nextRun: null } })
    expect(await patched(id, { schedule: { maxRuns: 3 } })).toMatchObject({
      status: 'pending',
      schedule: { maxRuns: 3, nextRun: expect.any(String) },
    })
    expect(await patched(id, { schedule: { maxRuns: 1 } })).toMatchObject({
      status: 'completed',
      schedule: { nextRun: null },
    })
    await ok(call('DELETE', `/missions/${id}`))
  })

  it('leaves the next fire time of a scheduled one unchanged', async () => {
    clock.set(START)
    const { id } = await create({ schedule: { type: 'cron', value: '0 * * * *' } })
    const once = await create({ schedule: { type: 'once', value: '2026-06-01T13:00' } })
    for (const mission of [id, once.id]) {
      await run(mission)
      await idle()
      expect(await get(mission)).toMatchObject({
        status: 'pending',
        schedule: { runCount: 1, lastRun: START, nextRun: '2026-06-01T13:00:00.000Z' },
      })
    }
    clock.advance(60 * MINUTE)
    await tick()
    expect(await get(once.id)).toMatchObject({ status: 'completed', schedule: { runCount: 2, nextRun: null } })
    expect(await get(id)).toMatchObject({ status: 'pending', schedule: { runCount: 2 } })
    await ok(call('DELETE', `/missions/${id}`))
  })

  it('succeeds for one of ten concurrent requests', async () => {
    const { id } = await create()
    const release = hold()
    const answers = await together(
      server,
      'Mission',
      Array.from({ length: 10 }, () => () => act(id, 'run')),
    )
    const tally = answers.map(({ status }) => status).sort()
    expect(tally).toEqual([200, ...Array(9).fill(409)])
    for (const answer of answers) if (answer.status === 409) expectError(answer, 409, 'Mission is already running')
    expectError(await act(id, 'run'), 409, 'Mission is already running')
    release()
    await idle()
    expect((await runsOf(id)).runs).toHaveLength(1)
  })

  it('runs once per Idempotency-Key, and repeats the answer afterwards', async () => {
    const { id } = await create()
    const release = hold()
    const calls = Array.from({ length: 5 }, () => () => act(id, 'run', { key: `run-${id}` }))
    const answers = await together(server, 'Mission', calls)
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
    expect(answers.filter(({ headers }) => headers.get('idempotent-replayed')).length).toBe(4)
    release()
    await idle()
    const late = await act(id, 'run', { key: `run-${id}` })
    for (const { body } of [...answers, late]) expect(body).toEqual(answers[0]?.body)
    expect((await runsOf(id)).runs).toHaveLength(1)
    // A refusal is not stored.
    await act(id, 'run')
    await idle()
    expect((await get(id)).schedule.runCount).toBe(2)
  })

  it('stores no refusal under the Idempotency-Key', async () => {
    const { id } = await create()
    await act(id, 'pause')
    expectError(await act(id, 'run', { key: `again-${id}` }), 409, 'Mission is paused')
    await act(id, 'resume')
    const answer = await act(id, 'run', { key: `again-${id}` })
    expect([answer.status, answer.headers.get('idempotent-replayed')]).toEqual([200, null])
    await idle()
  })

  it('asks the model at most maxTurns times, whatever the agent’s limit is', async () => {
    const eager = await createAgent({ maxTurns: 9 })
    for (const [maxTurns, expected] of [
      [2, 2],
      [1, 1],
      [null, 9],
    ] as const) {
      const { id } = await create({ agentId: eager, maxTurns })
      const before = model.requests.length
      const { fallback } = model
      model.fallback = { toolCalls: [{ id: 'c', name: 'again', input: {} }] }
      await run(id)
      await idle()
      model.fallback = fallback
      expect(model.requests.length - before).toBe(expected)
    }
  })
})

describe('POST /missions/{id}/pause and resume', () => {
  it('removes the fire times, and starts none until the resume', async () => {
    clock.set(START)
    const { id } = await create({ schedule: { type: 'cron', value: '0 * * * *' } })
    const paused = await ok(act(id, 'pause'))
    expect(paused).toEqual({ success: true, mission: expect.objectContaining({ status: 'paused' }) })
    expect(paused.mission.schedule.nextRun).toBeNull()
    expect((await ok(call('GET', `/missions/${id}/next`))).next).toEqual([])
    clock.advance(150 * MINUTE)
    await tick()
    expectError(await act(id, 'run'), 409, 'Mission is paused')
    const { mission } = await ok(act(id, 'resume'))
    expect(mission).toMatchObject({ status: 'pending', schedule: { runCount: 0, nextRun: '2026-06-01T15:00:00.000Z' } })
    expectError(await act(id, 'resume'), 409, 'Mission is not paused')
    await ok(call('DELETE', `/missions/${id}`))
  })

  it('lets an active run continue', async () => {
    const { id } = await create()
    const release = hold()
    const { executionId } = await run(id)
    await ok(act(id, 'pause'))
    release()
    await idle()
    expect((await ok(call('GET', `/executions/${executionId}`))).execution.status).toBe('completed')
    expect((await get(id)).status).toBe('paused')
  })

  it('changes nothing when repeated, also with an Idempotency-Key', async () => {
    const { id } = await create()
    const first = await act(id, 'pause', { key: `pause-${id}` })
    expect((await act(id, 'pause')).status).toBe(200)
    await ok(act(id, 'resume', { key: `resume-${id}` }))
    const again = await act(id, 'pause', { key: `pause-${id}` })
    expect(again.body).toEqual(first.body)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect((await get(id)).status).toBe('pending')
    expect((await act(id, 'resume', { key: `resume-${id}` })).headers.get('idempotent-replayed')).toBe('true')
  })

  it('is refused for a completed mission', async () => {
    const { id } = await create()
    await run(id)
    await idle()
    expectError(await act(id, 'pause'), 409, 'Mission is completed')
  })
})

describe('GET /missions/{id}/next', () => {
  const next = async (id: string, query = '') => (await ok(call('GET', `/missions/${id}/next${query}`))).next
  beforeAll(() => clock.set(START))

  it('lists the next fire times, ten by default', async () => {
    const { id } = await create({ schedule: { type: 'cron', value: '0 9 * * 1', timezone: 'America/New_York' } })
    expect(await next(id, '?count=3')).toEqual([
      '2026-06-01T13:00:00.000Z',
      '2026-06-08T13:00:00.000Z',
      '2026-06-15T13:00:00.000Z',
    ])
    const ten = await next(id)
    expect(ten).toHaveLength(10)
    expect(ten[0]).toBe((await get(id)).schedule.nextRun)
    expect(await next(id, '?count=100')).toHaveLength(100)
  })

  it('lists fewer for one that runs once, when its last run ends, or by hand', async () => {
    const once = await create({ schedule: { type: 'once', value: '2026-06-01T13:00' } })
    expect(await next(once.id)).toEqual(['2026-06-01T13:00:00.000Z'])
    expect(await next((await create()).id)).toEqual([])
    const { id } = await create({ schedule: { type: 'continuous', value: '600' } })
    await tick()
    expect(await next(id)).toEqual(['2026-06-01T12:10:00.000Z'])
    await ok(call('DELETE', `/missions/${id}`))
  })

  it.each(['0', '101', '-1', 'x', '1.5'])('GET /missions/{id}/next with a count of %s gives a 400', async (count) => {
    const { id } = await create()
    const { status, body } = await call('GET', `/missions/${id}/next?count=${count}`)
    expect(status).toBe(400)
    expect(body.message).toMatch(/^Invalid value for field: count\. /)
  })
})

describe('POST /missions/preview', () => {
  beforeAll(() => clock.set(START))

  it.each([
    [{ type: 'cron', value: '0 9 * * *', maxRuns: 2 }, ['2026-06-02T09:00:00.000Z', '2026-06-03T09:00:00.000Z']],
    [{ type: 'once', value: '2026-06-01T13:00' }, ['2026-06-01T13:00:00.000Z']],
    [{ type: 'continuous', value: '600' }, [START]],
    [{ type: 'none' }, []],
  ])('lists the first fire times of %j on all three APIs', async (schedule, next) => {
    expect(await ok(call('POST', '/missions/preview', { schedule }))).toEqual({ success: true, next })
    const { body } = await request(server, 'POST', '/graphql', {
      token: ann.token,
      body: { query: 'query ($s: ScheduleInput!) { missionPreview(schedule: $s) }', variables: { s: schedule } },
    })
    expect(body).toEqual({ data: { missionPreview: next } })
    const input = encodeURIComponent(JSON.stringify({ schedule }))
    const trpc = await request(server, 'GET', `/trpc/missions.preview?input=${input}`, { token: ann.token })
    expect(trpc.body.result.data.next).toEqual(next)
  })

  it('lists ten at most, and refuses an invalid schedule', async () => {
    const preview = (schedule: object) => call('POST', '/missions/preview', { schedule })
    expect((await ok(preview({ type: 'cron', value: '* * * * *' }))).next).toHaveLength(10)
    const { status, body } = await preview({ type: 'cron', value: 'x' })
    expect([status, body.message]).toEqual([400, expect.stringMatching(/^Invalid value for field: schedule.value\. /)])
  })
})

describe('DELETE /missions/{id}', () => {
  it('removes it everywhere and cancels its run, while runs and chats stay', async () => {
    const { id } = await create({ title: 'Gone', schedule: { type: 'cron', value: '* * * * *' } })
    hold()
    const { executionId, chatId } = await run(id)
    expect((await call('DELETE', `/missions/${id}`)).body).toEqual({
      success: true,
      message: 'Mission deleted successfully',
    })
    for (const answer of [
      await call('GET', `/missions/${id}`),
      await call('DELETE', `/missions/${id}`),
      await patch(id, { title: 'x' }),
      await act(id, 'run'),
      await act(id, 'pause'),
      await act(id, 'resume'),
      await call('GET', `/missions/${id}/runs`),
      await call('GET', `/missions/${id}/next`),
    ]) {
      expectError(answer, 404, NOT_FOUND)
    }
    expect((await ok(call('GET', `/executions/${executionId}`))).execution).toMatchObject({
      status: 'cancelled',
      missionId: id,
    })
    expect((await ok(call('GET', `/chats/${chatId}`))).chat.title).toBe('Gone')
    clock.advance(10 * MINUTE)
    await tick()
    expect(await server.service.deps.db.execution.count({ where: { missionId: id } })).toBe(1)
  })

  const others: [string, (id: string) => Promise<Answer>][] = [
    ['run', (id) => act(id, 'run')],
    ['paused', (id) => act(id, 'pause')],
    ['resumed', (id) => act(id, 'resume')],
    ['changed and run', (id) => patch(id, { title: 'No', status: 'running' })],
    ['changed and paused', (id) => patch(id, { title: 'No', status: 'paused' })],
  ]
  it.each(others)(
    'DELETE /missions/{id} while it is %s succeeds, and a second request gives 404',
    async (what, other) => {
      const { id } = await create()
      if (what === 'resumed') await act(id, 'pause')
      const [deleted, late] = await together(server, 'Mission', [
        () => call('DELETE', `/missions/${id}`),
        () => other(id),
      ])
      expect(deleted?.status).toBe(200)
      // On PostgreSQL either may be first.
      if (!onPostgres || late?.status !== 200) expectError(late!, 404, NOT_FOUND)
      await idle()
      expectError(await call('GET', `/missions/${id}`), 404, NOT_FOUND)
    },
  )
})

describe('GET /missions', () => {
  it('lists newest first, by status, page by page, with the total', async () => {
    const zoe = await server.member({ organization: 'Zoo' })
    const zebra = await createAgent({}, zoe)
    const ids: string[] = []
    for (let count = 0; count < 4; count++) {
      clock.advance(1000)
      ids.unshift((await create({ agentId: zebra }, zoe)).id)
    }
    await act(ids[1]!, 'pause', zoe)
    const list = async (query: string): Promise<Body> => {
      const { missions, ...rest } = await ok(call('GET', `/missions${query}`, undefined, zoe))
      return { ids: missions.map(({ id }: Body) => id), ...rest }
    }
    expect(await list('')).toEqual({ success: true, ids, count: 4, nextCursor: null })
    expect(await list('?status=paused')).toMatchObject({ ids: [ids[1]], count: 1 })
    const first = await list('?limit=3')
    expect(first).toMatchObject({ ids: ids.slice(0, 3), count: 4 })
    expect(await list(`?limit=3&cursor=${first.nextCursor}`)).toMatchObject({
      ids: ids.slice(3),
      count: 4,
      nextCursor: null,
    })
    const { body, status } = await call('GET', '/missions?status=done', undefined, zoe)
    expect([status, body.message]).toEqual([
      400,
      'Invalid status. Must be: pending, running, completed, paused, failed',
    ])
  })

  it('searches titles in any case, beside a status, with a count', async () => {
    const zoe = await server.member({ organization: 'Zoo of searches' })
    const zebra = await createAgent({}, zoe)
    const letter = await create({ agentId: zebra, title: 'ÄRGER 50%', goal: 'digest' }, zoe)
    const digest = await create({ agentId: zebra, title: 'Digest' }, zoe)
    const found = async (search: string, filter = '') => {
      const asked = `/missions?search=${encodeURIComponent(search)}${filter}`
      const { missions, count } = await ok(call('GET', asked, undefined, zoe))
      const ids = missions.map(({ id }: Body) => id)
      expect(count).toBe(ids.length)
      if (ids.length) expect((await ok(call('GET', `${asked}&limit=1&cursor=`, undefined, zoe))).count).toBe(count)
      return ids
    }
    for (const search of ['ärger', ' 50% ']) expect(await found(search)).toEqual([letter.id])
    for (const search of ['5_', 'evening']) expect(await found(search)).toEqual([])
    expect(await found('DIGEST', '&status=pending')).toEqual([digest.id])
    expect(await found('DIGEST', '&status=running')).toEqual([])
    await ok(call('PATCH', `/missions/${digest.id}`, { title: 'Evening news' }, zoe))
    expect(await found('digest')).toEqual([])
    expect(await found('EVENING')).toEqual([digest.id])
    const query = '{ missions(search: "Evening", first: 1) { nodes { id } totalCount } }'
    const { data } = await graphql(server, query, {}, zoe)
    expect(data.missions).toEqual({ nodes: [{ id: digest.id }], totalCount: 1 })
  })
})

describe('access to a mission', () => {
  type Kind = 'organization' | 'public' | 'private' | 'in a private space' | 'of a private agent'
  const make: Record<Kind, () => Promise<Body>> = {
    organization: () => create(),
    public: () => create({ visibility: 'public' }),
    private: () => create({ visibility: 'private' }),
    'in a private space': async () => create({ spaceId: await createSpace({ visibility: 'private' }) }),
    'of a private agent': async () => create({ agentId: await createAgent({ visibility: 'private' }) }),
  }
  type Row = [kind: Kind, ben: number, admin: number]
  const rows: Row[] = [
    ['organization', 403, 200],
    ['public', 403, 200],
    ['private', 404, 404],
    ['in a private space', 404, 200],
    ['of a private agent', 404, 404],
  ]
  it.each(rows)('%s: gives a colleague %i, an admin %i, and a stranger 404', async (kind, colleague, boss) => {
    const { id } = await make[kind]()
    const expected: [Member, number][] = [
      [eve, 404],
      [ben, colleague],
      [admin, boss],
      [ann, 200],
    ]
    for (const [who, status] of expected) {
      const reads = status === 404 ? 404 : 200
      for (const path of ['', '/runs', '/next']) {
        expect((await call('GET', `/missions/${id}${path}`, undefined, who)).status).toBe(reads)
      }
      const { missions } = await ok(call('GET', '/missions', undefined, who))
      expect(missions.some((mission: Body) => mission.id === id)).toBe(reads === 200)
      const writes = [
        await patch(id, { icon: 'x' }, who),
        await act(id, 'pause', who),
        await act(id, 'resume', { ...who, key: `resume-${id}-${who.userId}` }),
        await act(id, 'run', { ...who, key: `run-${id}-${who.userId}` }),
      ]
      await idle()
      const removed = status === 200 ? null : await call('DELETE', `/missions/${id}`, undefined, who)
      for (const answer of [...writes, ...(removed ? [removed] : [])]) {
        expect(answer.status, JSON.stringify(answer.body)).toBe(status)
        if (status !== 200) expectError(answer, status, status === 403 ? FORBIDDEN : NOT_FOUND)
      }
      if (status === 200) await server.service.deps.db.mission.update({ where: { id }, data: { status: 'pending' } })
    }
  })

  it('gives the same 404 for hidden and unknown missions', async () => {
    const { id } = await make.private()
    for (const api of APIS) {
      const answers = [id, newId()].map(
        async (id) => (await apis[api](server, 'missions.get', { id }, { token: ben.token })).body,
      )
      const [hidden, none] = (await Promise.all(answers)).map(({ requestId, ...body }) => body)
      expect(hidden).toEqual(none)
    }
  })

  describe('limits its runs to the scopes of the token that last wrote it', () => {
    const narrow = ['missions:write', 'tasks:read']
    const toolCalls = [{ id: 'c', name: 'create_task', input: { title: 'Made by a mission' } }]
    const schedule = { type: 'cron', value: '* * * * *' }
    /** Members with restricted and full tokens, an agent, and the tools of its mission's next run. */
    const setUp = async () => {
      const few = await server.member({ organization: 'Acme', role: 'admin', scopes: narrow })
      const agentId = await createAgent({ allowedTools: ['create_task'] })
      const madeBy = async (begin: () => Promise<unknown>) => {
        const where = { createdBy: agentId }
        const before = await server.service.deps.db.task.count({ where })
        model.script({ toolCalls }, { tokens: 'Done.' })
        await begin()
        await idle()
        return (await server.service.deps.db.task.count({ where })) - before
      }
      return { few, agentId, madeBy }
    }
    const fire = async () => {
      clock.advance(MINUTE)
      await tick()
    }

    it('a mission has at most the scopes of the token that last wrote it, whoever starts it', async () => {
      const { few, agentId, madeBy } = await setUp()
      const { id, ...visible } = await create({ agentId, schedule }, few)
      expect(Object.keys(visible)).not.toContain('scopes')
      expect(await madeBy(() => run(id, admin))).toBe(0)
      expect(await madeBy(() => patched(id, { status: 'running' }, admin))).toBe(0)
      expect(await madeBy(fire)).toBe(0)
      await act(id, 'pause', few)
      const wide = await create({ agentId, schedule })
      // The run acts as the admin on another user's goal, within the scopes of the admin's token.
      expect(await madeBy(() => run(wide.id, few))).toBe(0)
      expect(await madeBy(fire)).toBe(1)
      await act(wide.id, 'pause')
    })

    it('a PATCH by another token widens the scopes of a mission only if it is the owner’s', async () => {
      const { few, agentId, madeBy } = await setUp()
      const { id } = await create({ agentId, schedule })
      const same = { schedule, title: (await get(id)).title, agentId }
      expect((await patched(id, same, few)).updatedAt).toBe((await get(id)).createdAt)
      expect(await madeBy(fire)).toBe(1)
      await patched(id, { title: 'Narrow' }, few)
      expect(await madeBy(fire)).toBe(0)
      expect(await madeBy(() => patched(id, { title: 'By an admin', status: 'running' }, admin))).toBe(0)
      expect(await madeBy(fire)).toBe(0)
      expect(await madeBy(() => patched(id, { title: 'Wide', status: 'running' }))).toBe(1)
      expect(await madeBy(() => patched(id, { title: 'Narrow', status: 'running' }, few))).toBe(0)
      await patched(id, { status: 'paused' }, admin)
      await patched(id, { status: 'pending' }, admin)
      expect(await madeBy(fire)).toBe(0)
      await act(id, 'pause')
    })
  })

  it('needs the scope of a token', async () => {
    const reader = await server.member({ organization: 'Acme', scopes: ['missions:read'] })
    const other = await server.member({ organization: 'Acme', scopes: ['agents:write'] })
    const { id } = await create()
    expect((await call('GET', `/missions/${id}`, undefined, reader)).status).toBe(200)
    for (const [method, path] of [
      ['POST', '/missions'],
      ['PATCH', `/missions/${id}`],
      ['DELETE', `/missions/${id}`],
      ['POST', `/missions/${id}/run`],
      ['POST', `/missions/${id}/pause`],
      ['POST', `/missions/${id}/resume`],
    ] as const) {
      expectError(await call(method, path, undefined, reader), 403, FORBIDDEN)
    }
    for (const path of ['', `/${id}`, `/${id}/runs`, `/${id}/next`]) {
      expectError(await call('GET', `/missions${path}`, undefined, other), 403, FORBIDDEN)
    }
  })
})

describe('a mission that can no longer run pauses itself with a reason', () => {
  const schedule = { type: 'cron', value: '* * * * *' }
  const expectPaused = async (id: string, pauseReason: string, who = ann) => {
    expect(await get(id, who)).toMatchObject({
      status: 'paused',
      pauseReason,
      schedule: { nextRun: null, runCount: 0 },
    })
  }
  const fire = async () => {
    clock.advance(MINUTE)
    await tick()
  }

  it('a mission pauses itself with a reason at once when its agent was archived', async () => {
    const doomed = await createAgent()
    const { id } = await create({ agentId: doomed, schedule })
    const byHand = await create({ agentId: doomed })
    const elsewhere = await create({ schedule })
    await ok(call('DELETE', `/agents/${doomed}`))
    for (const mission of [id, byHand.id]) await expectPaused(mission, 'The agent was archived')
    await fire()
    await expectPaused(id, 'The agent was archived')
    expectError(await act(id, 'run'), 409, 'Mission is paused')
    expect(await get(elsewhere.id)).toMatchObject({ status: 'pending', schedule: { runCount: 1 } })
    // Resuming fails until it has another agent.
    await ok(act(id, 'resume'))
    expectError(await act(id, 'run'), 404, 'Agent not found')
    await fire()
    await expectPaused(id, 'Agent not found')
    await patched(id, { agentId })
    const { mission } = await ok(act(id, 'resume'))
    expect(mission.pauseReason).toBeUndefined()
    await fire()
    expect((await get(id)).schedule.runCount).toBe(1)
    for (const mission of [id, elsewhere.id]) await ok(call('DELETE', `/missions/${mission}`))
  })

  it('a mission pauses itself with a reason when its agent became private to another user', async () => {
    const shared = await createAgent({}, ben)
    const { id } = await create({ agentId: shared, schedule })
    await ok(call('PATCH', `/agents/${shared}`, { visibility: 'private' }, ben))
    await fire()
    const row = await server.service.deps.db.mission.findUniqueOrThrow({ where: { id } })
    expect(row).toMatchObject({ status: 'paused', pauseReason: 'Agent not found', runCount: 0, nextRunAt: null })
  })

  it('a mission pauses itself with a reason when its space was archived or closed to its owner', async () => {
    const [gone, closed] = [await createSpace({}, ben), await createSpace({}, ben)]
    const missions = [await create({ spaceId: gone, schedule }), await create({ spaceId: closed, schedule })]
    await ok(call('DELETE', `/spaces/${gone}`, undefined, ben))
    await ok(call('PATCH', `/spaces/${closed}`, { visibility: 'private' }, ben))
    await fire()
    for (const { id } of missions) {
      const row = await server.service.deps.db.mission.findUniqueOrThrow({ where: { id } })
      expect(row).toMatchObject({ status: 'paused', pauseReason: 'Space not found', runCount: 0 })
    }
  })

  it('a mission pauses itself with a reason when its owner lost the membership', async () => {
    const { db, settings } = server.service.deps
    const [dan, fay] = [await server.member({ organization: 'Acme' }), await server.member({ organization: 'Acme' })]
    const missions = [await create({ schedule }, dan), await create({ schedule }, fay)] as const
    const { id: over } = await patched((await create({}, dan)).id, { status: 'completed' }, dan)
    await db.$transaction((tx) => removeMember(tx, settings, dan.organizationId, dan.userId, clock.now()))
    await expectPaused(missions[0].id, 'The owner is no longer a member', admin)
    expect(await get(over)).toMatchObject({ status: 'completed' })
    await db.membership.deleteMany({
      where: { organizationId: fay.organizationId, userId: fay.userId },
    })
    await fire()
    await expectPaused(missions[1].id, 'The owner is no longer a member', admin)
  })
})

it.runIf(onPostgres)(
  'a run by hand and the end of one take the counting lock before they change capacity',
  async () => {
    await using limited = await startServer({ MAX_RUNNING_PER_ORGANIZATION: '5' })
    const post = async (path: string, body?: object) =>
      (await request(limited, 'POST', `/api/v1/${path}`, body && { body })).body
    const agent = await post('agents', { name: 'A', systemPrompt: 'x' })
    const { id } = await post('missions', { title: 'T', goal: 'G', agentId: agent.id })
    const { db } = limited.service.deps
    const order = async () => {
      limited.queries.length = 0
      await post(`missions/${id}/run`)
      await expect.poll(async () => (await db.mission.findUniqueOrThrow({ where: { id } })).status).toBe('completed')
      const LOCK = /"lockMissionTotals"|^UPDATE "Organization"/
      return limited.queries.flatMap((sql) => LOCK.exec(sql)?.[0] ?? [])
    }
    const [counts, room] = ['"lockMissionTotals"', 'UPDATE "Organization"']
    expect(await order()).toEqual([room, counts, room])
    expect(await order()).toEqual([counts, room, counts, room])
  },
)
