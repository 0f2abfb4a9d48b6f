import { describe, expect, it } from 'vitest'
import { removeMember } from '../../src/organizations/service.ts'
import { expectError, ok } from '../support/api.ts'
import { misfit } from '../support/model-replies.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { together } from '../support/together.ts'
import { type Body, MINUTE, START, startMissionLab } from './mission-lab.ts'

const {
  clock,
  model,
  server,
  ann,
  ben,
  admin,
  call,
  createAgent,
  agentId,
  createSpace,
  create,
  get,
  patched,
  act,
  run,
  runsOf,
  idle,
  tick,
  hold,
} = await startMissionLab()

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
