import { describe, expect, it } from 'vitest'
import { createRateLimits } from '../../src/auth/rate-limits.ts'
import { graphql } from '../graphql/support.ts'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { stopClock } from '../support/clock.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'

const START = '2030-01-01T00:00:00.000Z'

describe('RATE_LIMIT', () => {
  it('counts requests of a key in a window, with headers', async () => {
    const clock = stopClock(START)
    clock.advance(18_000)
    await using server = await startServer({ RATE_LIMIT: '3/60' }, { clock })
    const one = await server.member()
    const get = () => request(server, 'GET', '/api/v1/models', one)
    const first = await get()
    expect(Object.fromEntries(first.headers)).toMatchObject({
      'ratelimit-policy': '"default";q=3;w=60',
      ratelimit: '"default";r=2;t=42',
      'x-ratelimit-limit': '3',
      'x-ratelimit-remaining': '2',
      'x-ratelimit-reset': String(Date.parse(START) / 1000 + 60),
    })
    await get()
    expect((await get()).headers.get('ratelimit')).toBe('"default";r=0;t=42')
    const refused = await get()
    expectError(refused, 429, 'Rate limit exceeded. Retry after 42 seconds.')
    expect(refused.body.detail).toContain('GET /api/v1/limits')
    expect([refused.headers.get('retry-after'), refused.headers.get('ratelimit')]).toEqual(['42', '"default";r=0;t=42'])
    // Another key of the same user, and other callers, have their own counts.
    expect((await request(server, 'GET', '/api/v1/models', await server.member())).status).toBe(200)
    clock.advance(41_999)
    expect((await get()).status).toBe(429)
    clock.advance(1)
    expect((await get()).status).toBe(200)
  })

  it('counts each call of a tRPC batch, and GraphQL and streams once', async () => {
    const clock = stopClock(START)
    await using server = await startServer({ RATE_LIMIT: '20/60' }, { clock })
    const { token } = await server.member()
    const left = async () => {
      const { body } = await request(server, 'GET', '/api/v1/limits', { token })
      return body.limits[0].remaining
    }
    const { body } = await request(server, 'POST', '/api/v1/chats', { body: {}, token })
    const before = await left()
    await request(server, 'GET', '/trpc/models.list,models.list%2Cmodels.list?batch=1&input={}', { token })
    expect(await left()).toBe(before - 4)
    await graphql(server, '{ a: limits { remaining } b: limits { remaining } }', {}, { token })
    expect(await left()).toBe(before - 6)
    const stream = await openStream(server, `/api/v1/chats/${body.chat.id}/events`, { token })
    await stream.next()
    expect(await left()).toBe(before - 8)
    stream.close()
    const batch = Array(9).fill('models.list').join(',')
    expect((await request(server, 'GET', `/trpc/${batch}?batch=1&input={}`, { token })).status).toBe(200)
    const refused = await request(server, 'GET', `/trpc/${batch}?batch=1&input={}`, { token })
    expect(JSON.stringify(refused.body)).toContain('Rate limit exceeded. Retry after 60 seconds.')
  })

  it.each(onEachApi([['']] as const))('%s: is readable for a caller', async (api) => {
    await using server = await startServer(
      { RATE_LIMIT: '100/60', EXECUTE_RATE_LIMIT: '5/3600' },
      { clock: stopClock(START) },
    )
    const { body } = await apis[api](server, 'limits.get')
    expect(body.limits).toEqual([
      { name: 'default', limit: 100, window: 60, remaining: 99, resetsAt: '2030-01-01T00:01:00.000Z' },
      { name: 'execute', limit: 5, window: 3600, remaining: 5, resetsAt: '2030-01-01T01:00:00.000Z' },
    ])
  })

  it('exempts health checks, and unknown tokens get their 401', async () => {
    await using server = await startServer({ RATE_LIMIT: '1/60' }, { clock: stopClock(START) })
    for (let i = 0; i < 3; i++) {
      expect((await request(server, 'GET', '/healthz', { token: null })).status).toBe(200)
      expect((await request(server, 'GET', '/readyz', { token: null })).status).toBe(200)
      expect((await request(server, 'GET', '/api/v1/models', { token: 'mst_x' })).status).toBe(401)
    }
  })

  it('is off by default', async () => {
    await using server = await startServer()
    const answer = await request(server, 'GET', '/api/v1/limits')
    expect(answer.body.limits).toEqual([])
    expect(answer.headers.get('ratelimit')).toBeNull()
    expect(server.service.deps.rateLimits).toBeNull()
  })
})

it('EXECUTE_RATE_LIMIT counts runs on every API, and no refused, repeated or other requests', async () => {
  await using server = await startServer({ EXECUTE_RATE_LIMIT: '4/60' }, { clock: stopClock(START) })
  const { id } = (await request(server, 'POST', '/api/v1/agents', { body: { name: 'A', systemPrompt: 'x' } })).body
  const run = { message: 'Hi', background: true }
  const headers = { 'Idempotency-Key': 'one' }
  const first = await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: run, headers })
  expect(first.headers.get('ratelimit')).toBe('"execute";r=3;t=60')
  for (const [path, body, status] of [
    [`agents/${id}/execute`, run, 200],
    [`agents/${id}/execute`, { message: '' }, 400],
    ['agents/none/execute', run, 404],
    [`executions/${first.body.executionId}/rerun`, { model: 5 }, 400],
    ['missions/none/run', {}, 404],
    ['tasks/none/execute', {}, 404],
  ] as const) {
    const answer = await request(server, 'POST', `/api/v1/${path}`, { body, headers: status === 200 ? headers : {} })
    expect([answer.status, answer.headers.get('ratelimit')]).toEqual([status, null])
  }
  expect((await apis.tRPC(server, 'agents.execute', { id, ...run })).status).toBe(200)
  const mutation = 'mutation ($input: ExecuteAgentInput!) { executeAgent(input: $input) { executionId } }'
  const { errors } = await graphql(server, mutation, { input: { id, ...run } } as never)
  expect(errors).toBeUndefined()
  expect((await request(server, 'POST', `/api/v1/chats/${first.body.chatId}/messages`, { body: run })).status).toBe(200)
  const refused = await request(server, 'POST', `/api/v1/executions/${first.body.executionId}/rerun`, { body: {} })
  expectError(refused, 429, 'Rate limit exceeded. Retry after 60 seconds.')
  expectError(
    await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { ...run, stream: true } }),
    429,
    'Rate limit exceeded. Retry after 60 seconds.',
  )
  expect((await request(server, 'GET', '/api/v1/agents')).status).toBe(200)
})

describe.runIf(onPostgres)('several servers', () => {
  it.each([
    [240, 24],
    [30, 10],
    [5, 60],
  ])('accept together at most the limit of %i in %i s and n × limit ÷ window', async (limit, seconds) => {
    await using server = await startServer({ RATE_LIMIT: `${limit}/${seconds}` }, { clock: stopClock(START) })
    const { deps } = server.service
    const servers = Array.from({ length: 4 }, () => createRateLimits(deps)!)
    const taken = await Promise.all(
      servers.flatMap((each) =>
        Array.from({ length: limit }, async () => (await each.take('default', 'token:x', 1))?.retryAfter === null),
      ),
    )
    await Promise.all(servers.map((each) => each.stop()))
    const accepted = taken.filter(Boolean).length
    expect(accepted).toBeLessThanOrEqual(limit + (servers.length * limit) / seconds)
    expect(accepted).toBeGreaterThanOrEqual(limit - servers.length * 10)
    const [later] = [createRateLimits(deps)!]
    expect((await later.take('default', 'token:x', limit))?.retryAfter).toBe(seconds)
    await later.stop()
  })

  it('keep the counts that the database did not take', async () => {
    await using server = await startServer({ RATE_LIMIT: '240/24' }, { clock: stopClock(START) })
    const { deps } = server.service
    let isAway = false
    const query = (...of: Parameters<typeof deps.db.$queryRaw>) =>
      isAway ? Promise.reject(new Error('The database is away')) : deps.db.$queryRaw(...of)
    const db = Object.assign(Object.create(deps.db), { $queryRaw: query })
    const [one, other] = [createRateLimits({ ...deps, db })!, createRateLimits(deps)!]
    expect((await one.take('default', 'token:y', 9))?.state.remaining).toBe(231)
    isAway = true
    // More than one server may withhold from the others.
    await expect(one.take('default', 'token:y', 11)).rejects.toThrow('The database is away')
    expect(one.statesOf('token:y')).toMatchObject([{ remaining: 231 }])
    isAway = false
    expect((await one.take('default', 'token:y', 11))?.state.remaining).toBe(220)
    expect((await other.take('default', 'token:y', 221))?.retryAfter).toBe(24)
    expect((await other.take('default', 'token:y', 220))?.retryAfter).toBeNull()
    await Promise.all([one.stop(), other.stop()])
  })
})
