import { expect, test } from 'vitest'
import type { EngineDeps } from '../../src/executions/engine/engine.ts'
import { openTools } from '../../src/executions/tools.ts'
import { request } from '../support/rest.ts'
import { use } from '../support/use.ts'
import { storedEvents, violations } from './invariants.ts'
import { ended, followed, PLAIN } from './lab.ts'
import { call, messagesOf, startToolLab, type ToolLab } from './tool-lab.ts'

const toolLab = await use(startToolLab({ LEASE_DURATION: '600', DRAIN_TIMEOUT: '0.1' }))
const lab = toolLab.lab

/** Opens the tools of a run, and adds a number of warnings. */
const warning =
  (count: number, text = (index: number) => `Server ${index} cannot be reached`): EngineDeps['openTools'] =>
  (user) => {
    for (let index = 0; index < count; index++) user.warn('mcp_unreachable', text(index))
    return openTools(lab.server.service.deps, user)
  }

const warnings = async (id: string) => JSON.parse((await lab.row(id)).warnings ?? '[]')

test('a warning is an event of the run, and stands in its execution on all three APIs', async () => {
  const agent = await toolLab.agent()
  const engine = lab.another({ openTools: warning(1) })
  const row = await engine.accept(requestOf(agent))
  const seen = await followed(engine, row)
  const expected = [{ code: 'mcp_unreachable', text: 'Server 0 cannot be reached' }]
  expect(messagesOf(seen)[0]).toEqual({ messageType: 'warning', ...expected[0] })
  const { body } = await request(lab.server, 'GET', `/api/v1/executions/${row.id}`)
  expect(body.execution.warnings).toEqual(expected)
  const query = `{ execution(id: "${row.id}") { warnings { code text } events { nodes { ... on WarningEvent { code text } } } } }`
  const graphql = await request(lab.server, 'POST', '/graphql', { body: { query } })
  expect(graphql.body.data.execution.warnings).toEqual(expected)
  expect(graphql.body.data.execution.events.nodes).toContainEqual(expected[0])
  const { body: plain } = await request(lab.server, 'POST', `/api/v1/agents/${agent.id}/execute`, {
    body: { message: 'Hello' },
  })
  expect(plain.warnings).toEqual([])
  await engine.drain()
})

test('a run has at most 50 warnings, each of them once and on one line', async () => {
  const agent = await toolLab.agent()
  const engine = lab.another({ openTools: warning(200, (index) => `Server\n${index >> 1} \0cannot be reached`) })
  const row = await engine.accept(requestOf(agent))
  const seen = messagesOf(await followed(engine, row)).filter(({ messageType }) => messageType === 'warning')
  expect(seen).toHaveLength(50)
  const stored = await warnings(row.id)
  expect(stored.map(({ text }: { text: string }) => text)).toEqual(
    Array.from({ length: 50 }, (_, index) => `Server ${index} cannot be reached`),
  )
  await engine.drain()
})

test('a run that is taken over keeps its warnings, without a duplicate event', async () => {
  const agent = await toolLab.agent()
  const index = lab.model.requests.length
  lab.model.script({ toolCalls: [call('add', { a: 1, b: 2 })] }, { end: 'hang' })
  const dying = lab.another({ openTools: warning(2) })
  const row = await dying.accept(requestOf(agent))
  await lab.model.request(index + 1)
  await expect.poll(async () => (await storedEvents(lab.db, row.id)).length).toBe(4)
  lab.model.script({ tokens: 'Done.' })
  const heir = lab.another({ openTools: warning(3) })
  lab.clock.advance(700_000)
  await heir.start(false)
  expect(await ended(heir, row)).toMatchObject({ status: 'completed', attempt: 2 })
  expect((await warnings(row.id)).map(({ text }: { text: string }) => text)).toEqual([
    'Server 0 cannot be reached',
    'Server 1 cannot be reached',
    'Server 2 cannot be reached',
  ])
  const seen = messagesOf(await followed(heir, row)).filter(({ messageType }) => messageType === 'warning')
  expect(seen).toHaveLength(3)
  expect(await violations(lab.db)).toEqual([])
  await dying.drain()
  await heir.drain()
})

test('a run with only warnings when its process dies starts again', async () => {
  const agent = await toolLab.agent()
  const index = lab.model.requests.length
  lab.model.script({ end: 'hang' })
  const dying = lab.another({ openTools: warning(1) })
  const row = await dying.accept(requestOf(agent))
  await lab.model.request(index)
  await expect.poll(async () => (await storedEvents(lab.db, row.id)).length).toBe(1)
  lab.model.script({ tokens: 'Done.' })
  const heir = lab.another({ openTools: warning(1) })
  lab.clock.advance(700_000)
  await heir.start(false)
  expect(await ended(heir, row)).toMatchObject({ status: 'completed', attempt: 2, result: 'Done.' })
  expect(await warnings(row.id)).toHaveLength(1)
  await dying.drain()
  await heir.drain()
})

type Agent = Awaited<ReturnType<ToolLab['agent']>>

const requestOf = (agent: Agent) => ({
  ...PLAIN,
  actor: lab.actor,
  agent,
  conversation: { spaceId: lab.spaceId },
})
