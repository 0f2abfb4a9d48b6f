import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { createAgentCache } from '../../src/agents/agent-cache.ts'
import type { Prisma } from '../../src/db/client.ts'
import { APIS, type Api, apis, expectError, ok, onEachApi } from '../support/api.ts'
import { planOf } from '../support/plan.ts'
import { onPostgres, times } from '../support/postgres-shared.ts'
import { type Answer, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { together } from '../support/together.ts'
import { use } from '../support/use.ts'

let now = Date.parse('2026-01-01T00:00:00Z')
const clock = { now: () => new Date(now) }

const server = await use(startServer({}, { clock }))
const { ann, ben, eve } = await server.people('ann', 'ben', 'eve')

type Body = Record<string, unknown>
const call = (method: string, path: string, { token }: Pick<Member, 'token'> = ann, body?: Body): Promise<Answer> =>
  request(server, method, `/api/v1${path}`, { token, ...(body && { body }) })

const valid = { name: 'Ada', systemPrompt: 'You are Ada.' }
const create = async (fields: Body = {}, who = ann): Promise<Body & { id: string }> => {
  return ok(call('POST', '/agents', who, { ...valid, ...fields }))
}
const get = async (id: string, who = ann) => (await call('GET', `/agents/${id}`, who)).body.agent
const patch = (id: string, fields: Body, who = ann) => call('PATCH', `/agents/${id}`, who, fields)
/**
 * Sends all requests in the same moment and returns their statuses. Separate requests would be read one after the
 * other.
 */
async function atOnce(procedure: string, inputs: Body[]): Promise<number[]> {
  const path = `/trpc/${inputs.map(() => procedure).join()}?batch=1`
  const { body } = await request(server, 'POST', path, { body: { ...inputs }, token: ann.token })
  return body.map(({ error }: { error?: { data: { statusCode: number } } }) => error?.data.statusCode ?? 200)
}

const names = ({ body }: Answer) => body.agents.map(({ name }: { name: string }) => name)

const OPTIONAL = {
  model: null,
  description: null,
  tags: [],
  category: null,
  image: null,
  color: null,
  initialGreeting: null,
  skillIds: [],
  mcpInstanceIds: [],
  mcpTypes: [],
  subagentIds: [],
  allowedTools: [],
  disallowedTools: [],
  maxTurns: null,
  history: 'cut',
  requireTools: false,
}
const FULL = {
  role: 'Analyst',
  visibility: 'public',
  model: 'anthropic/claude-x',
  description: 'Counts engines',
  tags: ['math', 'Engines'],
  category: 'science',
  image: 'https://example.com/ada.png',
  color: '#ff8800',
  initialGreeting: 'Good day.',
  mcpTypes: ['github'],
  allowedTools: ['read'],
  disallowedTools: ['write'],
  maxTurns: 7,
  history: 'summarize',
  requireTools: true,
}

describe('POST /agents', () => {
  it('answers exactly the documented fields, with the agent beside them', async () => {
    const { body } = await call('POST', '/agents', ann, valid)
    expect(body).toMatchObject({
      success: true,
      id: expect.stringMatching(/^[0-9A-Za-z]{22}$/),
      name: 'Ada',
      status: 'active',
      chatUrl: expect.stringMatching(/^\/acme\/spaces\/\w{22}\/chats\/\w{31}$/),
      agent: {
        ...valid,
        ...OPTIONAL,
        id: body.id,
        role: 'Assistant',
        visibility: 'organization',
        organizationId: ann.organizationId,
        userId: ann.userId,
        version: 1,
        archived: false,
        createdAt: new Date(now).toISOString(),
        updatedAt: new Date(now).toISOString(),
      },
    })
    expect(await get(body.id)).toEqual(body.agent)
  })

  it('stores and returns every field', async () => {
    const { id } = await create(FULL)
    expect(await get(id)).toMatchObject({ ...valid, ...FULL })
  })

  it('treats null as the default of an optional field', async () => {
    const nothing = Object.fromEntries(Object.keys(OPTIONAL).map((field) => [field, null]))
    const { id } = await create({ ...nothing, role: null, visibility: null, basedOnAgentId: null })
    expect(await get(id)).toMatchObject({ ...OPTIONAL, role: 'Assistant' })
  })

  it('preserves text: space around it, line ends, any script, and each tag once', async () => {
    const fields = { name: '  Ädä 👩🏽‍💻 ', systemPrompt: '\n\tZeile\r\n二\u2028 ', tags: ['b', 'a', 'b'] }
    const { id } = await create(fields)
    expect(await get(id)).toMatchObject({ ...fields, tags: ['b', 'a'] })
  })

  it('opens a chat in the default space, at chatUrl', async () => {
    const { id, chatUrl } = await create({ name: 'Chatty' })
    const [, spaceId, chatId] = /^\/acme\/spaces\/(\w+)\/chats\/(\w+)$/.exec(String(chatUrl)) ?? []
    const { db } = server.service.deps
    const chat = await db.chat.findUnique({ where: { id: String(chatId) }, include: { space: true } })
    expect(chat).toMatchObject({ title: 'Chatty', agentId: id, ownerId: ann.userId, status: 'standby', spaceId })
    expect(chat?.space).toMatchObject({ name: 'General', isDefault: true, organizationId: ann.organizationId })
    const run = await call('POST', `/agents/${id}/execute`, ann, { message: 'Hi', chatId })
    expect(run.body).toMatchObject({ success: true, chatId })
  })

  it('accepts system_message for systemPrompt, which wins over it', async () => {
    const alias = await call('POST', '/agents', ann, { name: 'A', system_message: 'Old name.' })
    expect(alias.body.agent.systemPrompt).toBe('Old name.')
    for (const system_message of ['Old name.', null]) {
      expect((await create({ system_message })).agent).toMatchObject(valid)
    }
    const fields = { name: 'A', systemPrompt: null, system_message: 'Old name.' }
    expect((await call('POST', '/agents', ann, fields)).body.agent.systemPrompt).toBe('Old name.')
    expect(Object.keys(alias.body.agent)).not.toContain('system_message')
  })

  it('copies the prompt, also if null stands for it', async () => {
    const { id: basedOnAgentId } = await create()
    for (const nothing of [{ systemPrompt: null }, { systemPrompt: null, system_message: null }]) {
      const { status, body } = await call('POST', '/agents', ann, { name: 'Copy', basedOnAgentId, ...nothing })
      expect([status, body.agent?.systemPrompt]).toEqual([200, valid.systemPrompt])
    }
    expectError(
      await call('POST', '/agents', ann, { name: 'Copy', basedOnAgentId, systemPrompt: '' }),
      400,
      'Missing required field: systemPrompt',
    )
  })

  it('copies an agent that the caller can see, with the given changes', async () => {
    const { id } = await create({ ...FULL, visibility: 'unlisted' })
    await patch(id, { role: 'Copied' })
    const { body } = await call('POST', '/agents', ben, {
      name: 'Copy',
      basedOnAgentId: id,
      color: null,
      tags: ['new'],
    })
    const agent = await get(body.id, ben)
    const { systemPrompt } = valid
    const copied = { name: 'Copy', color: null, tags: ['new'] }
    const own = { id: body.id, userId: ben.userId, version: 1 }
    expect(agent).toMatchObject({ ...FULL, role: 'Copied', systemPrompt, visibility: 'unlisted', ...copied, ...own })
  })

  it.each([
    ['of another organization, though public', () => create({ visibility: 'public' }, eve)],
    ['private to another user', () => create({ visibility: 'private' }, ben)],
    [
      'archived',
      async () => {
        const agent = await create()
        await call('DELETE', `/agents/${agent.id}`)
        return agent
      },
    ],
    ['unknown', async () => ({ id: 'x'.repeat(22) })],
    ['named by an empty id', async () => ({ id: '' })],
  ])('does not copy one that is %s', async (_, make) => {
    const { id } = await make()
    expectError(await call('POST', '/agents', ann, { ...valid, basedOnAgentId: id }), 404, 'Agent not found')
  })

  it.each(['skillIds', 'mcpInstanceIds'])('refuses every unknown id in %s', async (field) => {
    const agent = await create()
    for (const ids of [['x'], [agent.id]]) {
      expectError(await call('POST', '/agents', ann, { ...valid, [field]: ids }), 400, `Invalid ${field}`)
      expectError(await patch(agent.id, { [field]: ids }), 400, `Invalid ${field}`)
    }
    expect(await get(agent.id)).toMatchObject({ [field]: [], version: 1 })
  })

  it('accepts in subagentIds only agents that the caller can reach', async () => {
    const [own, shared, secret, foreign, unlisted] = await Promise.all([
      create({ visibility: 'private' }),
      create({}, ben),
      create({ visibility: 'private' }, ben),
      create({ visibility: 'public' }, eve),
      create({ visibility: 'unlisted' }, ben),
    ])
    const subagentIds = [shared.id, own.id, unlisted.id]
    const { id } = await create({ subagentIds })
    expect((await get(id)).subagentIds).toEqual(subagentIds)
    for (const wrong of [secret.id, foreign.id, 'x']) {
      const answer = await call('POST', '/agents', ann, { ...valid, subagentIds: [shared.id, wrong] })
      expectError(answer, 400, 'Invalid subagentIds')
      expectError(await patch(id, { subagentIds: [wrong] }), 400, 'Invalid subagentIds')
    }
    expect((await patch(id, { subagentIds: null })).status).toBe(200)
    expect((await get(id)).subagentIds).toEqual([])
  })
})

describe('PATCH /agents/{id}', () => {
  it.each(['skillIds', 'mcpInstanceIds', 'subagentIds'])(
    'reports unknown %s only to callers who may change the agent',
    async (field) => {
      const { id } = await create()
      expect((await patch(id, { [field]: ['x'] })).status).toBe(400)
      expectError(await patch(id, { [field]: ['x'] }, ben), 403, "You don't have permission to access this resource")
      expectError(await patch('x', { [field]: ['x'] }), 404, 'Agent not found')
    },
  )

  it('changes the given fields and leaves the rest', async () => {
    const { id } = await create(FULL)
    now += 1000
    for (const [field, value] of Object.entries({ ...FULL, name: 'B', systemPrompt: 'C' })) {
      const before = await get(id)
      const special = {
        visibility: 'organization',
        maxTurns: 8,
        history: 'cut',
        requireTools: false,
        image: 'https://example.com/b.png',
      }[field]
      const changed = special ?? (Array.isArray(value) ? ['x'] : 'x')
      const { body } = await patch(id, { [field]: changed })
      expect(body).toEqual({ success: true, message: expect.any(String) })
      const updatedAt = new Date(now).toISOString()
      expect(await get(id)).toEqual({ ...before, [field]: changed, version: before.version + 1, updatedAt })
    }
  })

  it('clears optional fields with null', async () => {
    const { id } = await create(FULL)
    const nothing = Object.fromEntries(Object.keys(OPTIONAL).map((field) => [field, null]))
    expect((await patch(id, { ...nothing, role: null })).status).toBe(200)
    expect(await get(id)).toMatchObject({ ...valid, ...OPTIONAL, role: 'Assistant', visibility: 'public', version: 2 })
  })

  it('accepts system_message for systemPrompt', async () => {
    const { id } = await create()
    await patch(id, { system_message: 'New.' })
    expect((await get(id)).systemPrompt).toBe('New.')
    await patch(id, { system_message: 'Old.', systemPrompt: 'Newer.' })
    expect((await get(id)).systemPrompt).toBe('Newer.')
  })

  it.each([{}, { name: 'Ada' }, { role: 'Assistant', tags: [], model: null }, { archived: false }, { unknown: 1 }])(
    'makes no version for a change without effect: %j',
    async (fields) => {
      const { id, agent } = await create()
      now += 1000
      expect((await patch(id, fields)).status).toBe(200)
      expect(await get(id)).toEqual(agent)
      expect((await call('GET', `/agents/${id}/versions`)).body.versions).toHaveLength(1)
    },
  )

  it.each([
    'javascript:alert(1)',
    'file:///etc/passwd',
    'data:text/html;base64,PGI+',
    'data:image/svg+xml,<svg/>',
    '//evil.example/a.png',
  ])('refuses the picture %o when an agent is created and when it is changed', async (image) => {
    const { id } = await create()
    for (const answer of [await patch(id, { image }), await call('POST', '/agents', ann, { ...valid, image })])
      expectError(
        answer,
        400,
        'Invalid value for field: image. Expected an http(s) address, a data image or a media id',
      )
    expect((await get(id)).image).toBeNull()
  })

  it('applies several concurrent changes, each as its own version', async () => {
    const { id } = await create()
    const fields = { role: 'R', description: 'D', category: 'C', color: '#123', image: 'http://i.example/i' }
    const answers = await atOnce(
      'agents.update',
      Object.entries(fields).map(([field, value]) => ({ id, [field]: value })),
    )
    expect(answers).toEqual([200, 200, 200, 200, 200])
    expect(await get(id)).toMatchObject({ ...fields, version: 6 })
    const { versions } = (await call('GET', `/agents/${id}/versions`)).body
    expect(versions.map(({ version }: { version: number }) => version)).toEqual([6, 5, 4, 3, 2, 1])
  })

  it('refuses none of any number of concurrent changes, and each makes a version', async () => {
    const { id } = await create()
    const roles = Array.from({ length: 30 }, (_, n) => `R${n}`)
    const answers = await together(
      server,
      'Agent',
      roles.map((role) => () => patch(id, { role })),
    )
    expect(answers.map(({ status }) => status)).toEqual(roles.map(() => 200))
    const { versions } = (await call('GET', `/agents/${id}/versions`)).body
    expect(versions.map(({ version }: Body) => version)).toEqual([...roles.keys(), 30].map((n) => 31 - n))
    const versionRoles = versions.map(({ agent }: { agent: Body }) => agent.role)
    expect(new Set(versionRoles)).toEqual(new Set([...roles, 'Assistant']))
    expect(await get(id)).toMatchObject({ role: versionRoles[0], version: 31 })
  })

  it('changes nothing if it is refused', async () => {
    const { id, agent } = await create({ visibility: 'organization' })
    expectError(
      await patch(id, { role: 'X', maxTurns: 0 }),
      400,
      'Invalid value for field: maxTurns. Expected at least 1',
    )
    expectError(await patch(id, { role: 'X' }, ben), 403, "You don't have permission to access this resource")
    expectError(await patch(id, { role: 'X' }, eve), 404, 'Agent not found')
    expect(await get(id)).toEqual(agent)
  })
})

describe('GET /agents/{id}/versions', () => {
  it('lists the earlier states, newest first, with the author of each', async () => {
    const admin = await server.member({ organization: 'Acme', role: 'admin' })
    const { id } = await create({ tags: ['one'] })
    const at = [0, 1000, 2000].map((later) => new Date(now + later).toISOString())
    now += 1000
    await patch(id, { systemPrompt: 'Second.', tags: ['two'] })
    now += 1000
    await patch(id, { name: 'Third' }, admin)
    const { body } = await call('GET', `/agents/${id}/versions`, ben)
    expect(body).toMatchObject({
      success: true,
      versions: [
        { version: 3, createdAt: at[2], userId: admin.userId, agent: { name: 'Third', systemPrompt: 'Second.' } },
        { version: 2, createdAt: at[1], userId: ann.userId, agent: { name: 'Ada', tags: ['two'], version: 2 } },
        { version: 1, createdAt: at[0], userId: ann.userId, agent: { ...valid, tags: ['one'], version: 1 } },
      ],
    })
    expect(body.versions[0].agent).toEqual(await get(id))
  })

  it('is readable for all who see the agent', async () => {
    const { id } = await create({ visibility: 'private' })
    for (const [who, status] of [
      [ann, 200],
      [ben, 404],
      [eve, 404],
    ] as const) {
      expect((await call('GET', `/agents/${id}/versions`, who)).status).toBe(status)
    }
  })

  /** Creates an agent and changes it a number of times, each time to such a prompt: its versions are 1 to `count`. */
  async function changed(count: number, systemPrompt: string): Promise<string> {
    const { id } = await create()
    const { db } = server.service.deps
    const { version: _, ...first } = await db.agentVersion.findFirstOrThrow({ where: { agentId: id } })
    const agent = { ...(first.agent as object), systemPrompt }
    const later = Array.from({ length: count - 1 }, (_, index) => ({ ...first, agent, version: index + 2 }))
    await db.agentVersion.createMany({ data: later })
    return id
  }

  /** Reads all pages of the versions. Returns their numbers and the length of each answer. */
  async function pagesOf(api: Api, id: string, limit?: number) {
    const pages: { versions: number[]; size: number }[] = []
    let cursor: string | null = null
    do {
      const input: Body = {
        id,
        ...(limit && { limit: api === 'REST' ? `${limit}` : limit }),
        ...(cursor && { cursor }),
      }
      const { status, body }: Answer = await apis[api](server, 'agents.versions', input, ann)
      expect(status).toBe(200)
      const versions = body.versions.map(({ version }: { version: number }) => version)
      pages.push({ versions, size: JSON.stringify(body).length })
      cursor = body.nextCursor
      expect(body).toHaveProperty('nextCursor')
    } while (cursor)
    return pages
  }
  const downFrom = (count: number) => Array.from({ length: count }, (_, index) => count - index)

  it.each(APIS)('%s: pages show every version once, newest first', async (api) => {
    const id = await changed(25, 'Short.')
    for (const limit of [1, 7, 20, 21, 25, 26]) {
      const pages = await pagesOf(api, id, limit)
      expect(pages.flatMap(({ versions }) => versions)).toEqual(downFrom(25))
      expect(pages.map(({ versions }) => versions.length).slice(0, -1)).toEqual(Array(pages.length - 1).fill(limit))
      expect(pages).toHaveLength(Math.ceil(25 / limit))
    }
    expect(await pagesOf(api, id)).toHaveLength(1)
  })

  it.each(APIS)('%s: no answer exceeds a few megabytes, whatever the number of versions', async (api) => {
    const id = await changed(90, 'x'.repeat(100_000))
    const pages = await pagesOf(api, id)
    expect(pages.flatMap(({ versions }) => versions)).toEqual(downFrom(90))
    for (const { size } of pages) expect(size).toBeLessThan(8_000_000)
  })

  it.each(onEachApi([['0'], [btoa('x')], [btoa('1.1')], [btoa('-1')], [btoa('9'.repeat(10))]]))(
    '%s: a cursor of another list is refused: %j',
    async (api, cursor) => {
      const { id } = await create()
      const answer = await apis[api](server, 'agents.versions', { id, cursor }, ann)
      expectError(answer, 400, 'Invalid value for field: cursor. Expected a nextCursor of this list')
    },
  )
})

describe('the skills and agents of an agent', () => {
  const skill = async (who: Member, visibility: string): Promise<string> => {
    const body = { name: `s-${crypto.randomUUID()}`, description: 'd', prompt: 'p', visibility }
    return (await call('POST', '/skills', who, body)).body.id
  }
  const hidden = async (who: Member) => ({
    subagentIds: [(await create({}, who)).id, (await create({ visibility: 'private' }, who)).id],
    skillIds: [await skill(who, 'organization'), await skill(who, 'private')],
  })
  const idsIn = ({ subagentIds, skillIds }: Body) => ({ subagentIds, skillIds })

  it.each(APIS)('%s: are visible to callers who can reach them, by id, in lists and in old versions', async (api) => {
    const ids = await hidden(ann)
    const { id } = await create({ ...ids, tags: [`refers-${api}`] })
    await patch(id, { role: 'Changed' })
    const others = { subagentIds: ids.subagentIds.slice(0, 1), skillIds: ids.skillIds.slice(0, 1) }
    for (const [who, expected] of [
      [ann, ids],
      [ben, others],
    ] as const) {
      const ask = async (procedure: string, input: Body) => (await apis[api](server, procedure, input, who)).body
      expect(idsIn((await ask('agents.get', { id })).agent)).toEqual(expected)
      expect((await ask('agents.list', { tag: `refers-${api}` })).agents.map(idsIn)).toEqual([expected])
      const { versions } = await ask('agents.versions', { id })
      expect(versions.map(({ agent }: { agent: Body }) => idsIn(agent))).toEqual([expected, expected])
    }
    const copy = await create({ basedOnAgentId: id }, ben)
    expect(idsIn(await get(copy.id, ben))).toEqual(others)
  })

  it('can be written back by any reader, also after one of them is gone', async () => {
    const admin = await server.member({ organization: 'Acme', role: 'admin' })
    const ids = await hidden(ann)
    const { id } = await create(ids)
    const visible = await get(id, admin)
    expect((await patch(id, { ...visible, role: 'By an admin' }, admin)).body).toMatchObject({ success: true })
    expect(await get(id)).toMatchObject({ ...idsIn(visible), role: 'By an admin' })

    await patch(id, ids)
    await call('DELETE', `/agents/${ids.subagentIds[0]}`)
    await call('DELETE', `/skills/${ids.skillIds[0]}`)
    const left = await get(id)
    expect(idsIn(left)).toEqual({ subagentIds: ids.subagentIds.slice(1), skillIds: ids.skillIds.slice(1) })
    expect((await patch(id, { ...left, role: 'By the owner' })).body).toMatchObject({ success: true })
    expect(await get(id)).toMatchObject({ ...idsIn(left), role: 'By the owner' })
  })
})

describe('an archived agent', () => {
  it.each(['DELETE', 'PATCH archived: true'])(
    'an archived agent by %s is gone everywhere, except from its executions',
    async (how) => {
      const { id } = await create({ visibility: 'public', tags: ['doomed'] })
      const run = (await call('POST', `/agents/${id}/execute`, ann, { message: 'Hi' })).body
      const answer = how === 'DELETE' ? await call('DELETE', `/agents/${id}`) : await patch(id, { archived: true })
      expect(answer.body).toEqual({ success: true, message: 'Agent deleted successfully' })

      for (const [method, path, body] of [
        ['GET', ''],
        ['PATCH', '', { role: 'x' }],
        ['PATCH', '', {}],
        ['PATCH', '', { archived: false }],
        ['DELETE', ''],
        ['GET', '/versions'],
        ['POST', '/execute', { message: 'Hi' }],
        ['POST', '/execute', { message: 'Hi', chatId: run.chatId }],
        ['POST', '/execute', { message: 'Hi', sessionId: run.sessionId }],
      ] as [string, string, Body?][]) {
        expectError(await call(method, `/agents/${id}${path}`, ann, body), 404, 'Agent not found')
      }
      expectError(await call('GET', `/public/agents/${id}`), 404, 'Agent not found')
      for (const list of ['/agents?tag=doomed', '/agents?owner=me&tag=doomed', '/public/agents?tag=doomed']) {
        expect((await call('GET', list)).body).toMatchObject({ agents: [], total: 0 })
      }
      const { execution } = (await call('GET', `/executions/${run.executionId}`)).body
      expect(execution).toMatchObject({ agentId: id, status: 'completed', result: run.result })
      expect(names(await call('GET', '/agents'))).not.toContain('doomed')
      expect((await call('GET', `/executions?agentId=${id}`)).body.executions).toHaveLength(1)
      expect((await call('GET', `/executions/${run.executionId}/events`)).status).toBe(200)
    },
  )

  it('is archived once, and the second of two concurrent requests gives 404', async () => {
    const { id } = await create()
    expect((await atOnce('agents.delete', [{ id }, { id }])).sort()).toEqual([200, 404])
  })
})

describe('lists', () => {
  let lea: Member
  let leo: Member
  beforeAll(async () => {
    lea = await server.member({ organization: 'Lists' })
    leo = await server.member({ organization: 'Lists' })
    for (const [name, fields, who] of [
      ['one', { visibility: 'private', tags: ['x'] }, lea],
      ['two', { visibility: 'organization', tags: ['x', 'y'], description: 'Finds NEEDLES' }, lea],
      ['three', { visibility: 'public', tags: ['X'], role: 'Haystack' }, leo],
      ['four', { visibility: 'unlisted', tags: ['x'] }, leo],
      ['five', { visibility: 'organization', tags: ['100%', 'a_b'], systemPrompt: 'needle' }, leo],
    ] as const) {
      now += 1000
      await create({ name, ...fields }, who)
    }
  })

  it.each([
    ['', ['five', 'three', 'two']],
    ['?owner=me', ['two', 'one']],
    ['?visibility=public', ['three']],
    ['?visibility=organization', ['five', 'two']],
    ['?visibility=private', []],
    ['?visibility=unlisted', []],
    ['?visibility=private&owner=me', ['one']],
    ['?tag=x', ['two']],
    ['?tag=X', ['three']],
    ['?tag=x&owner=me', ['two', 'one']],
    ['?tag=none', []],
    ['?search=needle', ['two']],
    ['?search=NEEDLE', ['two']],
    ['?search=%20needle%20', ['two']],
    ['?search=hayst', ['three']],
    ['?search=wo', ['two']],
    ['?search=%25', ['five']],
    ['?search=_', ['five']],
    ['?search=y&tag=y', ['two']],
    ['?search=needle&tag=x&owner=me', ['two']],
    ['?search=needle&tag=X', []],
    ['?search=', ['five', 'three', 'two']],
    ['?limit=2', ['five', 'three'], 3],
    ['?limit=1&owner=me', ['two'], 2],
    ['?_=1&utm_source=x', ['five', 'three', 'two']],
  ] as [string, string[], number?][])(
    'GET /agents%s lists the agents %j, and no other',
    async (query, expected, total = expected.length) => {
      const answer = await call('GET', `/agents${query}`, lea)
      expect(names(answer)).toEqual(expected)
      expect(answer.body).toMatchObject({ success: true, total })
      expect(answer.body.nextCursor === null).toBe(total === expected.length)
      for (const agent of answer.body.agents) expect(agent).toEqual(await get(agent.id, lea))
    },
  )

  it.each([
    ['Caf\u00e9', 'cafe\u0301'],
    ['Cafe\u0301', 'CAF\u00c9'],
    ['\u0130stanbul', 'istanbul'],
    ['istanbul', '\u0130STANBUL'],
    ['\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2', '\u03a3\u038a\u03a3\u03a5\u03a6\u039f\u03a3'],
    ['\u039f\u03b4\u03bf\u03c3\u03cc\u03c2', '\u039f\u0394\u039f\u03a3'],
  ])('an agent named %j is found by %j', async (name, search) => {
    const who = await server.member({ organization: 'Letters' })
    const { id } = await create({ name }, who)
    expect(names(await call('GET', `/agents?search=${encodeURIComponent(search)}`, who))).toEqual([name])
    await call('DELETE', `/agents/${id}`, who)
  })

  it('lists of an organization without agents are empty', async () => {
    const who = await server.member({ organization: 'Nobody' })
    expect((await call('GET', '/agents', who)).body).toEqual({ success: true, agents: [], total: 0, nextCursor: null })
  })

  it.each(onEachApi([['agents.list'], ['agents.listPublic']]))(
    '%s %s: pages show every row once, newest first, also rows of one moment',
    async (api, procedure) => {
      const who = await server.member({ organization: `Pages of ${api} ${procedure}` })
      const tag = `${api}-${procedure}`
      const ids = await Promise.all(
        Array.from({ length: 7 }, async () => (await create({ visibility: 'public', tags: [tag] }, who)).id),
      )
      const seen: string[] = []
      let cursor: string | null = null
      do {
        const input: Body = { tag, limit: api === 'REST' ? '3' : 3, ...(cursor && { cursor }) }
        const { body }: Answer = await apis[api](server, procedure, input, who)
        expect(body.total).toBe(7)
        seen.push(...body.agents.map(({ id }: { id: string }) => id))
        // New rows at the front move nothing.
        now += 1000
        await create({ visibility: 'organization', tags: ['later'] }, who)
        now -= 1000
        cursor = body.nextCursor
      } while (cursor)
      expect(seen).toEqual(ids.toSorted().toReversed())
    },
  )

  it('end without a cursor if a page is exactly the rest', async () => {
    const { body } = await call('GET', '/agents?limit=3', lea)
    expect([body.agents.length, body.nextCursor]).toEqual([3, null])
  })

  it('end at the page whose rows were deleted meanwhile', async () => {
    const who = await server.member({ organization: 'Vanishing' })
    const made: string[] = []
    for (const name of ['a', 'b', 'c']) {
      now += 1000
      made.push((await create({ name }, who)).id)
    }
    const { nextCursor } = (await call('GET', '/agents?limit=2', who)).body
    await call('DELETE', `/agents/${made[0]}`, who)
    const { body } = await call('GET', `/agents?limit=2&cursor=${nextCursor}`, who)
    expect(body).toMatchObject({ agents: [], nextCursor: null, total: 2 })
  })
})

describe('public cards', () => {
  it("show every organization's public agents, with the fields of a card only", async () => {
    const { id } = await create({ ...FULL, visibility: 'public', tags: ['on-show'] }, eve)
    await create({ visibility: 'unlisted', tags: ['on-show'] }, eve)
    const card = {
      id,
      name: 'Ada',
      slug: expect.any(String),
      role: FULL.role,
      description: FULL.description,
      tags: ['on-show'],
      organizationName: 'Evil & Co',
    }
    for (const who of [ann, eve]) {
      const { body } = await call('GET', '/public/agents?tag=on-show', who)
      expect(body).toEqual({ success: true, agents: [card], total: 1, nextCursor: null })
      expect((await call('GET', `/public/agents/${id}`, who)).body).toEqual({ success: true, agent: card })
    }
  })
})

it('times are the moment of the change, in UTC with milliseconds', async () => {
  const { id, agent } = await create()
  expect((agent as Body).createdAt).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  now += 1234
  await patch(id, { role: 'x' })
  const after = await get(id)
  expect(Date.parse(after.updatedAt) - Date.parse(after.createdAt)).toBe(1234)
})

it('every change leaves an audit event with its author, action and target', async () => {
  const { id } = await create()
  await patch(id, { role: 'x' })
  await patch(id, {})
  await call('DELETE', `/agents/${id}`)
  const events = await server.service.deps.db.auditEvent.findMany({ where: { target: id }, orderBy: { action: 'asc' } })
  const { organizationId, userId: actor } = ann
  const event = (action: string) => expect.objectContaining({ organizationId, actor, action, target: id })
  expect(events).toEqual(['agent.archive', 'agent.create', 'agent.update'].map(event))
})

describe('a tag that a few of many agents have, and one that all have', () => {
  const VISIBILITIES = ['private', 'organization', 'public', 'unlisted'] as const
  type Made = { id: string; visibility: string; userId: string; isRare: boolean }
  let lou: Member
  /** Newest first. */
  let made: Made[]
  beforeAll(async () => {
    const { db } = server.service.deps
    lou = await server.member({ organization: 'Tags' })
    const lea = await server.member({ organization: 'Tags' })
    const { id } = await create({}, lou)
    const like = await db.agent.findUniqueOrThrow({ where: { id }, omit: { id: true } })
    const organizationId = like.organizationId
    made = Array.from({ length: 700 }, (_, number) => ({
      id: `tagged${String(number).padStart(3, '0')}`,
      visibility: VISIBILITIES[number % 4]!,
      userId: (number % 3 ? lou : lea).userId,
      isRare: number % 50 < 4,
    }))
    const rows = made.map(({ isRare, ...row }) => {
      const tags = isRare ? ['all-have', 'few-have'] : ['all-have']
      return { ...like, ...row, tags, slug: null } as Prisma.AgentCreateManyInput
    })
    await db.agent.createMany({ data: rows })
    const tag = (tag: string, of: Made[]) => of.map(({ id: agentId }) => ({ organizationId, agentId, tag }))
    const tags = [
      ...tag('all-have', made),
      ...tag(
        'few-have',
        made.filter(({ isRare }) => isRare),
      ),
    ]
    await db.agentTag.createMany({ data: tags })
    made.reverse()
  })

  it.each(
    ['all-have', 'few-have'].flatMap((tag) => [
      [`/agents?tag=${tag}`, ['organization', 'public'], false],
      [`/agents?tag=${tag}&visibility=public`, ['public'], false],
      [`/agents?tag=${tag}&owner=me`, VISIBILITIES, true],
      [`/public/agents?tag=${tag}`, ['public'], false],
    ]) as [string, readonly string[], boolean][],
  )('GET %s: every agent stands in the list once, and the total is right', async (path, visibilities, own) => {
    const wanted = made.filter(
      ({ visibility, userId, isRare }) =>
        visibilities.includes(visibility) && (!own || userId === lou.userId) && (isRare || path.includes('all-have')),
    )
    const seen: string[] = []
    for (let cursor = ''; cursor !== 'end'; ) {
      const { body } = await call('GET', `${path}&limit=13${cursor}`, lou)
      expect(body.total).toBe(wanted.length)
      seen.push(...body.agents.map(({ id }: { id: string }) => id))
      cursor = body.nextCursor === null ? 'end' : `&cursor=${body.nextCursor}`
    }
    expect(seen).toEqual(wanted.map(({ id }) => id))
  })

  it.skipIf(onPostgres).each(['/agents', '/public/agents'])(
    'GET %s: agents with a rare tag are found by it',
    async (path) => {
      server.queries.length = 0
      await call('GET', `${path}?tag=few-have&limit=1`, lou)
      const reads = server.queries.filter((sql) => /FROM "Agent(Tag)?" WHERE/.test(sql))
      const used = reads.map((sql) => planOf(server, sql).find((step) => /^(SEARCH|SCAN) Agent/.test(step)))
      expect(used[0]).toMatch(/^SEARCH AgentTag USING COVERING INDEX \S+ \(tag=\?/)
      expect(used.length).toBeGreaterThan(1)
      for (const step of used.slice(1)) expect(step).toMatch(/^SEARCH Agent USING INDEX \S+ \(id=\?\)/)
    },
  )
})

it('an agent is up to date by id and in lists, whoever changed it', async () => {
  const organization = `Lists ${crypto.randomUUID()}`
  const [ann, bob] = [await server.member({ organization }), await server.member({ organization })]
  const people = { ann, bob }
  const as = (who: 'ann' | 'bob', procedure: string, input: object) =>
    apis.REST(server, procedure, input as Record<string, unknown>, { token: people[who].token })
  const ids: { id: string; of: 'ann' | 'bob' }[] = []
  const who = fc.constantFrom('ann' as const, 'bob' as const)
  const change = fc.oneof(
    fc.record({ name: fc.constantFrom('Ada', 'Bo') }),
    fc.record({ systemPrompt: fc.constantFrom('Be brief.', 'Be kind.') }),
    fc.record({ tags: fc.subarray(['a', 'b', 'c']) }),
    fc.record({ visibility: fc.constantFrom('private', 'organization', 'public', 'unlisted') }),
    fc.constant({ archived: true }),
  )
  const step = fc.record({ who, pick: fc.nat(), change: fc.option(change, { freq: 4 }) })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 4, maxLength: 12 }), async (steps) => {
      for (const { who, pick, change } of steps) {
        const chosen = ids[pick % ids.length]
        if (!chosen || !change) {
          const { body } = await as(who, 'agents.create', { name: 'New', systemPrompt: 'You are new.' })
          ids.push({ id: body.id, of: who })
        } else expect([200, 404]).toContain((await as(chosen.of, 'agents.update', { id: chosen.id, ...change })).status)
        for (const reader of ['ann', 'bob'] as const) {
          const { agents, total } = (await as(reader, 'agents.list', {})).body
          const each = await Promise.all(ids.map(({ id }) => as(reader, 'agents.get', { id })))
          const shared = each.flatMap(({ status, body }) => (status === 200 ? [body.agent] : []))
          const rows = await server.service.deps.db.agent.findMany({
            where: { id: { in: shared.map(({ id }) => id) } },
          })
          for (const { id, name, systemPrompt, tags, visibility, version } of rows) {
            const row = { name, systemPrompt, tags, visibility, version, archived: false }
            expect(shared.find((agent) => agent.id === id)).toMatchObject(row)
          }
          const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1)
          const seen = shared.filter(({ visibility }) => visibility === 'organization' || visibility === 'public')
          expect(agents.toSorted(byId)).toEqual(seen.toSorted(byId))
          expect(total).toBe(agents.length)
        }
      }
    }),
    { numRuns: times(5) },
  )
})

it('cached agents take a bounded amount of memory, whatever makes them long', async () => {
  const names = (of: string) => Array.from({ length: 500 }, (_, index) => `${of}${index}`.padEnd(200, 'x'))
  const { id } = await create({ allowedTools: names('a'), disallowedTools: names('b') })
  const agent = await get(id)
  const known = createAgentCache()
  for (const index of Array(200).keys()) known.set(`${index}`, agent)
  expect(known.size).toBeGreaterThan(0)
  expect(known.size * JSON.stringify(agent).length).toBeLessThan(10_000_000)
})
