import { Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { audit } from '../../src/auth/audit.ts'
import { graphql } from '../graphql/support.ts'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"

const server = await use(startServer())
const ann = await server.member({ organization: 'Acme', email: 'ann@example.com', role: 'admin' })
const ben = await server.member({ organization: 'Acme', email: 'ben@example.com' })
const eve = await server.member({ organization: 'Evil', email: 'eve@example.com', role: 'owner' })

/** Creates an agent as ben, and changes it as ann. Returns its id. */
async function createAndChange(): Promise<string> {
  const created = await request(server, 'POST', '/api/v1/agents', {
    body: { name: 'A', systemPrompt: 'x' },
    token: ben.token,
    headers: { 'X-Request-Id': 'the-request' },
  })
  const { id } = created.body
  await request(server, 'PATCH', `/api/v1/agents/${id}`, { body: { name: 'B' }, token: ann.token })
  return id
}

const agentId = await createAndChange()

const list = async (query = '', { token }: Member = ann) =>
  (await request(server, 'GET', `/api/v1/audit${query}`, { token })).body

describe('GET /audit', () => {
  it('lists the events of the organization, newest first, with actor, key and request', async () => {
    const newest = await createAndChange()
    const { events } = await list()
    const actions = events.map(({ action }: { action: string }) => action)
    expect(actions.slice(0, 2)).toEqual(['agent.update', 'agent.create'])
    expect(events[1]).toMatchObject({
      target: newest,
      requestId: 'the-request',
      changes: null,
      actor: { id: ben.userId, name: 'ben', kind: 'token', tokenId: ben.tokenId },
    })
    expect(events.find(({ action }: { action: string }) => action === 'organization.create')).toMatchObject({
      actor: { id: 'operator', name: 'Operator', kind: 'system', tokenId: null },
    })
    expect(JSON.stringify(events)).not.toContain(eve.organizationId)
  })

  it.each(onEachApi([['action'], ['actorId'], ['target'], ['since'], ['until']] as const))(
    '%s: excludes the other events with the filter %s',
    async (api, filter) => {
      const all = (await list()).events
      const oldest = all.at(-1)
      const values = {
        action: 'agent.create',
        actorId: ben.userId,
        target: agentId,
        since: all[0].at,
        until: all[0].at,
      }
      const keeps = {
        action: (event: typeof oldest) => event.action === 'agent.create',
        actorId: (event: typeof oldest) => event.actor.id === ben.userId,
        target: (event: typeof oldest) => event.target === agentId,
        since: (event: typeof oldest) => event.at >= all[0].at,
        until: (event: typeof oldest) => event.at < all[0].at,
      }
      const { body } = await apis[api](server, 'audit.list', { [filter]: values[filter] }, { token: ann.token })
      const expected = all.filter(keeps[filter])
      expect(body.events).toEqual(expected)
      expect(expected.length).toBeGreaterThan(0)
      expect(expected.length).toBeLessThan(all.length)
    },
  )

  it('pages through all events once', async () => {
    const all = (await list()).events
    const found: unknown[] = []
    let cursor: string | null = null
    do {
      const page: { events: unknown[]; nextCursor: string | null } = await list(
        `?limit=2${cursor ? `&cursor=${cursor}` : ''}`,
      )
      found.push(...page.events)
      cursor = page.nextCursor
    } while (cursor)
    expect(found).toEqual(all)
  })

  it('lists the same events over GraphQL', async () => {
    const query = `{ auditEvents(first: 100) { totalCount nodes {
      id at action target ip requestId changes actor { id name kind tokenId } } } }`
    const { data } = await graphql(server, query, {}, { token: ann.token })
    const { events } = await list()
    expect(data.auditEvents).toEqual({ totalCount: events.length, nodes: events })
  })

  it.each(onEachApi([['']] as const))('%s: is refused for a member', async (api) => {
    expectError(await apis[api](server, 'audit.list', {}, { token: ben.token }), 403, FORBIDDEN)
  })

  it('is refused for a member over GraphQL', async () => {
    const { errors } = await graphql(server, '{ auditEvents { nodes { id } } }', {}, { token: ben.token })
    expect(errors).toMatchObject([{ message: FORBIDDEN }])
  })

  it('refuses a cursor of another list', async () => {
    expectError(
      await request(server, 'GET', '/api/v1/audit?cursor=x', ann),
      400,
      'Invalid value for field: cursor. Expected a nextCursor of this list',
    )
  })
})

describe('GET /audit/export', () => {
  const path = '/api/v1/audit/export'
  const fetchExport = (token: string, query = '') =>
    fetch(`${server.url}${path}${query}`, { headers: { Authorization: `Bearer ${token}` } })

  it('streams every event as a line, and is an event itself', async () => {
    const before = (await list()).events
    const response = await fetchExport(ann.token, '?since=2020-01-01')
    expect(response.headers.get('content-type')).toBe('application/x-ndjson; charset=utf-8')
    const lines = (await response.text()).trimEnd().split('\n')
    const [own, ...rest] = lines.map((line) => JSON.parse(line))
    expect(own).toMatchObject({ action: 'audit.export', actor: { id: ann.userId }, changes: { since: '2020-01-01' } })
    expect(rest).toEqual(before)
  })

  it('leaves no event for a HEAD, which reads nothing', async () => {
    const before = (await list()).events
    const head = await request(server, 'HEAD', path, ann)
    expect([head.status, head.headers.get('content-type')]).toEqual([200, 'application/x-ndjson; charset=utf-8'])
    expect((await list()).events).toEqual(before)
  })

  it.each([
    ['a member', () => ben.token],
    [
      'an admin whose key lacks audit:read',
      async () => (await server.member({ organization: 'Acme', role: 'admin', scopes: ['agents:write'] })).token,
    ],
  ])('refuses %s', async (_, token) => {
    const answer = await request(server, 'GET', path, { token: await token() })
    expectError(answer, 403, FORBIDDEN)
  })

  it('refuses an unknown parameter and an invalid date', async () => {
    expectError(await request(server, 'GET', `${path}?form=x`, ann), 400, 'Unknown parameter: form')
    expect((await request(server, 'GET', `${path}?since=x`, ann)).status).toBe(400)
    expectError(await request(server, 'POST', path, ann), 405, 'Method not allowed')
  })

  it('reads the database only as fast as the client reads', async () => {
    const { deps } = server.service
    const owner = await server.member({ organization: 'Large', role: 'owner' })
    const now = deps.clock.now()
    await deps.db.$transaction(async (tx) => {
      for (let i = 0; i < 20_000; i++) await audit(tx, owner, 'test.fill', `${i}`.padEnd(1000, 'x'), now)
    })
    const response = await fetchExport(owner.token)
    const reader = Readable.fromWeb(response.body as never)
    const pagesRead = () => server.queries.filter((sql) => /FROM "AuditEvent"/.test(sql)).length
    server.queries.length = 0
    await new Promise((resolve) => reader.once('readable', resolve))
    expect(pagesRead()).toBeLessThan(40)
    let length = 0
    for await (const chunk of reader) length += chunk.length
    expect(length).toBeGreaterThan(20_000_000)
  })
})
