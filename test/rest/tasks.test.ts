import { beforeAll, describe, expect, it } from 'vitest'
import type { Db, Tx } from '../../src/db/client.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import { newId } from '../../src/lib/id.ts'
import { newToken } from '../../src/lib/token.ts'
import { claim as claimTask, create as createTask, update as updateTask } from '../../src/tasks/service.ts'
import { graphql } from '../graphql/support.ts'
import { APIS, apis, expectError, invalid, missing, ok, onEachApi, procedures } from '../support/api.ts'
import { createFolder } from '../support/folder.ts'
import { startModelServer } from '../support/model-server.ts'
import { planOf } from '../support/plan.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { spawnServer } from '../support/process.ts'
import { type Answer, credentialsOf, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { ASSIGNEE, type Body, STATUSES, type Status, startTaskLab, TRANSITION } from './task-lab.ts'

const {
  clock,
  model,
  server,
  ann,
  ben,
  eve,
  call,
  create,
  createIn,
  get,
  patch,
  patched,
  createAgent,
  createSpace,
  atOnce,
  audits,
} = await startTaskLab()

const archivedAgent = async () => {
  const id = await createAgent()
  await ok(call('DELETE', `/agents/${id}`))
  return id
}
const defaultSpace = async ({ organizationId }: Member) =>
  (await server.service.deps.db.space.findFirstOrThrow({ where: { organizationId, isDefault: true } })).id

/** The allowed moves (service description, "Task status"). */
const NEXT: Record<Status, readonly Status[]> = {
  pending: ['in_progress', 'cancelled', 'completed'],
  in_progress: ['completed', 'cancelled', 'pending'],
  completed: [],
  cancelled: [],
}

const STATUS = 'Invalid status. Must be: pending, in_progress, completed, cancelled'
const PRIORITY = 'Invalid priority. Must be: low, medium, high, urgent'

describe('POST /tasks', () => {
  it('answers the new task, with the given fields and defaults for the rest', async () => {
    const body = await ok(call('POST', '/tasks', { title: ' Count\n' }))
    const at = clock.now().toISOString()
    const task = {
      id: expect.stringMatching(new RegExp(`^task-${clock.now().getTime()}-\\w{22}$`)),
      title: ' Count\n',
      description: '',
      status: 'pending',
      priority: 'medium',
      assignedTo: null,
      spaceId: null,
      output: null,
      organizationId: ann.organizationId,
      createdBy: ann.userId,
      executionId: null,
      lastError: null,
      lastExecutionId: null,
      result: null,
      createdAt: at,
      updatedAt: at,
      completedAt: null,
    }
    expect(body).toEqual({ success: true, id: body.task.id, title: ' Count\n', status: 'pending', task })
    expect(await get(body.id)).toEqual(body.task)
  })

  it('stores every field, and treats null as the default of an optional field', async () => {
    const spaceId = await defaultSpace(ann)
    const full = { description: 'All of\nthem 👩🏽‍💻', priority: 'urgent', assignedTo: ben.userId, spaceId }
    expect(await create(full)).toMatchObject(full)
    const none = { assignedTo: null, spaceId: null }
    expect(await create({ ...none, description: null, priority: null, assignTo: null })).toMatchObject({
      ...none,
      description: '',
      priority: 'medium',
    })
  })

  it('is for any member, and any other may change and delete the task', async () => {
    const { id } = await create()
    expect(await patched(id, { title: 'Mine now', status: 'cancelled' }, ben)).toMatchObject({ createdBy: ann.userId })
    expect((await call('DELETE', `/tasks/${id}`, undefined, ben)).body).toEqual({
      success: true,
      message: 'Task deleted successfully',
    })
    expectError(await call('GET', `/tasks/${id}`), 404, 'Task not found')
  })
})

describe('a read-only field', () => {
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

  it.each(APIS)('is ignored on create and in a PATCH (%s)', async (api) => {
    const input = { title: 'Own', ...theirs, status: 'completed' }
    const { task } = (await apis[api](server, 'tasks.create', input, ann)).body
    expect(JSON.stringify(task)).not.toMatch(/theirs|2001|nested/)
    expect(task).toMatchObject({ status: 'pending', completedAt: null, organizationId: ann.organizationId })
    clock.advance(1000)
    expect((await apis[api](server, 'tasks.update', { ...theirs, id: task.id }, ann)).body.task).toEqual(task)
    expect(await get(task.id)).toEqual(task)
  })

  it('named id never changes the target, which is the id in the path', async () => {
    const [one, other] = [await create(), await create()]
    expect(await patched(one.id, { id: other.id, title: 'Changed' })).toMatchObject({ id: one.id, title: 'Changed' })
    expect(await get(other.id)).toEqual(other)
    const claimed = (await call('POST', `/tasks/${one.id}/claim`, { id: other.id })).body.task
    expect(claimed.id).toBe(one.id)
    expect(await get(other.id)).toEqual(other)
  })
})

describe('a missing or invalid value gives a 400 that names it', () => {
  const IN_YEAR_10000 = Buffer.from('253402300800000.a').toString('base64url')
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
    ...['', 'Low', 'critical', 5, ['low']].flatMap((priority): [string, Body, string][] => [
      ['tasks.create', { title: 'x', priority }, PRIORITY],
      ['tasks.update', { priority }, PRIORITY],
    ]),
    ['tasks.update', { priority: null }, PRIORITY],
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
    ['tasks.list', { count: 'yes' }, invalid('count', 'true or false')],
    ['tasks.list', { limit: '0' }, invalid('limit', 'at least 1')],
    ['tasks.list', { limit: '1001' }, invalid('limit', 'at most 1000')],
    ['tasks.list', { cursor: 'x' }, invalid('cursor', 'a nextCursor of this list')],
    ['tasks.list', { cursor: IN_YEAR_10000 }, invalid('cursor', 'a nextCursor of this list')],
  ]
  let id: string
  beforeAll(async () => {
    id = (await create()).id
  })

  it.each(onEachApi(wrong))('%s %s %.60j: %s', async (api, procedure, input, message) => {
    const names = /update|claim|execute/.test(procedure)
    expectError(await apis[api](server, procedure, { ...(names && { id }), ...input }, ann), 400, message)
  })

  it('also in a filter, alone and beside valid ones', async () => {
    expectError(await call('GET', '/tasks?status=pending&priority=x'), 400, PRIORITY)
    expectError(await call('GET', '/tasks?status=x&priority=low'), 400, STATUS)
  })
})

describe('the space of a task', () => {
  const nowhere: [string, () => Promise<string>][] = [
    ['unknown', async () => 'x'.repeat(22)],
    ['an empty id', async () => ''],
    ['of another organization', () => defaultSpace(eve)],
    ['private to another user', () => createSpace(ben)],
    ['archived', () => createSpace(ann, { archivedAt: clock.now() })],
  ]
  it.each(nowhere)('gives a 404 if it is %s, on create and in a PATCH', async (_, make) => {
    const spaceId = await make()
    const task = await create()
    expectError(await call('POST', '/tasks', { title: 'x', spaceId }), 404, 'Space not found')
    expectError(await patch(task.id, { spaceId, title: 'x' }), 404, 'Space not found')
    expect(await get(task.id)).toEqual(task)
  })

  it('is changed and removed by a PATCH', async () => {
    const [spaceId, shared] = [await defaultSpace(ann), await createSpace(ben, { visibility: 'organization' })]
    const { id } = await create({ spaceId })
    expect(await patched(id, { spaceId: shared })).toMatchObject({ spaceId: shared })
    expect(await patched(id, { spaceId: null })).toMatchObject({ spaceId: null })
  })
})

describe('an assignee', () => {
  it.each(onEachApi([['assignTo'], ['assignedTo']]))(
    '%s: is an agent or a member, by the name of %s',
    async (api, field) => {
      const agents = await Promise.all([
        createAgent(),
        createAgent({ visibility: 'unlisted' }, ben),
        createAgent({ visibility: 'private' }),
      ])
      const { task } = (await apis[api](server, 'tasks.create', { title: 'x' }, ann)).body
      for (const id of [...agents, ann.userId, ben.userId, null]) {
        const made = await apis[api](server, 'tasks.create', { title: 'x', [field]: id }, ann)
        expect(made.body.task.assignedTo).toBe(id)
        const changed = await apis[api](server, 'tasks.update', { id: task.id, [field]: id }, ann)
        expect(changed.body.task.assignedTo).toBe(id)
        const { db } = server.service.deps
        const rows = await db.task.findMany({ where: { id: { in: [made.body.id, task.id] } } })
        const assignedAgentId = agents.includes(id ?? '') ? id : null
        expect(rows.map((row) => row.assignedAgentId)).toEqual([assignedAgentId, assignedAgentId])
      }
    },
  )

  it('an assignee to a user whose membership a concurrent request ends is refused', async () => {
    const { deps } = server.service
    const { id } = await create()
    const actor = await deps.actors.of(credentialsOf(`Bearer ${ann.token}`))
    const gone = await server.member({ organization: 'Acme' })
    const db = overrideMembers(deps.db, {
      $transaction: async (work: (tx: Tx) => Promise<unknown>) => {
        await deps.db.membership.deleteMany({ where: { userId: gone.userId } })
        return deps.db.$transaction(work)
      },
    }) as Db
    const assigned = { assignTo: gone.userId }
    await expect(updateTask(actor, { ...deps, db }, { id, ...assigned })).rejects.toThrow(ASSIGNEE)
    const { userId, organizationId } = gone
    await deps.db.membership.create({ data: { userId, organizationId, role: 'member', createdAt: clock.now() } })
    await expect(createTask(actor, { ...deps, db }, { title: 'x', ...assigned })).rejects.toThrow(ASSIGNEE)
    await deps.db.membership.create({ data: { userId, organizationId, role: 'member', createdAt: clock.now() } })
    const self = await deps.actors.of(credentialsOf(`Bearer ${gone.token}`))
    await expect(claimTask(self, { ...deps, db }, { id })).rejects.toMatchObject({ status: 403 })
  })

  it('an assignee by assignTo wins over one by assignedTo', async () => {
    const both = { assignTo: ann.userId, assignedTo: ben.userId }
    const { id, assignedTo } = await create(both)
    expect(assignedTo).toBe(ann.userId)
    expect(await patched(id, { ...both, assignTo: null })).toMatchObject({ assignedTo: null })
  })

  const nobodies: [string, () => Promise<string> | string][] = [
    ['unknown', () => 'x'.repeat(22)],
    ['empty', () => ''],
    ["another organization's agent", () => createAgent({}, eve)],
    ["another organization's public agent", () => createAgent({ visibility: 'public' }, eve)],
    ["another user's private agent", () => createAgent({ visibility: 'private' }, ben)],
    ['an archived agent', archivedAgent],
    ["another organization's member", () => eve.userId],
    ['the organization itself', () => ann.organizationId],
  ]
  it.each(onEachApi(nobodies))('%s: is refused on create and in a PATCH if it is %s', async (api, _, make) => {
    const task = await create({ assignTo: ben.userId })
    const id = await make()
    for (const field of ['assignTo', 'assignedTo']) {
      expectError(await apis[api](server, 'tasks.create', { title: 'x', [field]: id }, ann), 400, ASSIGNEE)
      const change = { id: task.id, title: 'x', [field]: id }
      expectError(await apis[api](server, 'tasks.update', change, ann), 400, ASSIGNEE)
    }
    expect(await get(task.id)).toEqual(task)
  })
})

describe('PATCH /tasks/{id}', () => {
  it('changes the given fields and leaves the rest', async () => {
    const { id } = await create({ description: 'D' })
    const changes = { title: 'T', description: 'E', priority: 'low', assignedTo: ben.userId, status: 'in_progress' }
    for (const [field, value] of Object.entries(changes)) {
      const before = await get(id)
      clock.advance(1000)
      const after = await patched(id, { [field]: value })
      expect(after).toEqual({ ...before, [field]: value, updatedAt: clock.now().toISOString() })
      expect(await get(id)).toEqual(after)
    }
    expect(await patched(id, { description: null })).toMatchObject({ description: '' })
  })

  it('applies several concurrent changes', async () => {
    const { id } = await create()
    const changes = { title: 'T', description: 'D', priority: 'high', assignedTo: ben.userId, status: 'in_progress' }
    const answers = await atOnce(
      Object.entries(changes).map(
        ([field, value]) =>
          () =>
            patch(id, { [field]: value }),
      ),
    )
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
    expect(await get(id)).toMatchObject(changes)
    expect(await audits(id)).toBe(1 + Object.keys(changes).length)
  })

  it.each([
    {},
    { title: 'Count the engines' },
    { status: 'pending', priority: 'medium', description: null, assignTo: null, spaceId: null },
    { unknown: 1 },
  ])('changes nothing without a field to change: %j', async (fields) => {
    const task = await create()
    clock.advance(1000)
    expect(await patched(task.id, fields)).toEqual(task)
    expect(await get(task.id)).toEqual(task)
    expect(await audits(task.id)).toBe(1)
  })
})

describe('the status', () => {
  const pairs = STATUSES.flatMap((from) => STATUSES.map((to): [Status, Status] => [from, to]))

  it.each(onEachApi(pairs))('%s: moves from %s to %s as in the state table', async (api, from, to) => {
    const before = await createIn(from)
    const events = await audits(before.id)
    clock.advance(1000)
    const answer = await apis[api](server, 'tasks.update', { id: before.id, status: to }, ann)
    const allowed = NEXT[from].includes(to)
    if (allowed || from === to) expect(answer.status).toBe(200)
    else expectError(answer, 400, TRANSITION(from, to))
    const at = clock.now().toISOString()
    const completedAt = to === 'completed' ? at : null
    expect(await get(before.id)).toEqual(allowed ? { ...before, status: to, updatedAt: at, completedAt } : before)
    expect(await audits(before.id)).toBe(allowed ? events + 1 : events)
  })

  it('the status of a refused move takes the rest of its PATCH with it; the present one does not', async () => {
    const task = await createIn('completed')
    expectError(await patch(task.id, { status: 'pending', title: 'x' }), 400, TRANSITION('completed', 'pending'))
    expect(await get(task.id)).toEqual(task)
    const changed = await patched(task.id, { status: 'completed', title: 'Done' })
    expect(changed).toMatchObject({ title: 'Done', status: 'completed', completedAt: task.completedAt })
  })

  it.each([
    ['completed', 'cancelled'],
    ['cancelled', 'completed'],
  ] as const)('is changed by one of two concurrent ends, and the other gets an error: %s, %s', async (...ends) => {
    const { id } = await createIn('in_progress')
    const answers = await atOnce(ends.map((status) => () => patch(id, { status })))
    const [won = 0, lost = 0] = answers[0]?.status === 200 ? [0, 1] : [1, 0]
    expect(answers[won]?.body.task).toEqual(await get(id))
    expect(answers[won]?.body.task.status).toBe(ends[won])
    expectError(answers[lost]!, 400, TRANSITION(ends[won]!, ends[lost]!))
    expect(await audits(id)).toBe(3)
  })
})

describe('GET /tasks', () => {
  let lea: Member
  let leo: Member
  let agentId: string
  let spaceId: string
  let all: Body[]
  const list = async (query: string) => ok(call('GET', `/tasks${query}`, undefined, lea))
  beforeAll(async () => {
    lea = await server.member({ organization: 'Lists' })
    leo = await server.member({ organization: 'Lists' })
    agentId = await createAgent({}, lea)
    spaceId = await createSpace(leo)
    await create({ title: 'Of others' })
    for (let index = 0; index < 30; index++) {
      clock.advance(1000)
      const priority = ['low', 'medium', 'high', 'urgent'][index % 4]
      const assignTo = [agentId, lea.userId, leo.userId, null, null][index % 5]
      const where = index % 3 === 0 && { spaceId }
      const { id } = await create({ title: `Task ${index}`, priority, assignTo, ...where }, leo)
      const status = STATUSES[Math.floor(index / 8) % 4]
      if (status === 'completed') await patched(id, { status: 'in_progress' }, lea)
      if (status !== 'pending') await patched(id, { status }, lea)
    }
    all = (await list('')).tasks
  })

  it('lists those of the organization, newest first, each complete', async () => {
    expect(all.map(({ title }) => title)).toEqual(Array.from({ length: 30 }, (_, index) => `Task ${29 - index}`))
    for (const task of all) expect(task).toEqual(await get(task.id, lea))
  })

  it('filters by any of status, priority, assignee and space together', async () => {
    const none = undefined
    const queries = (['status', 'priority', 'assignedTo', 'spaceId'] as const).reduce<Body[]>(
      (queries, field) => {
        const values: readonly string[] = {
          status: STATUSES,
          priority: ['low', 'medium', 'high', 'urgent'],
          assignedTo: [agentId, leo.userId, 'me', 'none', eve.userId, ''],
          spaceId: [spaceId, 'x'],
        }[field]
        return queries.flatMap((query) => [none, ...values].map((value) => ({ ...query, [field]: value })))
      },
      [{}],
    )
    let found = 0
    // The database runs every fifth combination: each value is in some of them.
    for (const query of queries.filter((_, index) => !onPostgres || index % 5 === 0)) {
      const given = Object.entries(query).filter(([, value]) => value !== undefined) as [string, string][]
      const meant: Body = { ...query, ...(query.assignedTo === 'me' && { assignedTo: lea.userId }) }
      const expected = all.filter((task) =>
        given.every(([field]) => task[field] === (meant[field] === 'none' ? null : meant[field])),
      )
      const { tasks } = await list(`?${new URLSearchParams(given)}`)
      expect(tasks, JSON.stringify(query)).toEqual(expected)
      found += tasks.length
    }
    expect(queries).toHaveLength(5 * 5 * 7 * 3)
    expect(found).toBeGreaterThan(all.length)
  })

  it.each(APIS)('%s: searches titles in any case, beside other filters, with a count', async (api) => {
    const who = await server.member({ organization: `Searched tasks ${api}` })
    const letter = await create({ title: 'ΟΔΥΣΣΕΥΣ 50%', description: 'kitchen' }, who)
    const other = await create({ title: 'Kitchen', priority: 'high' }, who)
    const found = async (search: string, filter: Body = {}) => {
      const { tasks, total } = await ok(
        apis[api](server, 'tasks.list', { search, count: 'true', ...filter }, { token: who.token }),
      )
      expect(total).toBe(tasks.length)
      return tasks.map(({ id }: Body) => id)
    }
    for (const search of ['οδυσσευς', 'ΟΔΥΣΣΕΥς', ' 50% ']) expect(await found(search)).toEqual([letter.id])
    for (const search of ['5_', 'windows']) expect(await found(search)).toEqual([])
    expect(await found('KITCHEN')).toEqual([other.id])
    expect(await found('KITCHEN', { priority: 'low' })).toEqual([])
    await patched(other.id, { title: 'Windows' }, who)
    expect(await found('kitchen')).toEqual([])
    expect(await found('windows', { status: 'pending', priority: 'high' })).toEqual([other.id])
    const { data } = await graphql(server, '{ tasks(search: "WINDOW", first: 1) { nodes { id } totalCount } }', {}, who)
    expect(data.tasks).toEqual({ nodes: [{ id: other.id }], totalCount: 1 })
  })

  it('GET /tasks of an organization without tasks, or with a filter without matches, is empty', async () => {
    const who = await server.member({ organization: 'Idle' })
    const empty = { success: true, tasks: [], nextCursor: null }
    expect(await ok(call('GET', '/tasks', undefined, who))).toEqual(empty)
    expect(await list('?assignedTo=nobody')).toEqual(empty)
    expect(await list('?spaceId=nowhere&count=true')).toEqual({ ...empty, total: 0 })
  })

  it('has the total of matches for count=true on any page, and otherwise none', async () => {
    const open = all.filter(({ status }) => status === 'pending')
    expect(await list('?status=pending&limit=2&count=true')).toMatchObject({ total: open.length })
    expect(Object.keys(await list('?status=pending&limit=2'))).not.toContain('total')
    const { nextCursor } = await list('?status=pending&limit=2')
    const next = await list(`?status=pending&limit=2&count=true&cursor=${nextCursor}`)
    expect(next).toMatchObject({ total: open.length, tasks: open.slice(2, 4) })
  })

  it.each(onEachApi([[{}], [{ priority: 'high' }], [{ assignedTo: 'none' }]]))(
    '%s: pages of %j show every row once, also rows of one moment',
    async (api, filter) => {
      const who = await server.member({ organization: `Pages ${api} ${JSON.stringify(filter)}` })
      const made = await Promise.all(Array.from({ length: 7 }, () => create({ priority: 'high' }, who)))
      const seen: string[] = []
      let cursor: string | null = null
      do {
        const input: Body = { ...filter, limit: api === 'REST' ? '3' : 3, ...(cursor && { cursor }) }
        const { body }: Answer = await apis[api](server, 'tasks.list', input, who)
        seen.push(...body.tasks.map(({ id }: { id: string }) => id))
        cursor = body.nextCursor
        // New rows at the front move nothing.
        clock.advance(1000)
        await create({ priority: 'high' }, who)
        clock.advance(-1000)
      } while (cursor)
      const ids = made.map(({ id }) => id)
      expect(seen).toEqual(ids.toSorted().toReversed())
    },
  )

  it
    .skipIf(onPostgres)
    .each(['', 'status=pending', 'priority=low', 'assignedTo=x', 'assignedTo=me', 'assignedTo=none', 'spaceId=x'])(
    'finds the first page of "%s" by an index, and sorts nothing',
    async (query) => {
      server.queries.length = 0
      await list(`?limit=100&${query}`)
      const sql = server.queries.find((text) => /FROM "Task"/.test(text)) ?? ''
      const plan = planOf(server, sql).join('\n')
      const column = /^\w+/.exec(query)
      const [index, terms] = column ? [`${column}_createdAt`, ` AND ${column}=?`] : ['createdAt', '']
      expect(plan).toBe(`SEARCH Task USING INDEX Task_organizationId_${index}_id_idx (organizationId=?${terms})`)
    },
  )
})

describe('POST /tasks/{id}/claim', () => {
  it.each(APIS)('gives the caller an unassigned task (%s)', async (api) => {
    const task = await create()
    clock.advance(1000)
    const { body } = await apis[api](server, 'tasks.claim', { id: task.id }, ben)
    const claimed = { ...task, assignedTo: ben.userId, updatedAt: clock.now().toISOString() }
    expect(body.task).toEqual(claimed)
    expect(await get(task.id)).toEqual(claimed)
    expect(await audits(task.id)).toBe(2)
  })

  it('needs no body and no content type', async () => {
    const { id } = await create()
    const answer = await call('POST', `/tasks/${id}/claim`)
    expect(answer.body.task.assignedTo).toBe(ann.userId)
  })

  it('can assign an agent instead, which then can run it', async () => {
    const [{ id }, agentId] = [await create(), await createAgent({ visibility: 'private' })]
    expect((await ok(call('POST', `/tasks/${id}/claim`, { agentId }))).task.assignedTo).toBe(agentId)
    expect((await ok(call('POST', `/tasks/${id}/execute`))).task.status).toBe('completed')
  })

  it.each<[string, () => Promise<string> | string]>([
    ['unknown', () => 'x'.repeat(22)],
    ['empty', () => ''],
    ['a member', () => ann.userId],
    ["another organization's, though public", () => createAgent({ visibility: 'public' }, eve)],
    ['private to another user', () => createAgent({ visibility: 'private' }, ben)],
    ['archived', archivedAgent],
  ])('gives a 404 for an agent that is %s', async (_, make) => {
    const task = await create()
    expectError(await call('POST', `/tasks/${task.id}/claim`, { agentId: await make() }), 404, 'Agent not found')
    expect(await get(task.id)).toEqual(task)
  })

  it.each<[string, () => Promise<Body>]>([
    ["is another member's", () => create({ assignTo: ben.userId })],
    ["is the caller's", () => create({ assignTo: ann.userId })],
    ["is an agent's", async () => create({ assignTo: await createAgent() })],
    ...STATUSES.slice(1).map((status): [string, () => Promise<Body>] => [`is ${status}`, () => createIn(status)]),
  ])('gives a 409 for a task that %s', async (_, make) => {
    const task = await make()
    const answer = await call('POST', `/tasks/${task.id}/claim`)
    expectError(answer, 409, 'Task is already assigned')
    expect(answer.body.detail).toContain(
      task.status === 'pending' ? 'Remove the assignee' : `This one is ${task.status}`,
    )
    expect(await get(task.id)).toEqual(task)
  })

  it.each([false, true])('has one winner of 20 concurrent requests (each with a key: %s)', async (keys) => {
    const { idempotencyRecord } = server.service.deps.db
    const { id } = await create()
    const before = await idempotencyRecord.count()
    const claims = Array.from({ length: 20 }, (_, index) => {
      const options = { ...(index % 2 ? ann : ben), ...(keys && { key: `claim-${index}` }) }
      return () => call('POST', `/tasks/${id}/claim`, undefined, options)
    })
    const answers = await atOnce(claims)
    const winners = answers.filter(({ status }) => status === 200)
    expect(winners).toHaveLength(1)
    for (const answer of answers) if (answer.status !== 200) expectError(answer, 409, 'Task is already assigned')
    const winner = answers.indexOf(winners[0]!) % 2 ? ann : ben
    expect(await get(id)).toEqual(winners[0]?.body.task)
    expect(winners[0]?.body.task.assignedTo).toBe(winner.userId)
    expect(await audits(id)).toBe(2)
    expect(await idempotencyRecord.count()).toBe(before + (keys ? 1 : 0))
  })

  it('never overwrites a concurrent assignment', async () => {
    const { id } = await create()
    const answers = await atOnce([
      () => patch(id, { assignTo: ben.userId }),
      () => call('POST', `/tasks/${id}/claim`, { agentId: null }),
    ])
    expect(answers[0]?.status).toBe(200)
    expect(await get(id)).toMatchObject({ assignedTo: ben.userId })
  })
})

describe('access to a task', () => {
  const named = ['get', 'update', 'delete', 'claim', 'execute'].map((verb) => [`tasks.${verb}`])

  it.each(onEachApi(named as [string][]))(
    '%s %s: gives the same 404 for foreign, deleted and unknown tasks',
    async (api, procedure) => {
      const [foreign, deleted] = [await create({}, eve), await create()]
      await ok(call('DELETE', `/tasks/${deleted.id}`))
      const ids = [foreign.id, deleted.id, `task-${clock.now().getTime()}-${newId()}`, 'x']
      const answers = await Promise.all(
        ids.map((id) => apis[api](server, procedure, { id, title: 'x', status: 'cancelled' }, ann)),
      )
      for (const answer of answers) expectError(answer, 404, 'Task not found')
      const bytes = answers.map(({ body: { requestId, ...body }, headers }) => {
        const seen = [...headers].filter(([name]) => name !== 'x-request-id' && name !== 'date')
        return JSON.stringify([body, seen])
      })
      expect(new Set(bytes).size).toBe(1)
      expect(await get(foreign.id, eve)).toEqual(foreign)
    },
  )

  it('follows the scopes of the token', async () => {
    const scoped = (scope: string) => server.member({ organization: 'Acme', scopes: [scope] })
    const [reader, writer, stranger] = await Promise.all(['tasks:read', 'tasks:write', 'agents:write'].map(scoped))
    const verbs = Object.keys(procedures).filter((name) => name.startsWith('tasks.'))
    expect(verbs.length).toBeGreaterThanOrEqual(7)
    for (const [api, procedure] of onEachApi(verbs.map((verb): [string] => [verb]))) {
      const { id } = await create()
      const status = async (who: Member | undefined) =>
        (await apis[api](server, procedure, /list|create/.test(procedure) ? {} : { id }, who)).status
      expect(await status(stranger), procedure).toBe(403)
      const reads = procedures[procedure]?._def.type !== 'mutation'
      if (reads) expect(await status(reader), procedure).toBe(200)
      else expect(await status(reader), procedure).toBe(403)
      expect(await status(writer), procedure).not.toBe(403)
    }
  })
})

it('every change leaves an audit event with its author, action and target', async () => {
  const agentId = await createAgent()
  const { id } = await create()
  await patched(id, { title: 'x' }, ben)
  await ok(call('POST', `/tasks/${id}/claim`, { agentId }, ben))
  await ok(call('POST', `/tasks/${id}/execute`))
  await ok(call('DELETE', `/tasks/${id}`))
  const events = await server.service.deps.db.auditEvent.findMany({ where: { target: id } })
  const actions = events.map(({ action, actor }) => `${action} by ${actor === ann.userId ? 'ann' : 'ben'}`)
  const expected = ['claim by ben', 'create by ann', 'delete by ann', 'execute by ann', 'update by ben']
  expect(actions.toSorted()).toEqual(expected.map((event) => `task.${event}`))
  expect(events.every(({ organizationId }) => organizationId === ann.organizationId)).toBe(true)
})

it('a task whose run is pending is in progress, and its cancel prevents the run', async () => {
  await using narrow = await startServer({ OPENAI_BASE_URL: model.baseUrl, MAX_RUNNING: '1' })
  const send = async (method: string, path: string, body?: Body) =>
    ok(request(narrow, method, `/api/v1${path}`, body ? { body } : {}))
  const agent = await send('POST', '/agents', { name: 'Ada', systemPrompt: 'You are Ada.' })
  const { promise, resolve } = Promise.withResolvers<void>()
  model.script({ tokens: [promise, 'Done.'] })
  const asked = model.requests.length
  const [first, second] = await Promise.all(
    ['one', 'two'].map(async (title) => (await send('POST', '/tasks', { title, assignTo: agent.id })).id),
  )
  await send('POST', `/tasks/${first}/execute`, { background: true })
  const { executionId, status, task } = await send('POST', `/tasks/${second}/execute`, { background: true })
  expect([status, task.status]).toEqual(['pending', 'in_progress'])
  await send('PATCH', `/tasks/${second}`, { status: 'cancelled' })
  expect((await send('GET', `/executions/${executionId}`)).execution.status).toBe('cancelled')
  resolve()
  await expect.poll(async () => (await send('GET', `/tasks/${first}`)).task.status).toBe('completed')
  expect(model.requests).toHaveLength(asked + 1)
  expect((await send('GET', `/tasks/${second}`)).task.status).toBe('cancelled')
})

it('no task stays in progress after its process was killed', async () => {
  await using folder = await createFolder()
  await using model = await startModelServer()
  const token = newToken('mst')
  const env = { DATA_DIR: folder.path, BOOTSTRAP_TOKEN: token, OPENAI_BASE_URL: model.baseUrl }
  const { promise } = Promise.withResolvers<void>()
  let tasks: string[] = []
  {
    await using killed = await spawnServer(folder.path, env)
    const send = (path: string, body: Body) => ok(request({ ...killed, token }, 'POST', `/api/v1${path}`, { body }))
    const agent = await send('/agents', { name: 'Ada', systemPrompt: 'You are Ada.' })
    model.script({ tokens: ['Shown', promise] }, { tokens: [promise] })
    for (const title of ['shown', 'not shown']) {
      const { id } = await send('/tasks', { title, assignTo: agent.id })
      tasks = [...tasks, id]
      const { executionId } = await send(`/tasks/${id}/execute`, { background: true })
      await model.request(tasks.length - 1)
      if (title === 'not shown') continue
      // Waits until the word is stored.
      const logs = () => request({ ...killed, token }, 'GET', `/api/v1/executions/${executionId}/logs`)
      await expect.poll(async () => (await logs()).body.logs.length).toBe(2)
    }
    await killed.stop('SIGKILL')
  }
  await using server = await spawnServer(folder.path, env)
  const get = async (id: string) => (await ok(request({ ...server, token }, 'GET', `/api/v1/tasks/${id}`))).task
  // A run with text fails, and the task may be tried again; a run without text starts again.
  for (const [index, status] of ['pending', 'completed'].entries()) {
    await expect.poll(async () => (await get(tasks[index]!)).status).toBe(status)
  }
  const [first, again] = await Promise.all(tasks.map(get))
  expect(first).toMatchObject({ result: null, completedAt: null })
  expect(again).toMatchObject({ result: 'A reply of the test model.', completedAt: expect.any(String) })
})
