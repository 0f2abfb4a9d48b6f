import { describe, expect, test } from 'vitest'
import { apis } from '../support/api.ts'
import { checkDocumented } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/**
 * Requests and answers of the hosted original's client, command by command (contract-2.md section 1.15): the method,
 * the path, the body, and the fields that it reads. Lists of tasks and executions, which it expects as bare arrays, are
 * the exception.
 */

const server = await use(startServer({ TOKEN_PREFIX: 'td', ALLOW_PRIVATE_NETWORK: 'true' }))
const member = await server.member({ organization: 'Clients', role: 'owner' })

/** The client declares JSON with every request, with or without a body, and fails on any error. */
async function client(method: string, path: string, body?: object, token = member.token): Promise<any> {
  const response = await fetch(server.url + path, {
    method,
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` },
    ...(body && { body: JSON.stringify(body) }),
  })
  const answer = await response.json()
  checkDocumented(method, path, response, answer)
  if (!response.ok) throw new Error(`${method} ${path} ${response.status}: ${answer.message}`)
  return answer
}
const get = (path: string) => client('GET', path)
const post = (path: string, body?: object) => client('POST', path, body)
const patch = (path: string, body: object) => client('PATCH', path, body)

async function upload(path: string, name: string, content: string): Promise<any> {
  const form = new FormData()
  form.append('file', new Blob([content]), name)
  const headers = { Authorization: `Bearer ${member.token}` }
  const response = await fetch(server.url + path, { method: 'POST', headers, body: form })
  const answer = await response.json()
  checkDocumented('POST', path, response, answer)
  return { status: response.status, ...answer }
}

/** Reads a stream as the client does. Returns its printed text and the ids for continuing. */
async function stream(path: string, body: object) {
  const response = await fetch(server.url + path, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      Accept: 'text/event-stream',
      'Cache-Control': 'no-cache',
      Authorization: `Bearer ${member.token}`,
    },
    body: JSON.stringify({ ...body, stream: true }),
  })
  expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/)
  const read = { printed: '', executionId: '', chatId: '', sessionId: '', errors: [] as string[] }
  for (const message of (await response.text()).split('\n\n')) {
    const event = /^event: (.*)$/m.exec(message)?.[1]
    const data = JSON.parse(/^data: (.*)$/m.exec(message)?.[1] ?? 'null')
    if (event === 'meta') Object.assign(read, data)
    if (event === 'result') read.sessionId = data.sessionId
    if (event === 'error') read.errors.push(data.message)
    if (event === 'message' && data.messageType === 'stream_event') read.printed += data.delta.text
    if (event === 'message' && data.messageType === 'assistant')
      for (const block of data.content) if (block.type === 'text') read.printed += block.text
  }
  return read
}

const agent = async (fields: object = {}) =>
  (await post('/api/v1/agents', { name: 'Ada', systemPrompt: 'Be brief.', visibility: 'private', ...fields })).id
const space = async () =>
  (await post('/api/v1/spaces', { name: 'Work', visibility: 'organization' })).space.id as string

describe('auth', () => {
  test('create-token, list-tokens and revoke-token work on the keys of the caller', async () => {
    const made = await post('/api/tokens/create', { name: 'laptop', expiresInDays: 30 })
    expect(made.token).toMatch(/^td_/)
    expect(Date.parse(made.expiresAt)).toBeGreaterThan(Date.now())
    const list = await get('/api/tokens/list')
    expect(list.count).toBe(list.tokens.length)
    const [first, ...others] = list.tokens
    expect(first).toMatchObject({ id: made.id, name: 'laptop', lastUsedAt: null })
    expect(made.token).toContain(first.tokenPreview.replace(/\W+$/, ''))
    // It treats an absent date as a past one.
    for (const token of others) expect(Date.parse(token.expiresAt)).toBeGreaterThan(Date.now())
    await post(`/api/tokens/${made.id}/revoke`)
    expect((await get('/api/tokens/list')).tokens.map(({ id }: { id: string }) => id)).not.toContain(made.id)
    await expect(client('GET', '/api/v1/agents', undefined, made.token)).rejects.toThrow('401')
  })

  test('refuses another organization, and a key of another user', async () => {
    const other = await server.member({ organization: 'Others' })
    const { organizationId } = other
    await expect(post('/api/tokens/create', { name: 'x', organizationId })).rejects.toThrow('403')
    await expect(get(`/api/tokens/list?organizationId=${organizationId}`)).rejects.toThrow('403')
    await expect(get(`/api/tokens/list?organizationId=${member.organizationId}`)).resolves.toBeDefined()
    await expect(post(`/api/tokens/${other.tokenId}/revoke`)).rejects.toThrow('404: Key not found')
  })
})

describe('agents', () => {
  test('create, list, get, update and delete work, also under the old name', async () => {
    const made = await post('/api/v1/agents', {
      name: 'Lovelace',
      role: 'Analyst',
      systemPrompt: 'Be brief.',
      visibility: 'organization',
      model: 'offline/echo',
      advanced_tools: ['github'],
      tags: ['a'],
    })
    expect(made).toMatchObject({
      name: 'Lovelace',
      status: 'active',
      slug: 'lovelace',
      agent: { advanced_tools: ['github'] },
    })
    expect(made.chatUrl).toMatch(/^\/clients\/spaces\//)
    const list = await get('/api/v1/agents')
    expect(list.characters).toMatchObject(list.agents)
    expect(list.total).toBe(list.agents.length)
    await patch(`/api/v1/agents/${made.id}`, { name: 'Lovelace B', advanced_tools: ['linear'], tags: ['b'] })
    const { agent, character } = await get(`/api/v1/agents/${made.id}`)
    expect(agent).toMatchObject({ name: 'Lovelace B', advanced_tools: ['linear'], tags: ['b'] })
    expect(character).toMatchObject(agent)
    await client('DELETE', `/api/v1/agents/${made.id}`)
    await expect(get(`/api/v1/agents/${made.id}`)).rejects.toThrow('404: Agent not found')
  })

  test('characters create, list, get and update use the old fields', async () => {
    const made = await post('/api/v1/agents', {
      name: 'Grace',
      role: 'Engineer',
      category: 'engineering',
      system_message: 'Be exact.',
      visibility: 'organization',
      slug: 'grace-h',
      characterDescription: 'A compiler',
      initialGreeting: 'Hello',
      advanced_tools: ['x'],
      mcpInstanceIds: [],
      mcpTypes: ['ahrefs'],
      subagentIds: [],
      disallowedTools: ['Bash'],
      maxTurns: 30,
      tags: ['t'],
    })
    expect(made).toMatchObject({ slug: 'grace-h' })
    const list = await get('/api/v1/agents?category=engineering&visibility=organization')
    expect(list.agents.map(({ id }: { id: string }) => id)).toEqual([made.id])
    const { character } = await get(`/api/v1/agents/${made.id}`)
    expect(character).toMatchObject({
      slug: 'grace-h',
      category: 'engineering',
      characterDescription: 'A compiler',
      systemPrompt: 'Be exact.',
      disallowedTools: ['Bash'],
      mcpTypes: ['ahrefs'],
      maxTurns: 30,
      skillIds: [],
      subagentIds: [],
    })
    await patch(`/api/v1/agents/${made.id}`, { characterDescription: 'Two', system_message: 'Be brief.' })
    const changed = (await get(`/api/v1/agents/${made.id}`)).character
    expect([changed.description, changed.systemPrompt]).toEqual(['Two', 'Be brief.'])
  })

  test('exec waits for the result, or prints a stream with each word once, and continues', async () => {
    const id = await agent()
    const waited = await post(`/api/v1/agents/${id}/execute`, { message: 'Hello', stream: false })
    expect(waited.result).toContain('Hello')
    const { sessionId, chatId } = waited
    const streamed = await stream(`/api/v1/agents/${id}/execute`, { message: 'Again', sessionId, chatId })
    expect(streamed).toMatchObject({ sessionId, chatId, errors: [] })
    const { execution } = await get(`/api/v1/executions/${streamed.executionId}`)
    expect(streamed.printed).toBe(execution.result)
  })
})

describe('chat without an agent', () => {
  test('creates one private agent for a new user, also for concurrent requests', async () => {
    const { token, userId } = await server.member({
      organization: 'Clients',
      scopes: ['agents:execute', 'agents:read'],
    })
    const runs = await Promise.all(
      Array.from({ length: 5 }, () => client('POST', '/api/v1/execute', { message: 'Hi' }, token)),
    )
    for (const { result } of runs) expect(result).toContain('Assistant')
    const { agents } = await client('GET', '/api/v1/agents?owner=me', undefined, token)
    expect(agents).toMatchObject([{ name: 'Assistant', visibility: 'private', userId }])
  })

  test("streams from the caller's newest agent, or from the named one", async () => {
    await agent({ name: 'Older' })
    const named = await agent({ name: 'Named' })
    await agent({ name: 'Newest' })
    const { executionId, printed } = await stream('/api/v1/execute', { message: 'Who?' })
    expect(printed).toContain('Newest')
    expect((await get(`/api/v1/executions/${executionId}`)).execution.status).toBe('completed')
    expect((await post('/api/v1/execute', { message: 'Who?', characterId: named })).result).toContain('Named')
    const two = { message: 'Who?', agentId: named, characterId: 'none' }
    expect((await post('/api/v1/execute', two)).result).toContain('Named')
    await expect(post('/api/v1/execute', { message: 'Who?', agentId: 'none' })).rejects.toThrow('404: Agent not found')
  })

  test('continues with the agent of its session, even if a newer agent exists', async () => {
    await agent({ name: 'Before' })
    const { sessionId, chatId } = await post('/api/v1/execute', { message: 'One' })
    await agent({ name: 'After' })
    const next = await post('/api/v1/execute', { message: 'Two', sessionId, chatId })
    expect([next.sessionId, next.result]).toEqual([sessionId, expect.stringContaining('Before')])
    await expect(post('/api/v1/execute', { message: 'Three', sessionId: 'none' })).rejects.toThrow('404')
  })

  test('repeated with its Idempotency-Key is one run, even if a newer agent exists', async () => {
    const send = () =>
      apis.REST(server, 'executions.create', { message: 'Once' }, {
        token: member.token,
        headers: { 'Idempotency-Key': 'once' },
      } as never)
    const first = await send()
    await agent({ name: 'Even newer' })
    const second = await send()
    expect(second.body.executionId).toBe(first.body.executionId)
  })
})

test('tasks create, get, update, complete and cancel read the task and make both moves', async () => {
  const made = await post('/api/v1/tasks', { id: 'task_1', title: 'Write', priority: 'high', status: 'pending' })
  expect(made).toMatchObject({ title: 'Write', status: 'pending' })
  expect(made.id).not.toBe('task_1')
  await patch(`/api/v1/tasks/${made.id}`, { description: 'More', assignedTo: member.userId })
  await patch(`/api/v1/tasks/${made.id}`, { status: 'completed', completedAt: '2020-01-01T00:00:00.000Z' })
  const { task } = await get(`/api/v1/tasks/${made.id}`)
  expect(task).toMatchObject({ status: 'completed', description: 'More', assignedTo: member.userId })
  expect(Date.parse(task.completedAt)).toBeGreaterThan(Date.parse('2021-01-01'))
  const other = await post('/api/v1/tasks', { title: 'Drop' })
  await patch(`/api/v1/tasks/${other.id}`, { status: 'cancelled' })
  await expect(patch(`/api/v1/tasks/${other.id}`, { status: 'completed' })).rejects.toThrow('400')
  expect((await get('/api/v1/tasks?status=completed&priority=high')).tasks).toMatchObject([{ id: made.id }])
})

test('executions list, get, tree, logs and cancel accept a date and read the run', async () => {
  const id = await agent()
  const { executionId } = await post(`/api/v1/agents/${id}/execute`, { message: 'Hello' })
  const today = new Date().toISOString().slice(0, 10)
  const { executions } = await get(`/api/v1/executions?agentId=${id}&status=completed&since=${today}&limit=50`)
  expect(executions).toMatchObject([{ id: executionId, agentId: id }])
  expect((await get(`/api/v1/executions?agentId=${id}&since=2999-01-01&limit=50`)).executions).toEqual([])
  expect((await get(`/api/v1/executions/${executionId}/tree`)).tree.id).toBe(executionId)
  expect((await get(`/api/v1/executions/${executionId}/logs`)).logs.length).toBeGreaterThan(0)
  await expect(post(`/api/v1/executions/${executionId}/cancel`)).rejects.toThrow('400: Cannot cancel')
})

test('missions create, list, get, update, run and delete read the schedule and complete by hand', async () => {
  const made = await post('/api/v1/missions', {
    title: 'News',
    goal: 'Sum up',
    spaceId: await space(),
    characterId: await agent(),
    agentType: 'claude',
    visibility: 'organization',
    schedule: { type: 'none', value: null },
    icon: '*',
    maxTurns: 3,
  })
  expect(made).toMatchObject({ title: 'News', status: 'pending', schedule: { type: 'none' } })
  const { count, missions } = await get('/api/v1/missions')
  expect(count).toBe(missions.length)
  expect(missions[0]).toMatchObject({ id: made.id, schedule: { type: 'none' }, agentType: 'claude' })
  await patch(`/api/v1/missions/${made.id}`, { schedule: { type: 'cron', value: '0 8 * * *' } })
  await patch(`/api/v1/missions/${made.id}`, { status: 'paused' })
  await patch(`/api/v1/missions/${made.id}`, { status: 'completed' })
  const { mission } = await get(`/api/v1/missions/${made.id}`)
  expect(mission).toMatchObject({ status: 'completed', schedule: { type: 'cron', runCount: 0, nextRun: null } })
  await patch(`/api/v1/missions/${made.id}`, { status: 'running' })
  await client('DELETE', `/api/v1/missions/${made.id}`)
})

test('a mission that is completed by hand during its run stays completed', async () => {
  const schedule = { type: 'cron', value: '0 8 * * *' }
  const { id } = await post('/api/v1/missions', { title: 'On', goal: 'Go', agentId: await agent(), schedule })
  const { executionId } = await post(`/api/v1/missions/${id}/run`)
  await patch(`/api/v1/missions/${id}`, { status: 'completed' })
  const isOver = async () => (await get(`/api/v1/executions/${executionId}`)).execution.status !== 'running'
  await expect.poll(isOver).toBe(true)
  expect((await get(`/api/v1/missions/${id}`)).mission.status).toBe('completed')
  expect((await get(`/api/v1/missions/${id}/next`)).next).toEqual([])
})

test('skills list, and chats and their messages, read their fields', async () => {
  const { skills, total } = await get('/api/v1/skills')
  expect(Object.keys(skills)).toEqual(['core', 'organization', 'marketplace'])
  expect(total).toBeGreaterThan(0)
  const { chatId } = await post('/api/v1/execute', { message: 'Hello' })
  const chats = (await get('/api/v1/chats')).chats
  expect(chats[0]).toMatchObject({ id: chatId, status: 'done', messageCount: 2 })
  expect(chats[0].agentName).toBeTypeOf('string')
  expect((await get(`/api/v1/chats/${chatId}/messages`)).messages).toHaveLength(2)
  expect((await get('/api/v1/chats?mission=true&limit=50')).chats).toBeDefined()
})

test('spaces create, init, get, add-agent, set-secret and delete read the space', async () => {
  const id = await space()
  await post(`/api/spaces/${id}/init`, { type: 'starterKit', spaceName: 'Work', kit: 'none' })
  const agentId = await agent({ visibility: 'organization' })
  await patch(`/api/v1/spaces/${id}`, { addCharacters: [agentId] })
  await post(`/api/v1/spaces/${id}/secrets`, { secrets: { API_KEY: 'x' } })
  expect(await get(`/api/v1/spaces/${id}/secrets`)).toMatchObject({ secrets: ['API_KEY'], count: 1 })
  const read = (await get(`/api/v1/spaces/${id}`)).space
  expect(read).toMatchObject({ agentRefs: [{ agentId, enabled: true }], secretKeys: ['API_KEY'] })
  await client('DELETE', `/api/v1/spaces/${id}/secrets`, { keys: ['API_KEY'] })
  await patch(`/api/v1/spaces/${id}`, { removeCharacters: [agentId] })
  await client('DELETE', `/api/v1/spaces/${id}`)
})

describe('files', () => {
  const names = (entries: { name: string; type: string }[]) =>
    entries.map(({ name, type }) => (type === 'directory' ? `${name}/` : name))

  test('write, upload, ls, cat and rm work on the files of a space', async () => {
    const spaceId = await space()
    await post('/api/files/write', { spaceId, path: '/docs/plan.md', content: '# Plan' })
    await post('/api/files/write', { spaceId, path: '.hidden/x', content: 'x' })
    const uploaded = await upload(`/api/files/upload?spaceId=${spaceId}&path=docs/`, 'notes.txt', 'Notes')
    expect(uploaded).toMatchObject({ status: 200, results: [{ filePath: 'docs/notes.txt', size: 5 }] })
    expect((await upload(`/api/files/upload?spaceId=${spaceId}`, 'top.txt', 'Top')).results[0].filePath).toBe('top.txt')
    const root = await get(`/api/files/browse?spaceId=${spaceId}`)
    expect([root.type, names(root.contents)]).toEqual(['directory', ['docs/', 'top.txt']])
    expect(names((await get(`/api/files/browse?spaceId=${spaceId}&path=docs`)).contents)).toEqual([
      'notes.txt',
      'plan.md',
    ])
    const all = await get(`/api/files/browse?spaceId=${spaceId}&recursive=true&showHidden=true`)
    expect(names(all.contents)).toEqual([
      ...['.hidden/', 'docs/', '.hidden/x', 'docs/notes.txt', 'docs/plan.md', 'top.txt'],
    ])
    // `spaces ls` prints an unknown organization as it is.
    const of = await get(`/api/spaces/${spaceId}/files/browse?path=%2F&organizationId=undefined`)
    expect(names(of.files)).toEqual(['docs/', 'top.txt'])
    expect((await get(`/api/files/read?spaceId=${spaceId}&path=docs/plan.md`)).content).toBe('# Plan')
    await post('/api/files/delete', { spaceId, path: 'docs/plan.md' })
    await expect(get(`/api/files/read?spaceId=${spaceId}&path=docs/plan.md`)).rejects.toThrow('404: File not found')
  })

  test.each(['../x', '/a/../b', 'a\\b', '', '/', '.git/config'])('refuse the path %j', async (path) => {
    const spaceId = await space()
    await expect(post('/api/files/write', { spaceId, path, content: 'x' })).rejects.toThrow('400')
  })

  test('refuse an upload that is too large, duplicate, or into a foreign space', async () => {
    const spaceId = await space()
    const large = await upload(`/api/files/upload?spaceId=${spaceId}`, 'large.bin', 'x'.repeat(1024 * 1024 + 1))
    expect([large.status, large.message]).toEqual([400, 'File too large. At most 1 MiB'])
    const other = await server.member({ organization: 'Others' })
    const theirs = await client('POST', '/api/v1/spaces', { name: 'Theirs' }, other.token)
    const refused = await upload(`/api/files/upload?spaceId=${theirs.space.id}`, 'x.txt', 'x')
    expect([refused.status, refused.message]).toEqual([404, 'Space not found'])
    expect((await upload('/api/files/upload', 'x.txt', 'x')).status).toBe(400)
    expect((await get(`/api/files/browse?spaceId=${spaceId}`)).contents).toEqual([])
  })
})

test('the public directory needs a token, unless PUBLIC_DIRECTORY opens it to everyone', async () => {
  const id = await agent({ name: 'Open', visibility: 'public' })
  const { data, meta } = await get('/api/public/agents?search=Open')
  expect(data).toMatchObject([{ id, name: 'Open', slug: 'open', organizationName: 'Clients' }])
  expect(data[0]).not.toHaveProperty('systemPrompt')
  expect(meta).toMatchObject({ version: 'v1', total: 1, nextCursor: null })
  expect(Date.parse(meta.timestamp)).not.toBeNaN()
  expect((await fetch(`${server.url}/api/public/agents`)).status).toBe(401)
  await using open = await startServer({ PUBLIC_DIRECTORY: 'true' })
  const answer = await fetch(`${open.url}/api/public/agents`)
  expect([answer.status, (await answer.json()).meta.total]).toEqual([200, 0])
})

test('without the prefix of the hosted original there are only agents, no characters', async () => {
  await using other = await startServer()
  const headers = { Authorization: `Bearer ${other.token}` }
  const list = await (await fetch(`${other.url}/api/v1/agents`, { headers })).json()
  expect(Object.keys(list)).toEqual(['success', 'agents', 'total', 'nextCursor'])
})
