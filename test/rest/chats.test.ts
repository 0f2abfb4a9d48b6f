import { describe, expect, it } from 'vitest'
import { newId } from '../../src/lib/id.ts'
import { graphql } from '../graphql/support.ts'
import { APIS, callerAs, expectError, invalid, ok, onEachApi } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { filePart, form, post } from '../support/multipart.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { type Answer, comparableAnswer, request, toFetch } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

let now = Date.parse('2026-01-01T00:00:00Z')
const clock = { now: () => new Date(now) }

const model = await use(startModelServer())
const server = await use(startServer(model.env, { clock }))
const people = await server.people('owner', 'admin', 'ann', 'ben', 'eve')
type Who = keyof typeof people

type Fields = Record<string, unknown>
const FORBIDDEN = "You don't have permission to access this resource"

const on = callerAs(server, people)
const call = (procedure: string, input: Fields = {}, who: Who = 'ann') => on('REST', procedure, input, who)
const done = async (procedure: string, input: Fields = {}, who: Who = 'ann') => {
  return ok(call(procedure, input, who))
}

const agent = async (fields: Fields = {}, who: Who = 'ann'): Promise<string> =>
  (await done('agents.create', { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }, who)).id
const space = async (fields: Fields = {}, who: Who = 'ann'): Promise<string> =>
  (await done('spaces.create', { name: 'Lab', ...fields }, who)).id
const open = async (fields: Fields = {}, who: Who = 'ann') => (await done('chats.create', fields, who)).chat
const get = async (id: string, who: Who = 'ann') => (await done('chats.get', { id }, who)).chat
const say = (id: string, fields: Fields, who: Who = 'ann') =>
  done('agents.execute', { id, message: 'Hi', ...fields }, who)
const contents = async (id: string, who: Who = 'ann') =>
  (await done('chats.messages', { id }, who)).messages.map(({ role, content }: Fields) => `${role}: ${content}`)
const ids = (chats: { id: string }[]) => chats.map(({ id }) => id)
const general = async (who: Who = 'ann'): Promise<string> =>
  (await done('spaces.list', {}, who)).spaces.find(({ isDefault }: Fields) => isDefault).id

/** A run that is active until the test releases it. */
async function working(agentId: string, fields: Fields = {}) {
  const gate = Promise.withResolvers<void>()
  model.script({ tokens: ['Half ', gate.promise, 'done'] })
  const index = model.requests.length
  const run = await say(agentId, { background: true, ...fields })
  await model.request(index)
  const status = async () => (await done('executions.get', { id: run.executionId })).execution.status
  return {
    ...run,
    release: gate.resolve,
    async end() {
      gate.resolve()
      await expect.poll(status).toBe('completed')
    },
  }
}

describe('POST /chats', () => {
  it.each(APIS)('%s: opens one in the default space without any input', async (api) => {
    const { body } = await on(api, 'chats.create')
    expect(body).toEqual({
      success: true,
      id: expect.stringMatching(/^\w{31}$/),
      title: 'New chat',
      status: 'standby',
      chat: {
        id: body.id,
        organizationId: people.ann.organizationId,
        spaceId: await general(),
        agentId: null,
        agentName: null,
        ownerId: people.ann.userId,
        title: 'New chat',
        status: 'standby',
        messageCount: 0,
        closed: false,
        closedAt: null,
        createdAt: new Date(now).toISOString(),
        updatedAt: new Date(now).toISOString(),
      },
    })
    expect(await get(body.id)).toEqual(body.chat)
    expect(await contents(body.id)).toEqual([])
    const events = await server.service.deps.db.auditEvent.findMany({ where: { target: body.id } })
    expect(events).toMatchObject([{ action: 'chat.create', actor: people.ann.userId }])
  })

  it('needs no body over REST', async () => {
    const response = await fetch(`${server.url}/api/v1/chats`, toFetch({ ...server, ...people.ann }, 'POST', {}))
    expect(response.status).toBe(200)
  })

  it('opens one in a space, with an executable agent, also of another organization', async () => {
    const spaceId = await space({ visibility: 'private' })
    const own = await agent({ name: 'Mine', visibility: 'private' })
    const chat = await open({ spaceId, agentId: own, title: 'A talk' })
    expect(chat).toMatchObject({ spaceId, agentId: own, agentName: 'Mine', title: 'A talk' })
    expect(await open({ agentId: own })).toMatchObject({ title: 'Mine' })
    for (const visibility of ['public', 'unlisted']) {
      const theirs = await agent({ name: 'Theirs', visibility }, 'eve')
      const { id } = await open({ agentId: theirs })
      expect(await get(id, 'ben')).toMatchObject({ agentId: theirs, agentName: 'Theirs' })
      await say(theirs, { chatId: id })
      expect(await contents(id, 'ben')).toHaveLength(2)
    }
  })

  it.each(APIS)('%s: treats an empty space or agent as unknown', async (api) => {
    const before = await server.service.deps.db.chat.count()
    expectError(await on(api, 'chats.create', { spaceId: '' }), 404, 'Space not found')
    expectError(await on(api, 'chats.create', { agentId: '' }), 404, 'Agent not found')
    expect(await server.service.deps.db.chat.count()).toBe(before)
  })

  it('happens once per Idempotency-Key, and a replay needs access to the space', async () => {
    const spaceId = await space({}, 'ben')
    const headers = { 'Idempotency-Key': newId() }
    const post = () => request(server, 'POST', '/api/v1/chats', { body: { spaceId }, headers, token: people.ann.token })
    const [first, second] = [await post(), await post()]
    expect(second.body).toEqual(first.body)
    expect(second.headers.get('idempotent-replayed')).toBe('true')
    expect(ids((await done('chats.list', { spaceId })).chats)).toEqual([first.body.id])
    await done('spaces.update', { id: spaceId, visibility: 'private' }, 'ben')
    expectError(await post(), 404, 'Space not found')
  })

  it("has the id that a new agent's chatUrl leads to", async () => {
    const { id, chatUrl } = await done('agents.create', { name: 'Chatty', systemPrompt: 'x' })
    const [, spaceId, chatId] = /^\/acme\/spaces\/(\w+)\/chats\/(\w+)$/.exec(chatUrl) ?? []
    expect(await get(chatId ?? '')).toMatchObject({ spaceId, agentId: id, agentName: 'Chatty', status: 'standby' })
    expect((await done('spaces.get', { id: spaceId })).space).toMatchObject({ isDefault: true })
    expect(ids((await done('chats.list', { agentId: id })).chats)).toEqual([chatId])
  })
})

describe('GET /chats', () => {
  it.each(APIS)('%s: lists chats by space, agent and status, newest first, page by page', async (api) => {
    const [one, other] = [await space(), await space()]
    const [ada, bob] = [await agent(), await agent()]
    const chats: { id: string }[] = []
    for (const fields of [{ agentId: ada }, { agentId: bob }, {}, { agentId: ada }]) {
      now += 1
      chats.unshift(await open({ spaceId: one, ...fields }))
    }
    await open({ spaceId: other, agentId: ada })
    await say(ada, { chatId: chats[0]!.id })
    const list = async (input: Fields) => (await on(api, 'chats.list', input)).body
    const all = await list({ spaceId: one })
    expect(all).toEqual({ success: true, chats: expect.any(Array), nextCursor: null })
    expect(ids(all.chats)).toEqual(ids(chats))
    expect(ids((await list({ spaceId: one, agentId: ada })).chats)).toEqual([chats[0]!.id, chats[3]!.id])
    expect(ids((await list({ spaceId: one, status: 'done' })).chats)).toEqual([chats[0]!.id])
    expect(ids((await list({ spaceId: one, status: 'standby' })).chats)).toEqual(ids(chats.slice(1)))
    for (const status of ['working', 'needs_attention', 'error']) {
      expect((await list({ spaceId: one, status })).chats).toEqual([])
    }
    expect((await list({ spaceId: one, mission: 'true' })).chats).toEqual([])
    const first = await list({ spaceId: one, limit: '3', count: 'true' })
    expect(first).toMatchObject({ total: 4, nextCursor: expect.any(String) })
    const second = await list({ spaceId: one, limit: '3', count: 'true', cursor: first.nextCursor })
    expect(second).toMatchObject({ total: 4, nextCursor: null })
    expect(ids([...first.chats, ...second.chats])).toEqual(ids(chats))
  })

  it.each(APIS)('%s: searches titles in any case, with a count, also new and sent ones', async (api) => {
    const spaceId = await space()
    const agentId = await agent()
    const letter = await open({ spaceId, title: 'ΟΔΥΣΣΕΥΣ 50%' })
    const { chatId: sent } = await say(agentId, { spaceId, message: 'Größe_A of all doors' })
    const renamed = await open({ spaceId, title: 'Kitchen' })
    const found = async (search: string) => {
      const { chats, total } = (await on(api, 'chats.list', { spaceId, search, count: 'true' })).body
      expect(total).toBe(chats.length)
      return ids(chats)
    }
    for (const search of ['οδυσσευς', 'ΟΔΥΣΣΕΥς', ' 50% ']) expect(await found(search)).toEqual([letter.id])
    for (const search of ['GRÖSSE', '5_', 'windows']) expect(await found(search)).toEqual([])
    expect(await found('GRÖßE_a')).toEqual([sent])
    await done('chats.update', { id: renamed.id, title: 'Windows' })
    expect(await found('windows')).toEqual([renamed.id])
    expect(await found('kitchen')).toEqual([])
    expect(await found('')).toHaveLength(3)
    const query = `{ chats(spaceId: "${spaceId}", search: "WINDOW", first: 1) { nodes { id } totalCount } }`
    const { data } = await graphql(server, query, {}, people.ann)
    expect(data.chats).toEqual({ nodes: [{ id: renamed.id }], totalCount: 1 })
  })

  it("distinguishes a mission's runs by its title and their numbers", async () => {
    const agentId = await agent()
    const { id } = await done('missions.create', { title: 'Digest', goal: 'Read it all.', agentId })
    for (const runNumber of [1, 2]) {
      const { executionId, chatId } = await done('missions.run', { id })
      await expect
        .poll(async () => (await done('executions.get', { id: executionId })).execution.status)
        .toBe('completed')
      expect(await get(chatId)).toMatchObject({ agentId, missionTitle: 'Digest', runNumber })
    }
    const { chats } = await done('chats.list', { agentId, mission: 'true' })
    expect(chats.map(({ runNumber }: Fields) => runNumber).sort()).toEqual([1, 2])
    expect((await done('chats.list', { agentId })).chats).toHaveLength(3)
    const query = `query ($agentId: ID) {
      runs: chats(agentId: $agentId, mission: true) { nodes { runNumber } totalCount }
      others: chats(agentId: $agentId, mission: false) { nodes { runNumber } totalCount }
      all: chats(agentId: $agentId, mission: null) { totalCount }
    }`
    const { data } = await graphql(server, query, { agentId }, people.ann)
    // The clock stands still, so that both have the same time.
    data.runs.nodes.sort((a: Record<string, number>, b: Record<string, number>) => a.runNumber! - b.runNumber!)
    expect(data).toEqual({
      runs: { nodes: [{ runNumber: 1 }, { runNumber: 2 }], totalCount: 2 },
      others: { nodes: [{ runNumber: null }], totalCount: 1 },
      all: { totalCount: 3 },
    })
  })

  it("shows a private mission's chats only to its owner", async () => {
    const mission = { title: 'Secret', goal: 'Hush.', agentId: await agent(), visibility: 'private' }
    const { id } = await done('missions.create', mission)
    const { chatId } = await done('missions.run', { id })
    for (const who of ['ben', 'admin', 'owner'] as const) {
      expectError(await call('chats.get', { id: chatId }, who), 404, 'Chat not found')
      expect(ids((await done('chats.list', {}, who)).chats)).not.toContain(chatId)
    }
    expect(ids((await done('chats.list')).chats)).toContain(chatId)
  })
})

describe('the status of a chat', () => {
  it('the status of a chat and its run have previews of whole emoji', async () => {
    const family = '👩\u200d👩\u200d👧\u200d👦'
    model.script({ tokens: [family.repeat(30)] })
    const agentId = await agent()
    const { chatId, executionId } = await done('agents.execute', { id: agentId, message: family.repeat(30) })
    const whole = family.repeat(28)
    expect(await get(chatId)).toMatchObject({ lastMessage: whole })
    const { executions } = await done('executions.list', { chatId })
    expect(executions).toMatchObject([{ id: executionId, message: whole }])
  })

  it('is standby, working while a run is active, and then done', async () => {
    const agentId = await agent()
    const { id } = await open({ agentId })
    const run = await working(agentId, { chatId: id })
    expect(await get(id)).toMatchObject({ status: 'working', sessionId: run.sessionId, messageCount: 1 })
    expect(ids((await done('chats.list', { agentId, status: 'working' })).chats)).toEqual([id])
    await run.end()
    expect(await get(id)).toMatchObject({ status: 'done', lastMessage: 'Half done', messageCount: 2 })
  })

  it('ignores a message that waits for its turn', async () => {
    const agentId = await agent()
    const { id } = await open({ agentId })
    const run = await working(agentId, { chatId: id })
    const second = await say(agentId, { chatId: id, background: true })
    expect([await contents(id), (await get(id)).messageCount]).toEqual([['user: Hi'], 1])
    await done('executions.cancel', { id: second.executionId })
    await run.end()
    expect([await contents(id), (await get(id)).messageCount]).toEqual([['user: Hi', 'assistant: Half done'], 2])
  })

  it('is error when the run fails, and standby when it is cancelled', async () => {
    const agentId = await agent()
    const { id } = await open({ agentId })
    model.script({ error: { status: 400 } })
    expect((await call('agents.execute', { id: agentId, message: 'Hi', chatId: id })).status).toBe(500)
    expect(await get(id)).toMatchObject({ status: 'error', messageCount: 1 })
    const run = await working(agentId, { chatId: id })
    await done('executions.cancel', { id: run.executionId })
    expect((await get(id)).status).toBe('standby')
    run.release()
  })

  it('stays working until the last session has ended, and then shows that end', async () => {
    const [ada, bob, cid] = [await agent(), await agent(), await agent()]
    const { id } = await open({ agentId: ada })
    const first = await working(ada, { chatId: id })
    await say(bob, { chatId: id })
    expect((await get(id)).status).toBe('working')
    const second = await working(bob, { chatId: id })
    await first.end()
    expect((await get(id)).status).toBe('working')
    model.script({ error: { status: 400 } })
    expect((await call('agents.execute', { id: cid, message: 'Hi', chatId: id })).status).toBe(500)
    expect((await get(id)).status).toBe('working')
    await second.end()
    expect(await get(id)).toMatchObject({ status: 'done', lastMessage: 'Half done' })
  })
})

describe('GET /chats/{id}/messages', () => {
  it.each(APIS)('%s: lists the messages oldest first, with their runs', async (api) => {
    const agentId = await agent()
    const { id } = await open({ agentId, title: 'Talk' })
    const runs = []
    for (const [message, reply] of [
      ['One?', 'One.'],
      ['Two?', 'Two.'],
    ] as const) {
      model.script({ tokens: [reply] })
      runs.push(await say(agentId, { chatId: id, message }))
    }
    const { body } = await on(api, 'chats.messages', { id }, 'ben')
    const parents = [null, ...body.messages.map((message: { id: string }) => message.id)]
    const [first, second] = runs.map(({ executionId, sessionId }) => ({
      id: expect.stringMatching(/^\w{31}$/),
      branch: sessionId,
      toolCalls: [],
      attachments: [],
      executionId,
      userId: people.ann.userId,
      interrupted: false,
      createdAt: new Date(now).toISOString(),
    }))
    expect(body).toEqual({
      success: true,
      chatId: id,
      title: 'Talk',
      status: 'done',
      messages: [
        { ...first, parentId: parents[0], role: 'user', content: 'One?' },
        { ...first, parentId: parents[1], role: 'assistant', content: 'One.', stopReason: 'end_turn' },
        { ...second, parentId: parents[2], role: 'user', content: 'Two?' },
        { ...second, parentId: parents[3], role: 'assistant', content: 'Two.', stopReason: 'end_turn' },
      ],
      nextCursor: null,
    })
  })

  it.each(APIS)('%s: pages without gap or duplicate, also over messages of one time', async (api) => {
    const [ada, bob] = [await agent(), await agent()]
    const { id } = await open()
    for (let turn = 0; turn < 3; turn++) {
      for (const agentId of [ada, bob]) {
        const session = (await done('executions.list', { chatId: id, agentId })).executions[0]?.sessionId
        await say(agentId, { chatId: id, message: `${turn}`, ...(session && { sessionId: session }) })
      }
      if (turn === 1) now += 1
    }
    const all = (await done('chats.messages', { id })).messages
    expect(all).toHaveLength(12)
    const seen: unknown[] = []
    let cursor: string | null = ''
    while (cursor !== null) {
      const { body }: Answer = await on(api, 'chats.messages', { id, limit: '5', ...(cursor && { cursor }) })
      expect(body.messages.length).toBeLessThanOrEqual(5)
      seen.push(...body.messages)
      cursor = body.nextCursor
    }
    expect(seen).toEqual(all)
  })

  it.each(APIS)('%s: lists the attachments of a question and the reasoning of its answer', async (api) => {
    const agentId = await agent()
    const media = (await post(server, form([filePart('plan.md', '# Plan')]), { token: people.ann.token })).body
    model.script({ tokens: ['<think>Let me ', 'see.</think>', 'All is well.'] })
    const { chatId } = await say(agentId, { message: 'Look', mediaIds: [media.id] })
    const read = async (who: Who) => (await on(api, 'chats.messages', { id: chatId }, who)).body.messages
    const files = [{ id: media.id, name: 'plan.md', mimeType: media.media.mimeType, size: 6 }]
    for (const who of ['ann', 'ben'] as const) {
      expect(await read(who)).toMatchObject([
        { role: 'user', content: 'Look', attachments: files },
        { role: 'assistant', content: 'All is well.', attachments: [], reasoning: 'Let me see.' },
      ])
    }
    expect((await read('ann'))[0].reasoning ?? null).toBeNull()
    await done('media.delete', { id: media.id })
    expect((await read('ann'))[0].attachments).toEqual([])
  })

  it('computes fields of different origins in one GraphQL query', async () => {
    const agentId = await agent()
    const { chatId, sessionId } = await say(agentId, { message: 'Hi' })
    // Messages of the same moment have ids in any order.
    for (const message of ['And?', 'Then?', 'So?']) await say(agentId, { message, sessionId })
    const of = 'id parentId userId role stopReason attachments { id }'
    const query = `query ($id: ID!) { chat(id: $id) { messages { nodes { ${of} } } } }`
    const body = { query, variables: { id: chatId } }
    const { data } = (await request(server, 'POST', '/graphql', { token: people.ben.token, body })).body
    const { nodes } = data.chat.messages
    const { userId } = people.ann
    expect(nodes).toMatchObject(
      [0, 1, 2, 3, 4, 5, 6, 7].map((index) => ({
        ...{ userId, attachments: [], parentId: nodes[index - 1]?.id ?? null },
        ...(index % 2 ? { role: 'assistant', stopReason: 'end_turn' } : { role: 'user', stopReason: null }),
      })),
    )
  })

  it('marks the text of a cancelled run', async () => {
    const agentId = await agent()
    const run = await working(agentId)
    await expect
      .poll(async () => (await done('executions.logs', { id: run.executionId })).logs.length)
      .toBeGreaterThan(1)
    await done('executions.cancel', { id: run.executionId })
    const { messages } = await done('chats.messages', { id: run.chatId })
    expect(messages).toMatchObject([
      { role: 'user', content: 'Hi', interrupted: false },
      { role: 'assistant', content: 'Half ', interrupted: true },
    ])
    run.release()
  })
})

describe('PATCH /chats/{id}', () => {
  it.each(APIS)('%s: renames a chat, closes it and opens it again', async (api) => {
    const before = await open()
    const patch = async (fields: Fields, who: Who = 'ann') =>
      (await on(api, 'chats.update', { id: before.id, ...fields }, who)).body.chat
    now += 1000
    const at = new Date(now).toISOString()
    expect(await patch({})).toEqual(before)
    expect(await patch({ title: 'Renamed' })).toEqual({ ...before, title: 'Renamed', updatedAt: at })
    const closed = { ...before, title: 'Renamed', updatedAt: at, closed: true, closedAt: at }
    expect(await patch({ closed: true }, 'admin')).toEqual(closed)
    now += 1000
    const later = new Date(now).toISOString()
    expect(await patch({ title: 'Renamed', closed: true })).toEqual(closed)
    expect(await patch({ closed: false }, 'owner')).toEqual({
      ...closed,
      updatedAt: later,
      closed: false,
      closedAt: null,
    })
    const events = await server.service.deps.db.auditEvent.findMany({ where: { target: before.id } })
    expect(events.filter(({ action }) => action === 'chat.update')).toHaveLength(3)
  })

  it('leaves a closed chat in lists, and its next message opens it', async () => {
    const agentId = await agent()
    const { id } = await open({ agentId })
    await done('chats.update', { id, closed: true })
    expect((await done('chats.list', { agentId })).chats).toContainEqual(expect.objectContaining({ id, closed: true }))
    await say(agentId, { chatId: id }, 'ben')
    expect(await get(id)).toMatchObject({ closed: false, closedAt: null, status: 'done' })
  })
})

describe('DELETE /chats/{id}', () => {
  it.each(APIS)('%s: removes it everywhere, and its executions stay', async (api) => {
    const agentId = await agent()
    const { id } = await open({ agentId })
    const { executionId, sessionId } = await say(agentId, { chatId: id })
    const { body } = await on(api, 'chats.delete', { id })
    expect(body).toEqual({ success: true, message: 'Chat deleted successfully' })
    for (const procedure of ['chats.get', 'chats.messages', 'chats.update', 'chats.delete']) {
      expectError(await on(api, procedure, { id }), 404, 'Chat not found')
    }
    const again = { id: agentId, message: 'Hi' }
    expectError(await on(api, 'agents.execute', { ...again, chatId: id }), 404, 'Chat not found')
    expectError(await on(api, 'agents.execute', { ...again, sessionId }), 404, 'Session not found')
    expect(ids((await on(api, 'chats.list', { agentId })).body.chats)).not.toContain(id)
    const { execution } = (await on(api, 'executions.get', { id: executionId })).body
    expect(execution).toMatchObject({ chatId: id, status: 'completed', result: expect.any(String) })
    const events = await server.service.deps.db.auditEvent.findMany({ where: { target: id } })
    expect(events.map(({ action }) => action)).toContain('chat.archive')
  })

  it.each(APIS)('%s: is refused while a run is active in it', async (api) => {
    const agentId = await agent()
    const run = await working(agentId)
    expectError(await on(api, 'chats.delete', { id: run.chatId }), 409, 'Chat is busy')
    expect(await get(run.chatId)).toMatchObject({ status: 'working' })
    await run.end()
    expect((await on(api, 'chats.delete', { id: run.chatId })).status).toBe(200)
  })

  it.each(APIS)('%s: is refused during a run of another agent, whatever the status shows', async (api) => {
    const [slow, quick] = [await agent(), await agent()]
    const run = await working(slow)
    await say(quick, { chatId: run.chatId })
    expectError(await on(api, 'chats.delete', { id: run.chatId }), 409, 'Chat is busy')
    await run.end()
    expect((await on(api, 'chats.delete', { id: run.chatId })).status).toBe(200)
  })

  it('succeeds for one of two concurrent requests, and the other finds it gone', async () => {
    const { id } = await open()
    const { db } = server.service.deps
    const { $transaction } = db
    // Both have found it before either writes.
    const both = Promise.withResolvers<void>()
    let waiting = 0
    db.$transaction = (async (work: never) => {
      if (++waiting === 2) both.resolve()
      await both.promise
      return $transaction.call(db, work)
    }) as typeof $transaction
    const answers = Promise.all([1, 2].map(() => call('chats.delete', { id })))
    const statuses = (await answers.finally(() => Object.assign(db, { $transaction }))).map(({ status }) => status)
    expect(statuses.sort()).toEqual([200, 404])
  })
})

describe('the agent and the space of a chat decide who may do what with it', () => {
  const SEEN = '✓'
  const ABSENT = '–'
  const COLUMNS = ['list', 'get', 'messages', 'continue', 'update', 'delete'] as const
  const everything = [SEEN, 200, 200, 200, 200, 200] as const
  const use = [SEEN, 200, 200, 200, 403, 403] as const
  const nothing = [ABSENT, 404, 404, 404, 404, 404] as const
  type Row = [what: string, where: { space?: string; agent?: string }, who: Who, row: readonly (string | number)[]]
  const TABLE: Row[] = [
    ...(['ann', 'admin', 'owner'] as const).map((who): Row => ['a chat', {}, who, everything]),
    ['a chat', {}, 'ben', use],
    ['a chat', {}, 'eve', nothing],
    ...(['ann', 'admin', 'owner'] as const).map(
      (who): Row => ['in a private space', { space: 'private' }, who, everything],
    ),
    ['in a private space', { space: 'private' }, 'ben', nothing],
    ['in a private space', { space: 'private' }, 'eve', nothing],
    ['with a private agent', { agent: 'private' }, 'ann', everything],
    ...(['ben', 'admin', 'owner', 'eve'] as const).map(
      (who): Row => ['with a private agent', { agent: 'private' }, who, nothing],
    ),
  ]

  it.each(onEachApi(TABLE))('on %s: %s %j, %s', async (api, _, where, who, expected) => {
    const agentId = await agent({ visibility: where.agent ?? 'organization' })
    const shared = await agent({ visibility: 'public' })
    const spaceId = await space({ visibility: where.space ?? 'organization' })
    const { id } = await open({ spaceId, agentId })
    await say(agentId, { chatId: id })
    const attempt = async (procedure: string, input: Fields = {}) => {
      const answer = await on(api, procedure, { id, ...input }, who)
      if (answer.status === 404) expectError(answer, 404, 'Chat not found')
      if (answer.status === 403) expectError(answer, 403, FORBIDDEN)
      return answer.status
    }
    const { chats } = (await on(api, 'chats.list', { spaceId }, who)).body
    const row = [
      ids(chats).includes(id) ? SEEN : ABSENT,
      await attempt('chats.get'),
      await attempt('chats.messages'),
      await attempt('agents.execute', { id: shared, message: 'Hi', chatId: id }),
      await attempt('chats.update', { title: 'Changed' }),
      await attempt('chats.delete'),
    ]
    const named = (values: readonly unknown[]) => Object.fromEntries(COLUMNS.map((name, i) => [name, values[i]]))
    expect(named(row)).toEqual(named(expected))
  })

  it("a private agent's texts in a shared chat are visible only to its owner", async () => {
    const [shared, secret] = [await agent(), await agent({ visibility: 'private' })]
    const { id } = await open({ agentId: shared })
    model.script({ tokens: ['open'] })
    await say(shared, { chatId: id, message: 'all' }, 'ben')
    now += 1
    model.script({ tokens: ['canary'] })
    const { sessionId } = await say(secret, { chatId: id, message: 'hush' })
    expect(await get(id)).toMatchObject({ messageCount: 4, lastMessage: 'canary', sessionId })
    expect(await contents(id)).toEqual(['user: all', 'assistant: open', 'user: hush', 'assistant: canary'])
    for (const who of ['ben', 'admin', 'owner'] as const) {
      expect(await contents(id, who)).toEqual(['user: all', 'assistant: open'])
      const chat = await get(id, who)
      expect(chat).toMatchObject({ messageCount: 2 })
      const answers = [chat, await done('chats.list', {}, who), await done('chats.messages', { id }, who)]
      expect(JSON.stringify(answers)).not.toMatch(new RegExp(`canary|hush|${sessionId}`))
    }
  })

  it('an agent that becomes private takes its chats with it', async () => {
    const agentId = await agent()
    const { chatId } = await say(agentId, {}, 'ben')
    expect((await call('chats.get', { id: chatId }, 'ben')).status).toBe(200)
    await done('agents.update', { id: agentId, visibility: 'private' })
    expectError(await call('chats.messages', { id: chatId }, 'ben'), 404, 'Chat not found')
    expect(await contents(chatId)).toHaveLength(2)
  })
})

describe('a foreign id looks like one that never existed', () => {
  const ATTEMPTS: [what: string, method: string, path: (id: string) => string, body?: Fields][] = [
    ['get', 'GET', (id) => `/api/v1/chats/${id}`],
    ['messages', 'GET', (id) => `/api/v1/chats/${id}/messages`],
    ['update', 'PATCH', (id) => `/api/v1/chats/${id}`, { title: 'x' }],
    ['delete', 'DELETE', (id) => `/api/v1/chats/${id}`],
    ['run', 'POST', () => '/api/v1/agents/{agent}/execute', { message: 'x', chatId: '{id}' }],
    ['get', 'GET', (id) => `/trpc/chats.get?input=${encodeURIComponent(JSON.stringify({ id }))}`],
    ['update', 'POST', () => '/trpc/chats.update', { id: '{id}', title: 'x' }],
  ]
  const answersTo = async (who: Who, all: string[], method: string, path: (id: string) => string, body?: Fields) => {
    const runnable = await agent({}, who)
    const answers: Awaited<ReturnType<typeof comparableAnswer>>[] = []
    for (const id of all) {
      const json = body && JSON.stringify(body).replace('{id}', id)
      const to = path(id).replace('{agent}', runnable)
      answers.push(await comparableAnswer(server, method, to, { body: json, token: people[who].token }))
    }
    return answers
  }

  it.each(ATTEMPTS)('in a request to %s a chat (%s)', async (_, method, path, body) => {
    const secret = await open({ agentId: await agent({ visibility: 'private' }) })
    const hidden = await open({ spaceId: await space({ visibility: 'private' }) })
    const [own, gone] = [await open(), await open()]
    await done('chats.delete', { id: gone.id })
    for (const who of ['eve', 'ben'] as const) {
      const foreign = [secret.id, hidden.id, gone.id, ...(who === 'eve' ? [own.id] : [])]
      const answers = await answersTo(who, [newId(), ...foreign], method, path, body)
      expect(answers[0]!.status).toBe(404)
      for (const answer of answers) expect(answer).toEqual(answers[0])
    }
  })

  it.each([
    ['an agent', () => agent({ visibility: 'private' }), { agentId: '{id}' }, 404],
    ['an agent of the organization', () => agent(), { agentId: '{id}' }, 404],
    ['a space', () => space(), { spaceId: '{id}' }, 404],
  ])('as %s of a new chat', async (_, make, body, status) => {
    const answers = await answersTo('eve', [newId(), await make()], 'POST', () => '/api/v1/chats', body)
    expect(answers[0]!.status).toBe(status)
    expect(answers[1]).toEqual(answers[0])
  })

  it.each(['agentId', 'spaceId'])('as %s in a query', async (field) => {
    const spaceId = await space()
    const agentId = await agent()
    await open({ spaceId, agentId })
    const path = (id: string) => `/api/v1/chats?${field}=${id}&count=true`
    const answers = await answersTo('eve', [newId(), { agentId, spaceId }[field] ?? ''], 'GET', path)
    expect(answers[0]!.status).toBe(200)
    expect(answers[1]).toEqual(answers[0])
  })
})

describe('a missing or invalid value gives a 400 that names it', () => {
  const STATUS = 'Invalid status. Must be: standby, working, done, needs_attention, error'
  const wrong: [procedure: string, message: string, input: Fields][] = [
    ...['', ' '].map((title): [string, string, Fields] => ['chats.create', 'Missing required field: title', { title }]),
    ...[null, '', ' '].map((title): [string, string, Fields] => [
      'chats.update',
      'Missing required field: title',
      { title },
    ]),
    ...['chats.create', 'chats.update'].flatMap((procedure): [string, string, Fields][] => [
      [procedure, invalid('title', 'string'), { title: 5 }],
      [procedure, invalid('title', 'at most 200 characters'), { title: 'x'.repeat(201) }],
    ]),
    ['chats.create', invalid('spaceId', 'string'), { spaceId: 5 }],
    ['chats.create', invalid('agentId', 'string'), { agentId: ['x'] }],
    ['chats.update', invalid('closed', 'boolean'), { closed: 'true' }],
    ['chats.update', invalid('closed', 'boolean'), { closed: 1 }],
    ...['', 'Done', 'closed', 'completed'].map((status): [string, string, Fields] => [
      'chats.list',
      STATUS,
      { status },
    ]),
    ['chats.list', invalid('mission', 'true or false'), { mission: 'yes' }],
    ['chats.list', invalid('count', 'true or false'), { count: 'yes' }],
    ['chats.list', invalid('limit', 'at most 1000'), { limit: '1001' }],
    ['chats.messages', invalid('limit', 'at least 1'), { limit: '0' }],
    ...['x', btoa('1.2.3'), btoa("1.a' OR 1")].map((cursor): [string, string, Fields] => [
      'chats.list',
      invalid('cursor', 'a nextCursor of this list'),
      { cursor },
    ]),
    ...['x', btoa('1.2'), btoa('1.2.'), btoa("1.2.a' OR 1"), btoa('1.99999999999.a')].map(
      (cursor): [string, string, Fields] => [
        'chats.messages',
        invalid('cursor', 'a nextCursor of this list'),
        { cursor },
      ],
    ),
  ]

  it.each(onEachApi(wrong))('%s %s: %s', async (api, procedure, message, input) => {
    const { id } = await open()
    expectError(await on(api, procedure, /update|messages/.test(procedure) ? { id, ...input } : input), 400, message)
  })

  it.each(APIS)('%s: null counts as absent for an optional field', async (api) => {
    const { body } = await on(api, 'chats.create', { spaceId: null, agentId: null, title: null })
    expect(body.chat).toMatchObject({ title: 'New chat', agentId: null, spaceId: await general() })
  })
})

it.skipIf(onPostgres)('a list of 10 chats takes as many statements as one of 100', async () => {
  const agentId = await agent({ name: 'Many' })
  const spaceId = await space()
  const counts: number[] = []
  let made = 0
  for (const size of [10, 100]) {
    for (; made < size; made++) {
      const { id } = await open({ spaceId, agentId })
      if (made % 5 === 0) await say(agentId, { chatId: id })
    }
    for (const api of APIS) {
      const sent = await server.statementsOf(async () =>
        expect((await on(api, 'chats.list', { spaceId, limit: String(size) })).body.chats).toHaveLength(size),
      )
      counts.push(sent.length)
    }
  }
  expect(new Set(counts).size, String(counts)).toBe(1)
  expect(counts[0]).toBeLessThanOrEqual(6)
})

it("a page of 1,000 chats stays within the database's limits", async () => {
  const { organizationId, userId: ownerId } = people.ann
  const spaceId = await space()
  const { db } = server.service.deps
  const at = { createdAt: clock.now(), updatedAt: clock.now() }
  const own = { organizationId, ...at }
  const seen = { role: 'x', systemPrompt: 'x', visibility: 'organization' as const, searchText: '', version: 1 }
  const none = { tags: [], skillIds: [], mcpInstanceIds: [], mcpTypes: [], subagentIds: [] }
  const agents = Array.from({ length: 1001 }, () => ({
    ...own,
    ...seen,
    ...none,
    id: newId(),
    userId: ownerId,
    name: 'x',
    allowedTools: [],
    disallowedTools: [],
  }))
  await db.agent.createMany({ data: agents })
  const chat = { ...own, spaceId, ownerId, title: 'x', status: 'standby' as const, agentOrganizationId: organizationId }
  await db.chat.createMany({ data: agents.map(({ id }) => ({ ...chat, id: newId(), agentId: id })) })
  for (const api of APIS) expect((await on(api, 'chats.list', { spaceId })).body.chats).toHaveLength(1000)
})

it('a chat that is deleted just before a run is accepted in it accepts no run', async () => {
  const agentId = await agent()
  const { id } = await open({ agentId })
  const { engine } = server.service.deps
  const { accept } = engine
  engine.accept = async (wanted) => {
    engine.accept = accept
    await done('chats.delete', { id })
    return engine.accept(wanted)
  }
  expectError(await call('agents.execute', { id: agentId, message: 'Hi', chatId: id }), 404, 'Chat not found')
  expect((await done('executions.list', { chatId: id })).executions).toEqual([])
})
