import { Client } from 'pg'
import { expect, it } from 'vitest'
import { findDescendants } from '../../src/executions/engine/queue/tree.ts'
import { graphql } from '../graphql/support.ts'
import { planOf } from '../support/plan.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// Plan nodes that read all of their input, even for a short page: sorts and scans of materialized lists.

const server = await use(startServer({ METRICS_PORT: '0' }))
expect((await fetch(server.service.metricsUrl ?? '')).status).toBe(200)
/** Statements of the server itself, over all organizations: recovery at start, and metrics. */
const ofAll = server.queries.filter((sql) => /FROM .*"Execution".*"status"/s.test(sql))
for (let made = 0; made < 2; made++) {
  const { id: agentId } = await post('agents', { name: 'A', systemPrompt: 'x' })
  await post('spaces', { name: `Space ${made}` })
  await post('tasks', { title: 'T' })
  await post('missions', { title: 'M', goal: 'G', agentId })
}

async function post(path: string, body: object): Promise<{ id: string }> {
  const answer = await request(server, 'POST', `/api/v1/${path}`, { body })
  expect(answer.status).toBe(200)
  return answer.body
}

/** Returns the plan of a statement. PostgreSQL plans without sequential scans and sorts where it can. */
async function stepsOf(sql: string, without = ['sort', 'seqscan', 'bitmapscan']): Promise<string[]> {
  if (!onPostgres) return planOf(server, sql)
  const client = new Client(server.databaseEnv.DATABASE_URL)
  await client.connect()
  await client.query(without.map((way) => `SET enable_${way} = off`).join('; '))
  const { rows } = await client.query<{ 'QUERY PLAN': string }>(`EXPLAIN (GENERIC_PLAN) ${sql}`)
  await client.end()
  return rows.map((row) => row['QUERY PLAN'].trim())
}

/** Returns the nodes that read all of their input. The merged parts of a page are few rows and do not count. */
async function wholesOf(sql: string): Promise<string[]> {
  const whole = onPostgres ? /^Sort Key: (?!"\*SELECT)|hashed SubPlan/ : /TEMP B-TREE FOR ORDER/
  return (await stepsOf(sql)).filter((step) => whole.test(step))
}

const cursor = Buffer.from('1750000000000.some').toString('base64url')

it.each([
  ...['agents', 'agents?visibility=public', 'agents?owner=me', 'public/agents', 'spaces', 'skills', 'mcps', 'media'],
  ...['chats', 'chats?status=done', 'chats?agentId=a', 'chats?spaceId=s', 'missions', 'missions?status=pending'],
  ...['executions', 'executions?status=failed', 'executions?agentId=a', 'executions?spaceId=s', 'executions?chatId=c'],
  ...['executions?taskId=t', 'executions?missionId=m'],
  ...['tasks', 'tasks?status=pending', 'tasks?assignedTo=me', 'keys', 'approvals', 'approvals?status=pending'],
])('GET /%s reads a page in the order of an index, without reading a whole table', async (path) => {
  const page = `/api/v1/${path}${path.includes('?') ? '&' : '?'}limit=2`
  for (const asked of [page, `${page}&cursor=${cursor}`]) {
    const statements = await server.statementsOf(async () => {
      expect((await request(server, 'GET', asked)).status).toBe(200)
    })
    const pages = statements.filter((sql) => sql.includes(' LIMIT 3'))
    expect(pages).not.toEqual([])
    for (const sql of pages) expect(await wholesOf(sql), sql).toEqual([])
  }
})

it.skipIf(onPostgres).each([
  ['agents', 'Agent_organizationId_archivedAt_visibility_createdAt_id_idx'],
  ['agents?visibility=public', 'Agent_organizationId_archivedAt_visibility_createdAt_id_idx'],
  ['agents?owner=me', 'Agent_organizationId_userId_archivedAt_createdAt_id_idx'],
  ['public/agents', 'Agent_visibility_archivedAt_createdAt_id_idx'],
])('GET /%s searches two letters in one index, and their total in no other', async (path, index) => {
  const asked = `/api/v1/${path}${path.includes('?') ? '&' : '?'}limit=2&cursor=${cursor}&search=no`
  const statements = await server.statementsOf(async () => {
    expect((await request(server, 'GET', asked)).status).toBe(200)
  })
  const searches = statements.filter((sql) => sql.includes('"searchText" LIKE'))
  expect(searches.map((sql) => /^SELECT count/.test(sql))).toEqual([false, true])
  const [page, total] = await Promise.all(searches.map((sql) => stepsOf(sql)))
  for (const step of page!.filter((step) => step.startsWith('SEARCH'))) expect(step).toContain(` INDEX ${index} (`)
  expect(total).toEqual([expect.stringContaining(` COVERING INDEX ${index} (`)])
})

it.skipIf(onPostgres).each([
  ['chats', 'Chat_organizationId_archivedAt_createdAt_id_idx'],
  ['tasks', 'Task_organizationId_createdAt_id_idx'],
  ['tasks?status=pending', 'Task_organizationId_status_createdAt_id_idx'],
  ['missions', 'Mission_organizationId_archivedAt_createdAt_id_idx'],
  ['spaces', 'Space_organizationId_archivedAt_createdAt_id_visibility_ownerId_idx'],
])('GET /%s searches in the index of its list, and counts there', async (path, index) => {
  const count = /chats|tasks/.test(path) ? '&count=true' : ''
  const asked = `/api/v1/${path}${path.includes('?') ? '&' : '?'}limit=2${count}&cursor=${cursor}&search=absent`
  const statements = await server.statementsOf(async () => {
    const { total, count = total } = (await request(server, 'GET', asked)).body
    expect(count).toBe(0)
  })
  const searches = statements.filter((sql) => sql.includes('"searchText" LIKE'))
  expect(searches).toHaveLength(2)
  for (const sql of searches) expect(planOf(server, sql).join(), sql).toContain(` INDEX ${index} (`)
})

it.each(['agents', 'public/agents'])(
  'GET /%s treats an empty search as no search, and reads its stored total',
  async (path) => {
    const statements = await server.statementsOf(async () => {
      expect((await request(server, 'GET', `/api/v1/${path}?limit=1&cursor=${cursor}&search=`)).status).toBe(200)
    })
    expect(statements).toContainEqual(expect.stringContaining('"Total"'))
    expect(statements.filter((sql) => /"searchText" LIKE|SELECT count/.test(sql))).toEqual([])
  },
)

it.each(['agents', 'agents?owner=me', 'public/agents'])(
  'GET /%s finds text that few agents have by trigrams, without scanning other agents',
  async (path) => {
    await post('agents', { name: 'Zoë', systemPrompt: 'x', visibility: 'public' })
    const asked = `/api/v1/${path}${path.includes('?') ? '&' : '?'}limit=1&search=zoë`
    const statements = await server.statementsOf(async () => {
      expect((await request(server, 'GET', asked)).body.agents).toMatchObject([{ name: 'Zoë' }])
    })
    const [found, ...others] = statements.filter((sql) => /"AgentText"|"searchKeys"|"searchText" LIKE/.test(sql))
    const steps = await stepsOf(found!, [])
    expect(steps).toContainEqual(expect.stringContaining(onPostgres ? 'Agent_searchKeys_idx' : 'VIRTUAL TABLE INDEX'))
    expect(others).not.toEqual([])
    for (const sql of onPostgres ? [] : others) {
      expect(planOf(server, sql), sql).toContain('SEARCH Agent USING INDEX sqlite_autoindex_Agent_1 (id=?)')
    }
  },
)

it.each([
  ['agents', 'chats'],
  ['agents', 'executions'],
  ['spaces', 'chats'],
  ['spaces', 'executions'],
  ['tasks', 'executions'],
  ['missions', 'runs'],
])('GraphQL reads, for a page of %s, their %s in the order of an index, and nothing as a whole', async (root, of) => {
  const query = `{ ${root}(first: 2) { nodes { id ${of}(first: 2) { nodes { id } } } } }`
  const statements = await server.statementsOf(async () => {
    const { status, data } = await graphql(server, query)
    expect([status, data[root].nodes.length]).toEqual([200, 2])
  })
  const lists = statements.filter((sql) => sql.includes(' AS "list"'))
  expect(lists).not.toEqual([])
  for (const sql of lists) expect(await wholesOf(sql), sql).toEqual([])
})

it('maintenance finds unfinished runs by a partial index', async () => {
  expect(ofAll.length).toBeGreaterThanOrEqual(5)
  for (const sql of ofAll) expect((await stepsOf(sql)).join(), sql).toContain('Execution_status_leaseUntil_idx')
})

it('the runs of a tree are found by a partial index of runs with a parent', async () => {
  const { id } = await post('agents', { name: 'B', systemPrompt: 'x' })
  const { executionId } = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi' } }))
    .body
  const { db } = server.service.deps
  const root = await db.execution.findUniqueOrThrow({ where: { id: executionId } })
  const statements = await server.statementsOf(async () => {
    expect((await request(server, 'GET', `/api/v1/executions/${executionId}/tree`)).status).toBe(200)
    expect(await findDescendants(db, root)).toEqual([])
  })
  const ofTrees = statements.filter((sql) => /"rootExecutionId" = /.test(sql))
  expect(ofTrees).toHaveLength(3)
  for (const sql of ofTrees)
    expect((await stepsOf(sql)).join(), sql).toContain('Execution_organizationId_rootExecutionId_idx')
})
