import { describe, expect, it } from 'vitest'
import type { Prisma } from '../../src/db/client.ts'
import { fill } from '../graphql/many.ts'
import { graphql } from '../graphql/support.ts'
import { APIS, type Api, apis } from '../support/api.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { type Answer, request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// Some hundred rows of every list: with short texts at first, and then with texts that make more than one page of them.

const server = await use(startServer())
const member = await server.member({ organization: 'Long', role: 'owner' })
const hubs = await fill(server, member)

type Db = TestServer['service']['deps']['db']
type List = {
  /** The procedure, and the field of the rows in its answer. */
  of: string
  rows: string
  input?: () => object
  /** The long text that is cut before a page ends early, and the procedure that reads one row by id. */
  cut?: { text: (row: any) => string; get?: [procedure: string, field: string] }
  /** Makes its rows longer. */
  lengthen: (db: Db, text: string) => Promise<unknown>
  /** The same list over GraphQL, with `ARGS` for its arguments. */
  graphql?: () => string
}

const everywhere = {}
const ALL: List[] = [
  {
    of: 'skills.list',
    rows: 'skills',
    lengthen: (db, description) => db.skill.updateMany({ where: everywhere, data: { description } }),
    graphql: () => '{ skills(ARGS) { totalCount nodes { id description } PAGE } }',
  },
  {
    of: 'agents.list',
    rows: 'agents',
    cut: { text: ({ systemPrompt }) => systemPrompt, get: ['agents.get', 'agent'] },
    lengthen: (db, systemPrompt) =>
      db.agent.updateMany({ where: everywhere, data: { systemPrompt, version: { increment: 1 } } }),
    graphql: () => '{ agents(ARGS) { totalCount nodes { id text: systemPrompt truncated } PAGE } }',
  },
  {
    of: 'agents.listPublic',
    rows: 'agents',
    lengthen: (db, description) => db.agent.updateMany({ where: everywhere, data: { description } }),
    graphql: () => '{ publicAgents(ARGS) { totalCount nodes { id description } PAGE } }',
  },
  {
    of: 'agents.versions',
    rows: 'versions',
    input: () => ({ id: hubs.Agent }),
    cut: { text: ({ agent }) => agent.systemPrompt },
    lengthen: async (db, systemPrompt) => {
      const { agent } = await db.agentVersion.findFirstOrThrow({ where: { agentId: hubs.Agent } })
      const data = { agent: { ...(agent as Prisma.InputJsonObject), systemPrompt } }
      await db.agentVersion.updateMany({ where: { agentId: hubs.Agent }, data })
    },
    graphql: () =>
      `{ agent(id: "${hubs.Agent}") { versions(ARGS) { totalCount nodes { version agent { role } } PAGE } } }`,
  },
  {
    of: 'missions.list',
    rows: 'missions',
    cut: { text: ({ goal }) => goal, get: ['missions.get', 'mission'] },
    lengthen: (db, goal) => db.mission.updateMany({ where: everywhere, data: { goal } }),
    graphql: () => '{ missions(ARGS) { totalCount nodes { id text: goal truncated } PAGE } }',
  },
  {
    of: 'tasks.list',
    rows: 'tasks',
    cut: { text: ({ description }) => description, get: ['tasks.get', 'task'] },
    lengthen: (db, description) => db.task.updateMany({ where: everywhere, data: { description } }),
    graphql: () => '{ tasks(ARGS) { totalCount nodes { id text: description truncated } PAGE } }',
  },
  {
    of: 'spaces.list',
    rows: 'spaces',
    cut: { text: ({ instructions }) => instructions, get: ['spaces.get', 'space'] },
    lengthen: (db, instructions) => db.space.updateMany({ where: everywhere, data: { instructions } }),
    graphql: () => '{ spaces(ARGS) { totalCount nodes { id text: instructions truncated } PAGE } }',
  },
  {
    of: 'mcps.list',
    rows: 'mcps',
    cut: { text: ({ headers }) => headers.header ?? headers[0].value, get: ['mcps.get', 'mcp'] },
    lengthen: (db, header) => db.mcpServer.updateMany({ where: everywhere, data: { headers: { header } } }),
  },
  {
    of: 'approvals.list',
    rows: 'approvals',
    lengthen: (db, text) => db.approval.updateMany({ where: everywhere, data: { input: JSON.stringify({ text }) } }),
    graphql: () => '{ approvals(ARGS) { totalCount nodes { id input } PAGE } }',
  },
  {
    of: 'executions.list',
    rows: 'executions',
    lengthen: (db, error) => db.execution.updateMany({ where: everywhere, data: { error } }),
    graphql: () => '{ executions(ARGS) { totalCount nodes { id error } PAGE } }',
  },
  {
    of: 'chats.messages',
    rows: 'messages',
    input: () => ({ id: hubs.Chat }),
    cut: { text: ({ content }) => content },
    lengthen: (db, content) => db.message.updateMany({ where: everywhere, data: { content } }),
    graphql: () =>
      `{ chat(id: "${hubs.Chat}") { messages(ARGS) { totalCount nodes { id text: content truncated } PAGE } } }`,
  },
]

/** PostgreSQL limits all of them in one way, which is tested with a text, with JSON and with a text of JSON. */
const LISTS = onPostgres
  ? ALL.filter(({ of }) => ['skills.list', 'agents.versions', 'approvals.list'].includes(of))
  : ALL

/** Reads the pages of a list over an API. Returns the keys and number of their rows, and the length of each answer. */
type Pages = { ids: unknown[]; total: unknown; size: number }[]

const idOf = (row: { id?: string; version?: number }) => row.id ?? row.version

async function pagesOf(api: Api, { of, rows, input = () => ({}) }: List, limit?: number): Promise<Pages> {
  const pages: Pages = []
  let cursor: string | null = null
  do {
    const page: object = { ...(limit && { limit: api === 'REST' ? `${limit}` : limit }), cursor: cursor ?? '' }
    const { status, body } = await apis[api](server, of, { ...input(), ...page }, member)
    expect(status).toBe(200)
    // Skills are grouped by source: here all except the shipped ones belong to the organization.
    const found = Array.isArray(body[rows]) ? body[rows] : [...body[rows].organization, ...body[rows].core]
    pages.push({ ids: found.map(idOf), total: body.total ?? body.count, size: Buffer.byteLength(JSON.stringify(body)) })
    cursor = body.nextCursor
  } while (cursor)
  return pages
}

async function connectionOf(text: string, first: number): Promise<Pages> {
  const pages: Pages = []
  let after: string | null = null
  do {
    const args = `first: ${first}${after ? `, after: "${after}"` : ''}`
    const document = text.replace('ARGS', args).replace('PAGE', 'pageInfo { hasNextPage endCursor }')
    const { data, errors } = await graphql(server, document, {}, member)
    expect(errors).toBeUndefined()
    const [[value]]: any = Object.values(data).map((one: any) => (one.nodes ? [one] : Object.values(one)))
    const { nodes, totalCount, pageInfo } = value
    pages.push({ ids: nodes.map(idOf), total: totalCount, size: Buffer.byteLength(JSON.stringify(data)) })
    after = pageInfo.hasNextPage ? pageInfo.endCursor : null
  } while (after)
  return pages
}

const idsOf = (pages: Pages) => pages.flatMap(({ ids }) => ids)

/** A long text, whose JSON has several bytes for each character. A hundred make a page and a half. */
const LONG = '\u0001中'.repeat(6_500)
const CUT = LONG.slice(0, 4_000)
/** The rows of a page, and the fields beside them. */
const MOST = 4_000_000 + 20_000

/** Pages of long rows: the same rows as before, with each page as long as its limit allows. */
function expectWhole(pages: Pages, ids: unknown[], total: unknown): void {
  expect(idsOf(pages)).toEqual(ids)
  expect(pages.length).toBeGreaterThan(1)
  for (const page of pages) {
    expect(page.size).toBeLessThan(MOST)
    expect(page.total).toBe(total)
  }
  for (const page of pages.slice(0, -1)) expect(page.size).toBeGreaterThan(3_000_000)
}

describe.each(LISTS)('$of', (list) => {
  const { of, input = () => ({}), lengthen } = list
  // One list of each kind also runs over tRPC, because the services make the pages for both.
  const isFirst = list === LISTS.find(({ cut }) => Boolean(cut) === Boolean(list.cut))
  const covered = isFirst ? APIS : (['REST'] as const)
  let ids: unknown[]
  let total: unknown

  it('show 100 and more short rows on a page, and read as many for it as for ten', async () => {
    async function statements(limit?: number): Promise<string[]> {
      server.service.deps.agentCache.clear()
      return server.statementsOf(async () => {
        const { status } = await apis.REST(server, of, { ...input(), ...(limit && { limit: `${limit}` }) }, member)
        expect(status).toBe(200)
      })
    }
    // Foreign skills are read only if the own ones leave space in the page.
    const beside = of === 'skills.list' ? 1 : 0
    expect((await statements()).length).toBeLessThanOrEqual((await statements(10)).length + beside)
    const [page, ...more] = await pagesOf('REST', list)
    expect(more).toEqual([])
    ids = page!.ids
    total = page!.total
    expect(ids.length).toBeGreaterThan(100)
    expect(new Set(ids).size).toBe(ids.length)
  })

  it.runIf(list.cut)('cut long texts before a page ends early, and show them whole by id', async () => {
    const { text, get } = list.cut!
    await lengthen(server.service.deps.db, LONG)
    for (const api of covered) {
      const [page, ...more] = await pagesOf(api, list)
      expect([page!.ids, more, page!.size < MOST]).toEqual([ids, [], true])
      const found = (await apis[api](server, of, input(), member)).body[list.rows]
      for (const row of found) {
        expect([text(row) === CUT, (row.agent ?? row).truncated]).toEqual([true, true])
      }
      if (!get) continue
      const one = (await apis[api](server, get[0], { id: found[0].id }, member)).body[get[1]]
      expect([text(one) === LONG, one.truncated]).toEqual([true, undefined])
    }
    if (!list.graphql || of === 'agents.versions') return
    const document = list.graphql().replace('ARGS', 'first: 100').replace('PAGE', 'pageInfo { hasNextPage }')
    const { data } = await graphql(server, document, {}, member)
    const [{ nodes }]: any = Object.values(data).map((one: any) => (one.nodes ? one : Object.values(one)[0]))
    expect(nodes).toHaveLength(100)
    for (const row of nodes) expect([row.text === CUT, row.truncated]).toEqual([true, true])
  })

  it.runIf(!list.cut)('end a page of long rows early, and leave none out', async () => {
    await lengthen(server.service.deps.db, LONG)
    for (const api of covered) expectWhole(await pagesOf(api, list), ids, total)
  })

  // For agents, the database first sends the listed columns, and then unknown agents, a hundred at a time.
  it.runIf(onPostgres && of !== 'agents.list')(
    'read at most one row more from PostgreSQL than a page has',
    async () => {
      const sent = await server.statementsOf(() => apis.REST(server, of, input(), member))
      const pages = sent.filter((sql) => / LIMIT 1001\b/.test(sql))
      expect(pages).not.toEqual([])
      for (const sql of pages) expect(sql).toContain('WHERE coalesce("before", 0) <= 4000000')
    },
  )

  it.runIf(isFirst && !list.cut)('show as many long rows as requested if they fit', async () => {
    for (const api of APIS) {
      const pages = await pagesOf(api, list, 7)
      expect(idsOf(pages)).toEqual(ids)
      expect(pages.map(({ ids }) => ids.length).slice(0, -1)).toEqual(Array(pages.length - 1).fill(7))
    }
  })

  it.runIf(list.graphql && !onPostgres && !list.cut)(
    'end a page of long rows early over GraphQL, and leave none out',
    async () => {
      const pages = await connectionOf(list.graphql!(), 100)
      expect(idsOf(pages)).toEqual(ids)
      for (const page of pages) {
        expect(page.size).toBeLessThan(MOST)
        expect(page.total).toBe(total ?? ids.length)
      }
      expect(pages[0]!.ids.length).toBeLessThan(100)
    },
  )

  it('have pages of short rows again for the following tests', () => lengthen(server.service.deps.db, 'x'))
})

describe.skipIf(onPostgres)('over GraphQL, a page cuts long texts before it ends early', () => {
  const show = async (document: string): Promise<any> => {
    const { data, errors } = await graphql(server, document, {}, member)
    expect(errors).toBeUndefined()
    return data
  }

  it('for prompts of skills, which are whole by id', async () => {
    const { db } = server.service.deps
    await db.skill.updateMany({ where: everywhere, data: { prompt: LONG } })
    const { skills } = await show('{ skills(first: 100) { nodes { id prompt truncated } } }')
    expect(skills.nodes).toHaveLength(100)
    for (const row of skills.nodes) expect([row.prompt === CUT, row.truncated]).toEqual([true, true])
    const { skill } = await show(`{ skill(id: "${skills.nodes[0].id}") { prompt truncated } }`)
    expect([skill.prompt === LONG, skill.truncated]).toEqual([true, null])
    // Pages without prompts have no limit of text.
    await db.skill.updateMany({ where: everywhere, data: { prompt: 'x' } })
  })

  it('for messages and results of runs, in a list, and in lists of several rows', async () => {
    const { db } = server.service.deps
    const data = { message: LONG, result: LONG }
    await db.execution.updateMany({ where: everywhere, data })
    const texts = 'nodes { id message result truncated }'
    const { executions } = await show(`{ executions(first: 100) { ${texts} } }`)
    const { agents } = await show(
      `{ agents(last: 2) { nodes { id executions(first: 100) { nodes { id message truncated } } } } }`,
    )
    const hub = agents.nodes.find(({ id }: { id: string }) => id === hubs.Agent)
    for (const { nodes } of [executions, hub.executions]) {
      expect(nodes).toHaveLength(100)
      for (const row of nodes) expect([row.message === CUT, row.truncated]).toEqual([true, true])
    }
    for (const row of executions.nodes) expect(row.result).toBe(CUT)
    const { execution } = await show(`{ execution(id: "${executions.nodes[0].id}") { message truncated } }`)
    expect([execution.message === LONG, execution.truncated]).toEqual([true, null])
    await db.execution.updateMany({ where: everywhere, data: { message: 'x', result: 'x' } })
  })

  it('for prompts of agent versions, and headers of MCP servers', async () => {
    const { db } = server.service.deps
    const versions = ALL.find(({ of }) => of === 'agents.versions')!
    await versions.lengthen(db, LONG)
    await db.mcpServer.updateMany({ where: everywhere, data: { headers: { header: LONG } } })
    const { agent } = await show(
      `{ agent(id: "${hubs.Agent}") { versions(first: 100) { nodes { agent { systemPrompt truncated } } } } }`,
    )
    expect(agent.versions.nodes).toHaveLength(100)
    for (const { agent: row } of agent.versions.nodes)
      expect([row.systemPrompt === CUT, row.truncated]).toEqual([true, true])
    const { mcps } = await show('{ mcps(first: 100) { nodes { headers { value } truncated } } }')
    expect(mcps.nodes).toHaveLength(100)
    for (const row of mcps.nodes) expect([row.headers[0].value === CUT, row.truncated]).toEqual([true, true])
    await versions.lengthen(db, 'x')
    await db.mcpServer.updateMany({ where: everywhere, data: { headers: {} } })
  })
})

describe('a row that is longer than a page', () => {
  const LONGER = 'x'.repeat(5_000_000)

  it('has its own page', async () => {
    const { db } = server.service.deps
    const list = ALL.find(({ of }) => of === 'approvals.list')!
    const { ids } = (await pagesOf('REST', list))[0]!
    const where = { id: { in: ids.slice(3, 5) as string[] } }
    await db.approval.updateMany({ where, data: { input: JSON.stringify(LONGER) } })
    const pages = await pagesOf('REST', list)
    expect(pages.map(({ ids }) => ids.length)).toEqual([3, 1, 1, ids.length - 5])
    expect(idsOf(pages)).toEqual(ids)
    await list.lengthen(db, 'x')
  })
})

describe.skipIf(onPostgres)('the files of a space over GraphQL', () => {
  it('end early if their content is long, and leave none out', async () => {
    const content = Buffer.alloc(60_000, 'x')
    const where = { spaceId: hubs.Space }
    await server.service.deps.db.spaceFile.updateMany({ where, data: { content, size: content.length } })
    const files = (fields: string) => `{ space(id: "${hubs.Space}") { files(ARGS) { nodes { ${fields} } PAGE } } }`
    const ids = idsOf(await connectionOf(files('id: path'), 100))
    expect(ids.length).toBeGreaterThan(100)
    expectWhole(await connectionOf(files('id: path content'), 100), ids, undefined)
  })
})

describe('the logs of an execution', () => {
  it('end early if they are long, and leave none out', async () => {
    const { db } = server.service.deps
    const id = hubs.Execution
    await db.executionEvent.deleteMany({ where: { executionId: id } })
    const data = { messageType: 'tool_result', toolUseId: 'u', content: '中'.repeat(400_000), isError: false }
    const of = (seq: number) => ({ executionId: id, firstSeq: seq, lastSeq: seq, at: new Date() })
    const events = Array.from({ length: 5 }, (_, index) => ({ ...of(index + 2), events: JSON.stringify([{ data }]) }))
    await db.executionEvent.createMany({ data: events })
    const seqs: number[] = []
    let after: number | null = 0
    let pages = 0
    for (; after !== null; pages++) {
      const { status, body }: Answer = await apis.REST(server, 'executions.logs', { id, after }, member)
      expect(status).toBe(200)
      // And at most two segments.
      expect(Buffer.byteLength(JSON.stringify(body))).toBeLessThan(4_000_000 + 3 * 1_300_000)
      seqs.push(...body.logs.map(({ seq }: { seq: number }) => seq))
      after = body.nextAfter
    }
    // `meta` is the first, and the terminal event the last.
    expect(seqs).toEqual([...Array.from({ length: 6 }, (_, index) => index + 1), 500])
    expect(pages).toBeGreaterThan(1)
    const text = `{ execution(id: "${id}") { events(ARGS) { nodes { id: seq ...on ToolResultEvent { output } } PAGE } } }`
    const connection = await connectionOf(text, 100)
    expect(idsOf(connection)).toEqual(seqs)
    for (const { size } of connection) expect(size).toBeLessThan(MOST)
  })

  it('have full pages if they are short', async () => {
    const { body } = await request(server, 'GET', `/api/v1/executions/${hubs.few}/logs`, { token: member.token })
    expect(body).toMatchObject({ logs: [{ event: 'meta' }, { event: 'result' }], nextAfter: null })
  })
})
