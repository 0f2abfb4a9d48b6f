import { Socket } from 'node:net'
import { Connection } from 'pg'
import { beforeAll, expect, it, vi } from 'vitest'
import { apis, onEachApi } from '../support/api.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
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

/** Returns the number of statements and of writes that some work sends to PostgreSQL, BEGIN and COMMIT included. */
async function sentBy(work: () => Promise<unknown>): Promise<{ statements: number; writes: number }> {
  const port = Number(new URL(server.databaseEnv.DATABASE_URL ?? '').port)
  const sent = { statements: 0, writes: 0 }
  const spies = (['_write', '_writev'] as const).map((name) => {
    const write = Socket.prototype[name] as (...args: unknown[]) => void
    return vi.spyOn(Socket.prototype, name).mockImplementation(function (this: Socket, ...args: unknown[]) {
      if (this.remotePort === port) sent.writes++
      write.apply(this, args)
    })
  })
  const { execute } = Connection.prototype as unknown as { execute: (portal: object) => void }
  const executed = vi.fn(function (this: unknown, portal: object) {
    sent.statements++
    execute.call(this, portal)
  })
  Object.assign(Connection.prototype, { execute: executed })
  try {
    await work()
    return sent
  } finally {
    for (const spy of spies) spy.mockRestore()
    Object.assign(Connection.prototype, { execute })
  }
}

it.runIf(onPostgres).each([
  ['whole', 8, 8, {}],
  ['streamed', 9, 9, { stream: true }],
])('a %s run in a new chat takes %i statements and %i round trips at most', async (_, statements, writes, options) => {
  const path = `/api/v1/agents/${agentId}/execute`
  const body = { message: 'Hi', ...options }
  const run = async () => {
    await using answer = await openStream(server, path, { method: 'POST', body })
    expect(answer.status).toBe(200)
    if ('stream' in options) expect((await answer.rest()).at(-1)?.event).toBe('result')
  }
  // Two of each are notices to other servers. Some runs have periodic statements of the server beside them, and a slow
  // machine stores the events of a run in two parts.
  const counts: Awaited<ReturnType<typeof sentBy>>[] = []
  for (let round = 0; round < 8; round++) counts.push(await sentBy(run))
  const fewest = (name: 'statements' | 'writes') => Math.min(...counts.map((count) => count[name]))
  expect(fewest('statements')).toBeLessThanOrEqual(statements)
  expect(fewest('writes')).toBeLessThanOrEqual(writes)
})
