import { describe, expect, it } from 'vitest'
import { chatTools } from '../../src/chats/tools.ts'
import type { Tool } from '../../src/executions/engine/run/tools.ts'
import { fileTools } from '../../src/files/tools.ts'
import { BUILT_IN_TOOLS } from '../../src/lib/built-in-tools.ts'
import { taskTools } from '../../src/tasks/tools.ts'
import { webTools } from '../../src/web/tools.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'
import { callTool, startLab } from './lab.ts'

const lab = await use(startLab())
const ann = await lab.server.member({ organization: 'Acme' })
const eve = await lab.server.member({ organization: 'Other' })
const agentId = await lab.agent(ann)

const toolsOf = async (who: Member, id: string, spaceId?: string, scopes?: string) =>
  taskTools(lab.server.service.deps, await lab.user(who, id, spaceId, scopes))
const tools: Tool[] = await toolsOf(ann, agentId)
const call = (name: string, input: unknown = {}) => callTool(tools, name, input)
const task = async (fields: object = {}, who = ann) =>
  (await lab.post(who, '/api/v1/tasks', { title: 'Tidy up', ...fields })).task
const refused = (name: string, input: unknown, status: number, message: string) =>
  expect(call(name, input)).rejects.toMatchObject({ status, message })

it('the built-in tools are those of tasks, files, chats and the web, with complete schemas', async () => {
  const user = await lab.user(ann, agentId)
  const { deps } = lab.server.service
  const searching = { ...deps, settings: { ...deps.settings, SEARCH_PROVIDER: 'brave' as const } }
  const all = [...tools, ...fileTools(deps, user), ...chatTools(deps, user), ...webTools(searching, user, () => false)]
  expect(all.map(({ name }) => name)).toEqual([...BUILT_IN_TOOLS])
  for (const { inputSchema, description, mode } of all) {
    expect(inputSchema).toMatchObject({ type: 'object' })
    expect(JSON.stringify(inputSchema)).not.toMatch(/\$ref|\$defs|\$schema/)
    expect(description.length).toBeGreaterThan(20)
    expect(mode).toBe('allow')
  }
})

it('a tool takes null and empty texts for optional fields, and numbers as texts', async () => {
  await call('create_task', { title: 'Odd', priority: '' })
  const unset = { status: null, priority: '', assignedTo: '', cursor: null }
  expect((await call('list_tasks', { ...unset, limit: '1' })).tasks).toHaveLength(1)
  const { id } = (await call('create_task', { title: '5', description: 'Old' })).task
  expect((await call('update_task', { id, description: '', status: null })).task).toMatchObject({ description: '' })
  await refused('create_task', { title: '' }, 400, 'Missing required field: title')
})

describe('create_task', () => {
  it('makes a task of the agent in the space of the run', async () => {
    const spaceId = await lab.space(ann)
    const made = await callTool(await toolsOf(ann, agentId, spaceId), 'create_task', {
      title: 'Write',
      description: 'All of it.',
      priority: 'high',
      assignTo: 'me',
    })
    const { task } = await lab.get(ann, `/api/v1/tasks/${made.task.id}`)
    expect(task).toMatchObject({
      title: 'Write',
      description: 'All of it.',
      priority: 'high',
      status: 'pending',
      createdBy: agentId,
      assignedTo: agentId,
      spaceId,
      organizationId: ann.organizationId,
    })
    const { organizationId: _, ...visible } = task
    expect(made.task).toEqual(visible)
    const audit = await lab.server.service.deps.db.auditEvent.findFirstOrThrow({ where: { target: task.id } })
    expect([audit.action, audit.actor]).toEqual(['task.create', ann.userId])
  })

  it('assigns to the given person, or to none', async () => {
    expect((await call('create_task', { title: 'A' })).task).toMatchObject({ assignedTo: null, priority: 'medium' })
    expect((await call('create_task', { title: 'A', assignTo: ann.userId })).task.assignedTo).toBe(ann.userId)
    const message = 'Invalid assignTo. Must be an agent or user id of this organization'
    await refused('create_task', { title: 'A', assignTo: eve.userId }, 400, message)
  })

  it.each([
    [{}, 'Missing required field: title'],
    [{ title: ' ' }, 'Missing required field: title'],
    [{ title: 'A', priority: 'soon' }, 'Invalid value for field: priority. Expected one of: low, medium, high, urgent'],
    [{ title: 5 }, 'Invalid value for field: title. Expected string'],
    [{ title: 'a\0b' }, 'Invalid character in request: U+0000'],
    ['title', 'Invalid value for field: body. Expected object'],
  ])('refuses %j', async (input, message) => {
    const before = await lab.server.service.deps.db.task.count()
    await refused('create_task', input, 400, message)
    expect(await lab.server.service.deps.db.task.count()).toBe(before)
  })
})

describe('list_tasks', () => {
  it("lists the organization's tasks by filter, page by page, and no others", async () => {
    const mine = await lab.server.member({ organization: 'Listing' })
    const own = await lab.agent(mine)
    const lists = await toolsOf(mine, own)
    const list = (input: object = {}) => callTool(lists, 'list_tasks', input)
    const made = []
    for (const title of ['a', 'b', 'c']) made.push(await task({ title, priority: 'low' }, mine))
    made.push(await task({ title: 'd', assignTo: own }, mine))
    const all = made
      .map(({ title }) => title)
      .toReversed()
      .join('')
    const foreign = await task({ title: 'foreign' }, eve)
    const titles = async (input: object) =>
      (await list(input)).tasks.map((one: { title: string }) => one.title).join('')
    expect(await titles({})).toBe(all)
    expect(await titles({ assignedTo: 'me' })).toBe('d')
    expect(await titles({ assignedTo: 'none', priority: 'low' })).toBe(all.replace('d', ''))
    expect(await titles({ status: 'completed' })).toBe('')
    const first = await list({ limit: 3 })
    expect(await titles({ cursor: first.nextCursor })).toBe(all.at(-1))
    expect(JSON.stringify(await list())).not.toContain(foreign.id)
  })

  it('shows at most 50 at once, with long texts cut', async () => {
    const many = await lab.server.member({ organization: 'Many' })
    const lists = await toolsOf(many, await lab.agent(many))
    const description = '😀'.repeat(2001)
    for (let i = 0; i < 60; i++) await task({ description }, many)
    const { tasks, nextCursor } = await callTool(lists, 'list_tasks', { limit: 50 })
    expect([tasks.length, typeof nextCursor]).toEqual([50, 'string'])
    expect(tasks[0].description).toBe(`${'😀'.repeat(2000)}…`)
    const tooMany = callTool(lists, 'list_tasks', { limit: 51 })
    await expect(tooMany).rejects.toMatchObject({ message: 'Invalid value for field: limit. Expected at most 50' })
  })

  it('ends a page early at the limit of its length, and the next page continues', async () => {
    const many = await lab.server.member({ organization: 'Long' })
    const lists = await toolsOf(many, await lab.agent(many))
    // Control characters, which JSON writes as six bytes each.
    const description = '\u0001'.repeat(2000)
    const made = []
    for (let i = 0; i < 60; i++) made.unshift((await task({ title: '\u0001'.repeat(499), description }, many)).id)
    const seen = []
    for (let cursor: string | undefined; cursor !== null; ) {
      const page: any = await callTool(lists, 'list_tasks', { limit: 50, cursor })
      expect(Buffer.byteLength(JSON.stringify(page))).toBeLessThan(512 * 1024)
      expect(page.tasks.length).toBeGreaterThan(0)
      seen.push(...page.tasks.map(({ id }: { id: string }) => id))
      cursor = page.nextCursor
    }
    expect(seen).toEqual(made)
  })
})

describe('update_task and claim_task', () => {
  it('change a task as the state table allows', async () => {
    const { id } = await task()
    expect((await call('claim_task', { id })).task).toMatchObject({ assignedTo: agentId, status: 'pending' })
    await refused('claim_task', { id }, 409, 'Task is already assigned')
    expect((await call('update_task', { id, status: 'in_progress', title: 'New' })).task).toMatchObject({
      status: 'in_progress',
      title: 'New',
    })
    expect((await call('update_task', { id, assignTo: null })).task.assignedTo).toBe(null)
    expect((await call('update_task', { id, assignTo: 'me' })).task.assignedTo).toBe(agentId)
    const done = (await call('update_task', { id, status: 'completed', description: null })).task
    expect(done).toMatchObject({ status: 'completed', description: '', completedAt: expect.any(String) })
    await refused('update_task', { id, status: 'pending' }, 400, 'Invalid status transition: completed to pending')
    expect((await lab.get(ann, `/api/v1/tasks/${id}`)).task).toMatchObject(done)
  })

  it.each(['update_task', 'claim_task'])("%s finds no other organization's task", async (name) => {
    const { id } = await task({}, eve)
    for (const unknown of [id, 'task-0-none']) await refused(name, { id: unknown, title: 'x' }, 404, 'Task not found')
    expect((await lab.get(eve, `/api/v1/tasks/${id}`)).task).toMatchObject({ title: 'Tidy up', assignedTo: null })
  })
})

it("a foreign public agent works on the tasks of its user, in the user's name", async () => {
  const foreign = await lab.agent(eve, { visibility: 'public' })
  const theirs = await task({ title: 'of Eve' }, eve)
  const used = await toolsOf(ann, foreign)
  const { id } = await task()
  expect((await callTool(used, 'claim_task', { id })).task.assignedTo).toBe(ann.userId)
  expect((await callTool(used, 'create_task', { title: 'A', assignTo: 'me' })).task).toMatchObject({
    assignedTo: ann.userId,
    createdBy: foreign,
  })
  expect(JSON.stringify(await callTool(used, 'list_tasks', { limit: 50 }))).not.toContain(theirs.id)
})

it.each([
  ['list_tasks', 'tasks:read', 'agents:execute spaces:write'],
  ['create_task', 'tasks:write', 'agents:execute spaces:write tasks:read'],
  ['update_task', 'tasks:write', 'agents:execute spaces:write tasks:read'],
  ['claim_task', 'tasks:write', 'agents:execute spaces:write tasks:read'],
])('%s needs %s as REST does, or changes nothing and names the scope', async (name, scope, without) => {
  const all = () => lab.server.service.deps.db.task.findMany({ orderBy: { id: 'asc' } })
  const within = async (scopes: string, input: object) =>
    callTool(await toolsOf(ann, agentId, undefined, scopes), name, input)
  const inputs: Record<string, object> = {
    create_task: { title: 'A' },
    update_task: { id: (await task()).id, title: 'B' },
    claim_task: { id: (await task()).id },
  }
  const input = inputs[name] ?? {}
  const before = await all()
  const message = `This run's token lacks the scope ${scope}`
  await expect(within(without, input)).rejects.toMatchObject({ status: 403, message })
  expect(await all()).toEqual(before)
  await within(`agents:execute ${scope}`, input)
})

it('no tool can be called after the membership has ended', async () => {
  const gone = await lab.server.member({ organization: 'Acme' })
  const left = await toolsOf(gone, agentId)
  const { id } = await task()
  const { organizationId, userId } = gone
  await lab.server.service.deps.db.membership.deleteMany({ where: { organizationId, userId } })
  for (const [name, input] of [
    ['list_tasks', {}],
    ['create_task', { title: 'A' }],
    ['update_task', { id, title: 'B' }],
    ['claim_task', { id }],
  ] as const) {
    await expect(callTool(left, name, input)).rejects.toMatchObject({ status: 403 })
  }
})
