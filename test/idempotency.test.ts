import { beforeEach, describe, expect, test } from 'vitest'
import type { Tx } from '../src/db/client.ts'
import { findRoute } from '../src/http/routes.ts'
import {
  idempotentLease,
  inTransaction,
  type Keep,
  namesNothing,
  type UnderWay,
  whenCommitted,
} from '../src/idempotency.ts'
import { appRouter } from '../src/router.ts'
import { violations } from './engine/invariants.ts'
import { gates, startLab } from './engine/lab.ts'
import { times } from './support/postgres-shared.ts'
import { type Answer, type RequestOptions, request } from './support/rest.ts'
import { openStream } from './support/sse.ts'
import { createTrigger, dropTrigger } from './support/trigger.ts'
import { use } from './support/use.ts'

const ROUNDS = times(10)

const lab = await use(startLab({ DRAIN_TIMEOUT: '0.1', ALLOW_NEW_ORGANIZATIONS: 'true' }))
const member = await lab.server.member()
const admin = await lab.server.member({ role: 'admin' })
beforeEach(() => {
  lab.model.fallback = { tokens: 'Done.' }
})

const hello = { message: 'Hello' }

let keys = 0
const newKey = () => `key ${++keys}`

const post = (path: string, key: string | null, options: RequestOptions = {}): Promise<Answer> =>
  request(lab.server, 'POST', path, {
    ...options,
    headers: { ...(key !== null && { 'Idempotency-Key': key }), ...options.headers },
  })

const isReplay = ({ headers }: Answer) => headers.get('idempotent-replayed') === 'true'
const plain = ({ requestId: _, ...body }: Answer['body']) => body

const executePath = (agentId = lab.agentId) => `/api/v1/agents/${agentId}/execute`

/** Counts effects: every mutation leaves an audit event, and a cancel leaves a cancelled run. */
const effects = async () =>
  (await lab.db.auditEvent.count({ where: { action: { notIn: ['mission.complete', 'execution.cancel'] } } })) +
  (await lab.db.execution.count({ where: { status: 'cancelled' } }))

/** Prepares a POST, and returns its path and body; `other` is another valid body. */
type Case = () => Promise<{ path: string; body?: object | FormData; other?: object | FormData }>

type By = { token?: string; agentId?: string }

const create = async (path: string, body: object, { token = lab.server.token }: By = {}): Promise<string> =>
  (await post(path, null, { body, token })).body.id
const space = (by?: By) => create('/api/v1/spaces', { name: 'Lab' }, by)
const task = (by?: By) => create('/api/v1/tasks', { title: 'Tidy up', assignTo: by?.agentId ?? lab.agentId }, by)
const mission = (by?: By) =>
  create('/api/v1/missions', { title: 'News', goal: 'Sum up.', agentId: by?.agentId ?? lab.agentId }, by)

async function hangingRun({ token = lab.server.token, agentId }: By = {}): Promise<string> {
  lab.model.script({ tokens: ['one '], end: 'hang' })
  const asked = lab.model.request(lab.model.requests.length)
  const { body } = await post(executePath(agentId), null, { token, body: { message: 'Hello', background: true } })
  // A run that is cancelled before its request would leave the next run hanging.
  await asked
  return body.executionId
}

/** Runs an agent to the end. Returns the run with its chat. */
const run = async ({ token = lab.server.token, agentId }: By = {}) =>
  (await post(executePath(agentId), null, { token, body: hello })).body

/** Attaches a skill to an agent or a space, and changes the skill. Returns the path that accepts the newer version. */
async function updatable(path: string, { token = lab.server.token }: By = {}): Promise<string> {
  const skill = { name: `skill-${++keys}`, description: 'd', prompt: 'p', visibility: 'organization' }
  const skillId = await create('/api/v1/skills', skill, { token })
  const attach = path.includes('/spaces/') ? { addSkills: [skillId] } : { skillIds: [skillId] }
  for (const [at, body] of Object.entries({ [path]: attach, [`/api/v1/skills/${skillId}`]: { prompt: 'q' } })) {
    expect((await request(lab.server, 'PATCH', at, { body, token })).status).toBe(200)
  }
  return `${path}/skills/${skillId}/update`
}

/** Creates a former member who owns a chat. */
async function formerMember(): Promise<string> {
  const { userId, organizationId, token } = await lab.server.member({ email: `former-${++keys}@example.com` })
  await create('/api/v1/chats', { title: 'Left behind' }, { token })
  await lab.db.membership.deleteMany({ where: { organizationId, userId } })
  return userId
}

async function approval({ token = lab.server.token, agentId }: By = {}): Promise<string> {
  const { executionId, chatId } = (await post(executePath(agentId), null, { token, body: { message: 'Hello' } })).body
  const createdAt = lab.clock.now()
  const call = { step: 1, position: 0, toolUseId: 'a', tool: 'send', input: '{}' }
  const expiresAt = new Date(createdAt.getTime() + 3_600_000)
  const { organizationId } = lab.actor
  const data = { organizationId, executionId, chatId, ...call, status: 'pending', createdAt, expiresAt } as const
  return (await lab.db.approval.create({ data: { id: newKey().replace(' ', ''), ...data } })).id
}

/** A service account of the lab's organization. */
const serviceAccount = (): Promise<string> =>
  create(`/api/v1/organizations/${lab.actor.organizationId}/service-accounts`, { name: 'CI', role: 'member' })

const file = (text: string) => {
  const form = new FormData()
  form.set('file', new File([text], 'notes.txt'))
  return form
}

const hook = { url: 'https://hooks.invalid/', events: ['agent.archived'] }

/** Creates a webhook. Returns its path. */
async function webhook(): Promise<string> {
  const { body } = await post('/api/v1/webhooks', null, { body: hook })
  return `/api/v1/webhooks/${body.webhook.id}`
}

/** Creates a failed delivery. Returns its path. */
async function delivery(): Promise<string> {
  const path = await webhook()
  const now = lab.clock.now()
  const data = { organizationId: lab.actor.organizationId, webhookId: path.split('/').at(-1)!, createdAt: now }
  const event = { position: 0, sequence: 0, event: 'webhook.test', subjectId: 'x', status: 'failed' } as const
  const { id } = await lab.db.webhookDelivery.create({ data: { id: newKey().replace(' ', ''), ...data, ...event } })
  return `${path}/deliveries/${id}`
}

/** Every POST route. A missing case fails below. */
const CASES: Record<string, Case> = {
  'agents.create': async () => ({
    path: '/api/v1/agents',
    body: { name: 'Bo', systemPrompt: 'You are Bo.' },
    other: { name: 'Bo', systemPrompt: 'You are not.' },
  }),
  'agents.updateSkill': async () => ({ path: await updatable(`/api/v1/agents/${await create('/api/v1/agents', bo)}`) }),
  'agents.execute': async () => ({ path: executePath(), body: { message: 'Hello' }, other: { message: 'Bye' } }),
  'approvals.approve': async () => ({
    path: `/api/v1/approvals/${await approval()}/approve`,
    body: {},
    other: { reason: 'Yes' },
  }),
  'approvals.deny': async () => ({
    path: `/api/v1/approvals/${await approval()}/deny`,
    body: {},
    other: { reason: 'No' },
  }),
  'chats.create': async () => ({ path: '/api/v1/chats', body: { title: 'A' }, other: { title: 'B' } }),
  'chats.send': async () => ({
    path: `/api/v1/chats/${(await run()).chatId}/messages`,
    body: hello,
    other: { message: 'Bye' },
  }),
  'client.init': async () => ({
    path: `/api/spaces/${await space()}/init`,
    body: { type: 'readme' },
    other: { type: 'empty' },
  }),
  'client.environment': async () => ({
    path: `/api/spaces/${await space()}/environment`,
    body: { environmentVariables: { NAME: 'value' } },
    other: { environmentVariables: { NAME: 'other' } },
  }),
  'client.execute': async () => ({
    path: '/api/agent/execute',
    body: { characterId: lab.agentId, message: 'Hello' },
    other: { characterId: lab.agentId, message: 'Bye' },
  }),
  'client.createToken': async () => ({ path: '/api/tokens/create', body: { name: 'ci' }, other: { name: 'other' } }),
  'client.revokeToken': async () => ({ path: `/api/tokens/${await create('/api/v1/keys', { name: 'ci' })}/revoke` }),
  'client.writeFile': async () => {
    const spaceId = await space()
    const named = (content: string) => ({ spaceId, path: 'a.txt', content })
    return { path: '/api/files/write', body: named('a'), other: named('b') }
  },
  'client.deleteFile': async () => {
    const spaceId = await space()
    await post('/api/files/write', null, { body: { spaceId, path: 'a.txt', content: 'a' } })
    return { path: '/api/files/delete', body: { spaceId, path: 'a.txt' }, other: { spaceId, path: 'b.txt' } }
  },
  'executions.create': async () => ({
    path: '/api/v1/execute',
    body: { agentId: lab.agentId, message: 'Hello' },
    other: { agentId: lab.agentId, message: 'Bye' },
  }),
  'executions.cancel': async () => ({ path: `/api/v1/executions/${await hangingRun()}/cancel` }),
  'executions.rerun': async () => ({ path: `/api/v1/executions/${(await run()).executionId}/rerun`, body: {} }),
  'keys.create': async () => ({ path: '/api/v1/keys', body: { name: 'ci' }, other: { name: 'other' } }),
  'media.create': async () => ({ path: '/api/v1/media', body: file('one'), other: file('two') }),
  'missions.create': async () => ({
    path: '/api/v1/missions',
    body: { title: 'A', goal: 'Do it.', agentId: lab.agentId },
    other: { title: 'B', goal: 'Do it.', agentId: lab.agentId },
  }),
  'missions.run': async () => ({ path: `/api/v1/missions/${await mission()}/run` }),
  'missions.pause': async () => ({ path: `/api/v1/missions/${await mission()}/pause` }),
  'missions.resume': async () => {
    const id = await mission()
    await post(`/api/v1/missions/${id}/pause`, null)
    return { path: `/api/v1/missions/${id}/resume` }
  },
  'organizations.create': async () => ({
    path: '/api/v1/organizations',
    body: { name: 'Acme' },
    other: { name: 'Other' },
  }),
  'organizations.createInvitation': async () => ({
    path: `/api/v1/organizations/${lab.actor.organizationId}/invitations`,
    body: { email: `guest-${++keys}@example.com`, role: 'member' },
    other: { email: `guest-${++keys}@example.com`, role: 'admin' },
  }),
  'organizations.createServiceAccount': async () => ({
    path: `/api/v1/organizations/${lab.actor.organizationId}/service-accounts`,
    body: { name: 'CI', role: 'member' },
    other: { name: 'CD', role: 'member' },
  }),
  'organizations.createServiceKey': async () => ({
    path: `/api/v1/organizations/${lab.actor.organizationId}/service-accounts/${await serviceAccount()}/keys`,
    body: { name: 'CI' },
    other: { name: 'CD' },
  }),
  'organizations.takeOver': async () => ({
    path: `/api/v1/organizations/${lab.actor.organizationId}/former-members/${await formerMember()}/take-over`,
  }),
  'secrets.set': async () => ({
    path: `/api/v1/spaces/${await space()}/secrets`,
    body: { secrets: { NAME: 'value' } },
    other: { secrets: { NAME: 'other' } },
  }),
  'secrets.setEnv': async () => ({
    path: `/api/v1/organizations/${lab.actor.organizationId}/env`,
    body: { secrets: { NAME: 'value' } },
    other: { secrets: { NAME: 'other' } },
  }),
  'skills.create': async () => ({
    path: '/api/v1/skills',
    body: { name: `skill-${++keys}`, description: 'd', prompt: 'p' },
    other: { name: `skill-${++keys}`, description: 'd', prompt: 'q' },
  }),
  'mcps.create': async () => ({
    path: '/api/v1/mcps',
    body: { name: 'A', url: 'https://mcp.example.com', credentials: { KEY: { value: 'x' } } },
    other: { name: 'A', url: 'https://mcp.example.com', credentials: { KEY: { value: 'y' } } },
  }),
  'spaces.create': async () => ({ path: '/api/v1/spaces', body: { name: 'A' }, other: { name: 'B' } }),
  'spaces.updateSkill': async () => ({ path: await updatable(`/api/v1/spaces/${await space()}`) }),
  'tasks.create': async () => ({ path: '/api/v1/tasks', body: { title: 'A' }, other: { title: 'B' } }),
  'tasks.claim': async () => ({
    path: `/api/v1/tasks/${await create('/api/v1/tasks', { title: 'Free' })}/claim`,
    body: {},
    other: { agentId: lab.agentId },
  }),
  'tasks.execute': async () => ({
    path: `/api/v1/tasks/${await task()}/execute`,
    body: {},
    other: { background: true },
  }),
  'webhooks.create': async () => ({ path: '/api/v1/webhooks', body: hook, other: { ...hook, format: 'slack' } }),
  'webhooks.rotate': async () => ({ path: `${await webhook()}/rotate` }),
  'webhooks.test': async () => ({ path: `${await webhook()}/test` }),
  'webhooks.replayDelivery': async () => ({ path: `${await delivery()}/replay` }),
  'webhooks.replay': async () => ({
    path: `${await webhook()}/replay`,
    body: { since: '2026-11-24T00:00:00Z' },
    other: { since: '2026-11-25T00:00:00Z' },
  }),
}

/** Sends the request of a case as JSON, or as a form. */
async function send(path: string, key: string | null, body: object | undefined, token?: string): Promise<Answer> {
  if (!(body instanceof FormData)) return post(path, key, { ...(body && { body }), ...(token && { token }) })
  const headers = {
    Authorization: `Bearer ${token ?? lab.server.token}`,
    ...(key !== null && { 'Idempotency-Key': key }),
  }
  const response = await fetch(lab.server.url + path, { method: 'POST', headers, body })
  return { status: response.status, headers: response.headers, body: await response.json() }
}

type Procedure = { _def: { meta?: { openapi?: { method: string; path: string }; admits?: string } } }
const posts = Object.entries(appRouter._def.procedures as unknown as Record<string, Procedure>)
  // Sign-in and changes of passwords accept no key: their answers set a cookie or are valid for a moment.
  .filter(([, { _def }]) => _def.meta?.openapi?.method === 'POST' && !_def.meta.admits)
  .map(([name]) => name)
  // A preview, and a page that begins a sign-in, change nothing, so there is nothing to repeat.
  .filter((name) => name !== 'missions.preview' && name !== 'mcps.connect')

test('every POST route of REST is tried here', () => {
  // The upload is no procedure, because its body is not JSON.
  expect(Object.keys(CASES).sort()).toEqual([...posts, 'media.create'].sort())
})

describe.each(Object.entries(CASES))('POST %s', (name, prepare) => {
  test.runIf(posts.includes(name))('happens once per key over tRPC, and REST repeats the answer', async () => {
    const { path, body = {} } = await prepare()
    const { parameters } = findRoute('POST', path)!
    const key = newKey()
    const first = await post(`/trpc/${name}`, key, { body: { ...body, ...parameters } })
    expect([first.status, isReplay(first)]).toEqual([200, false])
    const done = await effects()
    const second = await post(`/trpc/${name}`, key, { body: { ...body, ...parameters } })
    expect([second.status, isReplay(second)]).toEqual([200, true])
    const overRest = await send(path, key, body)
    expect([overRest.status, isReplay(overRest)]).toEqual([200, true])
    expect(plain(overRest.body)).toEqual(second.body.result.data)
    expect(await effects()).toBe(done)
  })

  test('happens once per key, and the repetition gets the first answer', async () => {
    const { path, body, other } = await prepare()
    const key = newKey()
    const before = await effects()
    const first = await send(path, key, body)
    expect([first.status, isReplay(first)]).toEqual([200, false])
    const done = await effects()
    expect(done).toBeGreaterThan(before)
    const second = await send(path, key, body)
    expect([second.status, isReplay(second)]).toEqual([200, true])
    const { token = null, url = null, secret = null, ...rest } = plain(first.body)
    expect(plain(second.body)).toEqual({
      ...rest,
      ...(url !== null && { url: null }),
      ...(token !== null && { token: null }),
      ...(secret !== null && { secret: null }),
    })
    if (other) {
      const refused = await send(path, key, other)
      expect(refused.status).toBe(422)
      expect(plain(refused.body)).toEqual({
        error: true,
        statusCode: 422,
        statusMessage: 'Unprocessable Entity',
        code: 'idempotency_conflict',
        message: 'Idempotency-Key was used with another request',
        detail: expect.any(String),
      })
    }
    expect(await effects()).toBe(done)
  })

  test('sent ten times at once with a key, happens once', async () => {
    const { path, body } = await prepare()
    const key = newKey()
    const before = await effects()
    const once = await effectsOfOne(prepare)
    const middle = await effects()
    const answers = await Promise.all(Array.from({ length: 10 }, () => send(path, key, body)))
    const good = answers.filter(({ status }) => status === 200)
    expect(good.length).toBeGreaterThan(0)
    for (const { status, body } of answers) {
      if (status !== 200) expect([status, body.message]).toEqual([409, IN_PROGRESS])
    }
    expect(good.filter((answer) => !isReplay(answer))).toHaveLength(1)
    expect((await effects()) - middle).toBe(once)
    expect(before).toBeLessThan(middle)
  })

  test('refuses an invalid key after authentication, and before any effect', async () => {
    const { path, body } = await prepare()
    const before = await effects()
    for (const key of ['', 'x'.repeat(256), 'caf\u00e9', 'a\tb']) {
      const { status, body: error } = await send(path, key, body)
      expect([status, error.message]).toEqual([
        400,
        'Invalid Idempotency-Key. Must be 1-255 printable ASCII characters',
      ])
    }
    expect((await send(path, '', body, 'mst_nobody')).status).toBe(401)
    expect(await effects()).toBe(before)
  })

  test('authenticates first, also for a replay', async () => {
    const { path, body } = await prepare()
    const key = newKey()
    expect((await send(path, key, body)).status).toBe(200)
    expect((await send(path, key, body, 'mst_nobody')).status).toBe(401)
    const reader = await lab.server.member({ scopes: ['usage:read'] })
    expect((await send(path, key, body, reader.token)).status).toBe(403)
  })
})

type Sent = [path: string, body?: object]

/** Prepares a request that names another user's agent, which becomes private, or a space, which is deleted. */
type Naming = (by: Required<By> & { spaceId: string }) => Sent | Promise<Sent>

/** Requests of admins that change another member's things, or decide for another member's run. */
const OF_ADMINS = ['agents.updateSkill', 'approvals.approve', 'approvals.deny']

const [NO_AGENT, NO_SPACE, NO_MISSION] = ['Agent not found', 'Space not found', 'Mission not found']
const bo = { name: 'Bo', systemPrompt: 'You are Bo.' }
const news = { title: 'News', goal: 'Sum up.' }

const NAMING: [procedure: string, refusal: string, naming: Naming][] = [
  ['agents.create', NO_AGENT, ({ agentId }) => ['/api/v1/agents', { ...bo, basedOnAgentId: agentId }]],
  ['agents.create', 'Invalid subagentIds', ({ agentId }) => ['/api/v1/agents', { ...bo, subagentIds: [agentId] }]],
  ['agents.updateSkill', NO_AGENT, async ({ agentId }) => [await updatable(`/api/v1/agents/${agentId}`)]],
  ['agents.execute', NO_AGENT, ({ agentId }) => [executePath(agentId), hello]],
  ['agents.execute', NO_SPACE, ({ spaceId }) => [executePath(), { ...hello, spaceId }]],
  [
    'approvals.approve',
    'Approval not found',
    async ({ agentId }) => [`/api/v1/approvals/${await approval({ agentId })}/approve`],
  ],
  [
    'approvals.deny',
    'Approval not found',
    async ({ agentId }) => [`/api/v1/approvals/${await approval({ agentId })}/deny`],
  ],
  ['chats.create', NO_AGENT, ({ agentId }) => ['/api/v1/chats', { agentId }]],
  ['chats.create', NO_SPACE, ({ spaceId }) => ['/api/v1/chats', { spaceId }]],
  ['chats.send', 'Chat not found', async (by) => [`/api/v1/chats/${(await run(by)).chatId}/messages`, hello]],
  [
    'executions.rerun',
    'Execution not found',
    async (by) => [`/api/v1/executions/${(await run(by)).executionId}/rerun`, {}],
  ],
  ['client.init', NO_SPACE, ({ spaceId }) => [`/api/spaces/${spaceId}/init`, { type: 'readme' }]],
  [
    'client.environment',
    NO_SPACE,
    ({ spaceId }) => [`/api/spaces/${spaceId}/environment`, { environmentVariables: { NAME: 'value' } }],
  ],
  ['client.execute', NO_AGENT, ({ agentId }) => ['/api/agent/execute', { ...hello, characterId: agentId }]],
  [
    'client.execute',
    NO_SPACE,
    ({ spaceId }) => ['/api/agent/execute', { ...hello, characterId: lab.agentId, spaceId }],
  ],
  ['missions.create', NO_AGENT, ({ agentId }) => ['/api/v1/missions', { ...news, agentId }]],
  ['missions.create', NO_SPACE, ({ spaceId }) => ['/api/v1/missions', { ...news, agentId: lab.agentId, spaceId }]],
  ['missions.run', NO_MISSION, async (by) => [`/api/v1/missions/${await mission(by)}/run`]],
  ['missions.pause', NO_MISSION, async (by) => [`/api/v1/missions/${await mission(by)}/pause`]],
  [
    'missions.resume',
    NO_MISSION,
    async (by) => {
      const path = `/api/v1/missions/${await mission(by)}`
      await post(`${path}/pause`, null, by)
      return [`${path}/resume`]
    },
  ],
  ['secrets.set', NO_SPACE, ({ spaceId }) => [`/api/v1/spaces/${spaceId}/secrets`, { secrets: { NAME: 'value' } }]],
  [
    'spaces.updateSkill',
    NO_SPACE,
    async ({ token, spaceId }) => [await updatable(`/api/v1/spaces/${spaceId}`, { token })],
  ],
  ['spaces.create', 'Invalid addAgents', ({ agentId }) => ['/api/v1/spaces', { name: 'A', addAgents: [agentId] }]],
  [
    'tasks.create',
    'Invalid assignTo. Must be an agent or user id of this organization',
    ({ agentId }) => ['/api/v1/tasks', { title: 'A', assignTo: agentId }],
  ],
  ['tasks.create', NO_SPACE, ({ spaceId }) => ['/api/v1/tasks', { title: 'A', spaceId }]],
  [
    'tasks.claim',
    NO_AGENT,
    async ({ agentId }) => [`/api/v1/tasks/${await create('/api/v1/tasks', { title: 'Free' })}/claim`, { agentId }],
  ],
  ['executions.create', NO_AGENT, ({ agentId }) => ['/api/v1/execute', { ...hello, agentId }]],
  ['client.writeFile', NO_SPACE, ({ spaceId }) => ['/api/files/write', { spaceId, path: 'a.txt', content: 'a' }]],
  [
    'client.deleteFile',
    NO_SPACE,
    async ({ token, spaceId }) => {
      await post('/api/files/write', null, { token, body: { spaceId, path: 'a.txt', content: 'a' } })
      return ['/api/files/delete', { spaceId, path: 'a.txt' }]
    },
  ],
  ['tasks.execute', NO_AGENT, async (by) => [`/api/v1/tasks/${await task(by)}/execute`, {}]],
]

/**
 * Keys have scopes, see below. `setEnv` and `takeOver` accept only the caller's own organization. Callers who could
 * once cancel a run can always do so (contract-2.md section 8.3), see below.
 */
const NAMING_NOTHING = [
  'client.createToken',
  'client.revokeToken',
  'executions.cancel',
  'keys.create',
  'mcps.create',
  'organizations.create',
  'organizations.createInvitation',
  'organizations.createServiceAccount',
  'organizations.createServiceKey',
  'organizations.takeOver',
  'secrets.setEnv',
  'skills.create',
  'webhooks.create',
  'webhooks.replay',
  'webhooks.replayDelivery',
  'webhooks.rotate',
  'webhooks.test',
]

test('the table has every POST that refers to a resource', () => {
  expect([...new Set(NAMING.map(([procedure]) => procedure)), ...NAMING_NOTHING].sort()).toEqual(posts.sort())
})

test.each(NAMING)(
  'POST %s is not repeated for a caller who lost access to its resource: %s',
  async (procedure, refusal, naming) => {
    const { token } = OF_ADMINS.includes(procedure) ? admin : member
    const [agentId, spaceId] = [await create('/api/v1/agents', bo), await space({ token })]
    const [path, body] = await naming({ token, agentId, spaceId })
    const key = newKey()
    expect((await send(path, key, body, token)).status).toBe(200)
    expect(isReplay(await send(path, key, body, token))).toBe(true)
    await request(lab.server, 'PATCH', `/api/v1/agents/${agentId}`, { body: { visibility: 'private' } })
    await request(lab.server, 'DELETE', `/api/v1/spaces/${spaceId}`)
    const refused = await send(path, key, body, token)
    const status = refusal.endsWith('not found') ? 404 : 400
    expect([refused.status, refused.body.message, isReplay(refused)]).toEqual([status, refusal, false])
  },
)

test.each([
  ['executions.cancel', async (by: By) => `/api/v1/executions/${await hangingRun(by)}/cancel`],
  ['approvals.approve', async (by: By) => `/api/v1/approvals/${await approval(by)}/approve`],
  ['approvals.deny', async (by: By) => `/api/v1/approvals/${await approval(by)}/deny`],
])("POST %s is repeated for a caller's run that became unreadable, without its texts", async (_, prepare) => {
  const { token } = member
  const agentId = await create('/api/v1/agents', bo)
  const [path, key] = [await prepare({ token, agentId }), newKey()]
  const first = await send(path, key, undefined, token)
  expect(JSON.stringify(first.body)).toMatch(/"(Hello|Bo)"/)
  await request(lab.server, 'PATCH', `/api/v1/agents/${agentId}`, { body: { visibility: 'private' } })
  const second = await send(path, key, undefined, token)
  expect([second.status, isReplay(second)]).toEqual([200, true])
  expect(JSON.stringify(second.body)).not.toMatch(/"(Hello|Bo)"/)
})

test('taking over is not repeated for a former owner', async () => {
  const owner = await lab.server.member({ role: 'owner' })
  const path = `/api/v1/organizations/${owner.organizationId}/former-members/${await formerMember()}/take-over`
  const key = newKey()
  expect((await send(path, key, undefined, owner.token)).status).toBe(200)
  const { organizationId, userId } = owner
  await lab.db.membership.updateMany({ where: { organizationId, userId }, data: { role: 'member' } })
  lab.server.service.deps.bus.publish('token', [owner.tokenId])
  const refused = await send(path, key, undefined, owner.token)
  expect([refused.status, isReplay(refused)]).toEqual([403, false])
})

const IN_PROGRESS = 'A request with this Idempotency-Key is in progress'

/** Number of audit events of one such request. */
async function effectsOfOne(prepare: Case): Promise<number> {
  const { path, body } = await prepare()
  const before = await effects()
  expect((await send(path, newKey(), body)).status).toBe(200)
  return (await effects()) - before
}

test(`50 parallel POSTs with one key have one effect and equal answers, in ${ROUNDS} rounds each`, async () => {
  const kinds = [
    { path: '/api/v1/tasks', body: { title: 'A' }, idOf: (body: any) => body.id, count: () => lab.db.task.count() },
    {
      path: executePath(),
      body: { message: 'Hello' },
      idOf: (body: any) => body.executionId,
      count: () => lab.db.execution.count(),
    },
  ]
  for (const { path, body, idOf, count } of kinds) {
    for (let round = 0; round < ROUNDS; round++) {
      const key = newKey()
      const before = await count()
      const answers = await Promise.all(Array.from({ length: 50 }, () => post(path, key, { body })))
      expect(new Set(answers.map(({ status, body }) => `${status} ${idOf(body)}`)).size).toBe(1)
      expect(answers[0]!.status).toBe(200)
      expect(answers.filter(isReplay)).toHaveLength(49)
      expect(await count()).toBe(before + 1)
    }
  }
})

describe('a key belongs to', () => {
  const body = { title: 'Mine' }
  const create = async (key: string, token: string, path = '/api/v1/tasks') => {
    const answer = await post(path, key, { body, token })
    expect([answer.status, isReplay(answer)]).toEqual([200, false])
    return answer.body.id
  }

  test('a user, an organization and a path, and means another request under others', async () => {
    const key = newKey()
    const { token } = lab.server
    const colleague = await lab.server.member()
    const elsewhere = await lab.server.member({ organization: 'Elsewhere', email: 'same@example.com' })
    const here = await lab.server.member({ email: 'same@example.com' })
    expect(here.userId).toBe(elsewhere.userId)
    const ids = [
      await create(key, token),
      await create(key, colleague.token),
      await create(key, elsewhere.token),
      await create(key, here.token),
      await create(key, token, '/api/v1/chats'),
    ]
    expect(new Set(ids).size).toBe(5)
    const tasks = [await task(), await task()]
    for (const id of tasks) {
      const answer = await post(`/api/v1/tasks/${id}/execute`, key, { body: {} })
      expect([answer.status, isReplay(answer)]).toEqual([200, false])
    }
  })

  test("the user, so that another of the user's tokens gets the replay", async () => {
    const key = newKey()
    const email = 'two-tokens@example.com'
    const first = await lab.server.member({ email })
    const second = await lab.server.member({ email })
    const id = await create(key, first.token)
    const answer = await post('/api/v1/tasks', key, { body, token: second.token })
    expect([answer.body.id, isReplay(answer)]).toEqual([id, true])
  })

  test('the body in any order of its fields, without ignored fields', async () => {
    const key = newKey()
    const first = await post('/api/v1/tasks', key, { body: '{"title":"A","priority":"low"}' })
    const same = await post('/api/v1/tasks', key, { body: '{ "priority": "low", "title": "A" }' })
    expect([same.body.id, isReplay(same)]).toEqual([first.body.id, true])
  })

  test('its method, and means another request under another one', async () => {
    const headers = { 'Idempotency-Key': newKey() }
    const path = `/api/v1/tasks/${await task()}`
    const answers = [
      await request(lab.server, 'PATCH', path, { body: { title: 'One' }, headers }),
      await request(lab.server, 'GET', path, { headers }),
      await request(lab.server, 'DELETE', path, { headers }),
    ]
    expect(answers.map((answer) => [answer.status, isReplay(answer)])).toEqual(Array(3).fill([200, false]))
  })

  test('its first 24 hours, and is new after them', async () => {
    await using other = await startLab()
    const send = () =>
      request(other.server, 'POST', '/api/v1/tasks', { body, headers: { 'Idempotency-Key': 'yesterday' } })
    const first = await send()
    other.clock.advance(24 * 3_600_000 - 60_000)
    expect((await send()).body.id).toBe(first.body.id)
    other.clock.advance(60_000)
    const answers = await Promise.all(Array.from({ length: 10 }, send))
    const ids = new Set(answers.map(({ body }) => body.id))
    expect([ids.size, ids.has(first.body.id)]).toEqual([1, false])
    expect(answers.filter(isReplay)).toHaveLength(9)
    expect(await other.db.task.count()).toBe(2)
  })
})

describe('a replay', () => {
  test('is refused to a caller whose membership or token has ended', async () => {
    const key = newKey()
    const { token, tokenId, userId, organizationId } = await lab.server.member()
    const send = () => post('/api/v1/tasks', key, { body: { title: 'A' }, token })
    expect((await send()).status).toBe(200)
    await lab.db.membership.deleteMany({ where: { userId, organizationId } })
    await lab.server.forgetActors()
    expect((await send()).status).toBe(403)
    await lab.db.token.update({ where: { id: tokenId }, data: { revokedAt: lab.clock.now() } })
    expect((await send()).status).toBe(401)
  })

  test('a replay of a key is 403 for a token without the scopes of the key', async () => {
    const [key, email] = [newKey(), 'two-scopes@example.com']
    const full = await lab.server.member({ email })
    const narrow = await lab.server.member({ email, scopes: ['keys:write'] })
    const body = { name: 'all', scopes: ['*'] }
    expect((await post('/api/v1/keys', key, { body, token: full.token })).status).toBe(200)
    expect(isReplay(await post('/api/v1/keys', key, { body, token: full.token }))).toBe(true)
    const refused = await post('/api/v1/keys', key, { body, token: narrow.token })
    expect([refused.status, isReplay(refused)]).toEqual([403, false])
  })

  test('omits the secret token, and the record contains no token, key or body', async () => {
    const key = `secret-key-${newKey()}`
    const body = { name: 'a name that is said once', scopes: ['tasks:read'] }
    const first = await post('/api/v1/keys', key, { body })
    const second = await post('/api/v1/keys', key, { body })
    expect(first.body.token).toMatch(/^mst_/)
    expect(second.body.token).toBeNull()
    expect({ ...plain(first.body), token: null }).toEqual(plain(second.body))
    await post(executePath(), key, { body: { message: 'a message that is said once' } })
    await post(`/api/v1/organizations/${lab.actor.organizationId}/env`, key, {
      body: { secrets: { NAME: 'a value that is said once' } },
    })
    const stored = JSON.stringify(await lab.db.idempotencyRecord.findMany())
    expect(stored).not.toContain(first.body.token)
    expect(stored).not.toContain(first.body.token.slice(4, 34))
    expect(stored).not.toContain(key)
    expect(stored).not.toContain('a message that is said once')
    expect(stored).not.toContain('a value that is said once')
  })
})

describe('nothing is stored', () => {
  const records = () => lab.db.idempotencyRecord.count()

  test.each([
    ['a wrong body', '/api/v1/tasks', { title: '' }, 400],
    ['malformed JSON', '/api/v1/tasks', '{"title":', 400],
    ['an unknown agent', '/api/v1/agents/nobody/execute', { message: 'Hello' }, 404],
    ['an unknown execution', '/api/v1/executions/nothing/cancel', {}, 404],
    ['an unknown path', '/api/v1/nowhere', {}, 404],
  ])('nothing is stored of %s, and a valid request may use the same key', async (_, path, body, status) => {
    const before = await records()
    const key = newKey()
    expect((await post(path, key, { body })).status).toBe(status)
    expect((await post('/api/v1/tasks', key, { body: { title: 'A' } })).status).toBe(200)
    expect(await records()).toBe(before + 1)
  })

  test('nothing is stored of a request that is impossible now, such as a run in a busy session', async () => {
    const before = await records()
    const { body } = await post(executePath(), null, { body: { message: 'Hello' } })
    expect((await post(`/api/v1/executions/${body.executionId}/cancel`, newKey())).status).toBe(400)
    const running = await lab.row(await hangingRun())
    const busy = { message: 'Hello', sessionId: running.sessionId, onBusy: 'reject' }
    const key = newKey()
    expect((await post(executePath(), key, { body: busy })).status).toBe(409)
    expect(await records()).toBe(before)
    await lab.engine.cancel(running, lab.actor)
    const later = await post(executePath(), key, { body: busy })
    expect([later.status, isReplay(later)]).toEqual([200, false])
  })

  test('nothing is stored of an internal failure, whose effect is undone, and the retry succeeds', async () => {
    const before = await records()
    const tasks = await lab.db.task.count()
    await createTrigger(lab.db, {
      name: '_broken',
      event: 'BEFORE INSERT',
      table: 'AuditEvent',
      when: `NEW."action" = 'task.create'`,
      effect: 'INSERT INTO "Token" ("id") VALUES (NULL)',
    })
    const key = newKey()
    const body = { title: 'A' }
    expect((await post('/api/v1/tasks', key, { body })).status).toBe(500)
    expect([await records(), await lab.db.task.count()]).toEqual([before, tasks])
    await dropTrigger(lab.db, '_broken')
    const retry = await post('/api/v1/tasks', key, { body })
    expect([retry.status, isReplay(retry)]).toEqual([200, false])
  })
})

describe('execute with a key', () => {
  const conversation = async () => {
    const { body } = await post(executePath(), null, { body: { message: 'Begin' } })
    return { sessionId: body.sessionId, chatId: body.chatId }
  }

  test('joins its active run, as an answer, in the background and as a stream from the start', async () => {
    const open = gates(lab)
    const key = newKey()
    const body = { message: newKey() }
    const asked = lab.model.requests.length
    const first = post(executePath(), key, { body })
    await lab.model.request(asked)
    const second = post(executePath(), key, { body })
    await expect
      .poll(() => lab.db.idempotencyRecord.count({ where: { executionId: { not: null } } }))
      .toBeGreaterThan(0)
    open(body.message)
    const answers = await Promise.all([first, second])
    expect(answers.map(({ status, body }) => [status, body.result])).toEqual([
      [200, 'Done.'],
      [200, 'Done.'],
    ])
    expect(answers[0]!.body.executionId).toBe(answers[1]!.body.executionId)
    expect(answers.filter(isReplay)).toHaveLength(1)
    expect(lab.model.requests).toHaveLength(asked + 1)

    const streamed = { message: newKey(), stream: true }
    const streamKey = newKey()
    const options = { method: 'POST', body: streamed, headers: { 'Idempotency-Key': streamKey } }
    const streams = [await openStream(lab.server, executePath(), options)]
    const [meta] = [await streams[0]!.next()]
    streams.push(await openStream(lab.server, executePath(), options))
    expect(await streams[1]!.next()).toEqual(meta)
    expect(streams.map(({ headers }) => headers.get('idempotent-replayed'))).toEqual([null, 'true'])
    open(streamed.message)
    const [one, two] = await Promise.all(streams.map((stream) => stream.rest()))
    expect(one).toEqual(two)
    const late = await openStream(lab.server, executePath(), options)
    expect(late.headers.get('idempotent-replayed')).toBe('true')
    expect((await late.rest()).slice(1)).toEqual(one)
  })

  test('execute with a key whose run was cancelled repeats that outcome', async () => {
    const key = newKey()
    const body = { message: newKey() }
    lab.model.script({ tokens: ['one '], end: 'hang' })
    const asked = lab.model.requests.length
    const first = post(executePath(), key, { body })
    await lab.model.request(asked)
    const where = { message: body.message }
    await expect.poll(() => lab.db.execution.count({ where })).toBe(1)
    await lab.engine.cancel(await lab.db.execution.findFirstOrThrow({ where }), lab.actor)
    for (const answer of [await first, await post(executePath(), key, { body })]) {
      expect([answer.status, answer.body.message]).toEqual([409, 'Execution was cancelled'])
    }
    expect(isReplay(await post(executePath(), key, { body }))).toBe(true)
    expect(await lab.db.execution.count({ where: { message: body.message } })).toBe(1)
  })

  test('execute with a key whose run failed starts a new one, once for ten concurrent retries', async () => {
    const key = newKey()
    const body = { message: newKey() }
    lab.model.script({ error: { status: 500 } })
    const first = await post(executePath(), key, { body })
    expect([first.status, first.body.message]).toEqual([500, 'Chat execution failed'])
    const retries = await Promise.all(Array.from({ length: 10 }, () => post(executePath(), key, { body })))
    expect(new Set(retries.map(({ status, body }) => `${status} ${body.executionId}`)).size).toBe(1)
    expect(retries.filter(isReplay)).toHaveLength(9)
    const rows = await lab.db.execution.findMany({ where: { message: body.message }, orderBy: { createdAt: 'asc' } })
    expect(rows.map(({ status }) => status)).toEqual(['failed', 'completed'])
    const again = await post(executePath(), key, { body })
    expect([again.body.executionId, isReplay(again)]).toEqual([rows[1]!.id, true])
  })

  test('20 executes with one key and onBusy interrupt interrupt earlier runs and never their own', async () => {
    for (let round = 0; round < 5; round++) {
      const { sessionId } = await conversation()
      lab.model.script({ tokens: ['one '], end: 'hang' })
      const asked = lab.model.requests.length
      const busy = await post(executePath(), null, { body: { message: 'busy', sessionId, background: true } })
      await lab.model.request(asked)
      const key = newKey()
      const body = { message: 'interrupts', sessionId, onBusy: 'interrupt' }
      const answers = await Promise.all(Array.from({ length: 20 }, () => post(executePath(), key, { body })))
      expect(new Set(answers.map(({ status, body }) => `${status} ${body.executionId}`)).size).toBe(1)
      expect(answers[0]!.status).toBe(200)
      expect((await lab.row(busy.body.executionId)).status).toBe('cancelled')
    }
  })

  test('20 executes with one key and onBusy reject run once, and every repetition joins the run', async () => {
    const { sessionId } = await conversation()
    const key = newKey()
    const body = { message: 'alone', sessionId, onBusy: 'reject' }
    const answers = await Promise.all(Array.from({ length: 20 }, () => post(executePath(), key, { body })))
    expect(new Set(answers.map(({ status, body }) => `${status} ${body.executionId}`)).size).toBe(1)
    expect(answers[0]!.status).toBe(200)
  })

  test('works the same over REST, tRPC and GraphQL, where the key is a field', async () => {
    const key = newKey()
    const input = { id: lab.agentId, message: newKey() }
    const overRest = await post(executePath(), key, { body: { message: input.message } })
    const overTrpc = await request(lab.server, 'POST', '/trpc/agents.execute', {
      body: { ...input, idempotencyKey: key },
    })
    expect(overTrpc.body.result.data.executionId).toBe(overRest.body.executionId)
    const query = `mutation ($input: ExecuteAgentInput!) { executeAgent(input: $input) { execution { id } } }`
    const body = { query, variables: { input: { ...input, idempotencyKey: key } } }
    const overGraphql = await request(lab.server, 'POST', '/graphql', { body })
    expect(overGraphql.body.data?.executeAgent.execution.id).toBe(overRest.body.executionId)
    const field = await post(executePath(), null, { body: { message: input.message, idempotencyKey: key } })
    expect([field.body.executionId, isReplay(field)]).toEqual([overRest.body.executionId, false])
    const other = await request(lab.server, 'POST', '/trpc/agents.execute', {
      body: { ...input, message: 'Other', idempotencyKey: key },
    })
    expect(other.body.error.data.httpStatus).toBe(422)
  })
})

test('a transaction that runs again after a deadlock has its later effects once', async () => {
  const { deps } = lab.server.service
  const twice = async (work: (tx: Tx) => Promise<unknown>) => {
    await deps.db.$transaction(work)
    return deps.db.$transaction(work)
  }
  const published: string[] = []
  const bus = { ...deps.bus, publish: (_: string, ids: readonly string[]) => void published.push(...ids) }
  const again = { ...deps, db: Object.assign(Object.create(deps.db), { $transaction: twice }), bus }
  let runs = 0
  const sent: number[] = []
  await inTransaction(again, async (own) => {
    const run = ++runs
    own.bus.publish('task', [`task ${run}`])
    await whenCommitted(own, () => void sent.push(run))
  })
  expect([runs, sent, published]).toEqual([2, [2], ['task 2']])
})

describe('a request in progress outside a transaction', () => {
  test('a request in progress beyond its minute does not take the answer of its successor', async () => {
    const { deps } = lab.server.service
    const once = (effect: () => Promise<{ by: string }>) =>
      idempotentLease(
        { deps, actor: lab.actor, idempotency: { key: 'slow', method: 'POST', path: '/', replayed: false } },
        {},
        async () => {},
        effect,
      )
    const resume = Promise.withResolvers<void>()
    const slow = once(() => resume.promise.then(() => ({ by: 'the first' })))
    await expect.poll(() => lab.db.idempotencyRecord.count({ where: { leaseUntil: { not: null } } })).toBe(1)
    lab.clock.advance(60_001)
    expect(await once(async () => ({ by: 'the second' }))).toEqual({ by: 'the second' })
    resume.resolve()
    expect(await slow).toEqual({ by: 'the first' })
    expect(await once(async () => ({ by: 'nobody' }))).toEqual({ by: 'the second' })
  })

  test.each([
    ['/api/v1/media', () => ({ path: '/api/v1/media', body: file('one') })],
    ['/api/spaces/{id}/init', async () => ({ path: `/api/spaces/${await space()}/init`, body: { type: 'readme' } })],
  ])('POST %s is undone if its answer cannot be stored with it', async (_, make) => {
    const { path, body } = await make()
    const key = newKey()
    const before = await effects()
    const when = 'NEW."answer" IS NOT NULL'
    const refused = { name: '_refused', event: 'BEFORE UPDATE', table: 'IdempotencyRecord' }
    await createTrigger(lab.db, { ...refused, when, effect: 'INSERT INTO "Media" ("id") VALUES (NULL)' })
    expect((await send(path, key, body)).status).toBe(500)
    await dropTrigger(lab.db, refused.name)
    expect(await effects()).toBe(before)
    expect((await send(path, key, body)).status).toBe(200)
    expect(isReplay(await send(path, key, body))).toBe(true)
    expect(await effects()).toBe(before + 1)
  })

  test('stays done if its answer cannot be stored, and its repetition gets an equal answer', async () => {
    const id = await hangingRun()
    const path = `/api/v1/executions/${id}/cancel`
    const key = newKey()
    const when = 'NEW."answer" IS NOT NULL'
    const refused = { name: '_refused', event: 'BEFORE UPDATE', table: 'IdempotencyRecord' }
    await createTrigger(lab.db, { ...refused, when, effect: 'INSERT INTO "Media" ("id") VALUES (NULL)' })
    expect((await post(path, key)).status).toBe(500)
    await dropTrigger(lab.db, refused.name)
    expect(await post(path, key)).toMatchObject({ status: 200, body: { execution: { id, status: 'cancelled' } } })
    expect(isReplay(await post(path, key))).toBe(true)
  })

  test('a request beyond its lease is undone if a repetition has started meanwhile', async () => {
    const { deps } = lab.server.service
    const idempotency = () => ({ key: newKey(), method: 'POST', path: '/', replayed: false })
    const held = idempotency()
    const set = (name: string) => (keep: Keep) =>
      lab.db.$transaction(async (tx) => {
        await tx.organization.updateMany({ data: { name } })
        return keep(tx, { by: name })
      })
    const begin = (effect: (keep: Keep) => Promise<object>) =>
      idempotentLease({ deps, actor: lab.actor, idempotency: held }, {}, namesNothing, ({ keep }) => effect(keep))
    const resume = Promise.withResolvers<void>()
    const slow = begin((keep) => resume.promise.then(() => set('the first')(keep)))
    await expect.poll(() => lab.db.idempotencyRecord.count({ where: { leaseUntil: { not: null } } })).toBe(1)
    lab.clock.advance(60_001)
    expect(await begin(set('the second'))).toEqual({ by: 'the second' })
    resume.resolve()
    await expect(slow).rejects.toThrow(IN_PROGRESS)
    expect(await lab.db.organization.count({ where: { name: 'the first' } })).toBe(0)
    expect(await begin(set('nobody'))).toEqual({ by: 'the second' })
  })

  test('a long request that renews its lease is not repeated meanwhile', async () => {
    const { deps } = lab.server.service
    const held = { key: newKey(), method: 'POST', path: '/', replayed: false }
    const begin = (effect: (underWay: UnderWay) => Promise<object>) =>
      idempotentLease({ deps, actor: lab.actor, idempotency: held }, {}, namesNothing, effect)
    const done = Promise.withResolvers<void>()
    const resume = Promise.withResolvers<void>()
    const long = begin(async ({ keep, renew }) => {
      lab.clock.advance(59_000)
      await lab.db.$transaction(renew)
      done.resolve()
      await resume.promise
      return lab.db.$transaction((tx) => keep(tx, { by: 'the first' }))
    })
    await done.promise
    lab.clock.advance(59_000)
    await expect(begin(async () => ({ by: 'the second' }))).rejects.toThrow(IN_PROGRESS)
    resume.resolve()
    expect(await long).toEqual({ by: 'the first' })
  })

  test('a request that has stored its answer is done, even if its acknowledgement was lost', async () => {
    const { deps } = lab.server.service
    const idempotency = { key: newKey(), method: 'POST', path: '/', replayed: false }
    const begin = (name: string) =>
      idempotentLease({ deps, actor: lab.actor, idempotency }, {}, namesNothing, async ({ keep }) => {
        await lab.db.$transaction((tx) => keep(tx, { by: name }))
        throw new Error('Connection terminated')
      })
    await expect(begin('the first')).rejects.toThrow('Connection terminated')
    expect(await begin('the second')).toEqual({ by: 'the first' })
  })

  test('gives 409 to concurrent repetitions, which later get its answer', async () => {
    const key = newKey()
    const id = await hangingRun()
    const path = `/api/v1/executions/${id}/cancel`
    const answers = await Promise.all(Array.from({ length: 5 }, () => post(path, key)))
    for (const { status, body } of answers)
      if (status !== 200) expect([status, body.message]).toEqual([409, IN_PROGRESS])
    expect(answers.filter((answer) => answer.status === 200 && !isReplay(answer))).toHaveLength(1)
    expect(isReplay(await post(path, key))).toBe(true)
  })

  test('a request whose process died may be repeated after a minute, and gets an equal answer', async () => {
    const key = newKey()
    const id = await hangingRun()
    const path = `/api/v1/executions/${id}/cancel`
    expect((await post(path, key)).status).toBe(200)
    // Simulates a process that died between the effect and its answer.
    const leaseUntil = new Date(lab.clock.now().getTime() + 60_000)
    const { count } = await lab.db.idempotencyRecord.updateMany({
      where: { answer: { contains: id }, executionId: null },
      data: { answer: null, leaseUntil },
    })
    expect(count).toBe(1)
    const early = await post(path, key)
    expect([early.status, early.body.message]).toEqual([409, IN_PROGRESS])
    lab.clock.advance(60_001)
    const late = await post(path, key)
    expect(late).toMatchObject({ status: 200, body: { execution: { id, status: 'cancelled' } } })
    expect(isReplay(await post(path, key))).toBe(true)
  })
})

test('no request of these tests is left in progress', async () => {
  for (const row of await lab.db.execution.findMany({ where: { terminalSeq: null } }))
    await lab.engine.cancel(row, lab.actor)
  await lab.idle()
  expect(await violations(lab.db)).toEqual([])
})

test.each(['/api/v1/agents', '/api/v1/spaces'])(
  'a skill that now requires more does not withdraw the first answer of POST %s',
  async (path) => {
    const text = { description: 'Counts.', prompt: 'Count.' }
    const skill = await post('/api/v1/skills', null, { body: { name: `counting-${path.split('/').at(-1)}`, ...text } })
    const { id } = skill.body.skill
    const body = { name: 'Ada', systemPrompt: 'You are Ada.', skillIds: [id], addSkills: [id] }
    const key = newKey()
    const first = await post(path, key, { body })
    expect(first.status).toBe(200)
    await request(lab.server, 'PATCH', `/api/v1/skills/${id}`, { body: { requiredMCPs: ['github'] } })
    const again = await post(path, key, { body })
    expect([again.status, isReplay(again), plain(again.body)]).toEqual([200, true, plain(first.body)])
    expect((await post(path, newKey(), { body })).status).toBe(400)
  },
)
