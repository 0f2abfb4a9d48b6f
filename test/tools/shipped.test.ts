import { describe, expect, it } from 'vitest'
import { CORE_SKILLS } from '../../src/skills/core.ts'
import { call, offered } from '../engine/tool-lab.ts'
import { ok } from '../support/api.ts'
import type { Reply } from '../support/model-replies.ts'
import { type ModelRequest, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { use } from '../support/use.ts'

// Each skill that comes with the service in a run: a scripted model loads it and works with its tools.

const model = await use(startModelServer())
const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl, DEFAULT_MODEL: 'compatible/test-model' }))

type Fields = Record<string, unknown>

async function rest(method: string, path: string, body?: Fields) {
  return ok(request(server, method, `/api/v1${path}`, body && { body }))
}
const space = async (fields: Fields = {}): Promise<string> =>
  (await rest('POST', '/spaces', { name: 'S', ...fields })).id
const agent = async (fields: Fields = {}): Promise<string> =>
  (await rest('POST', '/agents', { name: 'A', systemPrompt: 'You are A.', ...fields })).id
const contentPath = (spaceId: string, path: string) => `/spaces/${spaceId}/files/content?path=${path}`
const put = (spaceId: string, path: string, content: string) => rest('PUT', contentPath(spaceId, path), { content })
const read = async (spaceId: string, path: string) => (await rest('GET', contentPath(spaceId, path))).content

/** The tool results so far as the model receives them, oldest first. */
const answers = ({ body }: ModelRequest) =>
  body.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)
const lastAnswer = (asked: ModelRequest) => JSON.parse(String(answers(asked).at(-1)))

type Step = Reply | ((asked: ModelRequest) => Reply)
const calls = (name: string, input: Fields = {}): Reply => ({ toolCalls: [call(name, input)] })

/** Runs an agent over HTTP with scripted steps. Returns the streamed events and the model's requests. */
async function run(agentId: string, spaceId: string, steps: Step[]) {
  const from = model.requests.length
  model.script(...steps)
  const path = `/api/v1/agents/${agentId}/execute`
  await using stream = await openStream(server, path, {
    method: 'POST',
    body: { message: 'Do it.', spaceId, stream: true },
  })
  const events = await stream.rest()
  const messages = events.flatMap(({ event, data }) => (event === 'message' ? data : []))
  return {
    meta: events[0]!.data,
    end: events.at(-1)!,
    results: messages.filter(({ messageType }) => messageType === 'tool_result'),
    requests: model.requests.slice(from),
  }
}

type Scenario = {
  before?: (spaceId: string) => Promise<unknown>
  steps: Step[]
  after: (spaceId: string, agentId: string) => Promise<void>
}

const tasksIn = async (spaceId: string) => (await rest('GET', `/tasks?spaceId=${spaceId}`)).tasks

const SCENARIOS: Record<string, Scenario> = {
  'research-brief': {
    before: (spaceId) => put(spaceId, 'notes/prices.md', 'Plan A costs 10 (2026-01, price list).'),
    steps: [
      calls('list_files'),
      (asked) => calls('read_file', { path: lastAnswer(asked).files[0].path }),
      (asked) =>
        calls('write_file', { path: 'research/prices.md', content: `# Prices\n\n${answers(asked).at(-1)} [1]` }),
    ],
    after: async (spaceId) => {
      expect(await read(spaceId, 'research/prices.md')).toBe('# Prices\n\nPlan A costs 10 (2026-01, price list). [1]')
    },
  },
  'clear-writing': {
    before: (spaceId) => put(spaceId, 'draft.md', 'It should be noted that a decision was made.'),
    steps: [
      calls('read_file', { path: 'draft.md' }),
      calls('write_file', { path: 'draft.edited.md', content: 'We decided.' }),
    ],
    after: async (spaceId) => {
      expect(await read(spaceId, 'draft.edited.md')).toBe('We decided.')
      expect(await read(spaceId, 'draft.md')).toContain('noted')
    },
  },
  'data-analysis': {
    before: (spaceId) => put(spaceId, 'data/sales.csv', `month,net\n${'2026-01,1\n'.repeat(6_000)}2026-02,5`),
    steps: [
      calls('list_files', { path: 'data/' }),
      calls('read_file', { path: 'data/sales.csv' }),
      (asked) => {
        const offset = Number(/continue with offset (\d+)\]$/.exec(String(answers(asked).at(-1)))?.[1])
        return calls('read_file', { path: 'data/sales.csv', offset })
      },
      (asked) => calls('write_file', { path: 'data/by-month.csv', content: String(answers(asked).at(-1)).slice(-9) }),
    ],
    after: async (spaceId) => expect(await read(spaceId, 'data/by-month.csv')).toBe('2026-02,5'),
  },
  'code-review': {
    before: (spaceId) => put(spaceId, 'src/sum.js', 'for (let i = 0; i <= list.length; i++) sum += list[i]'),
    steps: [
      calls('list_files', { path: 'src/' }),
      calls('read_file', { path: 'src/sum.js' }),
      calls('create_task', { title: 'Fix the bound in sum.js', priority: 'high', description: 'src/sum.js:1' }),
    ],
    after: async (spaceId, agentId) => {
      const wanted = { title: 'Fix the bound in sum.js', priority: 'high', createdBy: agentId, status: 'pending' }
      expect(await tasksIn(spaceId)).toMatchObject([wanted])
    },
  },
  'task-planning': {
    steps: [
      calls('list_tasks', { status: 'pending' }),
      calls('create_task', { title: 'Draft the page' }),
      (asked) => calls('claim_task', { id: lastAnswer(asked).task.id }),
      (asked) => calls('update_task', { id: lastAnswer(asked).task.id, status: 'in_progress' }),
      (asked) => calls('update_task', { id: lastAnswer(asked).task.id, status: 'completed' }),
    ],
    after: async (spaceId, agentId) => {
      const wanted = { title: 'Draft the page', createdBy: agentId, assignedTo: agentId, status: 'completed' }
      expect(await tasksIn(spaceId)).toMatchObject([wanted])
    },
  },
  'file-organizer': {
    before: (spaceId) => put(spaceId, 'a.md', '# Minutes'),
    steps: [
      calls('list_files'),
      calls('read_file', { path: 'a.md' }),
      calls('write_file', { path: 'INDEX.md', content: '- a.md: minutes' }),
      calls('read_file', { path: 'INDEX.md' }),
    ],
    after: async (spaceId) => expect(await read(spaceId, 'INDEX.md')).toBe('- a.md: minutes'),
  },
}

it('each shipped skill is tried here', () => {
  expect(Object.keys(SCENARIOS).toSorted()).toEqual(CORE_SKILLS.map(({ name }) => name).toSorted())
})

describe.each(['the agent', 'the space'])('attached to %s', (where) => {
  it.each(CORE_SKILLS.map((skill) => [skill.name, skill] as const))(
    '%s is loaded and works with its tools',
    async (name, skill) => {
      const { before, steps, after } = SCENARIOS[name]!
      const ids = [skill.id]
      const agentId = await agent(where === 'the agent' ? { skillIds: ids } : {})
      const spaceId = await space(where === 'the space' ? { addSkills: ids } : {})
      await before?.(spaceId)
      const { meta, end, results, requests } = await run(agentId, spaceId, [
        calls('load_skill', { name }),
        ...steps,
        { tokens: 'All done.' },
      ])

      expect(end).toMatchObject({ event: 'result', data: { status: 'completed' } })
      expect(results.map(({ content, isError }) => isError && content)).toEqual(results.map(() => false))
      expect(results).toHaveLength(steps.length + 1)
      const [first, second] = requests
      expect(offered(first!).toSorted()).toEqual(['load_skill', ...skill.builtInTools].toSorted())
      const [system] = first!.body.messages
      expect(String(system?.content)).toContain(`- ${name}: ${skill.description}`)
      expect(String(system?.content)).not.toContain(skill.prompt)
      expect(answers(second!)).toEqual([skill.prompt])
      await after(spaceId, agentId)

      const { messages } = await rest('GET', `/chats/${meta.chatId}/messages`)
      expect(messages[1].content).toBe('All done.')
      expect(messages[1].toolCalls[0]).toMatchObject({ name: 'load_skill', input: { name }, result: skill.prompt })
      // Each of its tools has been called.
      const used = new Set(messages[1].toolCalls.map((one: Fields) => one.name))
      expect([...used].toSorted()).toEqual(['load_skill', ...skill.builtInTools].toSorted())
    },
  )
})

it('the prompt of a skill is loaded whole, whatever its length', async () => {
  const prompt = '😀'.repeat(100_000)
  const { id } = await rest('POST', '/skills', { name: 'long', description: 'd', prompt })
  const steps = [calls('load_skill', { name: 'long' }), { tokens: 'Ok' }]
  const { requests } = await run(await agent({ skillIds: [id] }), await space(), steps)
  expect(answers(requests[1]!)).toEqual([prompt])
})

describe('a run has the built-in tools', () => {
  it('a run has the built-in tools that its agent allows, without any skill', async () => {
    const agentId = await agent({ allowedTools: ['list_tasks', 'write_file'] })
    const { requests } = await run(agentId, await space(), [{ tokens: 'Hi' }])
    expect(offered(requests[0]!)).toEqual(['list_tasks', 'write_file'])
  })

  it('a run has the built-in tools that its skills need, except those that the agent forbids', async () => {
    const agentId = await agent({ skillIds: ['core-task-planning'], disallowedTools: ['update_task', 'claim_task'] })
    const { requests } = await run(agentId, await space(), [{ tokens: 'Hi' }])
    expect(offered(requests[0]!).toSorted()).toEqual(['create_task', 'list_tasks', 'load_skill'])
  })

  it('a run has the built-in tools and no others', async () => {
    const { requests } = await run(await agent(), await space(), [calls('list_tasks'), { tokens: 'Hi' }])
    expect(offered(requests[0]!)).toEqual([])
    expect(answers(requests[1]!)).toEqual([expect.stringContaining('There is no tool named list_tasks')])
  })

  it('a run has the built-in tools whose refusals the model reads, while the run continues', async () => {
    const agentId = await agent({ allowedTools: ['read_file', 'create_task'] })
    const { end, results } = await run(agentId, await space(), [
      calls('read_file', { path: '../../etc/passwd' }),
      calls('read_file', { path: 'none.md' }),
      calls('create_task', { title: '' }),
      { tokens: 'I could not.' },
    ])
    expect(results.map(({ content, isError }) => [content, isError])).toEqual([
      [expect.stringMatching(/^Invalid path/), true],
      ['File not found', true],
      ['Missing required field: title', true],
    ])
    expect(end.event).toBe('result')
  })
})

it("another organization's public agent follows its skills, whose text is hidden", async () => {
  const eve = await server.member({ organization: 'Other', role: 'owner' })
  const theirs = async (path: string, body: Fields) =>
    (await request(server, 'POST', `/api/v1${path}`, { token: eve.token, body })).body.id
  const canary = 'canary-of-the-skill'
  const prompt = `# ${canary}`
  const skillIds = [
    await theirs('/skills', { name: 'secret', description: 'd', prompt, builtInTools: ['write_file'] }),
    await theirs('/skills', { name: 'open', description: 'd', prompt, visibility: 'public' }),
  ]
  const agentId = await theirs('/agents', { name: 'E', systemPrompt: 'x', visibility: 'public', skillIds })
  const spaceId = await space({ addSkills: ['core-clear-writing'] })
  // By default an agent of another organization has only the built-in tools that read.
  const { organizationId } = (await rest('GET', `/spaces/${spaceId}`)).space
  await rest('PATCH', `/organizations/${organizationId}/policy`, { foreignAgents: 'all' })
  const steps = [
    calls('write_file', { path: 'a.md', content: 'a' }),
    calls('load_skill', { name: 'secret' }),
    calls('load_skill', { name: 'open' }),
    { tokens: 'Ok' },
  ]
  const { meta, results, requests } = await run(agentId, spaceId, steps)
  await rest('PATCH', `/organizations/${organizationId}/policy`, { foreignAgents: 'read' })
  expect(String(requests[0]!.body.messages[0]?.content).split(canary)).toHaveLength(3)
  expect(offered(requests[0]!).toSorted()).toEqual(['load_skill', 'read_file', 'write_file'])
  expect(results.map(({ isError }) => isError)).toEqual([false, true, true])
  expect(await read(spaceId, 'a.md')).toBe('a')
  const { executionId, chatId } = meta
  for (const path of [
    ...['', '/tree', '/logs'].map((part) => `/executions/${executionId}${part}`),
    `/chats/${chatId}`,
    `/chats/${chatId}/messages`,
    `/spaces/${spaceId}`,
    '/skills',
  ]) {
    expect(JSON.stringify(await rest('GET', path)), path).not.toContain(canary)
  }
  // Any caller can read the public skill by its id.
  expect((await rest('GET', `/skills/${skillIds[1]}`)).skill.prompt).toBe(prompt)
  await using stream = await openStream(server, `/api/v1/executions/${executionId}/events`)
  await stream.rest()
  expect(stream.text).not.toContain(canary)
})
