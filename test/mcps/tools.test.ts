import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { toolUser } from '../../src/executions/engine/run/prepare.ts'
import type { Tool, ToolUser } from '../../src/executions/engine/run/tools.ts'
import { openTools } from '../../src/executions/tools.ts'
import { withPrefixes } from '../../src/mcps/naming.ts'
import { openMcpTools } from '../../src/mcps/tools.ts'
import { ok } from '../support/api.ts'
import { calling, type HostileMcp, reply, startHostileMcp, tool } from '../support/hostile-mcp.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const ALL = ['echo', 'add', 'fail', 'wait', 'much', 'show', 'headers']

let spaceId: string
const one = await use(startMcpServer())
const two = await use(startMcpServer())
const server = await use(startServer({ ALLOW_PRIVATE_NETWORK: 'true' }))
const { ann, eve } = await server.people('ann', 'eve')
beforeEach(async () => {
  const answer = await request(server, 'POST', '/api/v1/spaces', { token: ann.token, body: { name: 'S' } })
  spaceId = answer.body.id
})

type Body = Record<string, unknown>

async function createMcp(fields: Body = {}, who = ann): Promise<string> {
  const body = { name: 'One', url: one.url, ...fields }
  return (await ok(request(server, 'POST', '/api/v1/mcps', { token: who.token, body }))).id
}

const attach = (mcpId: string, enabled = true) =>
  server.service.deps.db.spaceMcp.create({
    data: { organizationId: ann.organizationId, spaceId, mcpId, enabled, addedAt: new Date(), addedBy: ann.userId },
  })

type More = { of?: Member; attempt?: number; signal?: AbortSignal }

/** The user of a run of an agent with these servers, with the fields that MCP tools need. */
async function user(ids: string[], more: More = {}): Promise<ToolUser> {
  const { of = ann, attempt = 1, signal } = more
  const created = await request(server, 'POST', '/api/v1/agents', {
    token: ann.token,
    body: { name: 'A', systemPrompt: 'x' },
  })
  const agentId: string = created.body.id
  const { db } = server.service.deps
  await db.agent.update({ where: { id: agentId }, data: { mcpInstanceIds: ids } })
  const { organizationId, userId } = ann
  const row = { id: 'exec', organizationId, userId, scopes: null, agentId, spaceId, attempt } as ToolUser['row']
  const agent = { organizationId: of.organizationId, mcpInstanceIds: ids } as ToolUser['agent']
  const controller = new AbortController()
  return { ...toolUser(db, { row, agent, controller, warn: () => {} }), ...(signal && { signal }) }
}

const ALL_LISTS = { allowed: null, disallowed: new Set<string>() }

const open = async (...args: Parameters<typeof user>) =>
  openMcpTools(server.service.deps, await user(...args), ALL_LISTS, new Set())

async function opened(...args: Parameters<typeof user>) {
  const { tools, instructions, close } = await open(...args)
  await close()
  return { names: tools.map(({ name }) => name), modes: tools.map(({ mode }) => mode), instructions }
}

const usage = async (id: string) =>
  (await server.service.deps.db.mcpServer.findUniqueOrThrow({ where: { id } })).usageCount

describe('the tools of a run', () => {
  it('are those of its agent and of its space, with each server once', async () => {
    const [ofAgent, ofBoth, ofSpace] = [
      await createMcp(),
      await createMcp({ url: two.url }),
      await createMcp({ url: one.sseUrl, transport: 'sse' }),
    ]
    await attach(ofBoth)
    await attach(ofSpace)
    one.requests.length = 0
    two.requests.length = 0
    const { names } = await opened([ofAgent, ofBoth])
    expect(names).toHaveLength(3 * ALL.length)
    expect(two.requests.filter(({ method }) => method === 'DELETE')).toHaveLength(1)
    expect(await Promise.all([ofAgent, ofBoth, ofSpace].map(usage))).toEqual([1, 1, 1])
  })

  it('can be called, and close with it', async () => {
    const toolbox = await open([await createMcp()])
    const add = toolbox.tools.find(({ name }) => name === 'add')!
    expect(add).toMatchObject({ description: 'The tool add', mode: 'allow', inputSchema: { type: 'object' } })
    const call = { toolUseId: 'x', signal: new AbortController().signal } as Parameters<typeof add.call>[1]
    expect(await add.call({ a: 1, b: 2 }, call)).toEqual({ content: '3', isError: false })
    await toolbox.close()
    await expect.poll(() => [one.sessions, one.connections]).toEqual([0, 0])
  })

  it('leave no connection open if the database fails while they open', async () => {
    const ids = [await createMcp(), await createMcp({ url: two.url, auth: 'oauth' })]
    const { deps } = server.service
    const serviceAccount = { findUnique: () => Promise.reject(new Error('gone')) }
    const db = new Proxy(deps.db, {
      get: (target, name) => (name === 'serviceAccount' ? serviceAccount : Reflect.get(target, name)),
    })
    await expect(openMcpTools({ ...deps, db }, await user(ids), ALL_LISTS, new Set())).rejects.toThrow('gone')
    await expect.poll(() => [one.sessions, one.connections]).toEqual([0, 0])
  })

  it('exclude servers that are inactive, disabled, deleted or of another organization', async () => {
    const inactive = await createMcp({ isActive: false })
    const disabled = await createMcp()
    const foreign = await createMcp({}, eve)
    await attach(disabled, false)
    one.requests.length = 0
    expect(await opened([inactive, foreign, 'nothing'])).toEqual({ names: [], modes: [], instructions: [] })
    expect(one.requests).toEqual([])
  })

  it('are those of the space alone if the agent belongs to another organization', async () => {
    const ofAgent = await createMcp()
    const ofSpace = await createMcp({ url: two.url })
    await attach(ofSpace)
    one.requests.length = 0
    expect((await opened([ofAgent], { of: eve })).names).toEqual(ALL)
    expect(one.requests).toEqual([])
  })

  it('count the run once, even if it resumes several times', async () => {
    const id = await createMcp()
    for (const attempt of [1, 2, 3]) await opened([id], { attempt })
    expect(await usage(id)).toBe(1)
  })
})

describe('permissions', () => {
  it.each<[Body[], Body]>([
    [[], { echo: 'allow', add: 'allow', fail: 'allow' }],
    [[{ tool: 'echo', mode: 'ask' }], { echo: 'ask', add: 'allow', fail: 'allow' }],
    [
      [
        { tool: '*', mode: 'ask' },
        { tool: 'echo', mode: 'allow' },
      ],
      { echo: 'allow', add: 'ask', fail: 'ask' },
    ],
    [
      [
        { tool: 'add', mode: 'deny' },
        { tool: '*', mode: 'ask' },
      ],
      { echo: 'ask', fail: 'ask' },
    ],
    [
      [
        { tool: '*', mode: 'deny' },
        { tool: 'fail', mode: 'ask' },
      ],
      { fail: 'ask' },
    ],
    [
      [
        { tool: 'ECHO', mode: 'deny' },
        { tool: 'ec*', mode: 'deny' },
      ],
      { echo: 'allow', add: 'allow', fail: 'allow' },
    ],
  ])('%j give %j', async (permissions, expected) => {
    const { names, modes } = await opened([await createMcp({ permissions })])
    const seen = Object.fromEntries(names.map((name, index) => [name, modes[index]]))
    const { echo, add, fail } = seen
    expect(JSON.parse(JSON.stringify({ echo, add, fail }))).toEqual(expected)
  })
})

describe('tool names', () => {
  it("shared by two servers are distinguished by the servers' names", async () => {
    const permissions = [
      { tool: '*', mode: 'deny' },
      { tool: 'add', mode: 'allow' },
    ]
    const echo = [...permissions, { tool: 'echo', mode: 'ask' }]
    const servers: Body[] = [
      { name: 'Git Hub!', permissions: echo },
      { name: 'Git_Hub_', url: two.url, permissions },
      { name: 'ö'.repeat(100), permissions },
      { name: 'x'.repeat(200), permissions },
    ]
    const ids: string[] = []
    for (const fields of servers) ids.push(await createMcp(fields))
    const { names, modes } = await opened(ids)
    expect(names.toSorted()).toEqual([
      ...['Git_Hub_2__add', 'Git_Hub__add', 'echo', 'mcp__add', `${'x'.repeat(20)}__add`],
    ])
    expect(modes.filter((mode) => mode === 'ask')).toHaveLength(1)
  })
})

it("a server of the space gets a number beside the agent's own server of a like name", () => {
  const servers = ['Git Hub', 'git_hub'].map((name, index) => ({ id: `${index}`, name, isOwn: index > 0 }))
  const prefixes = withPrefixes(servers).map(({ id, prefix }) => [id, prefix])
  expect(Object.fromEntries(prefixes)).toEqual({ 0: 'Git_Hub_2', 1: 'git_hub' })
})

describe("an agent's lists of tools", () => {
  let hostile: HostileMcp
  beforeAll(async () => {
    hostile = await startHostileMcp()
  })
  const offers = (...names: string[]) => {
    hostile.answer = calling(names, () => {})
  }
  beforeEach(() => offers('admin.wipe', 'echo'))
  afterAll(() => hostile[Symbol.asyncDispose]())

  /** Returns the tools of a run whose agent has these lists and, beside that server, further ones. */
  const offered = async (lists: Body, more: Body[] = []) => (await named(lists, more)).map(({ name }) => name)

  const targetOf = (tool: Tool | undefined) => JSON.parse(tool?.target ?? 'null')?.[2]

  async function named(lists: Body, more: Body[] = [], known: readonly string[] = []): Promise<readonly Tool[]> {
    const ids = [await createMcp({ name: 'Admin', url: hostile.url }), ...known]
    for (const fields of more) ids.push(await createMcp(fields))
    const { deps } = server.service
    const of = { organizationId: ann.organizationId, mcpInstanceIds: ids, skillIds: [], skillRefs: [], subagentIds: [] }
    const agent = { ...of, allowedTools: [], disallowedTools: [], permissions: [], ...lists }
    const { tools, close } = await openTools(deps, {
      ...(await user(ids)),
      agent: agent as unknown as ToolUser['agent'],
    })
    await close()
    return tools
  }

  const onlyEcho = [
    { tool: '*', mode: 'deny' },
    { tool: 'echo', mode: 'allow' },
  ]
  const other = { name: 'Other', permissions: onlyEcho }

  it.each(['admin.wipe', 'admin_wipe', 'Admin__admin_wipe'])('accept any name of a tool (%s)', async (name) => {
    expect(await offered({ disallowedTools: [name] })).toEqual(['echo'])
    expect(await offered({ allowedTools: [name] })).toEqual(['admin_wipe'])
    expect(await offered({ allowedTools: [name], disallowedTools: [name] })).toEqual([])
  })

  it('apply when another server offers a tool of the same name', async () => {
    expect(await offered({}, [other])).toEqual(['admin_wipe', 'Admin__echo', 'Other__echo'])
    expect(await offered({ disallowedTools: ['echo'] }, [other])).toEqual(['admin_wipe'])
    expect(await offered({ allowedTools: ['echo'] }, [other])).toEqual(['Admin__echo', 'Other__echo'])
  })

  it('distinguish the tools of two servers: the one that is left has its plain name', async () => {
    expect(await offered({ disallowedTools: ['Other__echo'] }, [other])).toEqual(['admin_wipe', 'echo'])
    expect(await offered({ allowedTools: ['Other__echo'] }, [other])).toEqual(['echo'])
    const same = { ...other, name: 'Admin' }
    expect(await offered({ allowedTools: ['Admin__echo'] }, [same])).toEqual(['Admin__echo', 'Admin_2__echo'])
    expect(await offered({ disallowedTools: ['Admin_2__echo'] }, [same])).toEqual(['admin_wipe', 'echo'])
  })

  it("apply when another server's tool has the name that distinguishes this one", async () => {
    offers('echo', 'Other__echo')
    expect(await offered({}, [other])).toEqual(['Admin__echo', 'Admin__Other__echo', 'Other__echo'])
    expect(await offered({ allowedTools: ['Other__echo'] }, [other])).toEqual(['echo'])
    expect(await offered({ disallowedTools: ['Other__echo'] }, [other])).toEqual(['echo'])
  })

  it('give a server no tool of another by a look-alike name or one that its tools make up', async () => {
    const cyrillic = '\u0410dmin'
    offers('echo', 'Admin__echo', 'Other__echo', `${cyrillic}__echo`)
    const alike = [{ ...other, name: cyrillic, permissions: [] }, { ...other, name: '\uff21dmin' }, other]
    for (const entry of ['Admin__echo', 'Other__echo', `${cyrillic}__echo`]) {
      const [only, ...more] = await named({ allowedTools: [entry] }, alike)
      expect(more).toEqual([])
      const [server, name] = entry.split('__')
      expect([only?.server?.name, targetOf(only)]).toEqual([server, name])
    }
  })

  it('take an id as its server, even if the names of servers and tools contain a slash', async () => {
    const victim = await createMcp({ name: 'Victim', url: two.url })
    offers(`${victim}/echo`, 'echo', 'a/b')
    const spoof = { name: `${victim}/echo`, permissions: onlyEcho }
    const found = await named({ allowedTools: [`${victim}/echo`] }, [spoof], [victim])
    expect(found.map((tool) => [tool.server?.id, targetOf(tool)])).toEqual([[victim, 'echo']])
    expect(await offered({ allowedTools: ['a/b'] })).toEqual(['a_b'])
    const banned = await named({ disallowedTools: [`${victim}/echo`] }, [], [victim])
    expect(banned.map((tool) => [tool.server?.name, targetOf(tool)])).not.toContainEqual(['Victim', 'echo'])
  })

  it("match tools with names that models cannot use by their server's names for them", async () => {
    const names = ['3d.render', '-x', 'größe', '$ref']
    offers(...names)
    const modelNames = ['_3d_render', '_-x', 'gr_e', '_ref']
    expect(await offered({})).toEqual(modelNames)
    for (const name of modelNames) expect(name).toMatch(/^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$/)
    expect(await offered({ allowedTools: ['3d.render'], disallowedTools: ['größe'] })).toEqual(['_3d_render'])
    const again = { name: '3D Shop', url: hostile.url }
    expect(await offered({ allowedTools: ['3D Shop__3d.render'] }, [again])).toEqual(['_3d_render'])
    expect(await offered({}, [again])).toContain('_3D_Shop__-x'.replace('-x', '_-x'))
  })

  it('allow the service’s own tool by its name, and no server’s', async () => {
    offers('read_file')
    const same = { name: 'Other', url: hostile.url }
    for (const more of [[], [same]]) expect(await offered({ allowedTools: ['read_file'] }, more)).toEqual(['read_file'])
    const both = ['read_file', 'Other__read_file']
    expect(await offered({ allowedTools: both }, [same])).toEqual(both)
    expect(await offered({ disallowedTools: ['read_file'] }, [same])).toEqual([])
  })
})

it('a tool whose schema is too large is named to the model and in a warning', async () => {
  await using hostile = await startHostileMcp()
  hostile.answer = (response, message) => {
    const inputSchema = { type: 'object', properties: { p: { enum: ['x'.repeat(33_000)] } } }
    reply(response, message, { tools: [tool('huge', { inputSchema }), tool('small')] })
  }
  const warnings: string[] = []
  const runner = await user([await createMcp({ name: 'Wide', url: hostile.url })])
  const warned = { ...runner, warn: (_: string, text: string) => void warnings.push(text) }
  const { tools, instructions, close } = await openMcpTools(server.service.deps, warned, ALL_LISTS, new Set())
  await close()
  const text =
    'The MCP server "Wide" has tools that cannot be used, because of the size or the names in their schemas: huge'
  expect([tools.map(({ name }) => name), instructions, warnings]).toEqual([['small'], [text], [text]])
})

describe('an unreachable server', () => {
  it('is left out with a note to the model, and the other servers stay', async () => {
    const gone = await createMcp({ name: 'Gone', url: 'http://127.0.0.1:1/' })
    const unset = await createMcp({ name: 'Unset', headers: { A: `\${NOTHING}` } })
    const { names, instructions } = await opened([gone, unset, await createMcp()])
    expect(names).toEqual(ALL)
    expect(instructions).toEqual([
      'The tools of the MCP server "Gone" cannot be used now: it cannot be reached.',
      'The tools of the MCP server "Unset" cannot be used now: it cannot be reached.',
    ])
    expect(await usage(gone)).toBe(0)
    const reasons = server.logs.flatMap((line) => JSON.parse(line).err?.message ?? [])
    expect(reasons).toEqual(
      expect.arrayContaining(['its port is one that HTTP clients do not use', 'its credential NOTHING is not set']),
    )
  })

  it('does not delay the stop of a run, which closes its open connections', async () => {
    const controller = new AbortController()
    const hanging = await createMcp({ url: 'http://127.0.0.1:1/' })
    const opening = open([await createMcp(), await createMcp({ url: two.url }), hanging], { signal: controller.signal })
    opening.catch(() => {})
    controller.abort(new Error('stopped'))
    await expect(opening).rejects.toThrow('stopped')
    await expect.poll(() => [one.sessions, two.sessions, one.connections, two.connections]).toEqual([0, 0, 0, 0])
  })
})
