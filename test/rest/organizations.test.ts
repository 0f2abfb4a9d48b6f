import { describe, expect, it } from 'vitest'
import { graphql } from '../graphql/support.ts'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const LAST = 'An organization needs an owner'
const DAY = 24 * 60 * 60 * 1000

const server = await use(startServer({ ALLOW_NEW_ORGANIZATIONS: 'true' }))

let count = 0
/** A new organization with an owner, an admin and a member. */
async function people() {
  const organization = `Org ${++count}`
  const owner = await server.member({ organization, role: 'owner' })
  const admin = await server.member({ organization, role: 'admin' })
  const member = await server.member({ organization })
  const path = `/api/v1/organizations/${owner.organizationId}`
  return { organization, owner, admin, member, path }
}

const setRole = (path: string, by: Member, of: Member, role: string) =>
  request(server, 'PATCH', `${path}/members/${of.userId}`, { body: { role }, token: by.token })
const remove = (path: string, by: Member, who: string) =>
  request(server, 'DELETE', `${path}/members/${who}`, { token: by.token })
const roleOf = async ({ organizationId, userId }: Member) =>
  (
    await server.service.deps.db.membership.findUnique({
      where: { organizationId_userId: { organizationId, userId } },
    })
  )?.role
const eventsOf = async (by: Member, query: string) =>
  (await request(server, 'GET', `/api/v1/audit?${query}`, { token: by.token })).body.events

describe('PATCH /organizations/{id}/members/{userId}', () => {
  it.each(onEachApi([['']] as const))('%s: lets an admin make a member an admin, and leaves an event', async (api) => {
    const { owner, admin, member } = await people()
    const input = { id: owner.organizationId, userId: member.userId, role: 'admin' }
    const { status, body } = await apis[api](server, 'organizations.updateMember', input, { token: admin.token })
    expect([status, body.member]).toEqual([200, expect.objectContaining({ userId: member.userId, role: 'admin' })])
    expect(await eventsOf(admin, `action=member.update&target=${member.userId}`)).toMatchObject([
      {
        actor: { id: admin.userId },
        changes: { role: { from: 'member', to: 'admin' } },
        requestId: expect.any(String),
      },
    ])
    // The same role again is no change.
    expect((await apis[api](server, 'organizations.updateMember', input, { token: admin.token })).status).toBe(200)
    expect(await eventsOf(admin, `action=member.update&target=${member.userId}`)).toHaveLength(1)
    // The new role holds for the next request.
    expect((await request(server, 'GET', '/api/v1/audit', { token: member.token })).status).toBe(200)
  })

  it('works over GraphQL, as does the removal of a member', async () => {
    const { owner, member } = await people()
    const id = owner.organizationId
    const change = 'mutation ($input: UpdateMemberInput!) { updateMember(input: $input) { userId role kind } }'
    const input = { id, userId: member.userId, role: 'owner' }
    const { data } = await graphql(server, change, { input }, { token: owner.token })
    expect(data.updateMember).toEqual({ userId: member.userId, role: 'owner', kind: 'user' })
    const end = 'mutation ($id: ID!, $userId: ID!) { deleteMember(id: $id, userId: $userId) { deletedId } }'
    const ended = await graphql(server, end, { id, userId: 'me' }, { token: member.token })
    expect(ended.data.deleteMember).toEqual({ deletedId: member.userId })
    expect(await roleOf(member)).toBeUndefined()
  })

  it.each([
    ['a member', 'member', 'admin', 'member'],
    ['a member, for themselves,', 'member', 'member', 'owner'],
    ['an admin', 'admin', 'owner', 'member'],
    ['an admin, for themselves,', 'admin', 'admin', 'owner'],
    ['an admin', 'admin', 'member', 'owner'],
  ] as const)('%s (%s) may not make the %s an %s', async (_, by, of, role) => {
    const all = await people()
    const before = await roleOf(all[of])
    expectError(await setRole(all.path, all[by], all[of], role), 403, FORBIDDEN)
    expect(await roleOf(all[of])).toBe(before)
  })

  it('a key without the scope * gives no role above member', async () => {
    const { organization, path, member, admin } = await people()
    const scopes = ['members:write']
    const by = await server.member({ organization, role: 'owner', scopes })
    const refused = await setRole(path, by, member, 'admin')
    expectError(refused, 403, FORBIDDEN)
    expect(refused.body).toMatchObject({ code: 'insufficient_scope', detail: 'The token needs the scope *' })
    expect((await setRole(path, by, admin, 'member')).status).toBe(200)
  })

  it('answers equally for unknown users and foreign users and organizations', async () => {
    const { path, owner } = await people()
    const other = await people()
    for (const userId of ['nobody', other.member.userId]) {
      const of = { ...other.member, userId }
      expectError(await setRole(path, owner, of, 'admin'), 404, 'Member not found')
      expectError(await remove(path, owner, userId), 404, 'Member not found')
    }
    expectError(await setRole(other.path, owner, other.member, 'admin'), 403, FORBIDDEN)
    expectError(await remove(other.path, owner, other.member.userId), 403, FORBIDDEN)
    expectError(
      await setRole(path, owner, owner, 'king'),
      400,
      'Invalid value for field: role. Expected one of: owner, admin, member',
    )
  })

  it('never lets the last owner step down or leave', async () => {
    const { path, owner, admin } = await people()
    expectError(await setRole(path, owner, owner, 'member'), 409, LAST)
    expectError(await remove(path, owner, 'me'), 409, LAST)
    expect((await setRole(path, owner, admin, 'owner')).status).toBe(200)
    expect((await setRole(path, owner, owner, 'member')).status).toBe(200)
    expect([await roleOf(owner), await roleOf(admin)]).toEqual(['member', 'owner'])
  })

  it('keeps one owner despite concurrent demotions, departures and removals', async () => {
    const { path, organization, owner } = await people()
    const owners = [owner]
    for (let i = 0; i < 5; i++) owners.push(await server.member({ organization, role: 'owner' }))
    const answers = await Promise.all(
      owners.map((one, i) =>
        i % 3 === 0
          ? setRole(path, one, one, 'admin')
          : i % 3 === 1
            ? remove(path, one, 'me')
            : remove(path, one, owners[(i + 1) % owners.length]!.userId),
      ),
    )
    const { organizationId } = owner
    const left = await server.service.deps.db.membership.count({ where: { organizationId, role: 'owner' } })
    expect(left).toBeGreaterThanOrEqual(1)
    for (const { status } of answers) expect([200, 403, 404, 409]).toContain(status)
  })
})

describe('DELETE /organizations/{id}/members/{userId}', () => {
  it('ends tokens, streams and runs of the member, and leaves an event', async () => {
    const { path, admin, member } = await people()
    const { body } = await request(server, 'POST', '/api/v1/chats', { body: {}, token: member.token })
    const stream = await openStream(server, `/api/v1/chats/${body.chat.id}/events`, { token: member.token })
    const rest = stream.rest().catch(() => [])
    expect((await remove(path, admin, member.userId)).body.message).toBe('Member removed successfully')
    await rest
    expectError(await request(server, 'GET', '/api/v1/agents', { token: member.token }), 403, FORBIDDEN)
    expect(await eventsOf(admin, `action=member.remove`)).toMatchObject([
      { target: member.userId, actor: { id: admin.userId } },
    ])
  })

  it('lets a member leave, but not remove another member', async () => {
    const { path, admin, member, owner } = await people()
    expectError(await remove(path, member, admin.userId), 403, FORBIDDEN)
    expectError(await remove(path, admin, owner.userId), 403, FORBIDDEN)
    expect((await remove(path, member, 'me')).body.message).toBe('You left the organization')
    expect(await roleOf(member)).toBeUndefined()
  })
})

describe('organizations', () => {
  it.each(onEachApi([['']] as const))('%s: can be read by members, and renamed by admins', async (api) => {
    const { owner, admin, member, organization } = await people()
    const id = owner.organizationId
    const read = await apis[api](server, 'organizations.get', { id }, { token: member.token })
    expect(read.body.organization).toMatchObject({ id, name: organization, role: 'member' })
    expectError(
      await apis[api](server, 'organizations.update', { id, name: 'X' }, { token: member.token }),
      403,
      FORBIDDEN,
    )
    const slug = `renamed-${count}-${api.toLowerCase()}`
    const { body } = await apis[api](server, 'organizations.update', { id, name: 'X', slug }, { token: admin.token })
    expect(body.organization).toMatchObject({ name: 'X', slug })
    const [event] = await eventsOf(admin, 'action=organization.update')
    expect(event.changes).toEqual({
      name: { from: organization, to: 'X' },
      slug: { from: expect.stringMatching(/^org-/), to: slug },
    })
  })

  it('can be read, listed and renamed over GraphQL', async () => {
    const { owner, organization } = await people()
    const read = '{ organization { id name } organizations { id role } }'
    const { data } = await graphql(server, read, {}, { token: owner.token })
    const id = owner.organizationId
    expect(data).toEqual({ organization: { id, name: organization }, organizations: [{ id, role: 'owner' }] })
    const change = 'mutation ($input: UpdateOrganizationInput!) { updateOrganization(input: $input) { name } }'
    const changed = await graphql(server, change, { input: { id, name: 'Y' } }, { token: owner.token })
    expect(changed.data.updateOrganization).toEqual({ name: 'Y' })
  })

  it.each(['api', 'trpc', 'graphql', 'app', 'mcp', 'openai', 'a2a', 'healthz', 'readyz'])(
    'cannot have the reserved slug %s',
    async (slug) => {
      const { path, owner } = await people()
      expectError(
        await request(server, 'PATCH', path, { body: { slug }, token: owner.token }),
        400,
        'Invalid slug. It is reserved',
      )
    },
  )

  it.each(['', 'Upper', 'a b', '-a', 'a/b', '../x'])('cannot have the malformed slug "%s"', async (slug) => {
    const { path, owner } = await people()
    expectError(
      await request(server, 'PATCH', path, { body: { slug }, token: owner.token }),
      400,
      'Invalid value for field: slug. Expected lower-case letters, digits and single hyphens',
    )
  })

  it('have unique slugs, and reserve a former slug for a year', async () => {
    const [first, second] = [await people(), await people()]
    const rename = (of: typeof first, slug: string) =>
      request(server, 'PATCH', of.path, { body: { slug }, token: of.owner.token })
    const before = (await request(server, 'GET', first.path, { token: first.owner.token })).body.organization.slug
    expect((await rename(first, `new-${count}`)).status).toBe(200)
    const taken = 'Organization slug already exists'
    expectError(await rename(second, `new-${count}`), 409, taken)
    expectError(await rename(second, before), 409, taken)
    const body = { name: 'Z', slug: before }
    const create = await request(server, 'POST', '/api/v1/organizations', { body, token: second.owner.token })
    expectError(create, 409, taken)
    expect((await rename(first, before)).status).toBe(200)
    expect(await server.service.deps.db.formerSlug.count({ where: { slug: before } })).toBe(0)
    expect((await rename(second, `new-${count}`)).status).toBe(409)
    const where = { slug: `new-${count}` }
    const { endsAt } = await server.service.deps.db.formerSlug.findUniqueOrThrow({ where })
    expect(Math.round((endsAt.getTime() - Date.now()) / DAY)).toBe(365)
    await server.service.deps.db.formerSlug.update({ where, data: { endsAt: new Date(0) } })
    expect((await rename(second, `new-${count}`)).status).toBe(200)
  })

  it('can be created by a member, who then owns them', async () => {
    const { member } = await people()
    const name = `Fresh ${count}`
    const create = () => request(server, 'POST', '/api/v1/organizations', { body: { name }, token: member.token })
    const { body } = await create()
    expect(body).toMatchObject({ name, organization: { slug: `fresh-${count}`, role: 'owner' } })
    expect((await create()).body.organization.slug).toBe(`fresh-${count}-2`)
    const list = await request(server, 'GET', '/api/v1/organizations', { token: member.token })
    expect(list.body.organizations.map(({ role }: { role: string }) => role)).toEqual(['member', 'owner', 'owner'])
  })

  it('cannot be created by a key without the scope *', async () => {
    const { token } = await server.member({ scopes: ['organization:write'] })
    expectError(await request(server, 'POST', '/api/v1/organizations', { body: { name: 'N' }, token }), 403, FORBIDDEN)
  })

  it('cannot be created without ALLOW_NEW_ORGANIZATIONS', async () => {
    await using closed = await startServer()
    expectError(await request(closed, 'POST', '/api/v1/organizations', { body: { name: 'N' } }), 403, FORBIDDEN)
  })
})
