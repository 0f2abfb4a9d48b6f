import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { planOf } from '../support/plan.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'

// Totals are counted another way than pages are found (src/db/counting.ts): both must mean the same rows.

let server: TestServer
const people = {} as Record<'ann' | 'ben' | 'olga', Member>
type Who = keyof typeof people

async function call(who: Who, method: string, path: string, body?: object) {
  const answer = await request(server, method, `/api/v1/${path}`, { token: people[who].token, ...(body && { body }) })
  expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  return answer.body
}

/** Of everything that hides a row, one of each kind by each person, and a run in every combination of them. */
beforeAll(async () => {
  server = await startServer()
  people.ann = await server.member({ organization: 'Acme' })
  people.ben = await server.member({ organization: 'Acme' })
  people.olga = await server.member({ organization: 'Acme', role: 'admin' })
  const stranger = await server.member({ organization: 'Other' })
  const abroad = { name: 'Away', systemPrompt: 'x', visibility: 'public' }
  const foreign = await request(server, 'POST', '/api/v1/agents', { token: stranger.token, body: abroad })
  for (const who of ['ann', 'ben'] as const) {
    const agents = [foreign.body.id]
    const spaces: string[] = []
    for (const visibility of ['private', 'organization']) {
      agents.push((await call(who, 'POST', 'agents', { name: 'A', systemPrompt: 'x', visibility })).id)
      spaces.push((await call(who, 'POST', 'spaces', { name: 'S', visibility })).space.id)
    }
    for (const spaceId of spaces) {
      for (const id of agents) {
        const { chatId } = await call(who, 'POST', `agents/${id}/execute`, { message: 'Hello', spaceId })
        // A second agent in the same chat: its session is its own.
        await call(who, 'POST', `agents/${agents[1]}/execute`, { message: 'Hello', chatId })
        for (const visibility of ['private', 'organization']) {
          const mission = { title: 'M', goal: 'Hello', agentId: id, spaceId, visibility }
          const made = await call(who, 'POST', 'missions', mission)
          await call(who, 'POST', `missions/${made.id}/run`)
        }
      }
    }
    const gone = (await call(who, 'POST', 'spaces', { name: 'Gone' })).space.id
    await call(who, 'POST', `agents/${agents[2]}/execute`, { message: 'Hello', spaceId: gone })
    await call(who, 'DELETE', `spaces/${gone}`)
  }
  const live = { status: { in: ['pending' as const, 'running' as const] } }
  await vi.waitUntil(async () => !(await server.service.deps.db.execution.count({ where: live })), 15_000)
})
afterAll(() => server[Symbol.asyncDispose]())

describe.each<Who>(['ann', 'ben', 'olga'])('what %s may see', (who) => {
  it.each([
    ['executions', ''],
    ['executions', 'status=completed'],
    ['executions', 'since=2020-01-01T00:00:00Z'],
    ['executions', 'since=2999-01-01T00:00:00Z'],
    ['chats', ''],
    ['chats', 'mission=true'],
    ['chats', 'status=done'],
  ])('%s: the total is that of the rows (%j)', async (name, filter) => {
    const { [name]: rows, total } = await call(who, 'GET', `${name}?count=true&${filter}`)
    expect(total).toBe(rows.length)
    if (!filter.includes('2999')) expect(total).toBeGreaterThan(0)
  })

  it.each(['', 'status=completed', 'status=paused'])('missions: the count is that of the rows (%j)', async (filter) => {
    const { missions, count } = await call(who, 'GET', `missions?${filter}`)
    const first = await call(who, 'GET', `missions?limit=1&${filter}`)
    expect([count, first.count]).toEqual([missions.length, missions.length])
  })

  it('spaces: each has as many chats as its list', async () => {
    const { spaces } = await call(who, 'GET', 'spaces')
    for (const { id, chatCount } of spaces) {
      const { chats, total } = await call(who, 'GET', `chats?spaceId=${id}&count=true`)
      expect([chatCount, total]).toEqual([chats.length, chats.length])
    }
  })

  it('chats: each has as many messages as its list', async () => {
    const { chats } = await call(who, 'GET', 'chats')
    for (const { id, messageCount } of chats) {
      expect(messageCount).toBe((await call(who, 'GET', `chats/${id}/messages`)).messages.length)
    }
  })

  it('executions: the total of each agent, space, chat and mission is that of its rows', async () => {
    const { executions } = await call(who, 'GET', 'executions')
    for (const field of ['agentId', 'spaceId', 'missionId', 'chatId'] as const) {
      const values = new Set<string>(executions.flatMap((row: Record<string, string>) => row[field] ?? []))
      for (const value of values) {
        const { executions: rows, total } = await call(who, 'GET', `executions?count=true&${field}=${value}`)
        expect(total).toBe(rows.length)
      }
    }
  })
})

it.each(['chats', 'chats?limit=1'])('GET /%s counts messages without reading any', async (path) => {
  server.queries.length = 0
  await call('ann', 'GET', path)
  expect(server.queries.some((sql) => sql.includes('"Session"'))).toBe(true)
  expect(server.queries.filter((sql) => sql.includes('"Message"'))).toEqual([])
})

it.skipIf(onPostgres).each(['executions?count=true', 'chats?count=true', 'missions?limit=1', 'spaces'])(
  'GET /%s: rows are counted within an index, and only hidden ones are looked at',
  async (path) => {
    server.queries.length = 0
    await call('ann', 'GET', path)
    const counts = server.queries.filter((sql) => sql.includes('AS "counts"'))
    expect(counts.length).toBeGreaterThan(0)
    for (const sql of counts) {
      const read = planOf(server, sql).filter((step) => /^(SCAN|SEARCH) t\b/.test(step))
      expect(read.shift()).toMatch(/^SEARCH t USING COVERING INDEX \S+ \(organizationId=\?/)
      for (const step of read) expect(step).toMatch(/\((\w+=\? AND \w+=\?|id=\?|sessionId=\?)/)
    }
  },
)
