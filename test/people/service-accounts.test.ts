import { describe, expect, it } from 'vitest'
import { graphql } from '../graphql/support.ts'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"

const server = await use(startServer())

let count = 0
async function people() {
  const organization = `Served ${++count}`
  const owner = await server.member({ organization, role: 'owner' })
  const admin = await server.member({ organization, role: 'admin' })
  const member = await server.member({ organization })
  const path = `/api/v1/organizations/${owner.organizationId}/service-accounts`
  return { organization, owner, admin, member, path }
}

const post = (path: string, { token }: Pick<Member, 'token'>, body: object) =>
  request(server, 'POST', path, { body, token })
const create = async (path: string, by: Member, role = 'member') => (await post(path, by, { name: 'CI', role })).body.id
const get = (path: string, token: string) => request(server, 'GET', path, { token })

describe('a service account', () => {
  it.each(onEachApi([['']] as const))('%s: can be created, listed, changed and ended by an admin', async (api) => {
    const { admin, owner } = await people()
    const id = owner.organizationId
    const { token } = admin
    const call = (name: string, input: object = {}) =>
      apis[api](server, `organizations.${name}`, { id, ...input }, { token })
    const made = await call('createServiceAccount', { name: 'CI', role: 'member' })
    const { serviceAccount } = made.body
    expect(serviceAccount).toMatchObject({ name: 'CI', role: 'member', createdBy: admin.userId })
    expect((await call('listServiceAccounts')).body.serviceAccounts).toEqual([serviceAccount])
    const userId = serviceAccount.id
    const changed = await call('updateServiceAccount', { userId, name: 'CD', role: 'admin' })
    expect(changed.body.serviceAccount).toEqual({ ...serviceAccount, name: 'CD', role: 'admin' })
    expect((await call('updateServiceAccount', { userId, name: 'CD' })).status).toBe(200)
    expect((await call('deleteServiceAccount', { userId })).status).toBe(200)
    expect((await call('listServiceAccounts')).body.serviceAccounts).toEqual([])
    expectError(await call('updateServiceAccount', { userId, name: 'X' }), 404, 'Service account not found')
    expectError(await call('deleteServiceAccount', { userId }), 404, 'Service account not found')
    const { events } = (await get(`/api/v1/audit?target=${userId}`, token)).body
    const actions = events.map(({ action }: { action: string }) => action)
    expect(actions).toEqual(
      expect.arrayContaining(['service_account.create', 'service_account.update', 'member.remove']),
    )
    // The second change changed nothing.
    expect(actions.filter((action: string) => action === 'service_account.update')).toHaveLength(1)
  })

  it('can be created with a key, listed and ended over GraphQL', async () => {
    const { owner } = await people()
    const id = owner.organizationId
    const ask = (query: string, variables: object) => graphql(server, query, variables as never, { token: owner.token })
    const made = await ask(
      'mutation ($input: CreateServiceAccountInput!) { createServiceAccount(input: $input) { id } }',
      {
        input: { id, name: 'CI', role: 'member' },
      },
    )
    const userId = made.data.createServiceAccount.id
    const key = await ask(
      'mutation ($input: CreateServiceAccountKeyInput!) { createServiceAccountKey(input: $input) { token key { id } } }',
      { input: { id, userId, name: 'K', scopes: ['agents:read'] } },
    )
    const { token, key: created } = key.data.createServiceAccountKey
    expect((await get('/api/v1/agents', token)).status).toBe(200)
    const list = `query ($id: ID!, $userId: ID!) {
      serviceAccounts(id: $id) { id name } serviceAccountKeys(id: $id, userId: $userId) { id scopes } }`
    expect((await ask(list, { id, userId })).data).toEqual({
      serviceAccounts: [{ id: userId, name: 'CI' }],
      serviceAccountKeys: [{ id: created.id, scopes: ['agents:read'] }],
    })
    const end = `mutation ($id: ID!, $userId: ID!, $keyId: ID!) {
      deleteServiceAccountKey(id: $id, userId: $userId, keyId: $keyId) { deletedId }
      deleteServiceAccount(id: $id, userId: $userId) { deletedId } }`
    expect((await ask(end, { id, userId, keyId: created.id })).errors).toBeUndefined()
    expect((await get('/api/v1/agents', token)).status).toBe(401)
  })

  it('acts with its role by its keys, and its audit events name it as a service', async () => {
    const { admin, path } = await people()
    const userId = await create(path, admin)
    const { body } = await post(`${path}/${userId}/keys`, admin, { name: 'K', expiresInDays: 1 })
    const agent = await post('/api/v1/agents', body, { name: 'A', systemPrompt: 'x' })
    const { events } = (await get(`/api/v1/audit?target=${agent.body.id}`, admin.token)).body
    expect(events[0].actor).toEqual({ id: userId, name: 'CI', kind: 'service', tokenId: body.id })
    expectError(await get('/api/v1/audit', body.token), 403, FORBIDDEN)
    const members = (await get(path.replace('service-accounts', 'members'), admin.token)).body.members
    expect(members.find((each: Member) => each.userId === userId)).toMatchObject({ kind: 'service', name: 'CI' })
  })

  it('is refused beyond 500 of an organization', async () => {
    const { admin, path } = await people()
    const { organizationId, userId: createdBy } = admin
    const { db, clock } = server.service.deps
    const createdAt = clock.now()
    const ids = Array.from({ length: 500 }, (_, index) => `${organizationId}-${index}`)
    const times = { createdAt, updatedAt: createdAt }
    await db.user.createMany({ data: ids.map((id) => ({ id, email: `${id}@service.invalid`, name: 'CI', ...times })) })
    await db.serviceAccount.createMany({
      data: ids.map((userId) => ({ userId, organizationId, createdBy, createdAt })),
    })
    await db.membership.createMany({
      data: ids.map((userId) => ({ organizationId, userId, role: 'member' as const, createdAt })),
    })
    const refused = await post(path, admin, { name: 'CI', role: 'member' })
    expectError(refused, 400, 'Too many service accounts. At most 500')
  })

  it('cannot sign in, and is never an owner', async () => {
    const { owner, path } = await people()
    const userId = await create(path, owner)
    const user = await server.service.deps.db.user.findUniqueOrThrow({ where: { id: userId } })
    const body = { email: user.email, password: 'a quiet river in spring' }
    expect((await request(server, 'POST', '/api/auth/login', { body, token: null })).status).toBe(401)
    const members = `${path.replace('service-accounts', 'members')}/${userId}`
    expectError(
      await request(server, 'PATCH', members, { body: { role: 'owner' }, token: owner.token }),
      400,
      'Invalid value for field: role. Expected member or admin for a service account',
    )
    expect((await post(path, owner, { name: 'X', role: 'owner' })).status).toBe(400)
  })

  it('ends with its keys, runs and streams', async () => {
    const { admin, path } = await people()
    const userId = await create(path, admin)
    const { token } = (await post(`${path}/${userId}/keys`, admin, { name: 'K' })).body
    expect((await get('/api/v1/agents', token)).status).toBe(200)
    await request(server, 'DELETE', `${path}/${userId}`, { token: admin.token })
    expect((await get('/api/v1/agents', token)).status).toBe(401)
  })
})

describe("a caller with a token grants at most the token's own rights", () => {
  it('a token grants a key neither more scopes nor a longer life than its own', async () => {
    const { organization, owner, path } = await people()
    const userId = await create(path, owner)
    const expiresAt = new Date(Date.now() + 3_600_000)
    const scopes = ['members:write', 'agents:read']
    const narrow = await server.member({ organization, role: 'owner', scopes, expiresAt })
    const keys = `${path}/${userId}/keys`
    for (const scope of ['*', 'agents:write', 'keys:write']) {
      expectError(await post(keys, narrow, { name: 'K', scopes: [scope] }), 403, FORBIDDEN)
    }
    const { body } = await post(keys, narrow, { name: 'K', expiresInDays: 300 })
    expect(body.key).toMatchObject({ scopes, expiresAt: expiresAt.toISOString(), tokenId: narrow.tokenId })
  })

  it('a token grants an account a higher role only with the scope *', async () => {
    const { organization, owner, path } = await people()
    const narrow = await server.member({ organization, role: 'admin', scopes: ['members:write'] })
    expectError(await post(path, narrow, { name: 'X', role: 'admin' }), 403, FORBIDDEN)
    const userId = await create(path, owner, 'admin')
    expectError(await post(`${path}/${userId}/keys`, narrow, { name: 'K' }), 403, FORBIDDEN)
    const patch = { body: { role: 'admin' }, token: narrow.token }
    expectError(await request(server, 'PATCH', `${path}/${await create(path, narrow)}`, patch), 403, FORBIDDEN)
  })

  it('a token grants no rights as a member, a stranger or with foreign ids', async () => {
    const { admin, member, owner, path } = await people()
    const other = await people()
    const theirs = await create(other.path, other.owner)
    for (const by of [member, other.owner]) {
      expectError(await get(path, by.token), 403, FORBIDDEN)
      expectError(await post(path, by, { name: 'X', role: 'member' }), 403, FORBIDDEN)
    }
    for (const userId of [theirs, admin.userId, 'nobody']) {
      const missing = 'Service account not found'
      expectError(await post(`${path}/${userId}/keys`, owner, { name: 'K' }), 404, missing)
      expectError(await get(`${path}/${userId}/keys`, owner.token), 404, missing)
      expectError(await request(server, 'DELETE', `${path}/${userId}`, { token: owner.token }), 404, missing)
    }
    const own = await create(path, owner)
    expectError(
      await request(server, 'DELETE', `${path}/${own}/keys/${admin.tokenId}`, { token: owner.token }),
      404,
      'Key not found',
    )
  })
})
