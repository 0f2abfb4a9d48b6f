import { beforeAll, describe, expect, it } from 'vitest'
import type { Db, Tx } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { newId } from '../../src/lib/id.ts'
import { CreateMission } from '../../src/missions/schema.ts'
import { create as createMission } from '../../src/missions/service.ts'
import { graphql } from '../graphql/support.ts'
import { APIS, apis, expectError, invalid, missing, ok, onEachApi } from '../support/api.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { type Answer, credentialsOf, request } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { together } from '../support/together.ts'
import { type Body, FORBIDDEN, MINUTE, NOT_FOUND, START, startMissionLab } from './mission-lab.ts'

const {
  clock,
  model,
  server,
  ann,
  ben,
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
  idle,
  tick,
  hold,
} = await startMissionLab()

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
