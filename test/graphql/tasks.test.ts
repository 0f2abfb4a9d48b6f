import { describe, expect, it } from 'vitest'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { createTrigger, dropTrigger } from '../support/trigger.ts'
import { use } from '../support/use.ts'
import { graphql } from './support.ts'

const server = await use(startServer())
const ann = await server.member()

const STATUSES = ['pending', 'in_progress', 'completed', 'cancelled'] as const
type Status = (typeof STATUSES)[number]

/** The state table of the service description, with both moves at once (contract-2.md section 1.15). */
const NEXT: Record<Status, readonly Status[]> = {
  pending: ['in_progress', 'completed', 'cancelled'],
  in_progress: ['completed', 'cancelled', 'pending'],
  completed: [],
  cancelled: [],
}

const asAnn = () => ({ token: ann.token })

/** Creates a task in a status, by REST. */
async function taskIn(status: Status) {
  const { body } = await request(server, 'POST', '/api/v1/tasks', { body: { title: 'Tidy up' }, ...asAnn() })
  for (const step of status === 'completed' ? ['in_progress', status] : [status]) {
    await request(server, 'PATCH', `/api/v1/tasks/${body.id}`, { body: { status: step }, ...asAnn() })
  }
  return show(body.id)
}

const show = async (id: string) => (await request(server, 'GET', `/api/v1/tasks/${id}`, asAnn())).body.task

const UPDATE = 'mutation ($input: UpdateTaskInput!) { updateTask(input: $input) { id status completedAt } }'

describe('the status over GraphQL', () => {
  const pairs = STATUSES.flatMap((from) => STATUSES.map((to): [Status, Status] => [from, to]))

  it.each(pairs)('moves from %s to %s as in the state table', async (from, to) => {
    const before = await taskIn(from)
    expect(before.status).toBe(from)
    const { data, message } = await graphql(server, UPDATE, { input: { id: before.id, status: to } }, asAnn())
    const after = await show(before.id)
    if (from === to || NEXT[from].includes(to)) {
      expect(message).toBeUndefined()
      expect(data.updateTask).toEqual({ id: before.id, status: to, completedAt: after.completedAt })
      expect(after.status).toBe(to)
      expect(after.completedAt !== null).toBe(to === 'completed')
    } else {
      expect([data, message]).toEqual([null, `Invalid status transition: ${from} to ${to}`])
      expect(after).toEqual(before)
    }
  })
})

it('a mutation that fails leaves the results of the others, and those behind it are executed', async () => {
  const text = (first: string) => `mutation {
    first: createTask(input: { title: "${first}" }) { title }
    bad: updateTask(input: { id: "gone", title: "New" }) { title }
    last: createTask(input: { title: "Last" }) { title }
  }`
  const { data, errors } = await graphql(server, text('First'), {}, asAnn())
  expect(data).toEqual({ first: { title: 'First' }, bad: null, last: { title: 'Last' } })
  expect(errors).toMatchObject([{ message: 'Task not found', path: ['bad'] }])
  const alone = await graphql(
    server,
    'mutation { a: deleteTask(id: "a") { deletedId } b: deleteTask(id: "b") { deletedId } }',
    {},
    asAnn(),
  )
  expect([alone.data, alone.errors?.length]).toEqual([null, 2])
})

it.each([
  ['updateTask', 'task.update', 'mutation ($id: ID!) { updateTask(input: { id: $id, title: "New" }) { id } }'],
  ['claimTask', 'task.claim', 'mutation ($id: ID!) { claimTask(id: $id) { id } }'],
])('%s gives 404 for a task that is deleted before it can be shown', async (name, action, document) => {
  const { id } = await taskIn('pending')
  const { db } = server.service.deps
  await createTrigger(db, {
    name,
    event: 'AFTER INSERT',
    table: 'AuditEvent',
    when: `NEW."action" = '${action}'`,
    effect: 'DELETE FROM "Task" WHERE "id" = NEW."target"',
  })
  const { message, errors } = await graphql(server, document, { id }, asAnn())
  await dropTrigger(db, name)
  expect(message).toBe('Task not found')
  expect(errors?.[0]?.extensions).toMatchObject({ statusCode: 404 })
})
