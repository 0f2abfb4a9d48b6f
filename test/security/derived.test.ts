import { describe, expect, it } from 'vitest'
import type { Db, Tx } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { readAuthority } from '../../src/executions/engine/queue/authority.ts'
import { create as createOwnKey } from '../../src/keys/service.ts'
import { createKey as createServiceKey } from '../../src/organizations/service-accounts.ts'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { credentialsOf, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const server = await use(startServer(model.env))

type Holder = { token: string }
const post = async ({ token }: Holder, path: string, body: object = {}) => {
  const answer = await request(server, 'POST', `/api/v1${path}`, { token, body })
  expect([answer.status, answer.body.message]).toEqual([200, undefined])
  return answer.body
}
const get = async ({ token }: Holder, path: string) => (await request(server, 'GET', `/api/v1${path}`, { token })).body
const createAgent = async (who: Holder): Promise<string> =>
  (await post(who, '/agents', { name: 'Ada', systemPrompt: 'x' })).id
const createKey = async (maker: Holder, fields: object = {}) => {
  const { id, token, expiresAt, key } = await post(maker, '/keys', { name: 'k', ...fields })
  return { id, token, expiresAt, key } as Holder & { id: string; expiresAt: string | null; key: { tokenId: string } }
}

/** Creates a member's key, a key made with it, and a mission and a run made with that one. */
async function derive(who: Member) {
  const first = await createKey(who)
  const second = await createKey(first)
  const agentId = await createAgent(who)
  const mission = await post(second, '/missions', {
    title: 'M',
    goal: 'g',
    agentId,
    schedule: { type: 'cron', value: '0 0 1 1 *' },
  })
  const gate = Promise.withResolvers<void>()
  model.script({ tokens: ['a', gate.promise, 'b'] })
  const asked = model.request(model.requests.length)
  const run = await post(second, `/agents/${agentId}/execute`, { message: 'Hi', background: true })
  await asked
  return { first, second, agentId, missionId: mission.id, runId: run.executionId, finish: gate.resolve }
}

const revoke = (who: Holder, id: string, query = '') =>
  request(server, 'DELETE', `/api/v1/keys/${id}${query}`, { token: who.token })
const statusOf = async (who: Holder, id: string) => (await get(who, `/executions/${id}`)).execution.status

describe('a key', () => {
  it('expires with the key that made it, at the latest', async () => {
    const expiresAt = new Date(Date.now() + 3 * 24 * 60 * 60 * 1000)
    const maker = await server.member({ expiresAt })
    expect((await createKey(maker)).expiresAt).toBe(expiresAt.toISOString())
    expect((await createKey(maker, { expiresInDays: 30 })).expiresAt).toBe(expiresAt.toISOString())
    const shorter = await createKey(maker, { expiresInDays: 1 })
    expect(Date.parse(shorter.expiresAt ?? '')).toBeLessThan(expiresAt.getTime())
    expect(shorter.key.tokenId).toBe(maker.tokenId)
    expect((await createKey(await server.member())).expiresAt).toBeNull()
  })

  it('a key that is revoked alone leaves its derived keys, and the answer lists them', async () => {
    const who = await server.member()
    const { first, second, missionId, runId, finish } = await derive(who)
    const { body } = await revoke(who, first.id)
    expect(body.derived).toEqual({ keys: [second.id], missions: [missionId], runs: [runId] })
    expect((await get(second, `/missions/${missionId}`)).mission.status).toBe('pending')
    expect((await revoke(who, second.id)).body.derived).toEqual({
      keys: [],
      missions: [missionId],
      runs: [runId],
    })
    expect(await statusOf(who, runId)).toBe('running')
    finish()
    await expect.poll(() => statusOf(who, runId)).toBe('completed')
  })

  it.each(onEachApi([[]]))('%s: that is revoked with cascade ends everything made with it', async (api) => {
    const who = await server.member()
    const other = await createKey(who)
    const { first, second, agentId, missionId, runId, finish } = await derive(who)
    const archived = await post(second, '/missions', { title: 'A', goal: 'g', agentId })
    await request(server, 'DELETE', `/api/v1/missions/${archived.id}`, { token: who.token })
    const input = { id: first.id, cascade: true }
    const { body } = await apis[api](server, 'keys.delete', input, { token: who.token })
    expect(body.derived).toEqual({ keys: [second.id], missions: [missionId], runs: [runId] })
    expectError(
      await request(server, 'GET', '/api/v1/agents', { token: second.token }),
      401,
      'Unauthorized. Invalid or expired token',
    )
    const { mission } = await get(who, `/missions/${missionId}`)
    expect(mission).toMatchObject({ status: 'paused', pauseReason: 'The key it was written with was revoked' })
    await expect.poll(() => statusOf(who, runId)).toBe('cancelled')
    finish()
    expect((await get(other, '/agents')).success).toBe(true)
    const { db } = server.service.deps
    expect(await db.mission.findUnique({ where: { id: archived.id } })).toMatchObject({ status: 'pending' })
    const events = await db.auditEvent.findMany({ where: { target: { in: [missionId, second.id] } } })
    expect(events.map(({ action }) => action)).toEqual(expect.arrayContaining(['mission.pause', 'key.revoke']))
  })

  it('a key that is revoked with cascade also ends a run that was being accepted at that moment', async () => {
    const who = await server.member()
    const { first, second, runId, finish } = await derive(who)
    // Hidden from the revocation, like a run whose transaction is still open.
    const { db } = server.service.deps
    const hide = (tokenId: string) => db.execution.update({ where: { id: runId }, data: { tokenId } })
    await hide(who.tokenId)
    await revoke(who, first.id, '?cascade=true')
    await hide(second.id)
    await expect.poll(() => statusOf(who, runId)).toBe('cancelled')
    finish()
  })

  it('a key is revoked with any number of keys made with it, in statements of limited length', async () => {
    const who = await server.member()
    const first = await createKey(who)
    const { organizationId, userId } = who
    const { db } = server.service.deps
    const common = { organizationId, userId, name: 'k', scopes: [], preview: '', createdAt: new Date() }
    const data = Array.from({ length: 2_000 }, (_, index) => {
      const id = `${first.id}-${index}`
      return { ...common, id, digest: id, tokenId: first.id }
    })
    await db.$transaction((tx) => tx.token.createMany({ data }))
    const sent = await server.statementsOf(async () => {
      const { body } = await revoke(who, first.id, '?cascade=true')
      expect(body.derived.keys).toHaveLength(1_000)
    })
    // PostgreSQL takes 65,535 parameters and SQLite 32,766, which a statement with each key would exceed at last.
    const parameters = sent.map((sql) => sql.match(/\?|\$\d+/g)?.length ?? 0)
    expect(Math.max(...parameters)).toBeLessThan(1_500)
    expect(await db.token.count({ where: { tokenId: first.id, revokedAt: null } })).toBe(0)
    const revoked = { organizationId, action: 'key.revoke', actor: userId }
    expect(await db.auditEvent.count({ where: revoked })).toBe(2_001)
  })

  it.each(['own', 'service'])('is not made as the membership of its %s user ends', async (kind) => {
    const { deps } = server.service
    const who = await server.member({ organization: 'Leaving', role: 'admin' })
    const account = async () =>
      (await post(who, `/organizations/${who.organizationId}/service-accounts`, { name: 'Bot', role: 'member' })).id
    const userId = kind === 'own' ? who.userId : await account()
    const db = overrideMembers(deps.db, {
      $transaction: async (work: (tx: Tx) => Promise<unknown>) => {
        await deps.db.membership.deleteMany({ where: { userId } })
        return deps.db.$transaction(work)
      },
    }) as Db
    const actor = await deps.actors.of(credentialsOf(`Bearer ${who.token}`))
    const made =
      kind === 'own'
        ? createOwnKey(actor, { ...deps, db }, { name: 'k' })
        : createServiceKey(actor, { ...deps, db }, { id: who.organizationId, userId, name: 'k' })
    await expect(made).rejects.toMatchObject({ status: kind === 'own' ? 403 : 404 })
    expect(await deps.db.token.count({ where: { userId, name: 'k' } })).toBe(0)
  })

  it('a key that is revoked with cascade ends the invitations and webhooks made with it', async () => {
    const who = await server.member({ organization: 'Doors', role: 'admin' })
    const first = await createKey(who)
    const second = await createKey(first)
    const invite = async (by: Holder, email: string) =>
      post(by, `/organizations/${who.organizationId}/invitations`, { email, role: 'admin' })
    const subscribe = async (by: Holder): Promise<string> =>
      (await post(by, '/webhooks', { url: 'https://hooks.example/x', events: ['*'] })).id
    const [kept, invited] = [await invite(who, 'kept@example.com'), await invite(second, 'intruder@example.com')]
    await subscribe(first)
    const [own, changed, rotated] = [await subscribe(who), await subscribe(who), await subscribe(who)]
    const url = 'https://intruder.example/x'
    await request(server, 'PATCH', `/api/v1/webhooks/${changed}`, { token: second.token, body: { url } })
    await post(first, `/webhooks/${rotated}/rotate`)
    await revoke(who, first.id, '?cascade=true')
    const { invitations } = await get(who, `/organizations/${who.organizationId}/invitations`)
    expect(invitations).toEqual([kept.invitation])
    const accept = { code: invited.url.split('#')[1] }
    const path = '/api/auth/invitation'
    expect((await request(server, 'POST', path, { token: null, body: accept })).status).toBe(401)
    const { webhooks } = await get(who, '/webhooks')
    const disabledReason = 'The key it was made or changed with was revoked'
    for (const { id, ...webhook } of webhooks)
      expect(webhook).toMatchObject(id === own ? { enabled: true } : { enabled: false, disabledReason })
  })

  it('a key that is revoked with cascade ends all push notifications set with it, for any run', async () => {
    const who = await server.member()
    const key = await createKey(who)
    const { runId, agentId, finish } = await derive(who)
    const push = async (by: Holder, id: string) => {
      const url = 'https://hooks.example/secret'
      const params = { taskId: runId, pushNotificationConfig: { id, url } }
      const body = { jsonrpc: '2.0', id: 1, method: 'tasks/pushNotificationConfig/set', params }
      const answer = await request(server, 'POST', `/a2a/agents/${agentId}`, { token: by.token, body })
      expect(answer.body.error).toBeUndefined()
    }
    for (const [by, id] of [
      [who, 'own'],
      [key, 'other'],
      [who, 'changed'],
      [key, 'changed'],
    ] as const)
      await push(by, id)
    const where = { executionId: runId }
    const { auditEvent, webhook } = server.service.deps.db
    const set = await auditEvent.findMany({ where: { actor: who.userId, action: { startsWith: 'webhook.' } } })
    expect(set.map(({ action }) => action).sort()).toEqual([...Array(3).fill('webhook.create'), 'webhook.update'])
    expect(JSON.stringify(set)).not.toContain('/secret')
    const { id: pushId } = await webhook.findFirstOrThrow({ where, orderBy: { createdAt: 'desc' } })
    const [row, event] = await Promise.all([
      webhook.findUniqueOrThrow({ where: { id: pushId } }),
      auditEvent.findFirstOrThrow({ where: { target: pushId, tokenId: key.id } }),
    ])
    const many = Array.from({ length: 1_100 }, (_, index) => `push-${index}`)
    await webhook.createMany({ data: many.map((id) => ({ ...row, id, events: row.events as string[] })) })
    await auditEvent.createMany({ data: many.map((target) => ({ ...event, id: `of-${target}`, target })) })
    const statements = await server.statementsOf(() => revoke(who, key.id, '?cascade=true'))
    expect(statements.filter((sql) => !sql.startsWith('INSERT')).length).toBeLessThan(100)
    expect(await webhook.count({ where })).toBe(1)
    const deleted = await auditEvent.findMany({ where: { actor: who.userId, action: 'webhook.delete' } })
    expect(deleted).toHaveLength(1_102)
    expect(new Set(deleted.map(({ changes }) => changes))).toEqual(new Set([JSON.stringify({ executionId: runId })]))
    finish()
  })

  it('a key that is revoked alone leaves its invitations and webhooks', async () => {
    const who = await server.member({ organization: 'Other doors', role: 'admin' })
    const key = await createKey(who)
    const { id } = await post(key, '/webhooks', { url: 'https://hooks.example/x', events: ['*'] })
    await revoke(who, key.id)
    expect((await get(who, `/webhooks/${id}`)).webhook.enabled).toBe(true)
  })

  it('a key of another user ends nothing, with or without cascade', async () => {
    const who = await server.member()
    const { first, missionId, finish } = await derive(who)
    const stranger = await server.member({ organization: 'Other', role: 'owner' })
    for (const query of ['', '?cascade=true', '?cascade=false'])
      expectError(await revoke(stranger, first.id, query), 404, 'Key not found')
    expectError(
      await revoke(who, first.id, '?cascade=maybe'),
      400,
      'Invalid value for field: cascade. Expected true or false',
    )
    expect((await get(who, `/missions/${missionId}`)).mission.status).toBe('pending')
    finish()
  })
})

describe('things made with a key', () => {
  it('name the key only to its owner and to admins', async () => {
    const who = await server.member()
    const { second, missionId, runId, finish } = await derive(who)
    const admin = await server.member({ role: 'admin' })
    const colleague = await server.member()
    finish()
    for (const [reader, tokenId] of [
      [who, second.id],
      [admin, second.id],
      [colleague, null],
    ] as const) {
      expect((await get(reader, `/missions/${missionId}`)).mission.tokenId).toBe(tokenId)
      expect((await get(reader, `/executions/${runId}`)).execution.tokenId).toBe(tokenId)
      const query = 'query ($m: ID!, $e: ID!) { mission(id: $m) { tokenId } execution(id: $e) { tokenId } }'
      const { body } = await request(server, 'POST', '/graphql', {
        token: reader.token,
        body: { query, variables: { m: missionId, e: runId } },
      })
      expect(body.data).toEqual({ mission: { tokenId }, execution: { tokenId } })
    }
    const events = await server.service.deps.db.auditEvent.findMany({ where: { target: missionId } })
    expect(events.map(({ tokenId }) => tokenId)).toEqual([second.id])
    const changed = { body: { title: 'N' }, token: admin.token }
    expect((await request(server, 'PATCH', `/api/v1/missions/${missionId}`, changed)).status).toBe(200)
    expect((await get(who, `/missions/${missionId}`)).mission.tokenId).toBe(second.id)
  })

  it('call no tool after the key is revoked, unless a mission runs', async () => {
    const who = await server.member()
    const { second, runId, missionId, finish } = await derive(who)
    const { db } = server.service.deps
    const row = await db.execution.findUniqueOrThrow({ where: { id: runId } })
    expect((await readAuthority(db, row, null)).actor.tokenId).toBe(second.id)
    await revoke(who, second.id)
    await expect(readAuthority(db, row, null)).rejects.toThrow('The token that started this run was revoked')
    expect((await readAuthority(db, { ...row, missionId }, null)).actor.userId).toBe(who.userId)
    finish()
  })
})

it.each(onEachApi([[]]))('%s: a waiting request fails as soon as its key is revoked', async (api) => {
  const who = await server.member()
  const agentId = await createAgent(who)
  const key = await createKey(who)
  const gate = Promise.withResolvers<void>()
  model.script({ tokens: ['a', gate.promise, 'b'] })
  const waiting = apis[api](server, 'agents.execute', { id: agentId, message: 'Hi' }, { token: key.token })
  await expect.poll(async () => (await get(who, '/executions?status=running')).executions).toHaveLength(1)
  await revoke(who, key.id)
  const { status, body } = await waiting
  expect([status, body.message]).toEqual([401, expect.stringMatching(/Invalid or expired token$/)])
  gate.resolve()
})
