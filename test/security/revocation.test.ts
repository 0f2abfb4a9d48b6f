import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { Deps } from '../../src/deps.ts'
import { inTransaction } from '../../src/idempotency.ts'
import { create as createKey } from '../../src/keys/service.ts'
import { CreateMission } from '../../src/missions/schema.ts'
import { create as createMission, update as updateMission } from '../../src/missions/service.ts'
import { create as createInvitation } from '../../src/organizations/invitations.ts'
import { createKey as createServiceKey } from '../../src/organizations/service-accounts.ts'
import {
  create as createWebhook,
  rotate as rotateWebhook,
  update as updateWebhook,
} from '../../src/webhooks/service.ts'
import { expectError } from '../support/api.ts'
import { movableClock } from '../support/clock.ts'
import { startModelServer } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { credentialsOf, request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'
import { STREAMS, stalled, unread } from '../support/unread.ts'
import { use } from '../support/use.ts'

let executionId: string
const gate = Promise.withResolvers<void>()

// An endless run, public to its organization, which all can follow.

const model = await use(startModelServer())
const clock = movableClock()
const server = await use(startServer(model.env, { clock }))
const owner = await server.member()
beforeAll(async () => {
  const { token } = owner
  const body = { name: 'Ada', systemPrompt: 'x' }
  const { id } = (await request(server, 'POST', '/api/v1/agents', { body, token })).body
  model.script({ tokens: ['One ', gate.promise, 'two'] })
  const run = { message: 'Hi', background: true }
  executionId = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: run, token })).body.executionId
})
afterAll(() => gate.resolve())

/** Returns the rest of a stream: its last events, or a broken connection. */
const restOf = (stream: Awaited<ReturnType<typeof openStream>>) =>
  stream.rest().then(
    (events) => events.map(({ event }) => event),
    () => ['broken off'],
  )

it('an open stream ends soon after its token or membership ends, and others continue', async () => {
  const { db } = server.service.deps
  const path = `/api/v1/executions/${executionId}/events`
  const members = await Promise.all(Array.from({ length: 4 }, () => server.member()))
  const [byKey, byRow, byMembership, stays] = members as [Member, Member, Member, Member]
  const streams = await Promise.all(members.map(({ token }) => openStream(server, path, { token })))
  for (const stream of streams) {
    expect((await stream.next())?.event).toBe('meta')
    expect((await stream.next())?.event).toBe('message')
  }

  const changes = await changesFor(byMembership)
  const ended = streams.slice(0, 3).map(restOf)
  // On this server, by the API: at once.
  const { status } = await request(server, 'DELETE', `/api/v1/keys/${byKey.tokenId}`, { token: byKey.token })
  expect(status).toBe(200)
  expect(await ended[0]).not.toContain('result')
  // As another process does it, such as the operator's command line.
  await db.token.update({ where: { id: byRow.tokenId }, data: { revokedAt: new Date() } })
  const { organizationId, userId } = byMembership
  await db.membership.deleteMany({ where: { organizationId, userId } })
  for (const events of await Promise.all(ended)) expect(events).not.toContain('result')
  // They would be read without end.
  for (const response of changes) await response.text().catch(() => 'broken off')

  for (const { token } of [byKey, byRow]) {
    expectError(await request(server, 'GET', path, { token }), 401, 'Unauthorized. Invalid or expired token')
  }
  const answer = await request(server, 'GET', path, { token: byMembership.token })
  expectError(answer, 403, "You don't have permission to access this resource")

  const { execution } = (await request(server, 'GET', path.replace('/events', ''), { token: stays.token })).body
  expect(execution.status).toBe('running')
  gate.resolve()
  expect(await restOf(streams[3]!)).toEqual(['message', 'message', 'result'])
})

/** A run that writes a number of MiB, and continues until it is released. */
async function hanging(mebibytes = 0, { token } = owner): Promise<{ executionId: string; end: () => void }> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const { agents } = (await request(server, 'GET', '/api/v1/agents', { token })).body
  model.script({ tokens: [...Array<string>(mebibytes * 256).fill('x'.repeat(4096)), 'One ', promise, 'two'] })
  const body = { message: 'Hi', background: true }
  const begun = await request(server, 'POST', `/api/v1/agents/${agents[0].id}/execute`, { body, token })
  return { executionId: begun.body.executionId, end: resolve }
}

describe('a key that is revoked with all that was made with it', () => {
  const FIRST_OF_JANUARY = { type: 'cron', value: '0 0 1 1 *' }

  /** Creates a key, and the ways to make something with it, as a request that has been authenticated does. */
  async function makers() {
    const admin = await server.member({ organization: 'Keys', role: 'admin' })
    const post = async (path: string, body: object): Promise<any> => {
      const answer = await request(server, 'POST', path, { token: admin.token, body })
      expect([answer.status, answer.body.message]).toEqual([200, undefined])
      return answer.body
    }
    const { id, token } = await post('/api/v1/keys', { name: 'k' })
    const agentId = (await post('/api/v1/agents', { name: 'Ada', systemPrompt: 'x' })).id
    const accounts = `/api/v1/organizations/${admin.organizationId}/service-accounts`
    const service = { id: admin.organizationId, userId: (await post(accounts, { name: 's', role: 'member' })).id }
    const actor = await server.service.deps.actors.of(credentialsOf(`Bearer ${token}`))
    const mission = { title: 'm', goal: 'g', agentId, schedule: FIRST_OF_JANUARY }
    const webhookId = (await post('/api/v1/webhooks', { url: 'https://hooks.example/x', events: ['*'] })).id
    const own = (await request(server, 'POST', '/api/v1/missions', { token, body: mission })).body.id
    const ways: Record<string, (deps: Deps) => Promise<{ id: string }>> = {
      key: (deps) => createKey(actor, deps, { name: 'l' }),
      serviceKey: (deps) => createServiceKey(actor, deps, { ...service, name: 'l' }),
      mission: (deps) => createMission(actor, deps, CreateMission.parse(mission)),
      changed: async (deps) => (await updateMission(actor, deps, { id: own, title: 'n' })).mission,
      invitation: (deps) =>
        createInvitation(actor, deps, { id: admin.organizationId, email: `${id}@example.com`, role: 'member' }),
      webhook: (deps) => createWebhook(actor, deps, { url: 'https://hooks.example/x', events: ['*'] }),
      changedWebhook: async (deps) => (await updateWebhook(actor, deps, { id: webhookId, description: 'n' })).webhook,
      rotatedWebhook: async (deps) => (await rotateWebhook(actor, deps, webhookId)).webhook,
    }
    const revoke = () => request(server, 'DELETE', `/api/v1/keys/${id}?cascade=true`, { token: admin.token })
    return { ways, revoke, own }
  }

  it('makes nothing by requests that had begun', async () => {
    const { ways, revoke } = await makers()
    expect((await revoke()).status).toBe(200)
    const { deps } = server.service
    for (const make of Object.values(ways)) await expect(make(deps)).rejects.toMatchObject({ status: 401 })
  })

  it('takes with it the things of requests that are about to end', async () => {
    const { db } = server.service.deps
    const { ways, revoke, own } = await makers()
    const waiting = () => db.$queryRaw<object[]>`SELECT 1 FROM pg_locks WHERE NOT "granted"`
    const { made, answer } = await inTransaction(server.service.deps, async (deps) => {
      const made: Record<string, string> = {}
      for (const [name, make] of Object.entries(ways)) made[name] = (await make(deps)).id
      const answer = revoke()
      // On SQLite it waits anyway.
      if (onPostgres) await expect.poll(waiting, { interval: 5 }).not.toEqual([])
      return { made, answer }
    })
    const { derived } = (await answer).body
    expect(derived).toMatchObject({
      keys: expect.arrayContaining([made.key, made.serviceKey]),
      missions: expect.arrayContaining([made.mission, own]),
    })
    const { key = '', serviceKey = '', mission = '', invitation = '', webhook = '', changedWebhook = '' } = made
    expect(await db.invitation.count({ where: { id: invitation } })).toBe(0)
    expect(await db.webhook.count({ where: { id: { in: [webhook, changedWebhook] }, enabled: true } })).toBe(0)
    expect(await db.token.count({ where: { id: { in: [key, serviceKey] }, revokedAt: null } })).toBe(0)
    expect(await db.mission.findUnique({ where: { id: mission } })).toMatchObject({ status: 'paused', nextRunAt: null })
  })
})

it('a caller whose stream ended for lack of access is refused at once, though it was cached', async () => {
  const { db, bus } = server.service.deps
  const { executionId, end } = await hanging()
  const { token, tokenId } = await server.member()
  const stream = await openStream(server, `/api/v1/executions/${executionId}/events`, { token })
  await stream.next()
  expect((await request(server, 'GET', '/api/v1/agents', { token })).status).toBe(200)
  await db.token.update({ where: { id: tokenId }, data: { revokedAt: new Date() } })
  // Each notice makes the server check its open streams.
  bus.publish('token', ['another'])
  expect(await restOf(stream)).not.toContain('result')
  expectError(await request(server, 'GET', '/api/v1/agents', { token }), 401, 'Unauthorized. Invalid or expired token')
  end()
})

it('the end of a membership cancels the runs of that member, and no others', async () => {
  const { db } = server.service.deps
  const [gone, admin] = [await server.member(), await server.member({ role: 'admin' })]
  const [own, other] = [await hanging(0, gone), await hanging()]
  const statusOf = async (id: string) => (await db.execution.findUniqueOrThrow({ where: { id } })).status
  for (const { executionId } of [own, other]) await expect.poll(() => statusOf(executionId)).toBe('running')
  const path = `/api/v1/organizations/${gone.organizationId}/members/${gone.userId}`
  expect((await request(server, 'DELETE', path, { token: admin.token })).status).toBe(200)
  await expect.poll(() => statusOf(own.executionId)).toBe('cancelled')
  other.end()
  await expect.poll(() => statusOf(other.executionId)).not.toBe('running')
  expect(await statusOf(other.executionId)).toBe('completed')
  own.end()
})

it('a door says at the end of a stream that its caller has lost access', async () => {
  const { token } = owner
  const { agents } = (await request(server, 'GET', '/api/v1/agents', { token })).body
  const key = await server.member()
  const held = Promise.withResolvers<void>()
  const doors: [path: string, body: object][] = [
    ['/openai/v1/chat/completions', { model: agents[0].id, stream: true, messages: [{ role: 'user', content: 'Hi' }] }],
    ['/openai/v1/responses', { model: agents[0].id, stream: true, input: 'Hi' }],
    [
      `/api/v1/agents/${agents[0].id}/chat`,
      {
        id: 'c',
        trigger: 'submit-message',
        messages: [{ id: 'm', role: 'user', parts: [{ type: 'text', text: 'Hi' }] }],
      },
    ],
    [
      `/api/v1/agents/${agents[0].id}/ag-ui`,
      { threadId: 't', runId: 'r', messages: [{ id: 'm', role: 'user', content: 'Hi' }], tools: [], context: [] },
    ],
  ]
  const streams: Response[] = []
  for (const [path, body] of doors) {
    model.script({ tokens: ['One ', held.promise, 'two'] })
    const headers = { Authorization: `Bearer ${key.token}`, 'Content-Type': 'application/json' }
    streams.push(await fetch(server.url + path, { method: 'POST', headers, body: JSON.stringify(body) }))
  }
  await request(server, 'DELETE', `/api/v1/keys/${key.tokenId}`, { token: key.token })
  for (const stream of streams) {
    expect(await stream.text().catch(() => 'broken off')).toContain('Unauthorized. Invalid or expired token')
  }
  held.resolve()
})

it.each(['application/json', 'application/json, text/event-stream'])(
  'a waiting call over MCP (%s) says that its caller has lost access',
  async (accept) => {
    const { agents } = (await request(server, 'GET', '/api/v1/agents', { token: owner.token })).body
    const key = await server.member()
    const held = Promise.withResolvers<void>()
    const before = model.requests.length
    model.script({ tokens: ['One ', held.promise, 'two'] })
    const params = { name: 'run_agent', arguments: { id: agents[0].id, message: 'Hi' } }
    const answer = fetch(`${server.url}/mcp`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${key.token}`, 'Content-Type': 'application/json', Accept: accept },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
    })
    await model.request(before)
    await request(server, 'DELETE', `/api/v1/keys/${key.tokenId}`, { token: key.token })
    expect(await (await answer).text()).toContain('Unauthorized. Invalid or expired token')
    held.resolve()
  },
)

/** Begins requests of a caller whose bodies arrive only once `finish` is called. Returns the statuses of their answers. */
async function beginSlowly({ token }: Member, requests: readonly [string, string, object | FormData][]) {
  const { promise, resolve } = Promise.withResolvers<void>()
  const authenticated = vi.spyOn(server.service.deps.actors, 'of')
  async function* slowly(body: Buffer) {
    yield body.subarray(0, 1)
    await promise
    yield body.subarray(1)
  }
  const answers = requests.map(async ([method, path, body]) => {
    const whole = new Response(body instanceof FormData ? body : JSON.stringify(body))
    const type = body instanceof FormData ? whole.headers.get('content-type')! : 'application/json'
    const sent = {
      method,
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': type },
      body: slowly(Buffer.from(await whole.arrayBuffer())),
      duplex: 'half',
    }
    const answer = await fetch(server.url + path, sent as unknown as RequestInit)
    await answer.text()
    return `${path} ${answer.status}`
  })
  const admitted = () => authenticated.mock.settledResults.filter(({ type }) => type === 'fulfilled').length
  await expect.poll(admitted).toBe(requests.length)
  authenticated.mockRestore()
  return function finish(): Promise<string[]> {
    resolve()
    return Promise.all(answers)
  }
}

/** A request of each API and door that changes something, and has a body. */
async function changes(): Promise<[string, string, object | FormData][]> {
  const { token } = owner
  const { agents } = (await request(server, 'GET', '/api/v1/agents', { token })).body
  const { spaces } = (await request(server, 'GET', '/api/v1/spaces', { token })).body
  const [agent, space] = [agents[0].id, spaces[0].id]
  const form = () => {
    const form = new FormData()
    form.set('file', new Blob(['x']), 'a.txt')
    return form
  }
  const task = { title: 'x' }
  const asked = { role: 'user', content: 'Hi' }
  const part = { type: 'text', text: 'Hi' }
  const message = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'Hi' }] }
  return [
    ['POST', '/api/v1/tasks', task],
    ['PATCH', `/api/v1/agents/${agent}`, { name: 'Eve' }],
    ['POST', `/api/v1/agents/${agent}/execute`, { message: 'Hi' }],
    ['POST', `/api/spaces/${space}/environment`, { environmentVariables: { A: 'x' } }],
    ['POST', '/api/v1/media', form()],
    ['POST', `/api/files/upload?spaceId=${space}`, form()],
    ['POST', '/trpc/tasks.create', task],
    ['POST', '/graphql', { query: 'mutation { createTask(input: { title: "x" }) { id } }' }],
    ['POST', '/openai/v1/chat/completions', { model: agent, messages: [asked] }],
    ['POST', '/openai/v1/responses', { model: agent, input: 'Hi' }],
    ['POST', '/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'create_task', arguments: task } }],
    ['POST', `/a2a/agents/${agent}`, { jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message } }],
    ['POST', `/api/v1/agents/${agent}/chat`, { id: 'c', messages: [{ id: 'm', role: 'user', parts: [part] }] }],
    [
      'POST',
      `/api/v1/agents/${agent}/ag-ui`,
      { threadId: 't', runId: 'r', messages: [{ id: 'm', ...asked }], tools: [], context: [] },
    ],
  ]
}

it('a request whose body arrives after the end of its key is refused on every API', async () => {
  const key = await server.member()
  const requests = await changes()
  const finish = await beginSlowly(key, requests)
  await request(server, 'DELETE', `/api/v1/keys/${key.tokenId}`, { token: key.token })
  expect(await finish()).toEqual(requests.map(([, path]) => `${path} 401`))
})

it("an admin who becomes a member while a request arrives has a member's rights in it", async () => {
  const [other, admin] = [await server.member({ role: 'admin' }), await server.member({ role: 'admin' })]
  const { organizationId, userId } = admin
  const path = `/api/v1/organizations/${organizationId}/members/${userId}`
  const requests: [string, string, object][] = [
    ['PATCH', path, { role: 'admin' }],
    ['POST', '/openai/v1/responses', { model: 'x', input: 'Hi' }],
  ]
  const finish = await beginSlowly(admin, requests)
  expect((await request(server, 'PATCH', path, { token: other.token, body: { role: 'member' } })).status).toBe(200)
  expect(await finish()).toEqual([`${path} 403`, '/openai/v1/responses 503'])
})

const CHANGES = ['/api/v1/tasks/events', '/api/v1/approvals/events', '/trpc/tasks.changes', '/trpc/approvals.changes']

/** Opens the streams of changes of each API. */
const changesFor = ({ token }: Member): Promise<Response[]> => {
  const headers = { Authorization: `Bearer ${token}`, Accept: 'text/event-stream' }
  const subscriptions = ['taskChanges', 'approvalChanges'].map((field) =>
    fetch(`${server.url}/graphql`, {
      method: 'POST',
      headers: { ...headers, 'Content-Type': 'application/json' },
      body: JSON.stringify({ query: `subscription { ${field} { id } }` }),
    }),
  )
  return Promise.all([...CHANGES.map((path) => fetch(server.url + path, { headers })), ...subscriptions])
}

it("an open stream on any API ends soon after its reader's role changes, and others continue", async () => {
  const { db } = server.service.deps
  const { executionId, end } = await hanging()
  const [demoted, stays] = [await server.member({ role: 'admin' }), await server.member({ role: 'admin' })]
  const open = ({ token }: Member) =>
    Promise.all(
      Object.values(STREAMS).map((stream) => {
        const { method, path, body } = stream(executionId)
        const headers = { Authorization: `Bearer ${token}`, Accept: 'text/event-stream' }
        if (!body) return fetch(server.url + path, { method, headers })
        return fetch(server.url + path, { method, headers: { ...headers, 'Content-Type': 'application/json' }, body })
      }),
    )
  const streams = [...(await open(demoted)), ...(await changesFor(demoted))]
  const others = (await open(stays)).map((response) => response.text())
  const { organizationId, userId } = demoted
  const which = { organizationId_userId: { organizationId, userId } }
  await db.membership.update({ where: which, data: { role: 'member' } })
  // The stream asks the client to reconnect and does not report an end of the run.
  for (const response of streams) {
    const text = await response.text().catch(() => 'broken off')
    expect(text).toMatch(/^broken off$|Service temporarily unavailable. Please retry./)
  }
  expect(await Promise.race([...others, 'they go on'])).toBe('they go on')
  end()
  for (const text of await Promise.all(others)) expect(text).toContain('two')
})

it('readers of a run get no more of it once its agent is private, and its starter no texts', async () => {
  const [starter, reader] = [await server.member(), await server.member()]
  const as = ({ token }: Member, method: string, path: string, body: object) =>
    request(server, method, `/api/v1${path}`, { token, body })
  const [host, agent] = await Promise.all(
    ['Ada', 'Ben'].map(async (name) => (await as(owner, 'POST', '/agents', { name, systemPrompt: 'x' })).body.id),
  )
  const chatId = (await as(starter, 'POST', '/chats', { agentId: host })).body.id
  const [hidden, later] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  model.script({ tokens: ['One ', hidden.promise, 'two'] })
  const run = { message: 'Hi', background: true, chatId }
  const first = (await as(starter, 'POST', `/agents/${agent}/execute`, run)).body.executionId
  const path = `/api/v1/executions/${first}/events`
  const [own, followed, chat] = await Promise.all([
    openStream(server, path, { token: starter.token }),
    openStream(server, path, { token: reader.token }),
    openStream(server, `/api/v1/chats/${chatId}/events`, { token: reader.token }),
  ])
  for (const stream of [own, followed, chat]) while (!(await stream.next())?.text.includes('One '));
  // The client of a door would take the rest for a complete answer.
  model.script({ tokens: ['One ', hidden.promise, 'two'] })
  const door = await fetch(`${server.url}/openai/v1/chat/completions`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${starter.token}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ model: agent, stream: true, messages: [{ role: 'user', content: 'Hi' }] }),
  })

  await as(owner, 'PATCH', `/agents/${agent}`, { visibility: 'private' })
  clock.advance(5_000)
  // The stream of the chat looks at all of its runs before it shows another one.
  model.script({ tokens: [later.promise, 'three'] })
  const second = (await as(starter, 'POST', `/chats/${chatId}/messages`, { message: 'Hi', background: true })).body
    .executionId
  expect((await chat.next())?.data).toMatchObject({ executionId: second })
  hidden.resolve()
  expect((await own.rest()).map(({ event }) => event)).toEqual(['result'])
  expect(await followed.rest()).toEqual([])
  expect(await door.text()).toMatch(/"Execution not found\b.*\n\n$/)
  later.resolve()
  const shown = []
  for (let event = await chat.next(); event && event.event !== 'result'; event = await chat.next()) shown.push(event)
  expect(shown.map(({ data }) => data.executionId)).not.toContain(first)
  expect(own.text + chat.text).not.toContain('two')
  await chat.close()
})

/** One stream of events per API without a reader: all buffers in between are full. */
async function neverRead(executionId: string, token: string) {
  const streams = await Promise.all(Object.values(STREAMS).map((stream) => unread(server, stream(executionId), token)))
  for (const { res } of streams) await stalled(res)
  return {
    answers: streams.map(({ res }) => res),
    [Symbol.dispose]: () => {
      for (const { socket } of streams) socket.destroy()
    },
  }
}

it.skipIf(onPostgres)('a stream without a reader ends with its token on every API', async () => {
  const { db } = server.service.deps
  const { executionId, end } = await hanging(6)
  const { token, tokenId } = await server.member()
  using streams = await neverRead(executionId, token)
  await db.token.update({ where: { id: tokenId }, data: { revokedAt: new Date() } })
  await expect.poll(() => streams.answers.map((res) => res.closed)).toEqual([true, true, true])
  end()
})

it.skipIf(onPostgres)('a client that stops reading is disconnected after a while on every API', async () => {
  const { executionId, end } = await hanging(6)
  const { token } = await server.member()
  using streams = await neverRead(executionId, token)
  // Half a minute passes after the server noticed the full buffers.
  const now = performance.now.bind(performance)
  await new Promise((resolve) => setTimeout(resolve, 1_500))
  using _ = vi.spyOn(performance, 'now').mockImplementation(() => now() + 30_000)
  await expect.poll(() => streams.answers.map((res) => res.closed)).toEqual([true, true, true])
  end()
})
