import { describe, expect, it } from 'vitest'
import { newId } from '../../src/lib/id.ts'
import { APIS, type Api, apis, expectError, onEachApi } from '../support/api.ts'
import { comparableAnswer } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const server = await use(startServer())
const people = {
  ...(await server.people('owner', 'admin')),
  creator: await server.member({ organization: 'Acme' }),
  member: await server.member({ organization: 'Acme' }),
  foreigner: await server.member({ organization: 'Other', role: 'owner' }),
}
type Who = keyof typeof people

const call = (api: Api, who: Who, procedure: string, input: Record<string, unknown> = {}) =>
  apis[api](server, procedure, input, { token: people[who].token })

/** The agent's own name is in its tag, its role and its description, which searches cover. */
async function create(api: Api, visibility: string): Promise<{ id: string; mark: string }> {
  const mark = `mark${newId()}`
  const fields = { name: mark, role: mark, description: mark, tags: [mark], systemPrompt: 'x', visibility }
  return { id: (await call(api, 'creator', 'agents.create', fields)).body.id, mark }
}

const SEEN = '✓'
const ABSENT = '–'

/** Returns whether lists and searches contain the agent, as one word for all of them, because they must agree. */
async function found(api: Api, who: Who, procedure: string, { id, mark }: { id: string; mark: string }, more = {}) {
  const words = new Set<string>()
  for (const filter of [{}, { tag: mark }, { search: mark.toUpperCase() }]) {
    const { body } = await call(api, who, procedure, { ...filter, ...more })
    words.add(body.agents.some((agent: { id: string }) => agent.id === id) ? SEEN : ABSENT)
  }
  return [...words].join()
}

// The visibility table of service.md, with contract.md section 2 for changes and for cards.
const COLUMNS = ['list', 'owner=me', 'public list', 'card', 'get', 'versions', 'execute', 'update', 'delete'] as const
const TABLE: [visibility: string, who: Who, ...row: (string | number)[]][] = [
  ['private', 'creator', ABSENT, SEEN, ABSENT, 404, 200, 200, 200, 200, 200],
  ['private', 'member', ABSENT, ABSENT, ABSENT, 404, 404, 404, 404, 404, 404],
  ['private', 'admin', ABSENT, ABSENT, ABSENT, 404, 404, 404, 404, 404, 404],
  ['private', 'owner', ABSENT, ABSENT, ABSENT, 404, 404, 404, 404, 404, 404],
  ['private', 'foreigner', ABSENT, ABSENT, ABSENT, 404, 404, 404, 404, 404, 404],

  ['organization', 'creator', SEEN, SEEN, ABSENT, 404, 200, 200, 200, 200, 200],
  ['organization', 'member', SEEN, ABSENT, ABSENT, 404, 200, 200, 200, 403, 403],
  ['organization', 'admin', SEEN, ABSENT, ABSENT, 404, 200, 200, 200, 200, 200],
  ['organization', 'owner', SEEN, ABSENT, ABSENT, 404, 200, 200, 200, 200, 200],
  ['organization', 'foreigner', ABSENT, ABSENT, ABSENT, 404, 404, 404, 404, 404, 404],

  ['public', 'creator', SEEN, SEEN, SEEN, 200, 200, 200, 200, 200, 200],
  ['public', 'member', SEEN, ABSENT, SEEN, 200, 200, 200, 200, 403, 403],
  ['public', 'admin', SEEN, ABSENT, SEEN, 200, 200, 200, 200, 200, 200],
  ['public', 'owner', SEEN, ABSENT, SEEN, 200, 200, 200, 200, 200, 200],
  ['public', 'foreigner', ABSENT, ABSENT, SEEN, 200, 404, 404, 200, 404, 404],

  ['unlisted', 'creator', ABSENT, SEEN, ABSENT, 200, 200, 200, 200, 200, 200],
  ['unlisted', 'member', ABSENT, ABSENT, ABSENT, 200, 200, 200, 200, 403, 403],
  ['unlisted', 'admin', ABSENT, ABSENT, ABSENT, 200, 200, 200, 200, 200, 200],
  ['unlisted', 'owner', ABSENT, ABSENT, ABSENT, 200, 200, 200, 200, 200, 200],
  ['unlisted', 'foreigner', ABSENT, ABSENT, ABSENT, 200, 404, 404, 200, 404, 404],
]

describe('the visibility of an agent decides who may do what with it', () => {
  it.each(onEachApi(TABLE))('on %s: %s, %s', async (api, visibility, who, ...expected) => {
    const agent = await create(api, visibility)
    const { id } = agent
    const attempt = async (procedure: string, input = {}) => {
      const answer = await call(api, who, procedure, { id, ...input })
      if (answer.status === 404) expectError(answer, 404, 'Agent not found')
      if (answer.status === 403) expectError(answer, 403, "You don't have permission to access this resource")
      return answer.status
    }
    const row = [
      await found(api, who, 'agents.list', agent),
      await found(api, who, 'agents.list', agent, { owner: 'me' }),
      await found(api, who, 'agents.listPublic', agent),
      await attempt('agents.getPublic'),
      await attempt('agents.get'),
      await attempt('agents.versions'),
      await attempt('agents.execute', { message: 'Hi' }),
      await attempt('agents.update', { name: 'Changed' }),
      await attempt('agents.delete'),
    ]
    const named = (values: readonly unknown[]) => Object.fromEntries(COLUMNS.map((name, i) => [name, values[i]]))
    expect(named(row)).toEqual(named(expected))
  })

  it.each(onEachApi([['private'], ['organization'], ['public'], ['unlisted']]))(
    '%s: as soon as it is %s, it is visible and executable accordingly',
    async (api, visibility) => {
      for (const before of ['private', 'organization', 'public', 'unlisted']) {
        const agent = await create(api, before)
        await call(api, 'creator', 'agents.update', { id: agent.id, visibility })
        const row = TABLE.find((candidate) => candidate[0] === visibility && candidate[1] === 'member')?.slice(2) ?? []
        expect(await found(api, 'member', 'agents.list', agent)).toBe(row[0])
        expect(await found(api, 'foreigner', 'agents.listPublic', agent)).toBe(row[2])
        expect((await call(api, 'member', 'agents.get', { id: agent.id })).status).toBe(row[4])
      }
    },
  )
})

it.each(APIS)('%s: a public list shows cards without a prompt to every caller', async (api) => {
  const secret = `prompt-${newId()}`
  const fields = { name: 'A', systemPrompt: secret, visibility: 'public', initialGreeting: secret, model: secret }
  const { id } = (await call(api, 'creator', 'agents.create', fields)).body
  for (const who of Object.keys(people) as Who[]) {
    const answers = [await call(api, who, 'agents.listPublic'), await call(api, who, 'agents.getPublic', { id })]
    expect(JSON.stringify(answers.map(({ body }) => body))).not.toContain(secret)
  }
})

describe('a foreign id looks like one that never existed', () => {
  const ATTEMPTS: [procedure: string, method: string, path: (id: string) => string, body?: object][] = [
    ['agents.get', 'GET', (id) => `/api/v1/agents/${id}`],
    ['agents.versions', 'GET', (id) => `/api/v1/agents/${id}/versions`],
    ['agents.update', 'PATCH', (id) => `/api/v1/agents/${id}`, { name: 'x' }],
    ['agents.delete', 'DELETE', (id) => `/api/v1/agents/${id}`],
    ['agents.execute', 'POST', (id) => `/api/v1/agents/${id}/execute`, { message: 'x' }],
    ['agents.execute stream', 'POST', (id) => `/api/v1/agents/${id}/execute`, { message: 'x', stream: true }],
    ['agents.getPublic', 'GET', (id) => `/api/v1/public/agents/${id}`],
    ['basedOnAgentId', 'POST', () => '/api/v1/agents', { name: 'x', basedOnAgentId: '{id}' }],
    ['subagentIds', 'POST', () => '/api/v1/agents', { name: 'x', systemPrompt: 'x', subagentIds: ['{id}'] }],
    ['agents.get', 'GET', (id) => `/trpc/agents.get?input=${encodeURIComponent(JSON.stringify({ id }))}`],
    ['agents.update', 'POST', () => '/trpc/agents.update', { id: '{id}', name: 'x' }],
    ['agents.execute', 'POST', () => '/trpc/agents.execute', { id: '{id}', message: 'x' }],
  ]

  it.each(ATTEMPTS)('in a request of %s (%s)', async (_, method, path, body) => {
    const ids = [(await create('REST', 'private')).id, (await create('REST', 'organization')).id]
    const archived = await create('REST', 'public')
    await call('REST', 'creator', 'agents.delete', { id: archived.id })
    const answers: unknown[] = []
    for (const id of [newId(), ...ids, archived.id]) {
      const json = body && JSON.stringify(body).replace('{id}', id)
      const answer = await comparableAnswer(server, method, path(id), { body: json, token: people.foreigner.token })
      answers.push({ ...answer, text: answer.text.replaceAll(id, '<id>') })
    }
    expect(answers[0]).toMatchObject({ status: expect.toSatisfy((status) => status === 404 || status === 400) })
    for (const answer of answers) expect(answer).toEqual(answers[0])
  })
})
