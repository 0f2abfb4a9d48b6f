import { setTimeout as sleep } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newToken } from '../../src/auth/tokens.ts'
import { TRANSITIONS } from '../../src/tasks/service.ts'
import { expectError, FACES, faces, onEachFace, procedures } from '../support/faces.ts'
import { createFolder } from '../support/folder.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { spawnServer } from '../support/process.ts'
import { type Answer, request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'

let now = Date.parse('2026-01-01T00:00:00Z')
const clock = { now: () => new Date(now) }

let server: TestServer
let model: ModelServer
let ann: Member
let ben: Member
let eve: Member
beforeAll(async () => {
  model = await startModelServer()
  server = await startServer({ OPENAI_BASE_URL: model.baseUrl }, { clock })
  ann = await server.member({ organization: 'Acme' })
  ben = await server.member({ organization: 'Acme' })
  eve = await server.member({ organization: 'Evil & Co' })
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await model.close()
})

type Body = Record<string, any>
type Options = { who?: Pick<Member, 'token'>; key?: string }
const call = (method: string, path: string, body?: Body, { who = ann, key }: Options = {}): Promise<Answer> =>
  request(server, method, `/api/v1${path}`, {
    token: who.token,
    ...(body && { body }),
    ...(key && { headers: { 'Idempotency-Key': key } }),
  })
const ok = async (answer: Promise<Answer>): Promise<Body> => {
  const { status, body } = await answer
  expect(status, JSON.stringify(body)).toBe(200)
  return body
}

const create = async (fields: Body = {}, who = ann) =>
  (await ok(call('POST', '/tasks', { title: 'Count the engines', ...fields }, { who }))).task
const get = async (id: string, who = ann) => (await ok(call('GET', `/tasks/${id}`, undefined, { who }))).task
const patch = (id: string, fields: Body, who = ann) => call('PATCH', `/tasks/${id}`, fields, { who })
const patched = async (id: string, fields: Body, who = ann) => (await ok(patch(id, fields, who))).task
const createAgent = async (fields: Body = {}, who = ann): Promise<string> =>
  (await ok(call('POST', '/agents', { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }, { who }))).id
const archivedAgent = async () => {
  const id = await createAgent()
  await ok(call('DELETE', `/agents/${id}`))
  return id
}

/** A space of the organization that nobody but ben may see. */
const privateSpace = async (fields: object = {}): Promise<string> => {
  const at = { createdAt: clock.now(), updatedAt: clock.now() }
  const { organizationId, userId: ownerId } = ben
  const data = { id: newToken('space'), organizationId, ownerId, name: 'S', visibility: 'private' as const, ...at }
  return (await server.service.deps.db.space.create({ data: { ...data, ...fields } })).id
}
const defaultSpace = async ({ organizationId }: Member) =>
  (await server.service.deps.db.space.findFirstOrThrow({ where: { organizationId, isDefault: true } })).id

const audits = (target: string) => server.service.deps.db.auditEvent.count({ where: { target } })

const STATUSES = ['pending', 'in_progress', 'completed', 'cancelled'] as const
type Status = (typeof STATUSES)[number]

/** A task that has come to be in this status. */
const createIn = async (status: Status, fields: Body = {}) => {
  const task = await create(fields)
  if (status === 'pending') return task
  if (status !== 'cancelled') await patched(task.id, { status: 'in_progress' })
  return status === 'in_progress' ? get(task.id) : patched(task.id, { status })
}

const TRANSITION = (from: Status, to: Status) => `Invalid status transition: ${from} to ${to}`
const ASSIGNEE = 'Invalid assignTo. Must be an agent or user id of this organization'
const STATUS = 'Invalid status. Must be: pending, in_progress, completed, cancelled'
const PRIORITY = 'Invalid priority. Must be: low, medium, high, urgent'
const missing = (field: string) => `Missing required field: ${field}`
const invalid = (field: string, expected: string) => `Invalid value for field: ${field}. Expected ${expected}`

describe('POST /tasks', () => {
  it('answers the new task, with what it was told and defaults for the rest', async () => {
    const body = await ok(call('POST', '/tasks', { title: ' Count\n' }))
    const at = new Date(now).toISOString()
    const task = {
      id: expect.stringMatching(new RegExp(`^task-${now}-\\w{22}$`)),
      title: ' Count\n',
      description: '',
      status: 'pending',
      priority: 'medium',
      assignedTo: null,
      spaceId: null,
      organizationId: ann.organizationId,
      createdBy: ann.userId,
      executionId: null,
      result: null,
      createdAt: at,
      updatedAt: at,
      completedAt: null,
    }
    expect(body).toEqual({ success: true, id: body.task.id, title: ' Count\n', status: 'pending', task })
    expect(await get(body.id)).toEqual(body.task)
  })

  it('keeps every field, and takes null for what is optional as its default', async () => {
    const spaceId = await defaultSpace(ann)
    const full = { description: 'All of\nthem 👩🏽‍💻', priority: 'urgent', assignedTo: ben.userId, spaceId }
    expect(await create(full)).toMatchObject(full)
    const none = { description: null, assignTo: null, assignedTo: null, spaceId: null }
    expect(await create(none)).toMatchObject({ ...none, description: '' })
  })

  it('is done by any member, and changed and deleted by any other', async () => {
    const { id } = await create()
    expect(await patched(id, { title: 'Mine now', status: 'cancelled' }, ben)).toMatchObject({ createdBy: ann.userId })
    expect((await call('DELETE', `/tasks/${id}`, undefined, { who: ben })).body).toEqual({
      success: true,
      message: 'Task deleted successfully',
    })
    expectError(await call('GET', `/tasks/${id}`), 404, 'Task not found')
  })
})

describe('what a client cannot set', () => {
  const theirs = {
    id: 'task-1-theirs',
    organizationId: 'theirs',
    userId: 'theirs',
    createdBy: 'theirs',
    createdAt: '2001-01-01T00:00:00.000Z',
    updatedAt: '2001-01-01T00:00:00.000Z',
    completedAt: '2001-01-01T00:00:00.000Z',
    executionId: 'theirs',
    result: 'theirs',
    assignedAgentId: 'theirs',
    success: false,
    unknown: { nested: true },
  }

  it.each(FACES)('is ignored on create and in a PATCH (%s)', async (face) => {
    const input = { title: 'Own', ...theirs, status: 'completed' }
    const { task } = (await faces[face](server, 'tasks.create', input, ann)).body
    expect(JSON.stringify(task)).not.toMatch(/theirs|2001|nested/)
    expect(task).toMatchObject({ status: 'pending', completedAt: null, organizationId: ann.organizationId })
    now += 1000
    expect((await faces[face](server, 'tasks.update', { ...theirs, id: task.id }, ann)).body.task).toEqual(task)
    expect(await get(task.id)).toEqual(task)
  })

  it('is which task it is: the path decides, not an id in the body', async () => {
    const [one, other] = [await create(), await create()]
    expect(await patched(one.id, { id: other.id, title: 'Changed' })).toMatchObject({ id: one.id, title: 'Changed' })
    expect(await get(other.id)).toEqual(other)
    const claimed = (await call('POST', `/tasks/${one.id}/claim`, { id: other.id })).body.task
    expect(claimed.id).toBe(one.id)
    expect(await get(other.id)).toEqual(other)
  })
})

describe('what is missing or wrong is a 400 that names it', () => {
  const wrong: [procedure: string, input: Body, message: string][] = [
    ...[undefined, null, '', ' ', '\t\n\u00a0'].map((title): [string, Body, string] => [
      'tasks.create',
      { title },
      missing('title'),
    ]),
    ...[null, '', ' '].map((title): [string, Body, string] => ['tasks.update', { title }, missing('title')]),
    ['tasks.create', { title: 5 }, invalid('title', 'string')],
    ['tasks.create', { title: 'x'.repeat(501) }, invalid('title', 'at most 500 characters')],
    ['tasks.update', { title: 'x'.repeat(501) }, invalid('title', 'at most 500 characters')],
    ['tasks.create', { title: 'x', description: 5 }, invalid('description', 'string')],
    ['tasks.create', { title: 'x', assignTo: 5 }, invalid('assignTo', 'string')],
    ['tasks.create', { title: 'x', assignedTo: ['x'] }, invalid('assignedTo', 'string')],
    ['tasks.create', { title: 'x', spaceId: {} }, invalid('spaceId', 'string')],
    ['tasks.claim', { agentId: 5 }, invalid('agentId', 'string')],
    ['tasks.execute', { background: 'true' }, invalid('background', 'boolean')],
    ...['', 'Low', 'critical', 5, null, ['low']].flatMap((priority): [string, Body, string][] => [
      ['tasks.create', { title: 'x', priority }, PRIORITY],
      ['tasks.update', { priority }, PRIORITY],
    ]),
    ...['', 'done', 'PENDING', 'running', 5, null, ['pending']].map((status): [string, Body, string] => [
      'tasks.update',
      { status },
      STATUS,
    ]),
    ...['', 'done', 'in-progress', 'toString'].map((status): [string, Body, string] => [
      'tasks.list',
      { status },
      STATUS,
    ]),
    ...['', 'none', 'LOW'].map((priority): [string, Body, string] => ['tasks.list', { priority }, PRIORITY]),
    ['tasks.list', { count: 'yes' }, invalid('count', 'true')],
    ['tasks.list', { limit: '0' }, invalid('limit', 'at least 1')],
    ['tasks.list', { limit: '1001' }, invalid('limit', 'at most 1000')],
    ['tasks.list', { cursor: 'x' }, invalid('cursor', 'a nextCursor of this list')],
  ]
  let id: string
  beforeAll(async () => {
    id = (await create()).id
  })

  it.each(onEachFace(wrong))('%s %s %.60j: %s', async (face, procedure, input, message) => {
    const names = /update|claim|execute/.test(procedure)
    expectError(await faces[face](server, procedure, { ...(names && { id }), ...input }, ann), 400, message)
  })

  it('in a filter, one by one and beside good ones', async () => {
    expectError(await call('GET', '/tasks?status=pending&priority=x'), 400, PRIORITY)
    expectError(await call('GET', '/tasks?status=x&priority=low'), 400, STATUS)
  })
})

describe('a space', () => {
  const nowhere: [string, () => Promise<string>][] = [
    ['that never was', async () => 'x'.repeat(22)],
    ['without a name', async () => ''],
    ['of another organization', () => defaultSpace(eve)],
    ["that is somebody else's private one", () => privateSpace()],
    ['that is archived', () => privateSpace({ visibility: 'organization', archivedAt: clock.now() })],
  ]
  it.each(nowhere)('%s is a 404 on create and in a PATCH', async (_, make) => {
    const spaceId = await make()
    const task = await create()
    expectError(await call('POST', '/tasks', { title: 'x', spaceId }), 404, 'Space not found')
    expectError(await patch(task.id, { spaceId, title: 'x' }), 404, 'Space not found')
    expect(await get(task.id)).toEqual(task)
  })

  it('is changed and left by a PATCH', async () => {
    const [spaceId, shared] = [await defaultSpace(ann), await privateSpace({ visibility: 'organization' })]
    const { id } = await create({ spaceId })
    expect(await patched(id, { spaceId: shared })).toMatchObject({ spaceId: shared })
    expect(await patched(id, { spaceId: null })).toMatchObject({ spaceId: null })
  })
})

describe('an assignee', () => {
  it.each(onEachFace([['assignTo'], ['assignedTo']]))(
    '%s: is an agent or a member, by the name of %s',
    async (face, field) => {
      const agents = await Promise.all([
        createAgent(),
        createAgent({ visibility: 'unlisted' }, ben),
        createAgent({ visibility: 'private' }),
      ])
      const { task } = (await faces[face](server, 'tasks.create', { title: 'x' }, ann)).body
      for (const id of [...agents, ann.userId, ben.userId, null]) {
        const made = await faces[face](server, 'tasks.create', { title: 'x', [field]: id }, ann)
        expect(made.body.task.assignedTo).toBe(id)
        const changed = await faces[face](server, 'tasks.update', { id: task.id, [field]: id }, ann)
        expect(changed.body.task.assignedTo).toBe(id)
        const { db } = server.service.deps
        const rows = await db.task.findMany({ where: { id: { in: [made.body.id, task.id] } } })
        const assignedAgentId = agents.includes(id ?? '') ? id : null
        expect(rows.map((row) => row.assignedAgentId)).toEqual([assignedAgentId, assignedAgentId])
      }
    },
  )

  it('by assignTo wins over one by assignedTo', async () => {
    const both = { assignTo: ann.userId, assignedTo: ben.userId }
    const { id, assignedTo } = await create(both)
    expect(assignedTo).toBe(ann.userId)
    expect(await patched(id, { ...both, assignTo: null })).toMatchObject({ assignedTo: null })
  })

  const nobodies: [string, () => Promise<string> | string][] = [
    ['nobody', () => 'x'.repeat(22)],
    ['without an id', () => ''],
    ["another organization's agent", () => createAgent({}, eve)],
    ["another organization's public agent", () => createAgent({ visibility: 'public' }, eve)],
    ["somebody else's private agent", () => createAgent({ visibility: 'private' }, ben)],
    ['an archived agent', archivedAgent],
    ["another organization's member", () => eve.userId],
    ['the organization itself', () => ann.organizationId],
  ]
  it.each(onEachFace(nobodies))('%s: %s is refused on create and in a PATCH', async (face, _, make) => {
    const task = await create({ assignTo: ben.userId })
    const id = await make()
    for (const field of ['assignTo', 'assignedTo']) {
      expectError(await faces[face](server, 'tasks.create', { title: 'x', [field]: id }, ann), 400, ASSIGNEE)
      const change = { id: task.id, title: 'x', [field]: id }
      expectError(await faces[face](server, 'tasks.update', change, ann), 400, ASSIGNEE)
    }
    expect(await get(task.id)).toEqual(task)
  })
})

describe('PATCH /tasks/{id}', () => {
  it('changes what it names and leaves the rest', async () => {
    const { id } = await create({ description: 'D' })
    const changes = { title: 'T', description: 'E', priority: 'low', assignedTo: ben.userId, status: 'in_progress' }
    for (const [field, value] of Object.entries(changes)) {
      const before = await get(id)
      now += 1000
      const after = await patched(id, { [field]: value })
      expect(after).toEqual({ ...before, [field]: value, updatedAt: new Date(now).toISOString() })
      expect(await get(id)).toEqual(after)
    }
    expect(await patched(id, { description: null })).toMatchObject({ description: '' })
  })

  it('of several at once, all land', async () => {
    const { id } = await create()
    const changes = { title: 'T', description: 'D', priority: 'high', assignedTo: ben.userId, status: 'in_progress' }
    await Promise.all(Object.entries(changes).map(([field, value]) => patched(id, { [field]: value })))
    expect(await get(id)).toMatchObject(changes)
    expect(await audits(id)).toBe(1 + Object.keys(changes).length)
  })

  it.each([
    {},
    { title: 'Count the engines' },
    { status: 'pending', priority: 'medium', description: null, assignTo: null, spaceId: null },
    { unknown: 1 },
  ])('of nothing changes nothing: %j', async (fields) => {
    const task = await create()
    now += 1000
    expect(await patched(task.id, fields)).toEqual(task)
    expect(await get(task.id)).toEqual(task)
    expect(await audits(task.id)).toBe(1)
  })
})

describe('the status', () => {
  const pairs = STATUSES.flatMap((from) => STATUSES.map((to): [Status, Status] => [from, to]))

  it.each(onEachFace(pairs))('%s: from %s to %s is as in the state table', async (face, from, to) => {
    const before = await createIn(from)
    const events = await audits(before.id)
    now += 1000
    const answer = await faces[face](server, 'tasks.update', { id: before.id, status: to }, ann)
    const allowed = TRANSITIONS[from].includes(to)
    if (allowed || from === to) expect(answer.status).toBe(200)
    else expectError(answer, 400, TRANSITION(from, to))
    const at = new Date(now).toISOString()
    const completedAt = to === 'completed' ? at : null
    expect(await get(before.id)).toEqual(allowed ? { ...before, status: to, updatedAt: at, completedAt } : before)
    expect(await audits(before.id)).toBe(allowed ? events + 1 : events)
  })

  it('has the table of the service description', () => {
    expect(TRANSITIONS).toEqual({
      pending: ['in_progress', 'cancelled'],
      in_progress: ['completed', 'cancelled', 'pending'],
      completed: [],
      cancelled: [],
    })
  })

  it('that is refused takes the rest of its PATCH with it; the same one does not', async () => {
    const task = await createIn('completed')
    expectError(await patch(task.id, { status: 'pending', title: 'x' }), 400, TRANSITION('completed', 'pending'))
    expect(await get(task.id)).toEqual(task)
    const changed = await patched(task.id, { status: 'completed', title: 'Done' })
    expect(changed).toMatchObject({ title: 'Done', status: 'completed', completedAt: task.completedAt })
  })

  it('of ended tasks is taken by one of many who change it at once', async () => {
    const { id } = await createIn('in_progress')
    const ends = ['completed', 'cancelled', 'completed', 'cancelled', 'pending'] as const
    const answers = await Promise.all(ends.map((status) => patch(id, { status })))
    const { status, completedAt } = await get(id)
    expect(completedAt === null).toBe(status !== 'completed')
    for (const [index, answer] of answers.entries()) {
      // `pending` may have come between; whoever came after the end is told so, unless it was the same.
      if (ends[index] === status) expect(answer.status).toBe(200)
      else if (answer.status !== 200) expect(answer.body.message).toMatch(/^Invalid status transition: \w+ to \w+$/)
    }
  })
})

describe('GET /tasks', () => {
  let lea: Member
  let agent: string
  let spaces: string[]
  let all: Body[]
  beforeAll(async () => {
    lea = await server.member({ organization: 'Lists' })
    const leo = await server.member({ organization: 'Lists' })
    agent = await createAgent({}, lea)
    spaces = [await defaultSpace(lea), await privateSpace({ ...leo, ownerId: leo.userId, ...NOTHING })]
    for (const [index, status] of [...STATUSES, ...STATUSES, ...STATUSES, ...STATUSES].entries()) {
      now += 1000
      const priority = ['low', 'medium', 'high', 'urgent'][Math.floor(index / 4)]
      const assignTo = [agent, lea.userId, leo.userId, null, null][index % 5]
      const spaceId = [spaces[0], null, null][index % 3]
      const { id } = await create({ title: `Task ${index}`, priority, assignTo, spaceId }, lea)
      if (status === 'completed') await patched(id, { status: 'in_progress' }, lea)
      if (status !== 'pending') await patched(id, { status }, lea)
    }
    all = (await ok(call('GET', '/tasks', undefined, { who: lea }))).tasks
  })
  const NOTHING = { token: undefined, tokenId: undefined, userId: undefined }

  it('lists them newest first, each as it is', async () => {
    expect(all.map(({ title }) => title)).toEqual(Array.from({ length: 16 }, (_, index) => `Task ${15 - index}`))
    for (const task of all) expect(task).toEqual(await get(task.id, lea))
  })
})
