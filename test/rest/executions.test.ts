import { beforeAll, describe, expect, it } from 'vitest'
import type { Prisma } from '../../src/db/client.ts'
import { newId } from '../../src/lib/id.ts'
import { APIS, apis, expectError, onEachApi } from '../support/api.ts'
import { chainBelow } from '../support/chain.ts'
import { tickingClock } from '../support/clock.ts'
import { questionOf, startModelServer } from '../support/model-server.ts'
import { planOf } from '../support/plan.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { type Answer, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { createTrigger, dropTrigger } from '../support/trigger.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const NOT_FOUND = 'Execution not found'

const model = await use(startModelServer())
const server = await use(startServer(model.env, { clock: tickingClock() }))
const { ann, ben, admin, eve } = await server.people('ann', 'ben', 'admin', 'eve')
const agent: string = await create()

type Fields = Record<string, unknown>

async function create(fields: Fields = {}, { token } = ann): Promise<string> {
  const body = { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }
  return (await request(server, 'POST', '/api/v1/agents', { body, token })).body.id
}
const execute = (fields: Fields = {}, { token } = ann, id = agent): Promise<Answer> =>
  request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi', ...fields }, token })
const call = (method: string, path: string, { token } = ann) =>
  request(server, method, `/api/v1/executions${path}`, { token })
const get = async (id: string, who = ann) => (await call('GET', `/${id}`, who)).body.execution
const cancel = (id: string, who = ann) => call('POST', `/${id}/cancel`, who)
const list = async (query: string, who = ann) => (await call('GET', query, who)).body
const idsOf = (rows: { id: string }[]) => rows.map(({ id }) => id)

/** Starts a run whose model request hangs until `release`. */
async function begin(fields: Fields = {}, who = ann, id = agent) {
  const index = model.requests.length
  const gate = Promise.withResolvers<void>()
  model.script({ tokens: [gate.promise, 'Done.'] })
  const { body } = await execute({ background: true, ...fields }, who, id)
  return { ...body, asked: await model.request(index), release: () => gate.resolve() }
}

describe('while a session is busy', () => {
  it('the next message waits for its turn, and sees the earlier messages', async () => {
    const first = await begin({ message: 'One?' })
    const { sessionId } = first
    const second = execute({ message: 'Two?', sessionId })
    await expect.poll(async () => (await list('?status=pending')).executions).toMatchObject([{ sessionId }])
    const third = execute({ message: 'Three?', sessionId, onBusy: 'queue' })
    await expect.poll(async () => (await list('?status=pending')).executions).toHaveLength(2)
    const asked = model.requests.length
    first.release()
    const answers = [await second, await third].map(({ status, body }) => ({ status, sessionId: body.sessionId }))
    expect(answers).toEqual([
      { status: 200, sessionId },
      { status: 200, sessionId },
    ])
    expect(model.requests.slice(asked).map(questionOf)).toEqual(['Two?', 'Three?'])
    expect(model.requests.at(-1)?.body.messages.map(({ content }) => content)).toEqual([
      'You are Ada.',
      'One?',
      'Done.',
      'Two?',
      'A reply of the test model.',
      'Three?',
    ])
  })

  it('onBusy: reject gives an error, and leaves nothing behind', async () => {
    const { executionId, sessionId, chatId, release } = await begin()
    for (const more of [{ sessionId }, { chatId }, { sessionId, stream: true }, { sessionId, background: true }]) {
      const refused = await execute({ onBusy: 'reject', ...more })
      expectError(refused, 409, 'Session is busy')
      expect(refused.body.detail).toContain('decide the approval for which it waits')
    }
    const input = { id: agent, message: 'Hi', sessionId, onBusy: 'reject' }
    expectError(await apis.tRPC(server, 'agents.execute', input, ann), 409, 'Session is busy')
    expect(idsOf((await list(`?chatId=${chatId}`)).executions)).toEqual([executionId])
    release()
    await expect.poll(async () => (await get(executionId)).status).toBe('completed')
    expect((await execute({ onBusy: 'reject', sessionId })).status).toBe(200)
  })

  it('onBusy: interrupt cancels running and pending runs, and then runs', async () => {
    const running = await begin({ message: 'One?' })
    const { sessionId, chatId } = running
    const waiting = execute({ message: 'Two?', sessionId })
    await expect.poll(async () => (await list('?status=pending')).executions).toHaveLength(1)
    const answer = await execute({ message: 'Stop. Three?', sessionId, onBusy: 'interrupt' })
    expect(answer.body).toMatchObject({ status: 'completed', sessionId })
    await running.asked.aborted
    running.release()
    expectError(await waiting, 409, 'Execution was cancelled')
    const { executions } = await list(`?chatId=${chatId}`)
    expect(executions.map(({ message, status }: Fields) => [message, status])).toEqual([
      ['Stop. Three?', 'completed'],
      ['Two?', 'cancelled'],
      ['One?', 'cancelled'],
    ])
    const contents = model.requests.at(-1)?.body.messages.map(({ content }) => content)
    // The model does not take an unanswered question for a part of the next one.
    expect(contents).toEqual(['You are Ada.', 'One?', '[The turn ended here, without an answer]', 'Stop. Three?'])
  })

  it.each(APIS)('%s: onBusy: interrupt is refused if the caller may not cancel something', async (api) => {
    const running = await begin({}, ben)
    const { sessionId } = running
    const waiting = (await execute({ sessionId, background: true })).body
    const ids = [running.executionId, waiting.executionId]
    const interrupt = (who: Member) =>
      apis[api](server, 'agents.execute', { id: agent, message: 'Hi', sessionId, onBusy: 'interrupt' }, who)
    const before = (await list(`?chatId=${running.chatId}`)).executions
    for (const who of [ann, ben]) expectError(await interrupt(who), 403, FORBIDDEN)
    expect((await list(`?chatId=${running.chatId}`)).executions).toEqual(before)
    expect((await interrupt(admin)).status).toBe(200)
    for (const id of ids) expect((await get(id)).status).toBe('cancelled')
    running.release()
  })

  it("onBusy: interrupt needs no right to cancel another user's run that has ended", async () => {
    const { sessionId } = (await execute({}, ben)).body
    const { asked, release } = await begin({ sessionId })
    expect((await execute({ sessionId, onBusy: 'interrupt' })).status).toBe(200)
    await asked.aborted
    release()
  })

  it("onBusy: interrupt waits for another user's run that is already being cancelled", async () => {
    const { sessionId, executionId, asked, release } = await begin({}, ben)
    // Simulates the state after its cancel, before its worker has been notified.
    await server.service.deps.db.execution.update({ where: { id: executionId }, data: { wantsCancel: true } })
    expect((await execute({ sessionId, onBusy: 'interrupt' })).status).toBe(200)
    await asked.aborted
    expect((await get(executionId)).status).toBe('cancelled')
    release()
  })

  it.each(['queue', 'reject', 'interrupt'])(
    'onBusy: %s runs one of ten concurrent messages at a time',
    async (onBusy) => {
      const { sessionId } = (await execute()).body
      let most = 0
      model.fallback = () => {
        most = Math.max(most, model.active)
        return { tokens: 'Hi', delay: 5 }
      }
      const answers = await Promise.all(Array.from({ length: 10 }, () => execute({ sessionId, onBusy })))
      model.fallback = { tokens: 'A reply of the test model.' }
      const statuses = answers.map(({ status }) => status)
      expect(statuses.filter((status) => status !== 200 && status !== 409)).toEqual([])
      expect(statuses).toContain(200)
      if (onBusy === 'queue') expect(new Set(statuses)).toEqual(new Set([200]))
      if (onBusy !== 'interrupt') expect(most).toBe(1)
      expect((await list('?status=running')).executions).toEqual([])
      expect((await list('?status=pending')).executions).toEqual([])
    },
  )
})

describe('POST /executions/{id}/cancel', () => {
  it.each(APIS)('%s: ends a running execution, and disconnects the model', async (api) => {
    const { executionId, chatId, sessionId, asked, release } = await begin()
    const { status, body } = await apis[api](server, 'executions.cancel', { id: executionId }, ann)
    expect({ status, body }).toMatchObject({
      status: 200,
      body: { success: true, message: expect.any(String), execution: { id: executionId, status: 'cancelled' } },
    })
    await asked.aborted
    release()
    const execution = await get(executionId)
    expect(execution).toEqual(body.execution)
    expect(execution).toMatchObject({ status: 'cancelled', chatId, sessionId, completedAt: expect.any(String) })
    expect(execution).not.toHaveProperty('result')
    expect(execution).not.toHaveProperty('error')
    expect((await execute({ sessionId })).status).toBe(200)
  })

  it('ends a pending one without a trace in the history', async () => {
    const first = await begin({ message: 'One?' })
    const { sessionId } = first
    const { executionId } = (await execute({ message: 'Never mind', sessionId, background: true })).body
    expect(await get(executionId)).toMatchObject({ status: 'pending' })
    expect((await cancel(executionId)).body.execution).toMatchObject({ status: 'cancelled' })
    first.release()
    await expect.poll(async () => (await get(first.executionId)).status).toBe('completed')
    await execute({ message: 'Two?', sessionId })
    const contents = model.requests.at(-1)?.body.messages.map(({ content }) => content)
    expect(contents).toEqual(['You are Ada.', 'One?', 'Done.', 'Two?'])
  })

  it('lets the next one start after the running one', async () => {
    const first = await begin()
    const next = execute({ sessionId: first.sessionId })
    await expect.poll(async () => (await list('?status=pending')).executions).toHaveLength(1)
    await cancel(first.executionId)
    expect((await next).body).toMatchObject({ status: 'completed' })
    first.release()
  })

  it('reports the cancel to waiting callers', async () => {
    for (const api of APIS) {
      const index = model.requests.length
      const gate = Promise.withResolvers<void>()
      model.script({ tokens: [gate.promise] })
      const id = await create()
      const waiting = apis[api](server, 'agents.execute', { id, message: 'Hi' }, ann)
      await model.request(index)
      const begun = async () => (await list(`?agentId=${id}`)).executions
      await expect.poll(begun).toHaveLength(1)
      const [running] = await begun()
      await cancel(running.id)
      expectError(await waiting, 409, 'Execution was cancelled')
      gate.resolve()
    }
  })

  it.each(['completed', 'failed', 'cancelled'])('refuses one that is %s, and changes nothing', async (how) => {
    if (how === 'failed') model.script({ error: { status: 500 } })
    const begun = how === 'cancelled' ? await begin() : { release() {} }
    if ('executionId' in begun) await cancel(begun.executionId)
    else await execute()
    begun.release()
    const [execution] = (await list('?limit=1')).executions
    const { id } = execution
    expect(execution.status).toBe(how)
    for (const api of APIS) {
      const answer = await apis[api](server, 'executions.cancel', { id }, ann)
      expectError(answer, 400, `Cannot cancel execution with status: ${how}`)
    }
    expect((await list('?limit=1')).executions).toEqual([execution])
  })

  it('is for its starter and for admins', async () => {
    const { executionId, release } = await begin()
    expectError(await cancel(executionId, ben), 403, FORBIDDEN)
    expectError(await cancel(executionId, eve), 404, NOT_FOUND)
    expect((await get(executionId)).status).toBe('running')
    expect((await cancel(executionId, admin)).status).toBe(200)
    release()
    expectError(await cancel('exec-1-x'), 404, NOT_FOUND)
  })

  it('is for the owner of the agent, but not with a key that is for own runs alone', async () => {
    const maker = { organization: 'Acme', email: 'maker@example.com' }
    const scopes = ['agents:execute']
    const owner = await server.member(maker)
    const narrow = [
      await server.member({ ...maker, scopes }),
      await server.member({ organization: 'Acme', role: 'admin', scopes }),
    ]
    const { executionId, release } = await begin({}, ben, await create({}, owner))
    for (const who of narrow) expectError(await cancel(executionId, who), 403, FORBIDDEN)
    expect((await get(executionId)).status).toBe('running')
    expect((await cancel(executionId, owner)).status).toBe(200)
    release()
  })

  it("is not for the owner of another organization's agent, also as a member of the run's own", async () => {
    const maker = await server.member({ organization: 'Makers', email: 'twofold@example.com' })
    const here = await server.member({ organization: 'Acme', email: 'twofold@example.com' })
    const { executionId, release } = await begin({}, ben, await create({ visibility: 'public' }, maker))
    expectError(await cancel(executionId, maker), 404, NOT_FOUND)
    expectError(await cancel(executionId, here), 403, FORBIDDEN)
    expect((await get(executionId, ben)).status).toBe('running')
    release()
  })

  it('leaves one audit event with the canceller for each run', async () => {
    const { db } = server.service.deps
    const audited = async (ids: string[]) => {
      const events = await db.auditEvent.findMany({ where: { action: 'execution.cancel', target: { in: ids } } })
      return events.map(({ organizationId, actor, target }) => [organizationId, actor, target]).sort()
    }
    const of = (who: Member, ...ids: string[]) => ids.map((id) => [who.organizationId, who.userId, id]).sort()
    const root = await begin()
    const { sessionId, executionId: parentExecutionId } = root
    const child = await begin({ parentExecutionId })
    const { executionId: waits } = (await execute({ sessionId, background: true })).body
    const { executionId: completed } = (await execute()).body
    const ids = [parentExecutionId, child.executionId, waits, completed]
    expect((await cancel(completed)).status).toBe(400)
    expectError(await cancel(waits, ben), 403, FORBIDDEN)
    expect(await audited(ids)).toEqual([])
    await cancel(waits)
    expect(await audited(ids)).toEqual(of(ann, waits))
    await Promise.all([cancel(parentExecutionId, admin), cancel(parentExecutionId, admin)])
    // A cancel waits for the end of the run that it names, and its descendants end by themselves.
    await expect.poll(async () => (await get(child.executionId)).status).toBe('cancelled')
    for (const id of ids) expect((await cancel(id)).status).toBe(400)
    const expected = [...of(ann, waits), ...of(admin, parentExecutionId, child.executionId)].sort()
    expect(await audited(ids)).toEqual(expected)
    for (const { release } of [root, child]) release()
  })

  it('also leaves an audit event if a new message or the end of a task cancels', async () => {
    const { db } = server.service.deps
    const audited = (target: string) => db.auditEvent.findMany({ where: { action: 'execution.cancel', target } })
    const first = await begin()
    await execute({ sessionId: first.sessionId, onBusy: 'interrupt' })
    expect(await audited(first.executionId)).toMatchObject([{ actor: ann.userId }])
    const { id } = (
      await request(server, 'POST', '/api/v1/tasks', { body: { title: 'T', assignTo: agent }, token: ann.token })
    ).body
    const index = model.requests.length
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: [gate.promise] })
    const body = { background: true }
    const { executionId } = (await request(server, 'POST', `/api/v1/tasks/${id}/execute`, { body, token: ann.token }))
      .body
    await model.request(index)
    await request(server, 'PATCH', `/api/v1/tasks/${id}`, { body: { status: 'cancelled' }, token: ben.token })
    expect(await audited(executionId)).toMatchObject([{ actor: ben.userId }])
    for (const release of [first.release, gate.resolve]) release()
  })

  it('cancels nothing if its audit event cannot be written', async () => {
    const { db } = server.service.deps
    const broken = { name: '_broken', table: 'AuditEvent' }
    const when = `NEW."action" = 'execution.cancel'`
    const running = await begin()
    const { executionId: waits } = (await execute({ sessionId: running.sessionId, background: true })).body
    await createTrigger(db, {
      ...broken,
      event: 'BEFORE INSERT',
      when,
      effect: 'INSERT INTO "Token" ("id") VALUES (NULL)',
    })
    for (const id of [running.executionId, waits]) expect((await cancel(id)).status).toBe(500)
    await dropTrigger(db, broken.name)
    running.release()
    await expect.poll(async () => (await get(waits)).status).toBe('completed')
    expect(await get(running.executionId)).toMatchObject({ status: 'completed', result: 'Done.' })
  })

  it('agrees with the stored state at the very end of the run', async () => {
    for (let round = 0; round < 20; round++) {
      const { executionId } = (await execute({ background: true })).body
      const answers = await Promise.all([cancel(executionId), cancel(executionId)])
      const { status } = await get(executionId)
      for (const answer of answers) {
        if (answer.status === 200) expect([status, answer.body.execution.status]).toEqual(['cancelled', 'cancelled'])
        else expectError(answer, 400, `Cannot cancel execution with status: ${status}`)
      }
      const logs = (await call('GET', `/${executionId}/logs`)).body.logs.map(({ event }: { event: string }) => event)
      expect(logs.filter((event: string) => event === 'result' || event === 'error')).toHaveLength(1)
    }
  })
})

describe('GET /executions', () => {
  let lea: Member
  let one: string
  let two: string
  /** Oldest first. */
  const made: string[] = []
  let second: Fields
  beforeAll(async () => {
    lea = await server.member({ organization: 'Lists' })
    one = await create({}, lea)
    two = await create({}, lea)
    for (const [id, fields] of [
      [one, { message: 'x'.repeat(1000) }],
      [two, {}],
      [one, { model: 'anthropic/none' }],
      [one, {}],
      [two, { message: 'The last' }],
    ] as const) {
      await execute(fields, lea, id)
      made.push((await list('?limit=1', lea)).executions[0].id)
    }
    second = await get(made[1]!, lea)
  })
  const pick = (numbers: number[]) => numbers.map((number) => made[number])

  it.each([
    ['', [4, 3, 2, 1, 0]],
    ['?agentId={one}', [3, 2, 0]],
    ['?agentId={two}', [4, 1]],
    ['?agentId=unknown', []],
    ...['agentId', 'spaceId', 'chatId', 'taskId', 'missionId'].map((name) => [`?${name}=`, []] as const),
    ['?status=completed', [4, 3, 1, 0]],
    ['?status=failed', [2]],
    ['?status=cancelled', []],
    ['?status=failed&agentId={two}', []],
    ['?chatId={chatId}', [1]],
    ['?spaceId={spaceId}', [4, 3, 2, 1, 0]],
    ['?spaceId=unknown', []],
    ['?taskId=unknown', []],
    ['?missionId=unknown', []],
    ['?since={createdAt}', [4, 3, 2, 1]],
    ['?since={createdAt}&agentId={two}', [4, 1]],
    ['?since=2999-01-01T00:00:00Z', []],
    ['?since=2999-01-01', []],
    ['?since=2001-01-01', [4, 3, 2, 1, 0]],
    ['?since=2001-01-01T00:00Z', [4, 3, 2, 1, 0]],
    ['?since=2001-01-01T00:00-0330', [4, 3, 2, 1, 0]],
    ['?since=2001-01-01 00:00:00.000001%2B00:00', [4, 3, 2, 1, 0]],
    ['?since=0001-01-01t00:00:00z', [4, 3, 2, 1, 0]],
    ['?since=2001-01-01T00:00:00%2B02:00', [4, 3, 2, 1, 0]],
    ['?since=2001-01-01T00:00:00+02:00', [4, 3, 2, 1, 0]],
    ['?since=0001-01-01T00:00:00Z', [4, 3, 2, 1, 0]],
    ['?since=9999-12-31T23:59:59.999Z', []],
    ['?limit=2', [4, 3]],
  ] as const)('%s lists the runs %j, newest first', async (query, expected) => {
    const filled = query.replace(/{(\w+)}/g, (_, name) => String(({ one, two, ...second } as Fields)[name]))
    const body = await list(filled, lea)
    expect(idsOf(body.executions)).toEqual(pick([...expected]))
    expect(body).not.toHaveProperty('total')
    const counted = await list(`${filled}${filled ? '&' : '?'}count=true`, lea)
    expect(counted).toEqual({ ...body, total: query === '?limit=2' ? 5 : expected.length })
  })

  it.each(
    onEachApi([
      ['0000-01-01T00:00:00Z'],
      ['0000-12-31T23:59:59.999Z'],
      ['0001-01-01T00:00:00+14:00'],
      ['9999-12-31T23:59:59-14:00'],
    ]),
  )('%s: refuses a time before the year 1 or after 9999: %s', async (api, since) => {
    const answer = await apis[api](server, 'executions.list', { since }, lea)
    expectError(answer, 400, 'Invalid value for field: since. Expected a date in the years 1 to 9999 (UTC)')
  })

  it('shows each without its result and with at most 200 characters of its message', async () => {
    const { executions } = await list('', lea)
    for (const row of executions) {
      const { result: _, ...execution } = await get(row.id, lea)
      expect(row).toEqual({ ...execution, message: execution.message.slice(0, 200) })
    }
    expect(executions.at(-1).message).toBe('x'.repeat(200))
    expect((await get(made[0]!, lea)).message).toBe('x'.repeat(1000))
  })

  it.each(APIS)('%s: pages show every row once', async (api) => {
    const seen: string[] = []
    let cursor: string | null = null
    do {
      const input: Fields = { limit: api === 'REST' ? '2' : 2, ...(cursor && { cursor }) }
      const { body }: Answer = await apis[api](server, 'executions.list', input, lea)
      seen.push(...idsOf(body.executions))
      cursor = body.nextCursor
    } while (cursor)
    expect(seen).toEqual(made.toReversed())
  })
})

it.each(['agentId', 'spaceId', 'chatId'])(
  'GET /executions finds active runs by their status, and then by %s',
  async (name) => {
    const run = await begin()
    const { executionId: second } = (await execute({ background: true, sessionId: run.sessionId })).body
    const { [name]: value } = await get(run.executionId)
    const statements = await server.statementsOf(async () => {
      for (const [status, id] of Object.entries({ running: run.executionId, pending: second })) {
        const { executions, total } = await list(`?count=true&status=${status}&${name}=${value}`)
        expect([idsOf(executions), total]).toEqual([[id], 1])
        expect(await list(`?count=true&status=${status}&${name}=unknown`)).toMatchObject({ executions: [], total: 0 })
      }
    })
    // It also asks which of the caller's own runs became unreadable.
    const lists = statements.filter((sql) => /(?<!^SELECT "id" )FROM "Execution" (WHERE|t WHERE)/.test(sql))
    expect(lists).toHaveLength(8)
    for (const sql of onPostgres ? [] : lists) {
      const [read] = planOf(server, sql).filter((step) => /^SEARCH (Execution|t) /.test(step))
      expect(read).toMatch(/\(organizationId=\? AND status=\?/)
    }
    await cancel(second)
    run.release()
    await expect.poll(async () => (await get(run.executionId)).status).toBe('completed')
  },
)

describe('an execution tree', () => {
  type Node = { id: string; depth: number; children: Node[] }
  const withAll = (node: Node): Node[] => [node, ...node.children.flatMap(withAll)]
  const treeOf = async (id: string): Promise<Node> => (await call('GET', `/${id}/tree`)).body.tree

  it.each(APIS)('%s: has at most five levels; a deeper run is refused', async (api) => {
    const run = (parentExecutionId?: string) =>
      apis[api](server, 'agents.execute', { id: agent, message: 'Hi', parentExecutionId }, ann)
    const ids: string[] = []
    for (let depth = 0; depth <= 5; depth++) ids.push((await run(ids.at(-1))).body.executionId)
    const message = 'Invalid parentExecutionId. Must be less than 5 levels deep'
    expectError(await run(ids.at(-1)), 400, message)
    expect(withAll(await treeOf(ids[0]!)).map(({ id, depth }) => [id, depth])).toEqual(ids.map((id, at) => [id, at]))
  })

  it.skipIf(onPostgres)('has at most a thousand executions', async () => {
    const root = (await execute()).body.executionId
    await execute({ parentExecutionId: root })
    const { db } = server.service.deps
    const child = await db.execution.findFirstOrThrow({ where: { parentExecutionId: root } })
    const rows = Array.from({ length: 997 }, (_, index) => {
      const row = { ...child, id: `${child.id}${index}`, queueSeq: index + 2 }
      return row as Prisma.ExecutionCreateManyInput
    })
    await db.execution.createMany({ data: rows })
    expect((await execute({ parentExecutionId: root })).status).toBe(200)
    expectError(
      await execute({ parentExecutionId: root }),
      409,
      'Execution tree limit reached: a tree can have at most 1000 executions',
    )
    expect(withAll(await treeOf(root))).toHaveLength(1_000)
  })

  it.skipIf(onPostgres)(
    'an execution tree of a thousand levels is shown, with deep ones beside their parent',
    async () => {
      const { executionId } = (await execute()).body
      const ids = await chainBelow(server.service.deps.db, executionId, 1_000)
      const last = ids.at(-1)!
      for (const id of [executionId, ids[3]!, last]) {
        let node = await treeOf(id)
        expect(withAll(node).map((one) => [one.id, one.depth])).toEqual(ids.map((one, at) => [one, at]))
        for (let depth = 0; depth < 4; depth++) {
          expect(idsOf(node.children)).toEqual([ids[depth + 1]])
          node = node.children[0]!
        }
        expect(idsOf(node.children)).toEqual(ids.slice(5))
      }
      expectError(await cancel(last), 400, 'Cannot cancel execution with status: completed')
      expectError(
        await execute({ parentExecutionId: last }),
        400,
        'Invalid parentExecutionId. Must be less than 5 levels deep',
      )
    },
  )
})

it.each(APIS)('%s: a long tree shows only the requested execution whole, and the others as lists do', async (api) => {
  const long = 'x'.repeat(200_000)
  const run = async (message: string, parentExecutionId?: string) =>
    (await execute({ message, parentExecutionId })).body.executionId
  const root = await run(long)
  const middle = await run(long, root)
  const leaf = await run('Hi', middle)
  const treeOf = async (id: string) => (await apis[api](server, 'executions.tree', { id }, ann)).body.tree
  const nodes = { root: await get(root), middle: await get(middle), leaf: await get(leaf) }
  const whole = { ...nodes.root, children: [{ ...nodes.middle, children: [{ ...nodes.leaf, children: [] }] }] }
  expect(nodes.leaf.result).toBe('A reply of the test model.')
  for (const id of [root, middle, leaf]) expect(await treeOf(id)).toEqual(whole)
  for (let more = 0; more < 4; more++) await run(long, leaf)
  const listed = new Map<string, Fields>((await list('?limit=10')).executions.map((row: Fields) => [row.id, row]))
  for (const id of [root, middle, leaf]) {
    const node = async (of: string) => (of === id ? get(id) : listed.get(of))
    const tree = await treeOf(id)
    const children = expect.any(Array)
    expect(tree).toEqual({ ...(await node(root)), children })
    expect(tree.children[0]).toEqual({ ...(await node(middle)), children })
    expect(tree.children[0].children[0]).toEqual({ ...(await node(leaf)), children })
    expect(JSON.stringify(tree).length).toBeLessThan(250_000)
  }
})

describe('after a sequence number beyond its events', () => {
  const BEYOND = [2 ** 31, 2 ** 53 - 1, 10 ** 20]

  it.each(APIS)('%s: an execution has no logs, and its only event is the terminal one', async (api) => {
    const { executionId } = (await execute()).body
    for (const after of BEYOND) {
      const logs = await apis[api](server, 'executions.logs', { id: executionId, after }, ann)
      expect(logs.body).toMatchObject({ logs: [], nextAfter: null })
      const { status, body } = await apis[api](server, 'executions.events', { executionId, after }, ann)
      expect(status).toBe(200)
      // In a tRPC stream this is the data of the first event.
      if (api === 'REST') expect(body.match(/^event: .*$/gm)).toEqual(['event: result'])
      else expect(body).toMatchObject({ executionId, status: 'completed' })
    }
  })

  it.each(BEYOND)('a client that resumes after Last-Event-ID %i, beyond the end, gets 204', async (last) => {
    const { executionId } = (await execute()).body
    const headers = { 'Last-Event-ID': String(last) }
    const options = { token: ann.token, headers }
    const { status } = await request(server, 'GET', `/api/v1/executions/${executionId}/events`, options)
    expect(status).toBe(204)
  })
})

/** Each caller's view of an execution, as the statuses of its answers. All of them must agree. */
async function sight(api: 'REST' | 'tRPC', who: Member, id: string): Promise<string> {
  const answers: Answer[] = []
  for (const procedure of ['executions.get', 'executions.tree', 'executions.logs']) {
    answers.push(await apis[api](server, procedure, { id }, who))
  }
  answers.push(await apis[api](server, 'executions.events', { executionId: id }, who))
  for (const answer of answers) if (answer.status === 404) expectError(answer, 404, NOT_FOUND)
  // It is one of the last that were made.
  const limit = api === 'REST' ? '5' : 5
  const rows: { id: string }[] = (await apis[api](server, 'executions.list', { limit }, who)).body.executions
  const listed = rows.some((row) => row.id === id) ? 'listed' : 'not listed'
  return [...new Set(answers.map(({ status }) => status)), listed].join()
}

describe('an execution has the visibility of its agent and space', () => {
  const space = async ({ organizationId, userId: ownerId }: Member) => {
    const at = new Date()
    const data = { id: newId(), organizationId, ownerId, name: 'S', createdAt: at, updatedAt: at }
    return (await server.service.deps.db.space.create({ data: { ...data, visibility: 'private' } })).id
  }
  const SEEN = '200,listed'
  const HIDDEN = '404,not listed'

  it.each(
    onEachApi([
      ["with the organization's agent", {}, false, { ann: SEEN, ben: SEEN, admin: SEEN, eve: HIDDEN }],
      ['with an unlisted agent', { visibility: 'unlisted' }, false, { ann: SEEN, ben: SEEN, admin: SEEN, eve: HIDDEN }],
      ['with a public agent', { visibility: 'public' }, false, { ann: SEEN, ben: SEEN, admin: SEEN, eve: HIDDEN }],
      [
        'with a private agent',
        { visibility: 'private' },
        false,
        { ann: SEEN, ben: HIDDEN, admin: HIDDEN, eve: HIDDEN },
      ],
      ['in a private space', {}, true, { ann: SEEN, ben: HIDDEN, admin: SEEN, eve: HIDDEN }],
      [
        'with a private agent in a private space',
        { visibility: 'private' },
        true,
        { ann: SEEN, ben: HIDDEN, admin: HIDDEN, eve: HIDDEN },
      ],
    ]),
  )('on %s, %s', async (api, _, fields, isPrivate, expected) => {
    const id = await create(fields)
    const more = isPrivate ? { spaceId: await space(ann) } : {}
    const { executionId } = (await execute(more, ann, id)).body
    const seen = {
      ann: await sight(api, ann, executionId),
      ben: await sight(api, ben, executionId),
      admin: await sight(api, admin, executionId),
      eve: await sight(api, eve, executionId),
    }
    expect(seen).toEqual(expected)
    for (const who of [ben, admin, eve]) {
      const { status } = await cancel(executionId, who)
      const hidden = (await sight(api, who, executionId)) === HIDDEN
      // An admin may cancel it in any case, and it has ended.
      expect(status).toBe(who === admin ? 400 : hidden ? 404 : 403)
    }
  })

  it('also later: once private, its owner reads it, and its starter sees the state', async () => {
    const id = await create()
    const { executionId } = (await execute({}, ben, id)).body
    expect(await sight('REST', admin, executionId)).toBe(SEEN)
    await request(server, 'PATCH', `/api/v1/agents/${id}`, { body: { visibility: 'private' }, token: ann.token })
    expect(await sight('REST', ann, executionId)).toBe(SEEN)
    expect(await sight('REST', admin, executionId)).toBe(HIDDEN)
    expect(await sight('REST', ben, executionId)).toBe(SEEN)
    const { body } = await request(server, 'GET', `/api/v1/executions/${executionId}`, { token: ben.token })
    expect(body.execution).toMatchObject({ status: 'completed', restricted: true, message: '' })
    expect(body.execution.result).toBeUndefined()
  })

  it('an execution of an agent that became private shows its starter no text in any list', async () => {
    const id = await create()
    const root = (await execute({}, ben)).body.executionId
    const { executionId } = (await execute({ parentExecutionId: root }, ben, id)).body
    const texts = {
      ...{ message: 'of-message', preview: 'of-preview', mediaIds: ['of-media'], files: ['of-files'] },
      ...{ result: 'of-result', resultObject: '{"of":"of-object"}', error: 'of-error', errorCode: 'of-code' },
      warnings: JSON.stringify([{ code: 'attachment_not_read', text: 'of-warnings' }]),
    }
    await server.service.deps.db.execution.update({ where: { id: executionId }, data: texts, select: { id: true } })
    const seenBy = async (who: Member) => {
      const paths = [`/${executionId}`, `?agentId=${id}`, `/${executionId}/tree`, `/${root}/tree`]
      const answers = await Promise.all(paths.map((path) => call('GET', path, who)))
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
      return JSON.stringify(answers.map(({ body }) => body))
    }
    const all = ['message', 'preview', 'media', 'files', 'result', 'object', 'error', 'code', 'warnings']
    const found = (text: string) => all.filter((column) => text.includes(`of-${column}`))
    expect(found(await seenBy(ben))).toEqual(all)
    await request(server, 'PATCH', `/api/v1/agents/${id}`, { body: { visibility: 'private' }, token: ann.token })
    expect(found(await seenBy(ben))).toEqual([])
  })

  it('an execution of an agent that became private shows no object or error in its events', async () => {
    const id = await create()
    const SECRET = 'the-answer'
    const failed = { tokens: [Buffer.from(`data: {"error":{"message":"${SECRET}"}}\n\n`)] }
    model.script({ tokens: [JSON.stringify({ text: SECRET })] }, failed, failed)
    const ended = [
      (await execute({ output: { schema: { type: 'object' } } }, ben, id)).body,
      (await execute({ model: 'compatible/m' }, ben, id)).body,
    ]
    const seenBy = async ({ token }: Member) => {
      const answers: unknown[] = []
      for (const { executionId } of ended) {
        for (const path of ['/logs', '/events'])
          answers.push((await call('GET', `/${executionId}${path}`, { token } as Member)).body)
        const events = '{ nodes { ... on ResultEvent { resultObject } ... on ErrorEvent { detail } } }'
        const body = { query: `{ execution(id: "${executionId}") { events ${events} } }` }
        answers.push((await request(server, 'POST', '/graphql', { body, token })).body)
      }
      return answers.map((answer) => JSON.stringify(answer).includes(SECRET))
    }
    expect(await seenBy(ben)).not.toContain(false)
    await request(server, 'PATCH', `/api/v1/agents/${id}`, { body: { visibility: 'private' }, token: ann.token })
    expect(await seenBy(ben)).not.toContain(true)
    expect(await seenBy(ann)).not.toContain(false)
  })
})

describe("a run of another organization's agent", () => {
  const SECRET = `secret-prompt-${newId()}`
  const fields = { name: 'Guide', systemPrompt: SECRET, model: 'compatible/theirs', initialGreeting: SECRET }

  it.each(onEachApi([['public'], ['unlisted']]))(
    "%s: is the caller's, hidden from the owner, and shows no prompt (%s)",
    async (api, visibility) => {
      const id = await create({ ...fields, visibility }, eve)
      const answers: Answer[] = []
      const ask = async (procedure: string, input: Fields) => {
        const answer = await apis[api](server, procedure, input, ann)
        answers.push(answer)
        return answer
      }
      const { body } = await ask('agents.execute', { id, message: 'One?' })
      expect(body).toMatchObject({ status: 'completed', result: 'A reply of the test model.' })
      const { chatId, sessionId, executionId } = body
      expect((await ask('agents.execute', { id, message: 'Two?', sessionId })).body).toMatchObject({
        chatId,
        sessionId,
      })
      expect(model.requests.at(-1)?.body.model).toBe('theirs')
      const roles = model.requests.at(-1)?.body.messages.map(({ role, content }) => `${role}: ${content}`)
      expect(roles?.slice(0, 2)).toEqual([`system: ${SECRET}`, 'user: One?'])

      const { execution } = (await ask('executions.get', { id: executionId })).body
      const { organizationId, userId } = ann
      expect(execution).toMatchObject({ agentId: id, agentVersion: 1, organizationId, userId, status: 'completed' })
      const { db } = server.service.deps
      expect(await db.space.findUnique({ where: { id: execution.spaceId } })).toMatchObject({ organizationId })

      // A provider that repeats the whole request in its error.
      model.script(({ body }) => ({ error: { status: 422, message: JSON.stringify(body) } }))
      expectError(await ask('agents.execute', { id, message: 'Three?', sessionId }), 500, 'Chat execution failed')
      const repeat = ({ body }: (typeof model.requests)[number]) => ({
        tokens: [Buffer.from(`data: {"error":{"message":${JSON.stringify(JSON.stringify(body))}}}\n\n`)],
      })
      model.script(repeat, repeat)
      expectError(await ask('agents.execute', { id, message: 'Four?', sessionId }), 500, 'Chat execution failed')
      const rows = (await ask('executions.list', { agentId: id })).body.executions
      expect(rows.map(({ status }: { status: string }) => status)).toEqual([
        'failed',
        'failed',
        'completed',
        'completed',
      ])
      for (const row of rows) {
        for (const procedure of ['get', 'tree', 'logs']) await ask(`executions.${procedure}`, { id: row.id })
        await ask('executions.events', { executionId: row.id })
      }
      expect(JSON.stringify(answers.map(({ body: answer }) => answer))).not.toContain(SECRET)

      expect((await apis[api](server, 'executions.list', { agentId: id }, eve)).body.executions).toEqual([])
      expect(await sight(api, eve, executionId)).toBe('404,not listed')
      expectError(await cancel(executionId, eve), 404, NOT_FOUND)
      expect(await sight(api, ben, executionId)).toBe('200,listed')
    },
  )

  it('stays readable after the owner withdraws the agent, which others can no longer run', async () => {
    const id = await create({ ...fields, visibility: 'public' }, eve)
    const { executionId, sessionId } = (await execute({}, ann, id)).body
    await request(server, 'PATCH', `/api/v1/agents/${id}`, { body: { visibility: 'private' }, token: eve.token })
    expectError(await execute({ sessionId }, ann, id), 404, 'Agent not found')
    expect(await sight('REST', ann, executionId)).toBe('200,listed')
    await request(server, 'DELETE', `/api/v1/agents/${id}`, { token: eve.token })
    expect(await sight('REST', ann, executionId)).toBe('200,listed')
  })
})

describe('a token with agents:execute only', () => {
  it.each(APIS)("%s: is for one's own runs", async (api) => {
    const email = `runner-${api}@example.com`
    const runner = await server.member({ organization: 'Acme', email, scopes: ['agents:execute'] })
    const token = (await server.member({ organization: 'Acme', email })).token
    const { executionId: own } = (await execute({}, runner)).body
    const { executionId: sameUser } = (await execute({}, { ...runner, token })).body
    const { executionId: others } = (await execute({}, ann)).body
    const call = (procedure: string, id: string) =>
      apis[api](server, procedure, procedure.endsWith('events') ? { executionId: id } : { id }, runner)
    for (const procedure of ['executions.get', 'executions.tree', 'executions.logs', 'executions.events']) {
      expect((await call(procedure, own)).status).toBe(200)
      expect((await call(procedure, sameUser)).status).toBe(200)
      expectError(await call(procedure, others), 403, FORBIDDEN)
      expectError(await call(procedure, 'exec-1-unknown'), 404, NOT_FOUND)
    }
    expectError(await call('executions.cancel', others), 403, FORBIDDEN)
    expectError(await call('executions.cancel', own), 400, 'Cannot cancel execution with status: completed')
    expectError(await call('executions.list', own), 403, FORBIDDEN)
    expectError(await call('agents.get', agent), 403, FORBIDDEN)
    const begun = await begin({}, runner)
    expect((await call('executions.cancel', begun.executionId)).status).toBe(200)
    begun.release()
  })

  it.each(APIS)("%s: sees its user's runs of a tree, and the usage of all", async (api) => {
    const email = `climber-${api}@example.com`
    const narrow = await server.member({ organization: 'Acme', email, scopes: ['agents:execute'] })
    const wide = await server.member({ organization: 'Acme', email })
    const { db } = server.service.deps
    // As an earlier version made them, when users could attach to another user's run.
    const below = async (parentExecutionId: string | undefined, who: Member): Promise<string> => {
      const { executionId: id } = (await execute({ message: `of ${who.userId}` }, who)).body
      if (!parentExecutionId) return id
      const parent = await db.execution.findUniqueOrThrow({ where: { id: parentExecutionId } })
      const data = { parentExecutionId, rootExecutionId: parent.rootExecutionId, depth: parent.depth + 1 }
      await db.execution.update({ where: { id }, data })
      return id
    }
    const root = await below(undefined, ann)
    const own = await below(root, wide)
    const ownBelow = await below(own, wide)
    await below(own, ann)
    const treeFor = async ({ token }: Member) =>
      (await apis[api](server, 'executions.tree', { id: own }, { token })).body
    const [seen, whole] = [await treeFor(narrow), await treeFor(wide)]
    expect(seen.tree).toMatchObject({ id: own, children: [{ id: ownBelow, children: [] }] })
    expect(seen.tree.children).toHaveLength(1)
    expect(JSON.stringify(seen)).not.toContain(ann.userId)
    expect(whole.tree).toMatchObject({ id: root, children: [{ id: own }] })
    expect(whole.tree.children[0].children).toHaveLength(2)
    expect(seen.usage).toEqual(whole.usage)
  })
})
