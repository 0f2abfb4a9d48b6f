import { expect, it, vi } from 'vitest'
import { audit } from '../../src/auth/audit.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'

const DAY = 24 * 3_600_000

it("a key's use from a new network is an event, except for its first use", async () => {
  await using server = await startServer({ TRUST_PROXY: 'true' })
  const owner = await server.member({ role: 'owner' })
  const from = (address: string) =>
    request(server, 'GET', '/api/v1/agents', { token: owner.token, headers: { 'X-Forwarded-For': address } })
  const events = async () =>
    (await request(server, 'GET', '/api/v1/audit?action=key.new_address', { token: server.token })).body.events
  const networks = () => server.service.deps.db.tokenAddress.count({ where: { tokenId: owner.tokenId } })
  for (const [address, expected] of [
    ['192.0.2.1', 1],
    ['2001:db8::1', 2],
    ['2001:db8::2', 2],
    ['192.0.2.1', 2],
  ] as const) {
    await from(address)
    await expect.poll(networks).toBe(expected)
  }
  await expect.poll(events).toHaveLength(1)
  expect(await events()).toMatchObject([
    { target: owner.tokenId, ip: '2001:db8::1', actor: { id: owner.userId, tokenId: owner.tokenId } },
  ])
})

it('a change has the network address of its request', async () => {
  await using server = await startServer()
  await request(server, 'POST', '/api/v1/agents', { body: { name: 'A', systemPrompt: 'x' } })
  const { body } = await request(server, 'GET', '/api/v1/audit?action=agent.create')
  expect(body.events).toMatchObject([{ ip: expect.stringMatching(/127\.0\.0\.1|::1/), requestId: expect.any(String) }])
})

it('old events are removed in every organization, and newer ones stay', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  try {
    await using server = await startServer({ AUDIT_RETENTION_DAYS: '30' })
    const { db, clock } = server.service.deps
    const [one, other] = [await server.member({ organization: 'One' }), await server.member({ organization: 'Other' })]
    const now = clock.now().getTime()
    await db.$transaction(async (tx) => {
      for (const by of [one, other]) {
        for (let i = 0; i < 700; i++) await audit(tx, by, 'test.old', `${i}`, new Date(now - 31 * DAY))
        await audit(tx, by, 'test.new', 'x', new Date(now - 29 * DAY))
      }
    })
    const left = (action: string) => db.auditEvent.count({ where: { action } })
    const remains = () => {
      vi.advanceTimersByTime(60_000)
      return left('test.old')
    }
    await expect.poll(remains, { interval: 10 }).toBe(0)
    expect(await left('test.new')).toBe(2)
    const deletions = server.queries.filter((sql) => sql.includes('DELETE FROM "AuditEvent"'))
    expect(deletions.length).toBeGreaterThanOrEqual(3)
    for (const sql of deletions) expect(sql).toMatch(/LIMIT/)
  } finally {
    vi.useRealTimers()
  }
})
