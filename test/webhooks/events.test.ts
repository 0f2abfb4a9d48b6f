import type { ServerResponse } from 'node:http'
import { Client } from 'pg'
import { describe, expect, it } from 'vitest'
import { announce, continueEvents } from '../../src/db/events.ts'
import { bodyOf } from '../../src/protocols/a2a/push.ts'
import { createDeliverer } from '../../src/webhooks/deliverer.ts'
import { createMcp } from '../engine/tool-lab.ts'
import { callerAt } from '../support/api.ts'
import { movableClock } from '../support/clock.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { callEcho, startModelServer } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { startReceiver } from '../support/receiver.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const DAY = 24 * 60 * 60_000

const clock = movableClock()
const model = await use(startModelServer())
const mcp = await use(startMcpServer())
const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl, ALLOW_PRIVATE_NETWORK: 'true' }, { clock }))
const ann = await server.member({ organization: 'Acme', role: 'admin' })
const bob = await server.member({ organization: 'Acme' })

const call = callerAt(server, ann)

const feed = async (query = '', who = ann) => (await call('GET', `/events?${query}`, undefined, who)).body

/** The present end of the feed. */
async function end(): Promise<string> {
  for (let since = ''; ; ) {
    const { cursor, hasMore } = await feed(`limit=1000${since}`)
    if (!hasMore) return cursor
    since = `&since=${cursor}`
  }
}

/** Resolves with the events of a thing since a cursor, once there are as many. */
async function eventsOf(since: string, id: string, count: number) {
  const found = async () =>
    (await feed(`since=${since}&limit=1000`)).events.filter((event: any) => event.data.id === id)
  await expect.poll(async () => (await found()).length).toBe(count)
  return (await found()) as any[]
}
const typesOf = (events: any[]) => events.map(({ type }) => type).sort()

const agent = async (fields: object = {}, who = ann): Promise<string> =>
  (await call('POST', '/agents', { name: 'Ada', systemPrompt: 'A secret prompt', ...fields }, who)).body.id

describe('The feed has', () => {
  it('the events of a task, with its state at each event', async () => {
    const since = await end()
    const { id } = (await call('POST', '/tasks', { title: 'Write', description: 'Words' })).body.task
    await call('PATCH', `/tasks/${id}`, { assignTo: ann.userId })
    await call('PATCH', `/tasks/${id}`, { status: 'in_progress' })
    await call('PATCH', `/tasks/${id}`, { status: 'completed' })
    const events = await eventsOf(since, id, 8)
    expect(typesOf(events)).toEqual([
      ...['task.assigned', 'task.completed', 'task.created', 'task.status_changed', 'task.status_changed'],
      ...['task.updated', 'task.updated', 'task.updated'],
    ])
    expect(events[0]).toMatchObject({
      type: 'task.created',
      data: { title: 'Write', status: 'pending', assignedTo: null },
    })
    expect(events.filter(({ type }) => type === 'task.status_changed').map(({ data }) => data)).toMatchObject([
      { previousStatus: 'pending', status: 'in_progress' },
      { previousStatus: 'in_progress', status: 'completed' },
    ])
    expect(JSON.stringify(events)).not.toContain('Words')
    expect(new Set(events.map(({ sequence }) => sequence)).size).toBe(8)
    await call('DELETE', `/tasks/${id}`)
    expect(await eventsOf(since, id, 8)).toMatchObject([
      { data: { title: 'Write', deleted: true } },
      ...Array(7).fill({}),
    ])
  })

  it('the events of an agent, without its prompt', async () => {
    const since = await end()
    const id = await agent()
    await call('PATCH', `/agents/${id}`, { name: 'Bea' })
    await call('DELETE', `/agents/${id}`)
    const events = await eventsOf(since, id, 3)
    expect(events).toMatchObject([
      { type: 'agent.created' },
      { type: 'agent.updated', data: { version: 2 } },
      { type: 'agent.archived', data: { version: 3, archived: true } },
    ])
    expect(JSON.stringify(events)).not.toContain('secret')
  })

  it('the start and the end of a run, without its message and result', async () => {
    model.fallback = () => ({ tokens: 'A secret answer' })
    const since = await end()
    const body = { message: 'A secret question' }
    const { executionId } = (await call('POST', `/agents/${await agent()}/execute`, body)).body
    const events = await eventsOf(since, executionId, 2)
    expect(events).toMatchObject([
      { type: 'execution.started', data: { status: 'running', stopReason: null } },
      { type: 'execution.completed', data: { status: 'completed', stopReason: 'end_turn' } },
    ])
    expect(JSON.stringify(events)).not.toContain('secret')
  })

  it('the events of a run without a statement for them', async () => {
    model.fallback = () => ({ tokens: 'Hi' })
    const path = `/agents/${await agent()}/execute`
    const sent = await server.statementsOf(() => call('POST', path, { message: 'Hello' }))
    expect(
      sent.filter((sql) => /Event"|Webhook|MailNotifications/.test(sql) && !/AuditEvent|ExecutionEvent/.test(sql)),
    ).toEqual([])
  })

  it('a run that waits, its approval and its chat', async () => {
    model.fallback = callEcho('A secret input')
    const since = await end()
    const mcpId = await createMcp({ url: server.url, token: ann.token }, mcp.url, [{ tool: '*', mode: 'ask' }])
    const id = await agent({ mcpInstanceIds: [mcpId] })
    const run = (await call('POST', `/agents/${id}/execute`, { message: 'Hello', background: true })).body
    const [, waiting] = await eventsOf(since, run.executionId, 2)
    expect(waiting).toMatchObject({ type: 'execution.waiting', data: { status: 'pending', waitingFor: 'approval' } })
    expect(await eventsOf(since, run.chatId, 1)).toMatchObject([
      { type: 'chat.needs_attention', data: { status: 'needs_attention' } },
    ])
    const [approval] = (await call('GET', `/approvals?executionId=${run.executionId}`)).body.approvals
    await call('POST', `/approvals/${approval.id}/approve`)
    const events = await eventsOf(since, approval.id, 2)
    expect(events).toMatchObject([
      { type: 'approval.created', data: { status: 'pending', tool: 'echo' } },
      { type: 'approval.decided', data: { status: 'approved' } },
    ])
    expect(JSON.stringify(events)).not.toContain('secret')
    await eventsOf(since, run.executionId, 3)
  })

  it('a mission that fails, is paused, and skips a run', async () => {
    model.fallback = { error: { status: 400 } }
    const since = await end()
    const agentId = await agent()
    const schedule = { type: 'cron', value: '0 0 1 1 *', catchUp: 'skip' }
    const { id } = (await call('POST', '/missions', { title: 'News', goal: 'A secret goal', agentId, schedule })).body
    await call('POST', `/missions/${id}/run`)
    await eventsOf(since, id, 1)
    await server.service.deps.db.mission.update({
      where: { id },
      data: { nextRunAt: new Date(clock.now().getTime() - 600_000) },
    })
    await eventsOf(since, id, 2)
    await call('POST', `/missions/${id}/pause`)
    const events = await eventsOf(since, id, 3)
    expect(events).toMatchObject([
      { type: 'mission.run_failed', data: { lastStatus: 'failed', failureCount: 1 } },
      { type: 'mission.skipped', data: { skipped: 1 } },
      { type: 'mission.paused', data: { status: 'paused' } },
    ])
    expect(JSON.stringify(events)).not.toContain('secret')
  })
})

/** Removes old events, as the server does every minute. */
async function forget(): Promise<void> {
  const deliverer = createDeliverer(server.service.deps, bodyOf)
  await deliverer.forget()
  await deliverer.stop()
}

it('Deliveries are sent once each and four at a time, however many servers claim them', async () => {
  await using receiver = await startReceiver()
  let held: { response: ServerResponse; title: string; at: number }[] = []
  // The port may have been another receiver's, whose webhooks are tried again.
  const path = `/${crypto.randomUUID()}`
  receiver.answer = (response, request) => {
    if (request.path === path) held.push({ response, title: request.body.data.title, at: Date.now() })
    else response.writeHead(404).end()
  }
  const { webhook } = (await call('POST', '/webhooks', { url: receiver.url + path, events: ['task.created'] })).body
  const delivered = { webhookId: webhook.id, status: 'delivered' as const, claims: 1 }
  const countDelivered = () => server.service.deps.db.webhookDelivery.count({ where: delivered })
  // On SQLite the first look takes the claims of a killed server over. The server has looked once it has delivered.
  await call('POST', '/tasks', { title: 'First' })
  await expect.poll(() => held.length).toBe(1)
  held.pop()?.response.writeHead(204).end()
  await expect.poll(countDelivered).toBe(1)
  // Beside that of the server, with clocks that differ.
  const deliverers = [2_000, 1_000, 0].map((ahead) => {
    const now = () => new Date(clock.now().getTime() + ahead)
    return createDeliverer({ ...server.service.deps, clock: { ...clock, now } }, bodyOf)
  })
  const tickAll = () => Promise.all(deliverers.map(({ tick }) => tick()))
  await tickAll()
  try {
    const titles = Array.from({ length: 10 }, (_, index) => `Task ${index}`)
    await Promise.all(titles.map((title) => call('POST', '/tasks', { title })))
    for (let answered = 0; answered < titles.length; ) {
      const expected = Math.min(4, titles.length - answered)
      await expect.poll(() => tickAll().then(() => held.length)).toBeGreaterThanOrEqual(expected)
      // Every server looks for more, while the attempts are under way.
      await tickAll()
      const arrivals = held.map(({ title, at }) => `${title} at ${at}`).join(', ')
      expect(held.length, arrivals).toBe(expected)
      for (const { response } of held) response.writeHead(204).end()
      held = []
      answered += expected
      await expect.poll(countDelivered).toBe(answered + 1)
    }
    expect(
      receiver
        .at(path)
        .map(({ body }) => body.data.title)
        .sort(),
    ).toEqual(['First', ...titles])
  } finally {
    for (const each of deliverers) await each.stop()
    await call('DELETE', `/webhooks/${webhook.id}`)
  }
})

describe('The feed', () => {
  it("has no event of another user's private resource", async () => {
    const since = await end()
    const own = await agent({ visibility: 'private' }, bob)
    await eventsOf(await end(), await agent(), 1)
    expect(JSON.stringify(await feed(`since=${since}`))).not.toContain(own)
    expect(JSON.stringify(await feed(`since=${since}`, bob))).toContain(own)
  })

  it('lists only the requested types, and continues behind its cursor', async () => {
    const since = await end()
    const ids: string[] = []
    for (let left = 3; left; left--) ids.push((await call('POST', '/tasks', { title: 'T' })).body.task.id)
    const id = await agent()
    await eventsOf(since, id, 1)
    const found: string[] = []
    let page = await feed(`since=${since}&types=task.created&limit=2`)
    expect(page.events).toHaveLength(2)
    for (; ; page = await feed(`since=${page.cursor}&types=task.created&limit=2`)) {
      found.push(...page.events.map((event: any) => event.data.id))
      expect(page.nextCursor).toBe(page.hasMore ? page.cursor : null)
      if (!page.hasMore) break
    }
    expect(found).toEqual(ids)
    expect((await call('GET', '/events?types=task.nothing')).status).toBe(400)
    expect((await call('GET', '/events?since=nothing')).status).toBe(400)
  })

  it('streams events from now on, and behind the id of the last one', async () => {
    const stream = (headers: Record<string, string> = {}, path = '/events') =>
      fetch(`${server.url}/api/v1${path}`, {
        headers: { Authorization: `Bearer ${ann.token}`, Accept: 'text/event-stream', ...headers },
      })
    const first = async (response: Response) => {
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
      let text = ''
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        text += part.value
        if (text.includes('\n\n')) break
      }
      await reader.cancel()
      const [, id, type, data] = /^id: (.*)\nevent: (.*)\ndata: (.*)$/m.exec(text) ?? []
      return { id: id!, type, data: JSON.parse(data ?? '{}') }
    }
    const live = await stream({}, '/events/stream?types=task.created')
    expect(live.headers.get('content-type')).toMatch('text/event-stream')
    const a = (await call('POST', '/tasks', { title: 'A' })).body.task
    const seen = await first(live)
    expect(seen).toMatchObject({ type: 'task.created', data: { type: 'task.created', data: { id: a.id } } })
    const b = (await call('POST', '/tasks', { title: 'B' })).body.task
    const later = await first(await stream({ 'Last-Event-ID': seen.id }, '/events?types=task.created'))
    expect(later.data.data.id).toBe(b.id)
  })

  it.runIf(onPostgres)('stops below an open transaction, so that a cursor skips none of its events', async () => {
    const { db } = server.service.deps
    const since = await end()
    const [opened, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const event = { organizationId: ann.organizationId, type: 'task.created', at: clock.now(), data: {} }
    const open = db.$transaction(async (tx) => {
      await announce(tx, { ...event, subjectId: 'first' })
      opened.resolve()
      await gate.promise
    })
    await opened.promise
    await db.$transaction((tx) => announce(tx, { ...event, subjectId: 'second' }))
    const before = await feed(`since=${since}`)
    expect(before.events).toEqual([])
    gate.resolve()
    await open
    const ids = async () => (await feed(`since=${before.cursor}`)).events.map(({ data }: any) => data.id)
    await expect.poll(ids).toEqual(['first', 'second'])
  })

  it.runIf(onPostgres)('waits for no open transaction of another database', async () => {
    const other = Object.assign(new URL(server.databaseEnv.DATABASE_URL ?? ''), { pathname: '/postgres' })
    await using cleanup = new AsyncDisposableStack()
    const client = cleanup.adopt(new Client({ connectionString: other.href }), (opened) => opened.end())
    await client.connect()
    await client.query('BEGIN; SELECT pg_current_xact_id()')
    const since = await end()
    const { id } = (await call('POST', '/tasks', { title: 'Beside' })).body.task
    await expect.poll(async () => (await feed(`since=${since}`)).events.map(({ data }: any) => data.id)).toEqual([id])
  })

  it.runIf(onPostgres)('continues after the stored events once the database moved to another cluster', async () => {
    const { db, settings } = server.service.deps
    // In the new cluster, the ids of transactions and the numbers are lower than the stored ones.
    await db.$executeRaw`UPDATE "OrganizationEvent" SET "position" = "position" + 1000000000, "sequence" = "sequence" + 1000000`
    await continueEvents(db, settings)
    const [last] = await db.organizationEvent.findMany({
      orderBy: [{ position: 'desc' }, { sequence: 'desc' }],
      take: 1,
    })
    const event = { organizationId: ann.organizationId, type: 'task.created', at: clock.now(), data: {} }
    await db.$transaction((tx) => announce(tx, { ...event, subjectId: 'moved' }))
    const { position, sequence } = await db.organizationEvent.findFirstOrThrow({ where: { subjectId: 'moved' } })
    expect(position).toBeGreaterThan(last!.position)
    expect(sequence).toBeGreaterThan(last!.sequence)
    await expect.poll(async () => (await feed(`since=${await end()}`)).hasMore).toBe(false)
  })

  it('answers 410 with the oldest cursor once events behind a cursor were removed', async () => {
    const since = await end()
    const { id } = (await call('POST', '/tasks', { title: 'Old' })).body.task
    await eventsOf(since, id, 1)
    clock.advance(31 * DAY)
    await forget()
    // The newest event stays, so that its reader misses nothing.
    expect((await call('GET', `/events?since=${await end()}`)).status).toBe(200)
    await eventsOf(await end(), await agent(), 1)
    await forget()
    const { status, body } = await call('GET', `/events?since=${since}`)
    expect([status, body.message]).toEqual([410, 'Events behind this cursor were removed'])
    const oldest = body.detail.split(' ').at(-1)
    expect((await feed(`since=${oldest}`)).events.length).toBeGreaterThan(0)
  })
})
