import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { graphql } from '../graphql/support.ts'
import { ok } from '../support/api.ts'
import { planOf } from '../support/plan.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// Totals are counted in another way than pages are found (src/db/counting.ts). Both must cover the same rows.

const server = await use(startServer())
const people = {
  ...(await server.people('ann', 'ben')),
  olga: await server.member({ organization: 'Acme', role: 'admin' }),
}
type Who = keyof typeof people

async function call(who: Who, method: string, path: string, body?: object) {
  return ok(request(server, method, `/api/v1/${path}`, { token: people[who].token, ...(body && { body }) }))
}

/** One row of each kind by each person for every reason to hide it, and a run in every combination. */
beforeAll(async () => {
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
        // A second agent in the same chat, in its own session.
        await call(who, 'POST', `agents/${agents[1]}/execute`, { message: 'Hello', chatId })
        for (const visibility of ['private', 'organization']) {
          const mission = { title: 'M', goal: 'Hello', agentId: id, spaceId, visibility }
          const made = await call(who, 'POST', 'missions', mission)
          await call(who, 'POST', `missions/${made.id}/run`)
        }
      }
    }
    const closed = (await call(who, 'POST', 'agents', { name: 'A', systemPrompt: 'x' })).id
    await call(who, 'POST', `agents/${closed}/execute`, { message: 'Hello' })
    await call(who, 'PATCH', `agents/${closed}`, { visibility: 'private' })
    const gone = (await call(who, 'POST', 'spaces', { name: 'Gone' })).space.id
    await call(who, 'POST', `agents/${agents[2]}/execute`, { message: 'Hello', spaceId: gone })
    await call(who, 'DELETE', `spaces/${gone}`)
  }
  const live = { status: { in: ['pending' as const, 'running' as const] } }
  await vi.waitUntil(async () => !(await server.service.deps.db.execution.count({ where: live })), 60_000)
})

describe.each<Who>(['ann', 'ben', 'olga'])('totals for %s', (who) => {
  it.each([
    ['executions', ''],
    ['executions', 'status=completed'],
    ['executions', 'since=2020-01-01T00:00:00Z'],
    ['executions', 'since=2999-01-01T00:00:00Z'],
    ['chats', ''],
    ['chats', 'mission=true'],
    ['chats', 'mission=false'],
    ['chats', 'status=done'],
  ])('%s: equal the number of rows (%j)', async (name, filter) => {
    const { [name]: rows, total } = await call(who, 'GET', `${name}?count=true&${filter}`)
    expect(total).toBe(rows.length)
    if (!filter.includes('2999')) expect(total).toBeGreaterThan(0)
  })

  it.each(['', 'status=completed', 'status=paused'])('of missions equal the number of rows (%j)', async (filter) => {
    const { missions, count } = await call(who, 'GET', `missions?${filter}`)
    const first = await call(who, 'GET', `missions?limit=1&${filter}`)
    expect([count, first.count]).toEqual([missions.length, missions.length])
  })

  it("of each space's chats equal their list", async () => {
    const { spaces } = await call(who, 'GET', 'spaces')
    for (const { id, chatCount } of spaces) {
      const { chats, total } = await call(who, 'GET', `chats?spaceId=${id}&count=true`)
      expect([chatCount, total]).toEqual([chats.length, chats.length])
    }
  })

  it("of each chat's messages equal their list", async () => {
    const { chats } = await call(who, 'GET', 'chats')
    for (const { id, messageCount } of chats) {
      expect(messageCount).toBe((await call(who, 'GET', `chats/${id}/messages`)).messages.length)
    }
  })

  it.each([
    ['spaces', 'chats'],
    ['chats', 'messages'],
    ['agents', 'chats'],
  ])('GraphQL: of each of the %s equal the number of its visible %s', async (list, hanging) => {
    const each = (first: number, rows: string) => `nodes { list: ${hanging}(first: ${first}) { ${rows} } }`
    const text = `{ few: ${list}(first: 30) { ${each(1, 'totalCount')} } all: ${list}(first: 30) { ${each(100, 'nodes { id }')} } }`
    const { data } = await graphql(server, text, {}, { token: people[who].token })
    const totals = data.few.nodes.map((row: any) => row.list.totalCount)
    expect(totals).toEqual(data.all.nodes.map((row: any) => row.list.nodes.length))
    expect(Math.max(...totals)).toBeGreaterThan(1)
  })

  it('of executions in each agent, space, chat and mission equal the number of rows', async () => {
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

describe('a stored total', () => {
  /** The field of a list's rows, and its total; skills are in groups. */
  const LISTS = [
    ['agents', 'agents', 'total'],
    ['agents?visibility=organization', 'agents', 'total'],
    ['agents?owner=me', 'agents', 'total'],
    ['agents?tag=kept', 'agents', 'total'],
    ['public/agents', 'agents', 'total'],
    ['public/agents?tag=kept', 'agents', 'total'],
    ['spaces', 'spaces', 'total'],
    ['mcps', 'mcps', 'total'],
    ['missions', 'missions', 'count'],
    ['skills', 'skills', 'total'],
  ] as const
  const pageOf = (path: string, limit: number) => `${path}${path.includes('?') ? '&' : '?'}limit=${limit}`

  beforeAll(async () => {
    for (const who of ['ann', 'ben'] as const) {
      for (const visibility of ['private', 'organization', 'public']) {
        await call(who, 'POST', 'agents', { name: 'A', systemPrompt: 'x', visibility, tags: ['kept'] })
        await call(who, 'POST', 'skills', { name: `${who}-${visibility}`, description: 'D', prompt: 'P', visibility })
        await call(who, 'POST', 'mcps', { name: 'M', url: 'https://example.com/mcp' })
      }
    }
  })

  describe.each<Who>(['ann', 'ben', 'olga'])('for %s', (who) => {
    it.each(LISTS)('GET /%s: equals the number of rows', async (path, rows, total) => {
      const { [rows]: found, ...whole } = await call(who, 'GET', pageOf(path, 1000))
      const first = await call(who, 'GET', pageOf(path, 1))
      const length = Object.values<object[]>(path === 'skills' ? found : { found }).flat().length
      expect([whole[total], first[total]]).toEqual([length, length])
      // None of them belongs to olga.
      if (!path.includes('owner')) expect(length).toBeGreaterThan(1)
    })

    it('GraphQL: is the same', async () => {
      const lists = LISTS.map(([path], index) => {
        const [name = '', filter = ''] = path.replace('public/agents', 'publicAgents').split('?')
        const [key, value = ''] = filter.split('=')
        const argument = filter && `, ${key}: ${key === 'tag' ? `"${value}"` : value}`
        return `l${index}: ${name}(first: 1${argument}) { totalCount }`
      })
      const { data } = await graphql(server, `{ ${lists.join(' ')} }`, {}, { token: people[who].token })
      for (const [index, [path, , total]] of LISTS.entries()) {
        expect([path, data[`l${index}`].totalCount]).toEqual([path, (await call(who, 'GET', pageOf(path, 1)))[total]])
      }
    })
  })

  it.each(LISTS)('GET /%s: is read by its key, without counting', async (path) => {
    const sent = await server.statementsOf(() => call('ann', 'GET', pageOf(path, 1)))
    // A search counts the rows that its index found, of which it reads a bounded number. Now and then the addresses of
    // a token are stored, which counts those that it has.
    const counts = sent.filter((sql) =>
      /count\(\*\)(?!(?: AS "count")? FROM "(?:found"\) > \d|TokenAddress"))/.test(sql),
    )
    expect(counts).toEqual([])
    const reads = sent.filter((sql) => sql.includes('FROM "Total"'))
    expect(reads).toHaveLength(1)
    if (!onPostgres) {
      expect(planOf(server, reads[0]!)).toEqual([
        expect.stringMatching(
          /^SEARCH Total USING INDEX \S+ \(organizationId=\? AND list=\? AND userId=\? AND value=\?\)$/,
        ),
      ])
    }
  })
})

it.each(['spaces', 'spaces/{id}'])(
  "GET /%s: of each space's chats is read by its key, without counting",
  async (path) => {
    const { spaces } = await call('ann', 'GET', 'spaces')
    const sent = await server.statementsOf(() => call('ann', 'GET', path.replace('{id}', spaces[0].id)))
    expect(sent.filter((sql) => sql.includes('"Chat"'))).toEqual([])
    const reads = sent.filter((sql) => sql.includes('"ChatCount"'))
    expect(reads).toHaveLength(1)
    if (!onPostgres) {
      const [read] = planOf(server, reads[0]!)
      expect(read).toMatch(/^SEARCH t USING INDEX \S+ \(organizationId=\? AND spaceId=\? AND userId=\?\)$/)
    }
  },
)

it.each(['chats', 'chats?limit=1'])('GET /%s counts messages without reading any', async (path) => {
  const sent = await server.statementsOf(() => call('ann', 'GET', path))
  expect(sent.some((sql) => sql.includes('"Session"'))).toBe(true)
  expect(sent.filter((sql) => sql.includes('"Message"'))).toEqual([])
})

describe('among 2,000 more rows', () => {
  const MANY = 2_000
  const everybody = ['ann', 'ben', 'olga'] as const

  const totals = async (who: Who) => {
    const { spaces } = await call(who, 'GET', 'spaces')
    return {
      executions: (await call(who, 'GET', 'executions?count=true&limit=1')).total,
      chats: (await call(who, 'GET', 'chats?count=true&limit=1')).total,
      missions: (await call(who, 'GET', 'missions?status=completed&limit=1')).count,
      inSpaces: new Map<string, number>(
        spaces.map((space: { id: string; chatCount: number }) => [space.id, space.chatCount]),
      ),
    }
  }
  let before: Awaited<ReturnType<typeof totals>>[]
  let spaceId: string

  /** Copies of a chat that all members see, its run and its mission. */
  beforeAll(async () => {
    before = await Promise.all(everybody.map(totals))
    const { db } = server.service.deps
    const shared = { visibility: 'organization' as const }
    const mission = await db.mission.findFirstOrThrow({ where: { ...shared, agent: shared, space: shared } })
    const chat = await db.chat.findFirstOrThrow({ where: { missionId: mission.id } })
    const run = await db.execution.findFirstOrThrow({ where: { chatId: chat.id } })
    spaceId = chat.spaceId
    const copies = <Row extends object>(row: Row, of: (n: number) => Partial<Row>): never[] =>
      Array.from({ length: MANY }, (_, n) => ({ ...row, ...of(n) }) as never)
    await db.mission.createMany({
      data: copies(mission, (n) => ({ id: `mission-${n}`, status: 'completed' as const, nextRunAt: null })),
    })
    await db.chat.createMany({ data: copies(chat, (n) => ({ id: `chat-${n}` })) })
    await db.execution.createMany({
      data: copies(run, (n) => ({ id: `run-${n}`, rootExecutionId: `run-${n}`, queueSeq: 100 + n })),
    })
  })

  afterAll(async () => {
    const { db } = server.service.deps
    await db.execution.deleteMany({ where: { id: { startsWith: 'run-' } } })
    await db.chat.deleteMany({ where: { id: { startsWith: 'chat-' } } })
    await db.mission.deleteMany({ where: { id: { startsWith: 'mission-' } } })
  })

  it('the rows that a caller cannot see are subtracted', async () => {
    for (const [index, who] of everybody.entries()) {
      const { executions, chats, missions, inSpaces } = await totals(who)
      const was = before[index]!
      expect([executions - was.executions, chats - was.chats, missions - was.missions]).toEqual([MANY, MANY, MANY])
      inSpaces.set(spaceId, inSpaces.get(spaceId)! - MANY)
      expect(inSpaces).toEqual(was.inSpaces)
    }
  })

  it.skipIf(onPostgres).each(['executions?count=true', 'chats?count=true'])(
    'GET /%s: rows are counted within an index, which reads only hidden ones',
    async (path) => {
      const sent = await server.statementsOf(() => call('ann', 'GET', path))
      const counts = sent.filter((sql) => sql.includes('AS "counts"'))
      expect(counts.length).toBeGreaterThan(0)
      for (const sql of counts) {
        const read = planOf(server, sql).filter((step) => /^(SCAN|SEARCH) t\b/.test(step))
        expect(read.shift()).toMatch(/^SEARCH t USING COVERING INDEX \S+ \(organizationId=\?/)
        for (const step of read) expect(step).toMatch(/\((\w+=\? AND \w+=\?|id=\?|sessionId=\?)/)
      }
    },
  )

  it.skipIf(onPostgres).each([
    ['completed', 0],
    ['paused', 0],
    ['running', 1],
    // The stored total covers all missions that are neither completed nor paused, so running ones are subtracted.
    ['pending', 1],
  ] as const)('GET /missions?status=%s counts only the running ones', async (status, times) => {
    const { db } = server.service.deps
    const mission = await db.mission.findUniqueOrThrow({ where: { id: 'mission-0' } })
    await db.mission.createMany({
      data: [0, 1, 2].map((n) => ({ ...mission, output: {}, id: `${status}-${n}`, status })),
    })
    const sent = await server.statementsOf(async () => {
      const { count } = await call('ann', 'GET', `missions?limit=1&status=${status}`)
      expect(count).toBeGreaterThanOrEqual(3)
    })
    expect(sent.some((sql) => sql.includes('"Total"'))).toBe(status !== 'running')
    const counts = sent.filter((sql) => /^SELECT count/i.test(sql))
    expect(counts).toHaveLength(times)
    for (const sql of counts) {
      expect(planOf(server, sql)[0]).toMatch(
        /^SEARCH Mission USING INDEX \S+ \(organizationId=\? AND archivedAt=\? AND status=\?\)/,
      )
    }
    await db.mission.deleteMany({ where: { id: { startsWith: `${status}-` } } })
  })
})
