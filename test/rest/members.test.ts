import { expect, it } from 'vitest'
import { graphql } from '../graphql/support.ts'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const server = await use(startServer())
const ann = await server.member({ organization: 'Acme', email: 'ann@example.com', role: 'owner' })
const ben = await server.member({ organization: 'Acme', email: 'ben@example.com' })
const eve = await server.member({ organization: 'Evil', email: 'eve@example.com' })

const member = ({ userId }: Member, name: string, role: string) => ({
  userId,
  name,
  email: `${name}@example.com`,
  role,
  kind: 'user',
  joinedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
})

/** Sorts members by name, because they may have joined in the same millisecond. */
const byName = (members: { name: string }[]) => members.toSorted((a, b) => (a.name < b.name ? -1 : 1))

it.each(onEachApi([['owner'], ['member']] as const))(
  '%s: an %s lists the members of the organization',
  async (api, who) => {
    const { token, organizationId: id } = who === 'owner' ? ann : ben
    const { status, body } = await apis[api](server, 'organizations.members', { id }, { token })
    expect([status, byName(body.members)]).toEqual([200, [member(ann, 'ann', 'owner'), member(ben, 'ben', 'member')]])
  },
)

it('GraphQL lists the members, too', async () => {
  const query = 'query ($id: ID!) { organizationMembers(id: $id) { userId name email role kind joinedAt } }'
  const { data } = await graphql(server, query, { id: ben.organizationId }, { token: ben.token })
  expect(byName(data.organizationMembers)).toEqual([member(ann, 'ann', 'owner'), member(ben, 'ben', 'member')])
})

it('only members of an organization can list its members', async () => {
  const answer = await request(server, 'GET', `/api/v1/organizations/${ann.organizationId}/members`, eve)
  expectError(answer, 403, "You don't have permission to access this resource")
})

const create = (assignTo: string, { token }: Member = ann) =>
  request(server, 'POST', '/api/v1/tasks', { body: { title: 'Count', assignTo }, token })

it('a task is assigned to the caller as `me`, and to a member by e-mail in any case', async () => {
  expect((await create('me', ben)).body.task.assignedTo).toBe(ben.userId)
  const { task } = (await create(' Ben@Example.com')).body
  expect(task.assignedTo).toBe(ben.userId)
  const path = `/api/v1/tasks/${task.id}`
  const patched = await request(server, 'PATCH', path, { body: { assignedTo: 'me' }, token: ann.token })
  expect(patched.body.task.assignedTo).toBe(ann.userId)
  const list = async (who: string) =>
    (await request(server, 'GET', `/api/v1/tasks?assignedTo=${encodeURIComponent(who)}`, ann)).body.tasks.length
  expect([await list('me'), await list('ann@example.com'), await list('nobody@example.com')]).toEqual([1, 1, 0])
})

it.each(['eve@example.com', 'nobody@example.com', '@', 'you'])('a task is not assigned to %s', async (who) => {
  expectError(await create(who), 400, 'Invalid assignTo. Must be an agent or user id of this organization')
})
