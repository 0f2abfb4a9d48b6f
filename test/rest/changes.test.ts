import { describe, expect, it } from 'vitest'
import { createClient } from '../../src/sdk/index.ts'
import { createMcp } from '../engine/tool-lab.ts'
import { subscribe } from '../graphql/support.ts'
import { expectError } from '../support/api.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { callEcho, startModelServer } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

type Event = { event: string; data: any }

const model = await use(startModelServer())
const mcp = await use(startMcpServer())
const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl, ALLOW_PRIVATE_NETWORK: 'true' }))
const ann = await server.member()
const bob = await server.member()
const eve = await server.member({ organization: 'Elsewhere', role: 'owner' })
model.fallback = callEcho('Hi')

type Caller = { token: string }
const call = async (method: string, path: string, { token }: Caller, body?: object) =>
  (await request(server, method, `/api/v1${path}`, { token, ...(body && { body }) })).body

/** Follows a stream of changes from now on; `next` returns the next event, or null at the end. */
async function follow(path: string, { token }: Caller) {
  const gone = new AbortController()
  const headers = { Authorization: `Bearer ${token}` }
  const response = await fetch(`${server.url}/api/v1${path}`, { headers, signal: gone.signal })
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
  const chunks = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  return {
    async next(): Promise<Event | null> {
      for (;;) {
        const end = text.indexOf('\n\n')
        if (end >= 0) {
          const [, event = '', data = ''] = /^event: (\w+)\ndata: (.*)$/.exec(text.slice(0, end)) ?? []
          text = text.slice(end + 2)
          if (event) return { event, data: JSON.parse(data) }
          continue
        }
        const { done, value = '' } = await chunks.read()
        if (done) return null
        text += value
      }
    },
    [Symbol.dispose]: () => gone.abort(),
  }
}

/** Revokes a token as another server does. */
async function revoke({ tokenId }: Member): Promise<void> {
  const { db, bus } = server.service.deps
  await db.token.update({ where: { id: tokenId }, data: { revokedAt: new Date() } })
  bus.publish('token', [tokenId])
}

describe('GET /tasks/events', () => {
  it('sends each task that is created, changed or deleted, in the form of GET', async () => {
    using events = await follow('/tasks/events', bob)
    const { id, task } = await call('POST', '/tasks', ann, { title: 'One' })
    expect(await events.next()).toEqual({ event: 'changed', data: { type: 'changed', task } })
    const changed = (await call('PATCH', `/tasks/${id}`, ann, { title: 'Two' })).task
    expect(await events.next()).toEqual({ event: 'changed', data: { type: 'changed', task: changed } })
    await call('DELETE', `/tasks/${id}`, ann)
    expect(await events.next()).toEqual({ event: 'deleted', data: { type: 'deleted', id } })
  })

  it('sends no tasks of another organization, and none of its deletions', async () => {
    using events = await follow('/tasks/events', eve)
    const { id } = await call('POST', '/tasks', ann, { title: 'Secret' })
    await call('PATCH', `/tasks/${id}`, ann, { title: 'Secret still' })
    await call('DELETE', `/tasks/${id}`, ann)
    const own = await call('POST', '/tasks', eve, { title: 'Own' })
    expect((await events.next())?.data.task).toEqual(own.task)
    await call('DELETE', `/tasks/${own.id}`, eve)
    expect((await events.next())?.data).toEqual({ type: 'deleted', id: own.id })
  })

  it('GET /tasks/events of one task ends with its deletion, and gives 404 for a foreign task', async () => {
    const { id } = await call('POST', '/tasks', ann, { title: 'One' })
    using events = await follow(`/tasks/events?id=${id}`, ann)
    await call('POST', '/tasks', ann, { title: 'Another' })
    await call('PATCH', `/tasks/${id}`, ann, { priority: 'high' })
    expect((await events.next())?.data.task).toMatchObject({ id, priority: 'high' })
    for (const which of [id, 'never']) {
      const answer = await request(server, 'GET', `/api/v1/tasks/events?id=${which}`, { token: eve.token })
      expectError(answer, 404, 'Task not found')
    }
    await call('DELETE', `/tasks/${id}`, ann)
    expect((await events.next())?.data).toEqual({ type: 'deleted', id })
    expect(await events.next()).toBeNull()
  })

  // PostgreSQL's bus is the same behind its connection.
  it.skipIf(onPostgres)('finds changes and deletions without notices, and sends nothing twice', async () => {
    using events = await follow('/tasks/events', ann)
    const { db, bus } = server.service.deps
    const notifyAll = () => (bus as unknown as { notifyAll(): void }).notifyAll()
    const [kept, gone] = [
      await call('POST', '/tasks', ann, { title: '1' }),
      await call('POST', '/tasks', ann, { title: '2' }),
    ]
    for (const { id } of [kept, gone]) expect((await events.next())?.data.task.id).toBe(id)
    const { organizationId, userId } = ann
    const at = new Date()
    await db.task.update({ where: { id: kept.id }, data: { title: 'Elsewhere', updatedAt: at } })
    await db.task.deleteMany({ where: { id: gone.id } })
    const row = { id: 'a', organizationId, actor: userId, action: 'task.delete', target: gone.id, at }
    await db.auditEvent.createMany({ data: row })
    notifyAll()
    const seen: Event[] = []
    while (seen.at(-1)?.data.id !== gone.id) seen.push((await events.next())!)
    expect(seen.filter(({ data }) => data.task?.id === kept.id).map(({ data }) => data.task.title)).toEqual([
      'Elsewhere',
    ])
    notifyAll()
    const { id } = await call('POST', '/tasks', ann, { title: 'Last' })
    expect((await events.next())?.data.task.id).toBe(id)
  })

  it('ends at once with the token, and refuses unknown parameters', async () => {
    const reader = await server.member()
    using events = await follow('/tasks/events', reader)
    await revoke(reader)
    expect(await events.next()).toBeNull()
    const answer = await request(server, 'GET', '/api/v1/tasks/events?spaceid=x', { token: ann.token })
    expectError(answer, 400, 'Unknown parameter: spaceid')
  })

  it('has a name that is no id of a task, so that other methods give 405', async () => {
    const headers = { Authorization: `Bearer ${ann.token}` }
    const ask = (method: string) => fetch(`${server.url}/api/v1/tasks/events`, { method, headers })
    const refused = await ask('DELETE')
    expect([refused.status, refused.headers.get('allow')]).toEqual([405, 'GET, HEAD'])
    const head = await ask('HEAD')
    expect([head.status, head.headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8'])
  })

  it("equals the client's subscription tasks.changes", async () => {
    const seen: { event: string; data: unknown }[] = []
    const started = Promise.withResolvers<void>()
    const subscription = createClient({ url: server.url, token: ann.token }).tasks.changes.subscribe(undefined, {
      onStarted: () => started.resolve(),
      onData: (event) => void seen.push(event),
    })
    await started.promise
    const { id, task } = await call('POST', '/tasks', ann, { title: 'One' })
    await expect.poll(() => seen).toEqual([{ event: 'changed', data: { task } }])
    await call('DELETE', `/tasks/${id}`, ann)
    await expect.poll(() => seen.at(-1)).toEqual({ event: 'deleted', data: { id } })
    subscription.unsubscribe()
  })
})

describe('GET /approvals/events', () => {
  /** Starts a run of ann's that asks for an approval. Returns its id. */
  async function ask(fields: object = {}): Promise<string> {
    const mcpId = await createMcp({ url: server.url, token: ann.token }, mcp.url, [{ tool: '*', mode: 'ask' }])
    const agent = { name: 'A', systemPrompt: 'x', mcpInstanceIds: [mcpId], ...fields }
    const { id } = await call('POST', '/agents', ann, agent)
    return (await call('POST', `/agents/${id}/execute`, ann, { message: 'Hello', background: true })).executionId
  }

  it('sends new and decided approvals, in the form of the list', async () => {
    using events = await follow('/approvals/events', ann)
    const executionId = await ask()
    const asked = (await events.next())!
    const [listed] = (await call('GET', `/approvals?executionId=${executionId}`, ann)).approvals
    expect(asked).toEqual({ event: 'changed', data: { type: 'changed', approval: listed } })
    const { approval } = await call('POST', `/approvals/${listed.id}/deny`, ann, { reason: 'No' })
    expect((await events.next())?.data.approval).toEqual(approval)
  })

  it('sends an approval that expired because its run was cancelled', async () => {
    const executionId = await ask()
    await expect
      .poll(async () => (await call('GET', `/approvals?executionId=${executionId}`, ann)).approvals.length)
      .toBe(1)
    using events = await follow(`/approvals/events?executionId=${executionId}`, ann)
    await call('POST', `/executions/${executionId}/cancel`, ann)
    expect((await events.next())?.data.approval).toMatchObject({ executionId, status: 'expired' })
  })

  it('hides a private run from a stranger, and gives 404 for it', async () => {
    const stranger = await server.member({ organization: 'Elsewhere' })
    using theirs = await follow('/approvals/events', stranger)
    using own = await follow('/approvals/events', ann)
    const executionId = await ask()
    await own.next()
    for (const which of [executionId, 'never']) {
      const path = `/api/v1/approvals/events?executionId=${which}`
      expectError(await request(server, 'GET', path, { token: stranger.token }), 404, 'Execution not found')
    }
    await revoke(stranger)
    expect(await theirs.next()).toBeNull()
  })

  it('equals approvals.changes of the client, and approvalChanges of GraphQL', async () => {
    const seen: any[] = []
    const started = Promise.withResolvers<void>()
    const subscription = createClient({ url: server.url, token: ann.token }).approvals.changes.subscribe(undefined, {
      onStarted: () => started.resolve(),
      onData: (event) => void seen.push(event),
    })
    await started.promise
    const query = 'subscription { approvalChanges { id status tool execution { id } } }'
    const gone = new AbortController()
    const begun = Promise.withResolvers<void>()
    const options = { token: ann.token, signal: gone.signal, started: begun.resolve }
    const first = subscribe(server, query, {}, options).next()
    await begun.promise
    const executionId = await ask()
    await expect.poll(() => seen.length).toBe(1)
    const { id, tool, status } = seen[0].data.approval
    expect((await first).value).toEqual({
      data: { approvalChanges: { id, tool, status, execution: { id: executionId } } },
    })
    subscription.unsubscribe()
    gone.abort()
  })
})
