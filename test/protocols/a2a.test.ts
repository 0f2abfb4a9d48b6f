import { randomUUID } from 'node:crypto'
import { type Message, Role, type SendMessageRequest, type StreamResponse, type Task, TaskState } from '@a2a-js/sdk'
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
} from '@a2a-js/sdk/client'
import { LegacyJsonRpcTransport } from '@a2a-js/sdk/compat/v0_3/client'
import { beforeEach, describe, expect, it } from 'vitest'
import { createMcp } from '../engine/tool-lab.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { callEcho, startModelServer } from '../support/model-server.ts'
import { startReceiver } from '../support/receiver.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const receiver = await use(startReceiver())
const mcp = await use(startMcpServer())
const server = await use(
  startServer({
    ...model.env,
    ALLOW_PRIVATE_NETWORK: 'true',
    PUBLIC_DIRECTORY: 'true',
  }),
)
const { ann, eve } = await server.people('ann', 'eve')
const agent: string = await create({ role: 'Mathematician' })
beforeEach(() => {
  model.fallback = { tokens: ['Good ', 'day.'] }
})

async function create(fields: object): Promise<string> {
  const body = { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }
  const { status, body: answer } = await request(server, 'POST', '/api/v1/agents', { body, token: ann.token })
  expect(status, JSON.stringify(answer)).toBe(200)
  return answer.id
}

const fetchAs =
  ({ token }: { token: string }): typeof fetch =>
  (url, init) => {
    const headers = new Headers(init?.headers)
    headers.set('Authorization', `Bearer ${token}`)
    return fetch(url, { ...init, headers })
  }

/** Connects the SDK's client to an agent by its card; or its client of version 0.3. */
async function connect(version: '1.0' | '0.3', who = ann, id = agent) {
  const fetchImpl = fetchAs(who)
  if (version === '0.3')
    return new LegacyJsonRpcTransport({ endpoint: `${server.url}/a2a/agents/${id}`, fetchImpl } as never)
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl })],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
  })
  return new ClientFactory(options).createFromUrl(`${server.url}/a2a/agents/${id}/.well-known/agent-card.json`, '')
}

function say(text: string, fields: Partial<Message> = {}, configuration: object = {}): SendMessageRequest {
  const part = { content: { $case: 'text' as const, value: text }, metadata: undefined, filename: '', mediaType: '' }
  const none = { contextId: '', taskId: '', metadata: undefined, extensions: [], referenceTaskIds: [] }
  return {
    message: { ...none, messageId: randomUUID(), role: Role.ROLE_USER, parts: [part], ...fields },
    configuration: {
      acceptedOutputModes: [],
      taskPushNotificationConfig: undefined,
      returnImmediately: false,
      ...configuration,
    },
    metadata: undefined,
    tenant: '',
  }
}

const answerOf = ({ artifacts }: Task) =>
  artifacts
    .flatMap(({ parts }) => parts.map(({ content }) => (content?.$case === 'text' ? content.value : '')))
    .join('')

async function collect(stream: AsyncIterable<StreamResponse>) {
  const events: StreamResponse[] = []
  for await (const event of stream) events.push(event)
  return events
}

/** The answer that the fragments of a stream make. */
function streamed(events: StreamResponse[]): string {
  let text = ''
  for (const { payload } of events) {
    if (payload?.$case !== 'artifactUpdate') continue
    const { artifact, append } = payload.value
    const [part] = artifact?.parts ?? []
    const value = part?.content?.$case === 'text' ? part.content.value : ''
    text = append ? text + value : value
  }
  return text
}

const stateOf = (event: StreamResponse | undefined) =>
  event?.payload?.$case === 'statusUpdate' ? event.payload.value.status?.state : undefined

describe.each(['1.0', '0.3'] as const)('the client of version %s', (version) => {
  it('sends a message and gets the task with its answer', async () => {
    const client = await connect(version)
    const task = (await client.sendMessage(say('Hello'))) as Task
    expect(task.id).toMatch(/^exec-/)
    expect(task.status?.state).toBe(TaskState.TASK_STATE_COMPLETED)
    expect(answerOf(task)).toBe('Good day.')
    const got = await client.getTask({ id: task.id, tenant: '' })
    expect(got).toEqual(task)
  })

  it('streams the answer and the end', async () => {
    const client = await connect(version)
    const events = await collect(client.sendMessageStream(say('Hello')))
    expect(events[0]?.payload).toMatchObject({ $case: 'task', value: { id: expect.stringMatching(/^exec-/) } })
    expect(streamed(events)).toBe('Good day.')
    expect(stateOf(events.at(-1))).toBe(TaskState.TASK_STATE_COMPLETED)
  })

  it('continues a context of its own name', async () => {
    const client = await connect(version)
    const contextId = `of ${version}`
    const first = (await client.sendMessage(say('One', { contextId }))) as Task
    const second = (await client.sendMessage(say('Two', { contextId }))) as Task
    expect([first.contextId, second.contextId]).toEqual([contextId, contextId])
    expect(model.requests.at(-1)?.body.messages.map(({ content }) => content)).toEqual(
      expect.arrayContaining(['One', 'Good day.', 'Two']),
    )
    const third = (await client.sendMessage(say('Three'))) as Task
    const fourth = (await client.sendMessage(say('Four', { contextId: third.contextId }))) as Task
    expect(fourth.contextId).toBe(third.contextId)
  })

  it('runs a repeated message once', async () => {
    const client = await connect(version)
    const message = say('Once', { messageId: `once-${version}` })
    const first = (await client.sendMessage(message)) as Task
    expect(((await client.sendMessage(message)) as Task).id).toBe(first.id)
    const other = client.sendMessage(say('Another', { messageId: `once-${version}` }))
    await expect(other).rejects.toThrow(/^The messageId was used with another message/)
  })

  it('cancels a task, and not twice', async () => {
    model.fallback = { tokens: ['Wait'], end: 'hang' }
    const client = await connect(version)
    const task = (await client.sendMessage(say('Hello', {}, { returnImmediately: true }))) as Task
    const cancel = () => client.cancelTask({ id: task.id, tenant: '', metadata: undefined })
    expect(['', TaskState.TASK_STATE_CANCELED]).toContain((await cancel()).status?.state)
    await expect
      .poll(async () => (await client.getTask({ id: task.id, tenant: '' })).status?.state)
      .toBe(TaskState.TASK_STATE_CANCELED)
    await expect(cancel()).rejects.toThrow(/cancel/i)
  })

  it('follows a task that runs', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    model.fallback = { tokens: ['Good ', promise, 'day.'] }
    const client = await connect(version)
    const task = (await client.sendMessage(say('Hello', {}, { returnImmediately: true }))) as Task
    const events: StreamResponse[] = []
    for await (const event of client.resubscribeTask({ id: task.id, tenant: '' })) {
      events.push(event)
      resolve()
    }
    expect(streamed(events)).toBe('Good day.')
    expect(stateOf(events.at(-1))).toBe(TaskState.TASK_STATE_COMPLETED)
  })

  it('gets a failed task with its reason', async () => {
    model.fallback = { error: { status: 400, message: 'no' } }
    const client = await connect(version)
    const task = (await client.sendMessage(say('Hello'))) as Task
    expect(task.status?.state).toBe(TaskState.TASK_STATE_FAILED)
    expect(task.status?.message?.parts[0]?.content?.value).toMatch(/\w/)
    // Microsoft's Agent Framework shows the last message, which was the question.
    expect(task.history.at(-1)).toEqual(task.status?.message)
  })

  it('waits for a person whose approval the run needs', async () => {
    model.fallback = { toolCalls: [{ id: 'call', name: 'echo', input: { text: 'Hi' } }] }
    const mcpId = await createMcp({ url: server.url, token: ann.token }, mcp.url, [{ tool: '*', mode: 'ask' }])
    const client = await connect(version, ann, await create({ mcpInstanceIds: [mcpId] }))
    const task = (await client.sendMessage(say('Hello'))) as Task
    expect(task.status?.state).toBe(TaskState.TASK_STATE_INPUT_REQUIRED)
    expect(task.status?.message?.parts[0]?.content?.value).toMatch(/\/app\/approvals$/)
    await expect(client.sendMessage(say('Yes', { taskId: task.id }))).rejects.toThrow(/person/)
    const events = await collect(client.sendMessageStream(say('Hello')))
    expect(stateOf(events.at(-1))).toBe(TaskState.TASK_STATE_INPUT_REQUIRED)
    const behind = (await client.sendMessage(say('And?', { contextId: task.contextId }))) as Task
    expect(behind.status?.state).toBe(TaskState.TASK_STATE_INPUT_REQUIRED)
    expect(behind.status?.message?.parts[0]?.content?.value).toContain(`waits for the earlier run ${task.id}`)
    expect((await client.getTask({ id: behind.id, tenant: '' })).status).toEqual(behind.status)
    const later = await collect(client.sendMessageStream(say('And now?', { contextId: task.contextId })))
    expect(stateOf(later.at(-1))).toBe(TaskState.TASK_STATE_INPUT_REQUIRED)
  })

  it('finds no task of another agent', async () => {
    const { id } = (await (await connect(version)).sendMessage(say('Hello'))) as Task
    const other = await connect(version, ann, await create({ name: 'Other' }))
    await expect(other.getTask({ id, tenant: '' })).rejects.toThrow(/not found/i)
    await expect(other.sendMessage(say('More', { taskId: id }))).rejects.toThrow(/not found/i)
  })

  it('finds no task of another organization', async () => {
    const task = (await (await connect(version)).sendMessage(say('Hello'))) as Task
    const mine = await (async () => {
      const body = { name: 'Eve', systemPrompt: 'x' }
      return (await request(server, 'POST', '/api/v1/agents', { body, token: eve.token })).body.id
    })()
    const client = await connect(version, eve, mine)
    await expect(client.getTask({ id: task.id, tenant: '' })).rejects.toThrow(/not found/i)
    await expect(client.sendMessage(say('Hello', { contextId: task.contextId }))).rejects.toThrow()
  })
})

describe('a list of tasks', () => {
  it('has the tasks of the agent and the context, page by page', async () => {
    const client = (await connect('1.0')) as Exclude<Awaited<ReturnType<typeof connect>>, LegacyJsonRpcTransport>
    const contextId = 'listed'
    const ids: string[] = []
    for (const text of ['One', 'Two', 'Three'])
      ids.unshift(((await client.sendMessage(say(text, { contextId }))) as Task).id)
    const none = {
      tenant: '',
      contextId,
      status: TaskState.TASK_STATE_UNSPECIFIED,
      pageToken: '',
      statusTimestampAfter: undefined,
    }
    const first = await client.listTasks({ ...none, pageSize: 2, includeArtifacts: true })
    expect(first.tasks.map(({ id }) => id)).toEqual(ids.slice(0, 2))
    expect(answerOf(first.tasks[0]!)).toBe('Good day.')
    const second = await client.listTasks({ ...none, pageSize: 2, pageToken: first.nextPageToken })
    expect(second.tasks.map(({ id, artifacts }) => [id, artifacts])).toEqual([[ids[2], []]])
    const failed = await client.listTasks({ ...none, status: TaskState.TASK_STATE_FAILED })
    expect(failed.tasks).toEqual([])
    expect([first.totalSize, second.totalSize, failed.totalSize]).toEqual([3, 3, 0])
    const since = first.tasks[0]!.status!.timestamp!
    const later = await client.listTasks({ ...none, statusTimestampAfter: since })
    expect([later.tasks.map(({ id }) => id), later.totalSize]).toEqual([[ids[0]], 1])
    const invalid = client.listTasks({ ...none, statusTimestampAfter: 'yesterday' })
    await expect(invalid).rejects.toThrow(/statusTimestampAfter/)
    const unknown = client.listTasks({ ...none, status: TaskState.UNRECOGNIZED })
    await expect(unknown).rejects.toThrow('Invalid status: send a state of tasks')
    const foreign = client.listTasks({ ...none, pageToken: 'page-2' })
    await expect(foreign).rejects.toThrow('Begin again without `pageToken`, or send a nextPageToken of the same list.')
    const list = (includeArtifacts: boolean) =>
      server.statementsOf(() => client.listTasks({ ...none, includeArtifacts }))
    // The answers of all tasks are read together.
    expect((await list(true)).length).toBeLessThanOrEqual((await list(false)).length + 2)
  })

  it('counts only tasks of the state and the context, and puts the last changed one first', async () => {
    const mcpId = await createMcp({ url: server.url, token: ann.token }, mcp.url, [{ tool: '*', mode: 'ask' }])
    const id = await create({ mcpInstanceIds: [mcpId] })
    const client = (await connect('1.0', ann, id)) as Exclude<
      Awaited<ReturnType<typeof connect>>,
      LegacyJsonRpcTransport
    >
    model.fallback = callEcho('Hello')
    const waiting = (await client.sendMessage(say('One'))) as Task
    model.fallback = { tokens: 'Good day.' }
    const ended = (await client.sendMessage(say('Two', { contextId: 'counted' }))) as Task
    const runOf = async (run: string) =>
      (await request(server, 'GET', `/api/v1/executions/${run}`, { token: ann.token })).body.execution
    const path = `/api/v1/chats/${(await runOf(ended.id)).chatId}/messages`
    const branch = await request(server, 'POST', path, { body: { regenerate: true }, token: ann.token })
    expect(branch.status, JSON.stringify(branch.body)).toBe(200)
    const again = branch.body.executionId
    const any = { tenant: '', contextId: '', status: TaskState.TASK_STATE_UNSPECIFIED, pageToken: '' }
    const counted = async (fields: object) => {
      const { tasks, totalSize } = await client.listTasks({ ...any, statusTimestampAfter: undefined, ...fields })
      return [totalSize, ...tasks.map((task) => task.id)]
    }
    expect(await counted({ contextId: 'counted' })).toEqual([1, ended.id])
    expect(await counted({ status: TaskState.TASK_STATE_INPUT_REQUIRED })).toEqual([1, waiting.id])
    expect(await counted({ status: TaskState.TASK_STATE_AUTH_REQUIRED })).toEqual([0])
    expect(await counted({ status: TaskState.TASK_STATE_SUBMITTED })).toEqual([0])
    expect(await counted({})).toEqual([3, again, ended.id, waiting.id])
    await client.cancelTask({ id: waiting.id, tenant: '', metadata: undefined })
    expect(await counted({})).toEqual([3, waiting.id, again, ended.id])
    const { updatedAt } = await runOf(waiting.id)
    expect(await counted({ statusTimestampAfter: updatedAt })).toEqual([1, waiting.id])
  })
})

describe.each(['1.0', '0.3'] as const)('push notifications of version %s', (version) => {
  /** Returns a configuration with an address of its own. */
  const config = (fields: object = {}) => {
    const path = `/${randomUUID()}`
    const none = { tenant: '', id: '', taskId: '', token: '', authentication: undefined }
    return { path, config: { ...none, url: receiver.url + path, ...fields } }
  }
  const read = ({ body }: { body: any }) => (version === '0.3' ? body : body.task)
  const states = (path: string) =>
    receiver.at(path).map((one) => String(read(one).status.state).replace('TASK_STATE_', '').toLowerCase())

  it('send the task at each of its states, with the token and the credentials', async () => {
    const client = await connect(version)
    const fields = { token: 'a token', authentication: { scheme: 'Basic', credentials: 'YTpi' } }
    const { path, config: taskPushNotificationConfig } = config(fields)
    const asked = say(
      'Hello',
      { contextId: `push-${version}` },
      { taskPushNotificationConfig, returnImmediately: true },
    )
    const task = (await client.sendMessage(asked)) as Task
    await expect.poll(() => states(path).sort()).toEqual(['completed', 'working'])
    const last = receiver.at(path).find((one) => read(one).artifacts?.length)!
    expect(read(last)).toMatchObject({
      id: task.id,
      contextId: `push-${version}`,
      artifacts: [{ artifactId: 'result' }],
    })
    expect(last.headers).toMatchObject({ 'x-a2a-notification-token': 'a token', authorization: 'Basic YTpi' })
    expect(last.headers['webhook-id']).toBeTruthy()
    const known = await client.getTaskPushNotificationConfig({ tenant: '', taskId: task.id, id: task.id })
    expect(known).toMatchObject({ id: task.id, token: 'a token', authentication: { scheme: 'Basic' } })
    expect(JSON.stringify(known)).not.toContain('YTpi')
  })

  it('leave no credentials in the database if their receiver repeats them', async () => {
    receiver.answer = (response, { headers }) => response.end(JSON.stringify(headers))
    const fields = { token: 'canary-token', authentication: { scheme: 'Bearer', credentials: 'canary-key' } }
    const { config: taskPushNotificationConfig } = config(fields)
    const client = await connect(version)
    const { id: executionId } = (await client.sendMessage(say('Hi', {}, { taskPushNotificationConfig }))) as Task
    const where = { webhook: { executionId } }
    const stored = async () =>
      JSON.stringify(await server.service.deps.db.webhookDelivery.findMany({ where, select: { attempts: true } }))
    await expect.poll(stored).toContain('[removed]')
    receiver.answer = null
    expect(await stored()).not.toContain('canary')
  })

  it('belong to their caller, are listed and deleted, and are no webhooks of the organization', async () => {
    const [client, ben] = [await connect(version), await server.member({ organization: 'Acme', role: 'admin' })]
    // The task waits until its notifications are set.
    const go = Promise.withResolvers<void>()
    model.fallback = { tokens: [go.promise, 'Done'] } as never
    const task = (await client.sendMessage(say('Wait', {}, { returnImmediately: true }))) as Task
    const [kept, gone, bens] = [config({ id: 'kept' }), config({ id: 'gone' }), config({ id: 'bens' })]
    const taskId = task.id
    for (const { config: one } of [kept, gone]) await client.createTaskPushNotificationConfig({ ...one, taskId })
    const other = await connect(version, ben)
    await other.createTaskPushNotificationConfig({ ...bens.config, taskId })
    const list = async (of: typeof client) =>
      (await of.listTaskPushNotificationConfig({ tenant: '', taskId, pageSize: 0, pageToken: '' })).configs.map(
        ({ id }) => id,
      )
    expect(await list(client)).toEqual(['kept', 'gone'])
    expect(await list(other)).toEqual(['bens'])
    await other.deleteTaskPushNotificationConfig({ tenant: '', taskId, id: 'kept' })
    await client.deleteTaskPushNotificationConfig({ tenant: '', taskId, id: 'gone' })
    expect(await list(client)).toEqual(['kept'])
    const foreign = { jsonrpc: '2.0', id: 1, method: 'ListTaskPushNotificationConfigs', params: { taskId } }
    const elsewhere = await request(server, 'POST', `/a2a/agents/${agent}`, { body: foreign, token: eve.token })
    expect(elsewhere.status).toBe(404)
    go.resolve()
    await expect.poll(() => states(kept.path)).toContain('completed')
    await expect.poll(() => states(bens.path)).toContain('completed')
    expect(receiver.at(gone.path)).toEqual([])
    // Not even an admin finds them. The audit log has them, without their addresses.
    const asBen = async (method: string, path: string, body?: object) =>
      request(server, method, path, { token: ben.token, ...(body && { body }) })
    const query = '{ webhooks { nodes { id } } events { events { type } } auditEvents { nodes { action changes } } }'
    const { data, errors } = (await asBen('POST', '/graphql', { query })).body
    expect(errors).toBeUndefined()
    expect(data.webhooks.nodes).toEqual([])
    expect(JSON.stringify(data.events)).not.toContain('webhook')
    const audited = JSON.stringify(data.auditEvents)
    for (const action of ['create', 'delete']) expect(audited).toContain(`webhook.${action}`)
    for (const { path } of [kept, gone, bens]) expect(audited).not.toContain(path)
    const rows = await server.service.deps.db.webhook.findMany({ where: { executionId: taskId } })
    expect(rows.length).toBe(2)
    for (const { id } of rows)
      for (const [method, at] of [
        ...[['GET', ''] as const, ['DELETE', ''] as const, ['GET', '/deliveries'] as const],
        ...[['POST', '/rotate'] as const, ['POST', '/test'] as const],
      ])
        expect((await asBen(method, `/api/v1/webhooks/${id}${at}`)).status).toBe(404)
  })

  it('are set and deleted by no token that only reads', async () => {
    const { id: taskId } = (await (await connect(version)).sendMessage(say('Hello'))) as Task
    const reader = await connect(version, await server.member({ organization: 'Acme', scopes: ['executions:read'] }))
    const none = { tenant: '', taskId, id: 'x' }
    await expect(reader.createTaskPushNotificationConfig({ ...config().config, taskId })).rejects.toThrow(/permission/)
    await expect(reader.deleteTaskPushNotificationConfig(none)).rejects.toThrow(/permission/)
    const listed = await reader.listTaskPushNotificationConfig({ ...none, pageSize: 0, pageToken: '' })
    expect(listed.configs).toEqual([])
  })

  it('are at most ten of one caller for one task', async () => {
    const client = await connect(version)
    const { id: taskId } = (await client.sendMessage(say('Hello'))) as Task
    const set = () => client.createTaskPushNotificationConfig({ ...config({ id: randomUUID() }).config, taskId })
    const sent = await Promise.allSettled(Array.from({ length: 12 }, set))
    expect(sent.filter(({ status }) => status === 'fulfilled').length).toBe(10)
    await expect(set()).rejects.toThrow(/At most 10/)
  })

  it('are refused for addresses and headers that cannot be used', async () => {
    const client = await connect(version)
    const { id: taskId } = (await client.sendMessage(say('Hello'))) as Task
    for (const fields of [{ url: 'ftp://example.com/' }, { token: 'two\nlines' }]) {
      const asked = { ...config().config, ...fields, taskId }
      await expect(client.createTaskPushNotificationConfig(asked)).rejects.toThrow(/Invalid (url|token)/)
    }
  })
})

describe('the card', () => {
  const card = (id: string, token: string | null) =>
    request(server, 'GET', `/a2a/agents/${id}/.well-known/agent-card.json`, { token })

  it('has the fields that clients of both versions need', async () => {
    const { status, body } = await card(agent, ann.token)
    expect(status).toBe(200)
    expect(body).toMatchObject({
      name: 'Ada',
      description: 'Mathematician',
      version: '1',
      protocolVersion: '0.3.0',
      url: expect.stringMatching(new RegExp(`/a2a/agents/${agent}$`)),
      supportedInterfaces: [{ protocolBinding: 'JSONRPC', protocolVersion: '1.0' }, { protocolVersion: '0.3' }],
      capabilities: { streaming: true, pushNotifications: true },
      securitySchemes: { bearer: { type: 'http', scheme: 'bearer', httpAuthSecurityScheme: { scheme: 'Bearer' } } },
      skills: [{ id: 'ask', name: 'Ada' }],
    })
  })

  it.each([
    ['Java', { 'User-Agent': 'Java-http-client/21.0.1' }, { schemes: { bearer: {} } }, ['httpAuthSecurityScheme']],
    ['1.0', { 'A2A-Version': '1.0' }, { schemes: { bearer: {} } }, ['httpAuthSecurityScheme']],
    [
      'Java that names version 0.3',
      { 'User-Agent': 'Java-http-client/21.0.1', 'A2A-Version': '0.3' },
      { schemes: { bearer: {} } },
      ['httpAuthSecurityScheme', 'scheme', 'type'],
    ],
    [
      'Go',
      { 'User-Agent': 'Go-http-client/1.1' },
      { schemes: { bearer: null } },
      ['httpAuthSecurityScheme', 'scheme', 'type'],
    ],
  ])('has the security in the form that the library of %s reads', async (_, headers, requirement, keys) => {
    const path = `/a2a/agents/${agent}/.well-known/agent-card.json`
    const { body } = await request(server, 'GET', path, { token: ann.token, headers })
    expect(body.securityRequirements).toEqual([requirement])
    expect(Object.keys(body.securitySchemes.bearer).sort()).toEqual(keys)
  })

  it('is there without a token for public agents only', async () => {
    const visible = await create({ visibility: 'public' })
    expect((await card(visible, null)).status).toBe(200)
    for (const id of [agent, 'nobody']) expect((await card(id, null)).status).toBe(401)
    expect((await card(agent, eve.token)).status).toBe(404)
    const hidden = await create({ visibility: 'private' })
    const ben = await server.member({ organization: 'Acme' })
    expect((await card(hidden, ben.token)).status).toBe(404)
  })
})

describe('the address', () => {
  const post = (
    body: unknown,
    headers: Record<string, string> = { 'A2A-Version': '1.0' },
    token: string | null = ann.token,
  ) => request(server, 'POST', `/a2a/agents/${agent}`, { body, headers, token })
  const rpc = (method: string, params: object = {}) => ({ jsonrpc: '2.0', id: 1, method, params })

  it('refuses other versions, methods and types with the errors of the protocol', async () => {
    const codeOf = async (answer: ReturnType<typeof post>) => (await answer).body.error?.code
    expect(await codeOf(post(rpc('GetTask', { id: 'x' }), { 'A2A-Version': '2.0' }))).toBe(-32009)
    expect(await codeOf(post(rpc('Nothing')))).toBe(-32601)
    expect(await codeOf(post('{bad'))).toBe(-32700)
    for (const body of [[], {}, { ...rpc('GetTask'), jsonrpc: '1.0' }, { ...rpc('GetTask'), id: {} }])
      expect(await codeOf(post(body))).toBe(-32600)
    expect(await codeOf(post(rpc('GetTask', { id: 'x' })))).toBe(-32001)
    const config = (fields: object) => post(rpc('CreateTaskPushNotificationConfig', { taskId: 'x', ...fields }))
    expect(await codeOf(config({ url: 'http://x' }))).toBe(-32001)
    const legacy = post(rpc('tasks/pushNotificationConfig/set', { taskId: 'x' }), {})
    expect(await codeOf(legacy)).toBe(-32602)
    const file = { messageId: 'm', role: 'ROLE_USER', parts: [{ raw: 'AAAA', mediaType: 'image/png' }] }
    expect(await codeOf(post(rpc('SendMessage', { message: file })))).toBe(-32005)
    const empty = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: ' ' }] }
    const refused = await post(rpc('SendMessage', { message: empty }))
    expect(refused.body.error).toMatchObject({ code: -32602, message: expect.stringContaining('field: message') })
  })

  // As the library for Python asks.
  it.each([
    ['message/stream', { message: { messageId: 'm', role: 'user', parts: [{ kind: 'text', text: ' ' }] } }, -32602],
    ['message/stream', {}, -32602],
    ['tasks/resubscribe', { id: 'none' }, -32001],
  ])(
    'answers %s of version 0.3 with the error as an event if its client reads no JSON',
    async (method, params, code) => {
      const sent = post(rpc(method, params), { Accept: 'text/event-stream' })
      const { status, headers, body } = await sent
      expect([status, headers.get('content-type')]).toEqual([200, expect.stringContaining('text/event-stream')])
      expect(JSON.parse(body.replace(/^data: /, ''))).toMatchObject({ jsonrpc: '2.0', id: 1, error: { code } })
      expect((await post(rpc(method, params), { Accept: '*/*' })).body.error).toMatchObject({ code })
    },
  )

  it.each<[string, string, Record<string, string>, object]>([
    ['its method alone', 'SendMessage', {}, { role: 'ROLE_USER', parts: [{ text: 'Hello' }] }],
    ['a patch number', 'SendMessage', { 'A2A-Version': '1.0.0' }, { role: 'ROLE_USER', parts: [{ text: 'Hello' }] }],
    ['parts with a type', 'message/send', {}, { role: 'user', parts: [{ type: 'text', text: 'Hello' }] }],
  ])('reads a message whose version shows in %s', async (_, method, headers, message) => {
    const { body } = await post(rpc(method, { message: { messageId: crypto.randomUUID(), ...message } }), headers)
    expect(body.error).toBeUndefined()
    expect(JSON.stringify(body.result)).toContain('Good day.')
  })

  it('takes only tokens with the scopes', async () => {
    expect((await post(rpc('GetTask'), {}, null)).status).toBe(401)
    const reader = await server.member({ organization: 'Acme', scopes: ['executions:read'] })
    const message = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'Hi' }] }
    const answer = await post(rpc('SendMessage', { message }), { 'A2A-Version': '1.0' }, reader.token)
    expect(answer.status).toBe(403)
    expect((await request(server, 'GET', `/a2a/agents/${agent}`, { token: ann.token })).status).toBe(405)
  })

  it('refuses a caller in the form of JSON-RPC, with the reason as its message', async () => {
    const reader = await server.member({ organization: 'Acme', scopes: ['agents:read', 'executions:read'] })
    const client = await connect('1.0', reader)
    await expect(collect(client.sendMessageStream(say('Hello')))).rejects.toThrow('agents:execute')
    const unread = await post(rpc('GetTask'), { 'A2A-Version': '1.0', 'Content-Type': 'text/plain' })
    expect([unread.status, unread.body.error.code]).toEqual([415, -32005])
    const [info] = unread.body.error.data
    expect(info).toMatchObject({
      '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
      reason: 'UNSUPPORTED_MEDIA_TYPE',
    })
  })
})
