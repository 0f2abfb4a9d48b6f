import { beforeAll, expect, it } from 'vitest'
import { apis, onEachApi } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

let agentId: string
/** An agent that may delegate to another one. */
let chiefId: string
let executionId: string
// The database dominates the cost of a request, and a query in a loop makes it too expensive.

const server = await use(startServer())
beforeAll(async () => {
  agentId = await create(server.token)
  chiefId = await create(server.token, { subagentIds: [agentId] })
  const options = { body: { message: 'Hi' } }
  executionId = (await request(server, 'POST', `/api/v1/agents/${agentId}/execute`, options)).body.executionId
})

const create = async (token: string, fields: object = {}): Promise<string> => {
  const body = { name: 'A', systemPrompt: 'x', tags: ['a', 'b'], visibility: 'public', ...fields }
  return (await request(server, 'POST', '/api/v1/agents', { body, token })).body.id
}

/** Returns the statements of a call. The last use of its token was recorded before, in the same minute. */
async function statements(token: string, call: () => Promise<{ status: number }>): Promise<string[]> {
  await apis.REST(server, 'models.list', {}, { token })
  return server.statementsOf(async () => expect((await call()).status).toBe(200))
}

it.each(
  onEachApi([
    ['models.list', () => ({}), 1],
    ['agents.get', () => ({ id: agentId }), 2],
    ['agents.getPublic', () => ({ id: agentId }), 3],
    ['agents.versions', () => ({ id: agentId }), 3],
    ['agents.get', () => ({ id: chiefId }), 3],
    ['agents.versions', () => ({ id: chiefId }), 4],
    ['executions.get', () => ({ id: executionId }), 2],
    ['executions.tree', () => ({ id: executionId }), 4],
  ]),
)('%s: %s takes few statements, including authentication', async (api, procedure, input, most) => {
  const sent = await statements(server.token, () => apis[api](server, procedure, input()))
  expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(most)
})

it('a list of agents that may delegate takes one more statement, whatever its length', async () => {
  const { token } = await server.member({ organization: 'Chiefs' })
  const ids: string[] = []
  for (let made = 0; made < 30; made++) ids.push(await create(token, { subagentIds: ids.slice(-3) }))
  const sent = await statements(token, () => apis.REST(server, 'agents.list', {}, { token }))
  expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(4)
})

it.each([0, 10, 100])('a list of %i takes three statements at most', async (size) => {
  const { token } = await server.member({ organization: `Of ${size}` })
  for (let made = 0; made < size; made++) {
    const id = await create(token)
    await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi' }, token })
  }
  for (const [api, procedure] of onEachApi([['agents.list'], ['agents.listPublic'], ['executions.list']])) {
    const sent = await statements(token, () => apis[api](server, procedure, {}, { token }))
    expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(3)
  }
})
