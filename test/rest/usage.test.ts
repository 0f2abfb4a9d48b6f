import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { registeredRunHooks } from '../../src/executions/engine/queue/run-hooks.ts'
import { beginOf, onRunEnded } from '../../src/usage/service.ts'
import { APIS, type Api, apis, expectError, onEachApi } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const DAY = 24 * 60 * 60 * 1000

/** A Wednesday. */
const TODAY = '2026-07-15'
let now = new Date(`${TODAY}T10:00:00Z`)
const clock = { now: () => now }

const model = await use(startModelServer())
const server = await use(startServer(model.env, { clock }))

type Query = { period?: string; start?: string; end?: string }

/** The usage of a member's organization, as they see it. */
async function usage(who: Member, query: Query = {}, api: Api = 'REST') {
  const input = { orgId: who.organizationId, ...query }
  const { status, body } = await apis[api](server, 'usage.get', input, { token: who.token })
  expect([status, body.message]).toEqual([200, undefined])
  return body
}

/** Rows as runs leave them; the date and the number of executions, tokens ten and a hundred times as many. */
async function used(
  who: Member,
  ...rows: [date: string, executions: number, agentId?: string, model?: string, userId?: string][]
) {
  await server.service.deps.db.usageDay.createMany({
    data: rows.map(([date, executions, agentId = 'a', name = 'm', userId = '']) => ({
      organizationId: who.organizationId,
      date,
      agentId,
      model: name,
      userId,
      executions,
      failed: 1,
      inputTokens: executions * 10,
      outputTokens: executions * 100,
    })),
  })
}

const amounts = (executions: number, failed: number) => ({
  executions,
  failed,
  input_tokens: executions * 10,
  output_tokens: executions * 100,
})

describe('the usage of an organization', () => {
  it.each(APIS)('is that of its completed, failed and cancelled runs: %s', async (api) => {
    const who = await server.member({ organization: `Running ${api}` })
    const create = async (name: string) =>
      (await request(server, 'POST', '/api/v1/agents', { token: who.token, body: { name, systemPrompt: 'x' } })).body.id
    const [ada, ben] = [await create('Ada'), await create('Ben')]
    const run = (id: string, more: object = {}) =>
      request(server, 'POST', `/api/v1/agents/${id}/execute`, { token: who.token, body: { message: 'Hi', ...more } })
    model.script(
      { tokens: 'one two', usage: { input: 5, output: 2 } },
      { tokens: 'one', usage: { input: 7, output: 1 } },
    )
    for (const id of [ada, ben]) expect((await run(id)).status).toBe(200)
    model.script({ error: { status: 400 } })
    expect((await run(ada, { model: 'compatible/other' })).status).toBe(500)
    model.script({ tokens: ['one '], end: 'hang' })
    const asked = model.requests.length
    const { executionId } = (await run(ben, { background: true })).body
    // A run that is cancelled before its request would leave its answer to the next.
    await model.request(asked)
    expect(
      (await request(server, 'POST', `/api/v1/executions/${executionId}/cancel`, { token: who.token })).status,
    ).toBe(200)

    const { usage: entries, totals, ...range } = await usage(who, {}, api)
    expect(range).toMatchObject({
      organizationId: who.organizationId,
      period: 'daily',
      start: '2026-06-16',
      end: TODAY,
    })
    expect(totals).toEqual({ executions: 4, failed: 1, input_tokens: 12, output_tokens: 3 })
    expect(entries).toMatchObject([{ date: TODAY, ...totals }])
    const [{ byAgent, byModel, byUser }] = entries
    expect(byAgent).toHaveLength(2)
    expect(byAgent).toContainEqual({ agentId: ada, executions: 2, failed: 1, input_tokens: 5, output_tokens: 2 })
    expect(byAgent).toContainEqual({ agentId: ben, executions: 2, failed: 0, input_tokens: 7, output_tokens: 1 })
    expect(byUser).toEqual([{ userId: who.userId, ...totals }])
    expect(byModel).toEqual([
      { model: 'compatible/test', executions: 3, failed: 0, input_tokens: 12, output_tokens: 3 },
      { model: 'compatible/other', executions: 1, failed: 1, input_tokens: 0, output_tokens: 0 },
    ])
  })

  it('comes by day, by week from Monday on, and by month, within the range', async () => {
    const who = await server.member({ organization: 'Periods' })
    await used(who, ['2026-05-31', 1], ['2026-06-01', 2], ['2026-06-28', 4], ['2026-06-29', 8], ['2026-07-01', 16])
    const series = async (query: Query) =>
      (await usage(who, query)).usage.map(({ date, executions }: { date: string; executions: number }) => [
        date,
        executions,
      ])
    const all = { start: '2026-05-31', end: TODAY }
    expect(await series({ ...all, period: 'daily' })).toEqual([
      ['2026-05-31', 1],
      ['2026-06-01', 2],
      ['2026-06-28', 4],
      ['2026-06-29', 8],
      ['2026-07-01', 16],
    ])
    expect(await series({ ...all, period: 'weekly' })).toEqual([
      ['2026-05-25', 1],
      ['2026-06-01', 2],
      ['2026-06-22', 4],
      ['2026-06-29', 24],
    ])
    expect(await series({ ...all, period: 'monthly' })).toEqual([
      ['2026-05-01', 1],
      ['2026-06-01', 14],
      ['2026-07-01', 16],
    ])
    expect(await series({ start: '2026-06-28', end: '2026-06-30', period: 'monthly' })).toEqual([['2026-06-01', 12]])
    expect(await series({ start: '2026-06-29', end: '2026-06-29' })).toEqual([['2026-06-29', 8]])
    expect(await series({ start: '2026-06-30', end: '2026-06-30' })).toEqual([])
  })

  it('is grouped by agent, by model and by user within each period, most runs first', async () => {
    const who = await server.member({ organization: 'Breakdown' })
    await used(
      who,
      ['2026-07-13', 1, 'a', 'm'],
      ['2026-07-13', 2, 'a', 'n', 'u'],
      ['2026-07-14', 4, 'b', 'm', 'u'],
      ['2026-07-14', 8, 'b', ''],
    )
    const { usage: entries, totals } = await usage(who, { period: 'weekly' })
    expect(entries).toEqual([
      {
        date: '2026-07-13',
        ...amounts(15, 4),
        byAgent: [
          { agentId: 'b', ...amounts(12, 2) },
          { agentId: 'a', ...amounts(3, 2) },
        ],
        byModel: [
          { model: null, ...amounts(8, 1) },
          { model: 'm', ...amounts(5, 2) },
          { model: 'n', ...amounts(2, 1) },
        ],
        byUser: [
          { userId: null, ...amounts(9, 2) },
          { userId: 'u', ...amounts(6, 2) },
        ],
      },
    ])
    expect(totals).toEqual(amounts(15, 4))
  })

  it("includes other users' private agents, and names them only to their owner", async () => {
    const organization = 'Private'
    const [who, other] = [await server.member({ organization, role: 'owner' }), await server.member({ organization })]
    const create = async ({ token }: Member, visibility: string): Promise<string> => {
      const body = { name: 'A', systemPrompt: 'x', visibility }
      return (await request(server, 'POST', '/api/v1/agents', { token, body })).body.id
    }
    const secret = await create(who, 'private')
    const shared = await create(who, 'organization')
    const archived = await create(who, 'private')
    await request(server, 'DELETE', `/api/v1/agents/${archived}`, { token: who.token })
    const stranger = await server.member({ organization: 'Public agents' })
    const foreign = await create(stranger, 'public')
    await used(who, [TODAY, 1, secret], [TODAY, 2, shared], [TODAY, 4, archived], [TODAY, 8, foreign])
    const seen = async (as: Member) => {
      const { usage: entries, totals } = await usage(as)
      expect(totals).toEqual(amounts(15, 4))
      expect(entries[0].byModel).toEqual([{ model: 'm', ...amounts(15, 4) }])
      return new Set(entries[0].byAgent.map(({ agentId }: { agentId: string }) => agentId))
    }
    expect(await seen(who)).toEqual(new Set([secret, shared, archived, foreign]))
    expect(await seen(other)).toEqual(new Set([shared, foreign]))
  })

  it('may exceed 32-bit integers', async () => {
    await using large = await startServer({
      ...model.env,
    })
    const { id } = (await request(large, 'POST', '/api/v1/agents', { body: { name: 'A', systemPrompt: 'x' } })).body
    for (let round = 0; round < 3; round++) {
      model.script({ tokens: 'x', usage: { input: 2_000_000_000, output: 2_000_000_000 } })
      await request(large, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi' } })
    }
    const { id: organizationId } = await large.service.deps.db.organization.findFirstOrThrow()
    const { body } = await request(large, 'GET', `/api/usage/organization/${organizationId}`)
    expect(body.totals).toEqual({ executions: 3, failed: 0, input_tokens: 6_000_000_000, output_tokens: 6_000_000_000 })
    const query = `{ usage(orgId: "${organizationId}") { totals { input_tokens } } }`
    const { body: graphql } = await request(large, 'POST', '/graphql', { body: { query } })
    expect(graphql).toEqual({ data: { usage: { totals: { input_tokens: 6_000_000_000 } } } })
  })

  it('groups made-up models as other beyond 50 a day, and always names current ones', async () => {
    const who = await server.member({ organization: 'Many models' })
    const { db } = server.service.deps
    const run = {
      organizationId: who.organizationId,
      agentId: 'a',
      userId: 'u',
      status: 'completed',
      inputTokens: 1,
      outputTokens: 1,
    }
    const names = Array.from({ length: 60 }, (_, index) => `compatible/made-up-${index}`)
    for (const model of [...names, 'compatible/made-up-1', 'anthropic/claude-sonnet-5-5']) {
      await db.$transaction((tx) => onRunEnded(tx, { ...run, model } as never, now))
    }
    const { byModel } = (await usage(who)).usage.at(-1)
    expect(byModel).toHaveLength(52)
    const executions = (model: string) => byModel.find((row: { model: string }) => row.model === model)?.executions
    expect([executions('other'), executions('compatible/made-up-1')]).toEqual([10, 2])
    expect(executions('anthropic/claude-sonnet-5-5')).toBe(1)
  })

  it('excludes other organizations', async () => {
    const [one, two] = [await server.member({ organization: 'One' }), await server.member({ organization: 'Two' })]
    await used(one, [TODAY, 1])
    await used(two, [TODAY, 2])
    expect([(await usage(one)).totals.executions, (await usage(two)).totals.executions]).toEqual([1, 2])
  })

  it("is written last when a run ends, because other runs wait for the day's row", () => {
    const hooks = registeredRunHooks()
    expect(hooks.length).toBeGreaterThan(1)
    expect(hooks.at(-1)).toMatchObject({ onRunEnded })
  })

  it('is read from the rows of its days, never from the runs', async () => {
    const who = await server.member({ organization: 'Statements' })
    await used(who, ...Array.from({ length: 30 }, (_, day) => [dateBefore(day), 1] as [string, number]))
    await usage(who)
    const sent = await server.statementsOf(() => usage(who))
    expect(sent.filter((sql) => /`Execution|"Execution/.test(sql))).toEqual([])
    expect(sent.filter((sql) => sql.includes('UsageDay'))).toHaveLength(1)
    expect(sent.length).toBeLessThanOrEqual(3)
    if (onPostgres) return
    const plan = await server.service.deps.db.$queryRaw<{ detail: string }[]>`
      EXPLAIN QUERY PLAN SELECT * FROM "UsageDay" WHERE "organizationId" = 'x' AND "date" >= 'a' AND "date" <= 'b'
      ORDER BY "date" ASC, "agentId" ASC, "model" ASC`
    expect(plan.map(({ detail }) => detail)).toEqual([
      expect.stringMatching(/^SEARCH UsageDay USING INDEX \S+ \(organizationId=\? AND date>\? AND date<\?\)$/),
    ])
  })
})

const dateBefore = (days: number) => new Date(Date.parse(TODAY) - days * DAY).toISOString().slice(0, 10)

describe('the range of usage', () => {
  it.each<[Query, string, string]>([
    [{}, '2026-06-16', TODAY],
    [{ start: '2026-07-01' }, '2026-07-01', TODAY],
    [{ end: '2024-03-01' }, '2024-02-01', '2024-03-01'],
    [{ start: '2024-02-29', end: '2024-02-29' }, '2024-02-29', '2024-02-29'],
    [{ start: '2024-01-01', end: '2024-12-31' }, '2024-01-01', '2024-12-31'],
    [{ start: '2030-01-01', end: '2030-01-02' }, '2030-01-01', '2030-01-02'],
  ])('the range of usage of %j is %s to %s', async (query, start, end) => {
    const who = await server.member()
    expect(await usage(who, query)).toMatchObject({ start, end })
  })

  it('starts and ends with the days of UTC', async () => {
    const who = await server.member()
    const before = now
    for (const [time, end] of [
      ['2026-07-15T23:59:59.999Z', '2026-07-15'],
      ['2026-07-16T00:00:00.000Z', '2026-07-16'],
    ] as const) {
      now = new Date(time)
      expect((await usage(who)).end).toBe(end)
    }
    now = before
  })

  it.each(
    onEachApi<[Query, string]>([
      [{ period: 'hourly' }, 'Invalid period. Must be: daily, weekly, monthly'],
      [{ period: '' }, 'Invalid period. Must be: daily, weekly, monthly'],
      [{ period: 'Daily' }, 'Invalid period. Must be: daily, weekly, monthly'],
      ...[
        '2026-02-30',
        '2025-02-29',
        '2026-13-01',
        '2026-1-1',
        '20260101',
        '2026-01-01T00:00:00Z',
        'today',
        'x',
        "' OR 1=1",
      ].flatMap((date): [Query, string][] => [
        [{ start: date }, 'Invalid value for field: start. Expected YYYY-MM-DD'],
        [{ end: date }, 'Invalid value for field: end. Expected YYYY-MM-DD'],
      ]),
      [{ start: '0000-12-31' }, 'Invalid value for field: start. Expected a date in the years 1 to 9999 (UTC)'],
      [{ end: '0000-01-05' }, 'Invalid value for field: end. Expected a date in the years 1 to 9999 (UTC)'],
      [{ start: '2026-07-02', end: '2026-07-01' }, 'Invalid date range. start must not be after end'],
      [{ start: '2026-07-16' }, 'Invalid date range. start must not be after end'],
      [{ start: '2025-01-01', end: '2026-01-02' }, 'Invalid date range. At most 366 days'],
      [{ start: '0001-01-01' }, 'Invalid date range. At most 366 days'],
    ]),
  )('%s: is refused: %j', async (api, query, message) => {
    const { token, organizationId } = await server.member()
    expectError(await apis[api](server, 'usage.get', { orgId: organizationId, ...query }, { token }), 400, message)
  })
})

describe('who may see it', () => {
  it.each(APIS)('%s: usage is for any member with the scope, and no other organization', async (api) => {
    const who = await server.member({ organization: 'Seen', scopes: ['usage:read'] })
    const scoped = await server.member({ organization: 'Seen', scopes: ['agents:write', 'executions:write'] })
    const stranger = await server.member({ organization: 'Unseen', role: 'owner' })
    const call = ({ token }: Member, orgId: string) => apis[api](server, 'usage.get', { orgId }, { token })
    expect((await call(who, who.organizationId)).status).toBe(200)
    expectError(await call(scoped, who.organizationId), 403, FORBIDDEN)
    for (const orgId of [who.organizationId, 'unknown']) expectError(await call(stranger, orgId), 403, FORBIDDEN)
  })
})

it('every day is in one week and one month, which start on a Monday and on a first', () => {
  const day = fc.date({ min: new Date('2000-01-01'), max: new Date('2099-12-31'), noInvalidDate: true })
  fc.assert(
    fc.property(day, (date) => {
      const text = date.toISOString().slice(0, 10)
      const week = new Date(beginOf(text, 'weekly'))
      const age = Date.parse(text) - week.getTime()
      expect([week.getUTCDay(), age >= 0, age < 7 * DAY]).toEqual([1, true, true])
      expect(beginOf(text, 'monthly')).toBe(`${text.slice(0, 7)}-01`)
      expect(beginOf(text, 'daily')).toBe(text)
    }),
  )
})
