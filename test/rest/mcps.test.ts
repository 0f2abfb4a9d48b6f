import { describe, expect, it, onTestFinished } from 'vitest'
import { connect } from '../../src/mcps/connect.ts'
import { graphql } from '../graphql/support.ts'
import { apis, callerAt, expectError, ok, onEachApi } from '../support/api.ts'
import { tickingClock } from '../support/clock.ts'
import { reply, startHostileMcp } from '../support/hostile-mcp.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"
const NOT_FOUND = 'MCP not found'
const UNREACHABLE = 'MCP server unreachable'
const MOVED = 'Invalid url. For another server the credentials must be given again'

type Body = Record<string, any>

const mcp = await use(startMcpServer())
const env = { ALLOW_PRIVATE_NETWORK: 'true', TOOL_TIMEOUT: '2' }
const server = await use(startServer(env, { clock: tickingClock() }))
const { ann, ben, admin, eve } = await server.people('ann', 'ben', 'admin', 'eve')

const call = callerAt(server, ann)
const MINIMAL = { name: 'GitHub', url: 'https://mcp.example.com/mcp' }
const create = async (fields: Body = {}, who = ann): Promise<Body> =>
  (await ok(call('POST', '/mcps', { ...MINIMAL, ...fields }, who))).mcp
const get = async (id: string, who = ann) => (await ok(call('GET', `/mcps/${id}`, undefined, who))).mcp
const patched = async (id: string, fields: Body, who = ann) => (await ok(call('PATCH', `/mcps/${id}`, fields, who))).mcp

describe('POST /mcps', () => {
  it('answers the new server, with the given fields and defaults for the rest', async () => {
    const body = await ok(call('POST', '/mcps', MINIMAL))
    expect(body).toEqual({
      success: true,
      id: body.mcp.id,
      name: 'GitHub',
      mcpType: 'custom',
      mcp: {
        ...MINIMAL,
        id: expect.stringMatching(/^\w{22}$/),
        mcpType: 'custom',
        description: null,
        isActive: true,
        ownerId: ann.userId,
        organizationId: ann.organizationId,
        transport: 'streamable-http',
        headers: {},
        credentialsSet: [],
        auth: 'headers',
        clientId: null,
        clientSecretSet: false,
        scope: null,
        connection: 'none',
        connectedAs: null,
        source: 'organization',
        permissions: [],
        usageCount: 0,
        createdAt: expect.any(String),
        updatedAt: body.mcp.createdAt,
      },
    })
    expect(await get(body.id)).toEqual(body.mcp)
  })

  it('stores every field, and shows only the names of credentials', async () => {
    const fields = {
      mcpType: 'github',
      description: 'Issues and more',
      isActive: false,
      transport: 'sse',
      headers: { Authorization: `Bearer \${TOKEN}`, 'X-Team': 'blue' },
      permissions: [
        { tool: 'delete', mode: 'deny' },
        { tool: '*', mode: 'ask' },
      ],
    }
    const credentials = {
      TOKEN: { value: 'secret-1', isSecret: true },
      'X-Key': { value: 'secret-2', isSecret: false },
    }
    const made = await create({ ...fields, credentials })
    expect(made).toMatchObject({ ...fields, credentialsSet: ['TOKEN', 'X-Key'] })
    expect(made).not.toHaveProperty('credentials')
    const none = { description: null, transport: null, headers: null, credentials: null, permissions: null }
    const empty = { description: null, transport: 'streamable-http', headers: {}, credentialsSet: [], permissions: [] }
    expect(await create(none)).toMatchObject(empty)
  })

  it('loses blanks and line breaks around the address and the values, as pasted ones have', async () => {
    const { url, ...fields } = { url: 'https://mcp.example.com/mcp', credentials: { TOKEN: { value: 'secret\r\n' } } }
    expect(await create({ ...fields, url: ` ${url}\n`, headers: { 'X-Team': 'blue\n' } })).toMatchObject({
      url,
      headers: { 'X-Team': 'blue' },
    })
  })

  it('ignores read-only and unknown fields', async () => {
    const made = await create({
      id: 'x',
      organizationId: eve.organizationId,
      ownerId: eve.userId,
      usageCount: 9,
      colour: 1,
    })
    expect(made).toMatchObject({ organizationId: ann.organizationId, ownerId: ann.userId, usageCount: 0 })
  })

  it('makes one server for a repeated Idempotency-Key', async () => {
    const options = { token: ann.token, body: { ...MINIMAL, name: 'Once' }, headers: { 'Idempotency-Key': 'mcp-1' } }
    const first = await request(server, 'POST', '/api/v1/mcps', options)
    const second = await request(server, 'POST', '/api/v1/mcps', options)
    expect(second.body).toEqual(first.body)
    expect(second.headers.get('idempotent-replayed')).toBe('true')
  })

  const BAD_URL = 'Invalid url. Must be an http or https address, without user and password'
  const BAD_HEADER = 'Invalid headers. A name must be that of an HTTP header, and none that the protocol itself sets'
  const BAD_CREDENTIAL =
    'Invalid credentials. A name must be letters, digits, _ and -, a letter first, and no header that the protocol sets'

  it.each<[Body, string]>([
    [{ name: undefined }, 'Missing required field: name'],
    [{ name: ' ' }, 'Missing required field: name'],
    [{ url: undefined }, 'Missing required field: url'],
    [{ url: '' }, 'Missing required field: url'],
    [{ url: 7 }, 'Invalid value for field: url. Expected string'],
    ...['mcp.example.com', '/mcp', 'ftp://example.com/', 'file:///etc/passwd', 'stdio:node', 'javascript:1'].map(
      (url): [Body, string] => [{ url }, BAD_URL],
    ),
    ...['https://a:b@example.com/', 'https://a@example.com/', 'https://exa mple.com/', 'https:\\\\example.com'].map(
      (url): [Body, string] => [{ url }, BAD_URL],
    ),
    [{ transport: 'stdio' }, 'Invalid value for field: transport. Expected one of: streamable-http, sse'],
    [{ isActive: 'true' }, 'Invalid value for field: isActive. Expected boolean'],
    [{ headers: [] }, 'Invalid value for field: headers. Expected object'],
    [{ headers: { A: 1 } }, 'Invalid value for field: headers.A. Expected string'],
    [{ headers: { A: 'x\r\nHost: y' } }, 'Invalid value for field: headers.A. Expected printable ASCII characters'],
    [{ headers: { A: 'ü' } }, 'Invalid value for field: headers.A. Expected printable ASCII characters'],
    ...[
      '',
      'a b',
      'a:b',
      'a\r\nb',
      'ü',
      'Host',
      'content-LENGTH',
      'Transfer-Encoding',
      'Mcp-Session-Id',
      'Proxy-Authorization',
    ].map((name): [Body, string] => [{ headers: { [name]: 'x' } }, BAD_HEADER]),
    [{ credentials: { A: 'x' } }, 'Invalid value for field: credentials.A. Expected object'],
    [{ credentials: { A: {} } }, 'Missing required field: credentials.A.value'],
    [
      { credentials: { A: { value: 'x\ny' } } },
      'Invalid value for field: credentials.A.value. Expected printable ASCII characters',
    ],
    ...['1A', 'A B', 'A.B', '-A', 'Host', 'Connection', 'constructor '].map((name): [Body, string] => [
      { credentials: { [name]: { value: 'x' } } },
      BAD_CREDENTIAL,
    ]),
    ...[undefined, null, '', ' '].map((mode): [Body, string] => [
      { permissions: [{ tool: 'a', mode }] },
      'Missing required field: permissions.0.mode',
    ]),
    [
      { permissions: [{ tool: 'a', mode: 'maybe' }] },
      'Invalid value for field: permissions.0.mode. Expected one of: ask, allow, deny',
    ],
    [
      {
        permissions: [
          { tool: 'a', mode: 'ask' },
          { tool: 'a', mode: 'allow' },
        ],
      },
      'Invalid permissions. A tool is named twice',
    ],
  ])('refuses %j', async (fields, message) => {
    expectError(await call('POST', '/mcps', { ...MINIMAL, ...fields }), 400, message)
  })
})

it('an MCP server has an address and headers of limited length', async () => {
  const url = `https://example.com/${'x'.repeat(2000)}`
  const long = 'Invalid value for field: url. Expected at most 2000 characters'
  expectError(await call('POST', '/mcps', { ...MINIMAL, url }), 400, long)
  const headers = Object.fromEntries(Array.from({ length: 51 }, (_, index) => [`x${index}`, 'x']))
  expectError(await call('POST', '/mcps', { ...MINIMAL, headers }), 400, 'Invalid headers. At most 50')
  const value = 'Invalid value for field: headers.A. Expected at most 8192 characters'
  expectError(await call('POST', '/mcps', { ...MINIMAL, headers: { A: 'x'.repeat(8193) } }), 400, value)
})

describe('a field that would start a program', () => {
  const NO_PROCESS = 'Invalid field: command, args and env are not supported'
  const NAMES = [
    ...[
      'command',
      'Command',
      'COMMAND',
      'com_mand',
      'com-mand',
      'com.mand',
      ' command ',
      'c o m m a n d',
      'ｃｏｍｍａｎｄ',
    ],
    ...['cmd', 'CMD', 'args', 'Args', 'ARGS', '_args', 'args[]', 'a\u200brgs', 'argv', 'arguments'],
    ...['env', 'ENV', 'Env', 'e-n-v', 'env_', 'environment', 'ᵉⁿᵛ', '$env'],
  ]
  const PLACES: [string, (name: string) => Body][] = [
    ['at the top', (name) => ({ [name]: 'node' })],
    ['in config', (name) => ({ config: { [name]: ['x'] } })],
    ['in the transport', (name) => ({ transport: { type: 'stdio', [name]: 'node' } })],
    ['in a list', (name) => ({ servers: [{ a: [{ [name]: null }] }] })],
    ['in the headers', (name) => ({ headers: { [name]: 'x' } })],
  ]

  it.each(PLACES)('is refused in any spelling %s, and nothing is stored', async (_, place) => {
    const { total } = await ok(call('GET', '/mcps'))
    const known = await create()
    for (const name of NAMES) {
      const body = place(name)
      expectError(await call('POST', '/mcps', { ...MINIMAL, ...body }), 400, NO_PROCESS)
      expectError(await call('PATCH', `/mcps/${known.id}`, body), 400, NO_PROCESS)
      expectError(
        await apis.tRPC(server, 'mcps.create', { ...MINIMAL, ...body }, { token: ann.token }),
        400,
        NO_PROCESS,
      )
    }
    expect((await ok(call('GET', '/mcps'))).total).toBe(total + 1)
    expect(await get(known.id)).toEqual(known)
  })

  it('is unknown to GraphQL', async () => {
    const query = 'mutation { createMcp(input: { name: "A", url: "https://example.com", command: "node" }) { id } }'
    const { data, message } = await graphql(server, query, {}, { token: ann.token })
    expect(data).toBeUndefined()
    expect(message).toContain('unknown field "command"')
  })
})

describe('GET /mcps', () => {
  it('lists the servers of the organization, newest first, in pages', async () => {
    const { member } = server
    const zoe = await member({ organization: 'Zoo' })
    const made: Body[] = []
    for (const name of ['a', 'b', 'c']) made.unshift(await create({ name }, zoe))
    expect(await ok(call('GET', '/mcps', undefined, zoe))).toEqual({
      success: true,
      mcps: made,
      total: 3,
      nextCursor: null,
    })
    const page = await ok(call('GET', '/mcps?limit=2', undefined, zoe))
    expect(page).toMatchObject({ mcps: made.slice(0, 2), total: 3, nextCursor: expect.any(String) })
    const rest = await ok(call('GET', `/mcps?limit=2&cursor=${page.nextCursor}`, undefined, zoe))
    expect(rest).toMatchObject({ mcps: made.slice(2), total: 3, nextCursor: null })
  })

  it('searches names, descriptions, types and addresses in any case', async () => {
    const zoe = await server.member({ organization: 'Zoo of searches' })
    const one = await create({ name: 'Äpfel', description: 'Of Trees', mcpType: 'orchard' }, zoe)
    const other = await create({ name: 'Pears' }, zoe)
    const found = async (search: string) => {
      const { mcps, total } = await ok(call('GET', `/mcps?search=${search}`, undefined, zoe))
      expect(total).toBe(mcps.length)
      const query = `{ mcps(search: "${search}") { nodes { id } totalCount } }`
      const { data } = await graphql(server, query, {}, zoe)
      const ids = mcps.map(({ id }: Body) => id)
      expect(data.mcps).toEqual({ nodes: ids.map((id: string) => ({ id })), totalCount: total })
      return ids
    }
    for (const search of ['äPFEL', 'of trees', 'Orchard']) expect(await found(search)).toEqual([one.id])
    expect(await found('MCP.example.com')).toEqual([other.id, one.id])
    await patched(other.id, { name: 'Plums', url: 'https://plums.example' }, zoe)
    expect(await found('pears')).toEqual([])
    for (const search of ['plums', 'PLUMS.EXAMPLE']) expect(await found(search)).toEqual([other.id])
  })

  it('takes the same number of statements for any number of servers', async () => {
    const zoe = await server.member({ organization: 'Zoo 2' })
    const statements = () => server.statementsOf(() => ok(call('GET', '/mcps', undefined, zoe)))
    await create({ credentials: { A: { value: 'x' } } }, zoe)
    const one = await statements()
    for (const name of ['a', 'b', 'c']) await create({ name, credentials: { A: { value: 'x' } } }, zoe)
    expect(await statements()).toHaveLength(one.length)
  })
})

describe('PATCH /mcps/{id}', () => {
  it('changes the given fields, and nothing else', async () => {
    const made = await create({ description: 'x', headers: { A: 'b' }, permissions: [{ tool: '*', mode: 'ask' }] })
    const renamed = await patched(made.id, { name: 'New' })
    expect(renamed).toEqual({ ...made, name: 'New', updatedAt: renamed.updatedAt })
    const more = { mcpType: 't', isActive: false, url: 'http://example.org/', transport: 'sse' }
    expect(await patched(made.id, more)).toMatchObject({ name: 'New', description: 'x', ...more })
    const cleared = await patched(made.id, { description: null, headers: null, permissions: null })
    expect(cleared).toMatchObject({ description: null, headers: {}, permissions: [] })
    expect(await patched(made.id, {})).toEqual(cleared)
    expect(await patched(made.id, { description: null, headers: null, permissions: [] })).toEqual(cleared)
    const byDefault = { mcpType: 'custom', isActive: true }
    expect(await patched(made.id, { mcpType: null, isActive: null })).toMatchObject(byDefault)
    expect((await call('GET', `/mcps/${(await create({ mcpType: null, isActive: null })).id}`)).body.mcp).toMatchObject(
      byDefault,
    )
  })

  it('applies all of its fields despite a concurrent change', async () => {
    const { id, url } = await create()
    const { db } = server.service.deps
    const { $transaction } = db
    db.$transaction = (async (work: never) => {
      db.$transaction = $transaction
      await patched(id, { url: 'http://elsewhere.example.org/' })
      return $transaction(work)
    }) as never
    expect(await patched(id, { url, credentials: { T: { value: 'x' } } })).toMatchObject({ url, credentialsSet: ['T'] })
  })

  it('refuses null for a required field', async () => {
    const { id } = await create()
    for (const field of ['name', 'url']) {
      expectError(await call('PATCH', `/mcps/${id}`, { [field]: null }), 400, `Missing required field: ${field}`)
    }
  })

  it('sets, keeps and removes credentials one by one, and all at once', async () => {
    const { id } = await create({ credentials: { A: { value: '1' }, B: { value: '2' } } })
    const namesAfter = async (credentials: unknown) => (await patched(id, { credentials })).credentialsSet
    expect(await namesAfter({ C: { value: '3' } })).toEqual(['A', 'B', 'C'])
    expect(await namesAfter({ A: null, B: { value: '4' } })).toEqual(['B', 'C'])
    expect(await namesAfter({ Z: null })).toEqual(['B', 'C'])
    expect(await namesAfter(null)).toEqual([])
    const many = Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`C${index}`, { value: 'x' }]))
    expect(await namesAfter(many)).toHaveLength(50)
    const message = 'Invalid credentials. At most 50'
    expectError(await call('PATCH', `/mcps/${id}`, { credentials: { A: { value: 'x' } } }), 400, message)
    expect((await get(id)).credentialsSet).toHaveLength(50)
  })

  it("never lets an admin send another user's credentials to another address or path", async () => {
    const credentials = { A: { value: '1' }, B: { value: '2' } }
    const { id } = await create({ credentials })
    const url = 'https://evil.example.com/mcp'
    const elsewhere = ['http://mcp.example.com/mcp', 'https://mcp.example.com/other', `${MINIMAL.url}?tenant=2`]
    for (const body of [{ url }, { url, credentials: { A: { value: 'x' } } }, ...elsewhere.map((url) => ({ url }))]) {
      expectError(await call('PATCH', `/mcps/${id}`, body, admin), 400, MOVED)
    }
    expect(await patched(id, { url: MINIMAL.url, name: 'Same' }, admin)).toMatchObject({ credentialsSet: ['A', 'B'] })
    expect(await patched(id, { url, credentials: { A: { value: 'x' }, B: null } }, admin)).toMatchObject({ url })
  })

  it('lets only the last author of a credential send it to another server', async () => {
    const { id } = await create({ credentials: { A: { value: '1' }, B: { value: '2' } } })
    await patched(id, { credentials: { A: { value: 'secret' } } }, admin)
    const url = 'https://elsewhere.example.com/mcp'
    for (const credentials of [undefined, {}, { B: { value: '3' } }, { C: null }]) {
      expectError(await call('PATCH', `/mcps/${id}`, { url, credentials }), 400, MOVED)
    }
    expect(await get(id)).toMatchObject({ ...MINIMAL, credentialsSet: ['A', 'B'] })
    expect(await patched(id, { url, credentials: { A: { value: '4' } } })).toMatchObject({ url })
    expect(await patched(id, MINIMAL)).toMatchObject({ ...MINIMAL, credentialsSet: ['A', 'B'] })
    await patched(id, { credentials: { A: { value: '5' }, B: { value: '6' } } }, admin)
    expect(await patched(id, { url }, admin)).toMatchObject({ url })
    expect(await patched(id, { ...MINIMAL, credentials: { A: null, B: null } })).toMatchObject(MINIMAL)
  })

  it('never lets the owner redirect a concurrently set credential', async () => {
    const { id } = await create()
    const { db } = server.service.deps
    const { moving } = await db.$transaction(async (tx) => {
      const { organizationId, updatedAt } = await tx.mcpServer.update({ where: { id }, data: { isActive: true } })
      server.queries.length = 0
      const moving = call('PATCH', `/mcps/${id}`, { url: 'https://elsewhere.example.com/mcp' })
      await expect
        .poll(() => server.queries.filter((sql) => /^SELECT .*"McpServer"/.test(sql)).length)
        .toBeGreaterThan(0)
      const set = { name: 'A', ciphertext: Buffer.from('x'), isSecret: true, updatedAt, updatedBy: admin.userId }
      await tx.mcpCredential.create({ data: { organizationId, mcpId: id, ...set } })
      return { moving }
    })
    expectError(await moving, 400, MOVED)
    expect(await get(id)).toMatchObject({ ...MINIMAL, credentialsSet: ['A'] })
  })

  it.each(['constructor', 'toString', 'hasOwnProperty', 'valueOf'])(
    'keeps the author of the credential %s unless it is given again',
    async (name) => {
      const { id } = await create({ credentials: { [name]: { value: 'private' } } })
      const url = 'https://evil.example.com/mcp'
      for (const credentials of [undefined, {}, { other: null }]) {
        const { status } = await call('PATCH', `/mcps/${id}`, { url, credentials }, admin)
        expect(status).toBe(400)
      }
      expect(await get(id)).toMatchObject(MINIMAL)
      expect(await patched(id, { url, credentials: { [name]: null } }, admin)).toMatchObject({ credentialsSet: [] })
    },
  )
})

describe('an MCP server', () => {
  it('is visible to all members, and changed by its owner and admins', async () => {
    const { id, ...made } = await create()
    expect(await get(id, ben)).toEqual({ id, ...made })
    expectError(await call('PATCH', `/mcps/${id}`, { name: 'x' }, ben), 403, FORBIDDEN)
    expectError(await call('DELETE', `/mcps/${id}`, undefined, ben), 403, FORBIDDEN)
    expect(await patched(id, { name: 'Admin' }, admin)).toMatchObject({ name: 'Admin', ownerId: ann.userId })
    await ok(call('DELETE', `/mcps/${id}`, undefined, admin))
  })

  it.each(onEachApi([['get'], ['update'], ['delete'], ['tools']]))(
    'an MCP server of another organization looks unknown: %s %s',
    async (api, action) => {
      const { id } = await create()
      const input = action === 'update' ? { name: 'x' } : {}
      const [foreign, unknown] = await Promise.all(
        [id, 'x'.repeat(22)].map((id) => apis[api](server, `mcps.${action}`, { id, ...input }, { token: eve.token })),
      )
      expectError(foreign!, 404, NOT_FOUND)
      expectError(unknown!, 404, NOT_FOUND)
      expect((await get(id)).name).toBe('GitHub')
      const listed = (await ok(call('GET', '/mcps', undefined, eve))).mcps
      expect(listed.map((mcp: { id: string }) => mcp.id)).not.toContain(id)
    },
  )

  it('goes with its credentials, and from its spaces', async () => {
    const { db } = server.service.deps
    const { id } = await create({ credentials: { A: { value: 'x' } } })
    const { id: spaceId } = await db.space.findFirstOrThrow({ where: { organizationId: ann.organizationId } })
    const { organizationId, userId } = ann
    await db.spaceMcp.create({ data: { organizationId, spaceId, mcpId: id, addedAt: new Date(), addedBy: userId } })
    expect(await ok(call('DELETE', `/mcps/${id}`))).toEqual({ success: true, message: 'MCP deleted successfully' })
    expectError(await call('GET', `/mcps/${id}`), 404, NOT_FOUND)
    expectError(await call('DELETE', `/mcps/${id}`), 404, NOT_FOUND)
    expect(await db.mcpCredential.count({ where: { mcpId: id } })).toBe(0)
    expect(await db.spaceMcp.count({ where: { mcpId: id } })).toBe(0)
  })

  it('has an audit event for each change, and none without a change', async () => {
    const { id } = await create()
    await patched(id, { name: 'x' })
    await patched(id, {})
    await call('PATCH', `/mcps/${id}`, { url: 'nowhere' })
    await ok(call('DELETE', `/mcps/${id}`))
    const events = await server.service.deps.db.auditEvent.findMany({
      where: { target: id },
      orderBy: { action: 'asc' },
    })
    expect(events.map(({ action, actor }) => [action, actor])).toEqual(
      ['mcp.create', 'mcp.delete', 'mcp.update'].map((action) => [action, ann.userId]),
    )
  })
})

describe('GET /mcps/{id}/tools', () => {
  it.each(['streamable-http', 'sse'] as const)('connects by %s, and lists the tools', async (transport) => {
    const { id } = await create({ transport, url: transport === 'sse' ? mcp.sseUrl : mcp.url })
    const { tools } = await ok(call('GET', `/mcps/${id}/tools`, undefined, ben))
    expect(tools.map(({ name }: Body) => name)).toEqual(['echo', 'add', 'fail', 'wait', 'much', 'show', 'headers'])
    expect(tools[0]).toMatchObject({
      description: 'The tool echo',
      inputSchema: { type: 'object', properties: { text: { type: 'string' } } },
    })
    await expect.poll(() => [mcp.sessions, mcp.connections]).toEqual([0, 0])
    expect((await get(id)).usageCount).toBe(0)
  })

  it('sends credentials in the headers that name them, and the others under their own names', async () => {
    mcp.requests.length = 0
    const { id } = await create({
      url: mcp.url,
      headers: { Authorization: `Bearer \${TOKEN}`, 'X-Both': `\${TOKEN}/\${USER}`, 'X-Plain': '$TOKEN {x}' },
      credentials: { TOKEN: { value: 't$&1' }, USER: { value: 'ann' }, 'X-Api-Key': { value: 'k' } },
    })
    await ok(call('GET', `/mcps/${id}/tools`))
    const expected = { authorization: 'Bearer t$&1', 'x-both': 't$&1/ann', 'x-plain': '$TOKEN {x}', 'x-api-key': 'k' }
    expect(mcp.requests.length).toBeGreaterThan(2)
    for (const { headers } of mcp.requests) {
      expect(headers).toMatchObject(expected)
      expect(headers).not.toHaveProperty('token')
      expect(headers).not.toHaveProperty('user')
    }
  })

  it('never sends credentials set for another server since it began', async () => {
    mcp.requests.length = 0
    const { id } = await create({ url: mcp.url })
    const { deps } = server.service
    const before = await deps.db.mcpServer.findUniqueOrThrow({ where: { id } })
    await patched(id, { ...MINIMAL, credentials: { 'X-Api-Key': { value: 'k' } } }, admin)
    const client = await connect(deps, before, new AbortController().signal, {
      userId: before.ownerId,
      spaceId: null,
      isForeign: false,
    })
    await client.close()
    expect(mcp.requests.length).toBeGreaterThan(2)
    for (const { headers } of mcp.requests) expect(headers).not.toHaveProperty('x-api-key')
  })

  it.each<[string, Body]>([
    ['the port is closed', { url: 'http://127.0.0.1:1/' }],
    ['the name does not resolve', { url: 'http://nowhere.invalid/' }],
    ['it is no MCP server', { url: 'REST' }],
    ['a credential is missing', { url: 'MCP', headers: { Authorization: `\${NOTHING}` } }],
  ])('answers 502 if %s', async (_, { url, ...fields }) => {
    const addresses: Body = { REST: `${server.url}/api/v1/agents`, MCP: mcp.url }
    const { id } = await create({ url: addresses[url] ?? url, ...fields })
    expectError(await call('GET', `/mcps/${id}/tools`), 502, UNREACHABLE)
  })

  it('reads at most four lists at a time per organization, without delaying others', async () => {
    // A slow machine may take longer than the other tests let servers take.
    const { settings } = server.service.deps
    const { TOOL_TIMEOUT } = settings
    onTestFinished(() => void Object.assign(settings, { TOOL_TIMEOUT }))
    Object.assign(settings, { TOOL_TIMEOUT: 60_000 })
    await using slow = await startHostileMcp()
    const waiting: (() => void)[] = []
    slow.answer = (response, message) =>
      void waiting.push(() => reply(response, message, { tools: [{ name: 'a', inputSchema: { type: 'object' } }] }))
    const listed = async (who: Member) =>
      call('GET', `/mcps/${(await create({ url: slow.url }, who)).id}/tools`, undefined, who)
    const theirs = Array.from({ length: 6 }, () => listed(ann))
    await expect.poll(() => waiting.length).toBe(4)
    const others = listed(eve)
    await expect.poll(() => waiting.length).toBe(5)
    waiting.pop()?.()
    expect((await others).status).toBe(200)
    for (let done = 0; done < 6; done++) {
      await expect.poll(() => waiting.length).toBeGreaterThan(0)
      expect(waiting.length).toBeLessThanOrEqual(4)
      waiting.pop()?.()
    }
    expect((await Promise.all(theirs)).map(({ status }) => status)).toEqual(Array(6).fill(200))
  })

  it('answers 502 for a private address, unless the operator allows it', async () => {
    await using strict = await startServer()
    for (const url of [mcp.url, mcp.url.replace('127.0.0.1', 'localhost'), mcp.url.replace('127.0.0.1', '0x7f.1')]) {
      const { id } = (await request(strict, 'POST', '/api/v1/mcps', { body: { name: 'x', url } })).body
      mcp.requests.length = 0
      expectError(await request(strict, 'GET', `/api/v1/mcps/${id}/tools`), 502, UNREACHABLE)
      expect(mcp.requests).toEqual([])
    }
  })
})

describe('MCP servers over GraphQL', () => {
  const run = async (query: string, variables: Body = {}, who = ann) =>
    graphql(server, query, variables, { token: who.token })

  it('can be created, read, changed, asked for tools and deleted', async () => {
    const fields = `id mcpType name description isActive ownerId url transport headers { name value } credentialsSet
      permissions { tool mode } usageCount createdAt updatedAt`
    const input = {
      name: 'G',
      url: mcp.url,
      headers: [{ name: 'X-Key', value: `\${KEY}` }],
      credentials: [
        { name: 'KEY', value: 'k' },
        { name: 'OTHER', value: 'o', isSecret: true },
      ],
      permissions: [{ tool: '*', mode: 'ask' }],
    }
    const made = await run(`mutation ($input: CreateMcpInput!) { createMcp(input: $input) { ${fields} } }`, { input })
    const { id } = made.data.createMcp
    const { credentials, ...visible } = input
    expect(made.data.createMcp).toMatchObject({
      ...visible,
      transport: 'streamable-http',
      credentialsSet: ['KEY', 'OTHER'],
    })
    const read = await run(
      `query ($id: ID!) { mcp(id: $id) { ${fields} } mcps(first: 1) { nodes { id } totalCount } }`,
      {
        id,
      },
    )
    expect(read.data).toMatchObject({ mcp: made.data.createMcp, mcps: { nodes: [{ id }] } })
    const change = { id, name: 'H', credentials: [{ name: 'OTHER', value: null }], headers: null }
    const changed = await run(`mutation ($input: UpdateMcpInput!) { updateMcp(input: $input) { ${fields} } }`, {
      input: change,
    })
    expect(changed.data.updateMcp).toMatchObject({ name: 'H', credentialsSet: ['KEY'], headers: [] })
    const listed = await run('query ($id: ID!) { mcpTools(id: $id) { name description inputSchema } }', { id })
    expect(listed.data.mcpTools[0]).toMatchObject({ name: 'echo', inputSchema: { type: 'object' } })
    expect((await run('query ($id: ID!) { mcp(id: $id) { id } }', { id }, eve)).message).toBe(NOT_FOUND)
    expect((await run('mutation ($id: ID!) { deleteMcp(id: $id) { message } }', { id }, ben)).message).toBe(FORBIDDEN)
    expect(
      (await run('mutation ($id: ID!) { deleteMcp(id: $id) { message } }', { id })).data.deleteMcp.message,
    ).toContain('deleted')
  })

  it('have the errors of REST', async () => {
    const query = 'mutation ($input: CreateMcpInput!) { createMcp(input: $input) { id } }'
    expect((await run(query, { input: { name: 'x' } })).message).toBe('Missing required field: url')
    expect((await run(query, { input: { name: 'x', url: 'x' } })).message).toMatch(/^Invalid url/)
    const { id } = await create({ url: 'http://127.0.0.1:1/' })
    expect((await run('query ($id: ID!) { mcpTools(id: $id) { name } }', { id })).message).toBe(UNREACHABLE)
  })
})
