import { once } from 'node:events'
import { describe, expect, test } from 'vitest'
import { newId } from '../../src/lib/id.ts'
import { type Member, startServer } from '../support/server.ts'
import { stalled, unread } from '../support/unread.ts'
import { use } from '../support/use.ts'
import { callerOf, graphql, subscribe } from './support.ts'

const server = await use(startServer())
const ann = await server.member()

/** Resolves when the next subscriber listens to changes. */
function listening(): Promise<void> {
  const { deps } = server.service
  const { promise, resolve } = Promise.withResolvers<void>()
  const original = deps.bus.subscribe
  deps.bus.subscribe = (channel, handler) => {
    deps.bus.subscribe = original
    const stop = original(channel, handler)
    resolve()
    subscriptions++
    return () => {
      subscriptions--
      stop()
    }
  }
  return promise
}

/** Subscribes until it is disposed of; `next` returns the next change. Resolves once the server listens. */
async function follow(text: string, variables: Record<string, unknown> = {}, token = ann.token) {
  const gone = new AbortController()
  const events = subscribe(server, text, variables, { token, signal: gone.signal })
  const before = subscriptions
  const heeded = listening()
  const first = events.next()
  await Promise.race([heeded, first])
  let waiting: Promise<any> | null = first
  return {
    before,
    async next() {
      const { value, done } = await (waiting ?? events.next())
      waiting = null
      return done ? null : value
    },
    [Symbol.dispose]: () => gone.abort(),
  }
}

let subscriptions = 0

/** Creates tasks in the member's organization without publishing them. */
async function makeTasks({ organizationId, userId }: Member, count: number, description = ''): Promise<string[]> {
  const { db } = server.service.deps
  const now = new Date()
  const data = Array.from({ length: count }, () => ({
    id: newId(),
    organizationId,
    title: 'Before',
    description,
    status: 'pending' as const,
    priority: 'low' as const,
    createdBy: userId,
    createdAt: now,
    updatedAt: now,
  }))
  await db.task.createMany({ data })
  return data.map(({ id }) => id)
}

const TASKS =
  'subscription ($id: ID, $spaceId: ID) { taskChanges(id: $id, spaceId: $spaceId) { id title status result } }'
const CHATS = 'subscription ($id: ID) { chatChanges(id: $id) { id title status messageCount agent { name } } }'

describe('change subscriptions', () => {
  test('send tasks that are created, changed and claimed', async () => {
    using events = await follow(TASKS)
    const caller = callerOf(server, ann.token)
    const { id } = await caller.tasks.create({ title: 'One' })
    expect(await events.next()).toEqual({
      data: { taskChanges: { id, title: 'One', status: 'pending', result: null } },
    })
    await caller.tasks.update({ id, title: 'Two' })
    expect((await events.next()).data.taskChanges).toMatchObject({ id, title: 'Two' })
    await caller.tasks.claim({ id })
    expect((await events.next()).data.taskChanges).toMatchObject({ id, title: 'Two' })
  })

  test('send a task that its agent works on, to its result', async () => {
    const caller = callerOf(server, ann.token)
    const agent = await caller.agents.create({ name: 'Ada', systemPrompt: 'p' })
    const { id } = await caller.tasks.create({ title: 'Work', assignTo: agent.id })
    using events = await follow(TASKS, { id })
    await caller.tasks.execute({ id, background: true })
    const seen: string[] = []
    while (seen.at(-1) !== 'completed') seen.push((await events.next()).data.taskChanges.status)
    expect(new Set(seen)).toEqual(new Set(seen.length > 1 ? ['in_progress', 'completed'] : ['completed']))
  })

  test('send more than one answer may hold in total, if each change is small enough', async () => {
    const caller = callerOf(server, ann.token)
    const { id } = await caller.tasks.create({ title: 'Long' })
    const result = 'r'.repeat(5_000_000)
    await server.service.deps.db.task.updateMany({ where: { id }, data: { result } })
    using events = await follow(TASKS, { id })
    for (const title of ['1', '2', '3', '4', '5', '6']) {
      await caller.tasks.update({ id, title })
      const { data, errors } = await events.next()
      expect(errors).toBeUndefined()
      expect([data.taskChanges.title, data.taskChanges.result.length]).toEqual([title, result.length])
    }
  })

  test('send chats, whatever changes them', async () => {
    const caller = callerOf(server, ann.token)
    const agent = await caller.agents.create({ name: 'Ada', systemPrompt: 'p' })
    using events = await follow(CHATS)
    const { id } = await caller.chats.create({ title: 'New', agentId: agent.id })
    expect((await events.next()).data.chatChanges).toEqual({
      id,
      title: 'New',
      status: 'standby',
      messageCount: 0,
      agent: { name: 'Ada' },
    })
    await caller.agents.execute({ id: agent.id, chatId: id, message: 'hi' })
    let last: any
    do last = (await events.next()).data.chatChanges
    while (last.status !== 'done')
    expect(last).toMatchObject({ id, messageCount: 2 })
    await caller.chats.update({ id, title: 'Renamed' })
    // The end of the run may arrive once more before.
    let title = ''
    while (title !== 'Renamed') title = (await events.next()).data.chatChanges.title
  })

  test('send changes made with an Idempotency-Key once they are committed', async () => {
    using events = await follow(TASKS)
    const send = () =>
      fetch(`${server.url}/api/v1/tasks`, {
        method: 'POST',
        headers: {
          'Content-Type': 'application/json',
          'Idempotency-Key': 'once',
          Authorization: `Bearer ${ann.token}`,
        },
        body: JSON.stringify({ title: 'Kept' }),
      })
    await send()
    expect((await events.next()).data.taskChanges.title).toBe('Kept')
  })

  test('reach only callers who can see the row, and only for the row that they name', async () => {
    const caller = callerOf(server, ann.token)
    const stranger = await server.member({ organization: 'Elsewhere' })
    using theirs = await follow(TASKS, {}, stranger.token)
    const [one, other] = [await caller.tasks.create({ title: '1' }), await caller.tasks.create({ title: '2' })]
    using named = await follow(TASKS, { id: other.id })
    await caller.tasks.update({ id: one.id, title: '1b' })
    await caller.tasks.update({ id: other.id, title: '2b' })
    expect((await named.next()).data.taskChanges).toMatchObject({ id: other.id, title: '2b' })
    const own = await callerOf(server, stranger.token).tasks.create({ title: 'Own' })
    expect((await theirs.next()).data.taskChanges).toMatchObject({ id: own.id, title: 'Own' })
  })

  test('change subscriptions that name a row end when it is deleted', async () => {
    const caller = callerOf(server, ann.token)
    const { id } = await caller.tasks.create({ title: 'Gone' })
    using events = await follow(TASKS, { id })
    await caller.tasks.delete({ id })
    expect(await events.next()).toEqual({ data: { taskChanges: null } })
    expect(await events.next()).toBeNull()
  })

  test('are refused before the first change without the scope, or for a missing row', async () => {
    const other = await server.member({ scopes: ['chats:read'] })
    const stranger = await server.member({ organization: 'Elsewhere' })
    const { id } = await callerOf(server, ann.token).tasks.create({ title: 'Mine' })
    for (const [variables, token, statusCode, message] of [
      [{}, other.token, 403, "You don't have permission to access this resource"],
      [{ id: 'never' }, ann.token, 404, 'Task not found'],
      [{ id }, stranger.token, 404, 'Task not found'],
    ] as const) {
      const [answer] = await Array.fromAsync(subscribe(server, TASKS, variables, { token }))
      expect(answer.errors).toMatchObject([{ message, extensions: { statusCode } }])
    }
  })

  test('end with the token', async () => {
    const reader = await server.member()
    using events = await follow(TASKS, {}, reader.token)
    const { db, bus } = server.service.deps
    await db.token.update({ where: { id: reader.tokenId }, data: { revokedAt: new Date() } })
    bus.publish('token', [reader.tokenId])
    expect(await events.next()).toBeNull()
  })

  test('find changes whose notices were lost', async () => {
    using events = await follow(TASKS)
    const { db, bus } = server.service.deps
    const { id } = await callerOf(server, ann.token).tasks.create({ title: 'First' })
    expect((await events.next()).data.taskChanges.id).toBe(id)
    await db.task.update({ where: { id }, data: { title: 'Elsewhere', updatedAt: new Date() } })
    ;(bus as unknown as { notifyAll(): void }).notifyAll()
    let title: string
    do title = (await events.next()).data.taskChanges.title
    while (title !== 'Elsewhere')
  })

  test.each(['told', 'looked for'])('send each of more rows than one statement reads (%s)', async (how) => {
    const reader = await server.member({ organization: `Many ${how}` })
    const { db, bus } = server.service.deps
    const ids = await makeTasks(reader, 1500)
    using events = await follow('subscription { taskChanges { id } }', {}, reader.token)
    if (how === 'told') bus.publish('task', ids)
    else (bus as unknown as { notifyAll(): void }).notifyAll()
    const seen = new Set<string>()
    while (seen.size < ids.length) seen.add((await events.next()).data.taskChanges.id)
    expect([...seen].sort()).toEqual(ids.sort())
    await db.task.deleteMany({ where: { organizationId: reader.organizationId } })
  })

  test('send a slow reader nothing newer than the revocation of its token', async () => {
    const reader = await server.member({ organization: 'Late' })
    const { db, bus } = server.service.deps
    const ids = await makeTasks(reader, 100, 'x'.repeat(100_000))
    const heeded = listening()
    const body = JSON.stringify({ query: 'subscription { taskChanges { title description } }' })
    const { socket, res } = await unread(server, { method: 'POST', path: '/graphql', body }, reader.token)
    await heeded
    bus.publish('task', ids)
    await stalled(res)
    await db.token.update({ where: { id: reader.tokenId }, data: { revokedAt: new Date() } })
    bus.publish('token', [reader.tokenId])
    await db.task.updateMany({ where: { organizationId: reader.organizationId }, data: { title: 'Afterwards' } })
    let text = ''
    socket.on('data', (chunk) => {
      text += chunk
      if (text.slice(-50).includes('event: complete')) socket.destroy()
    })
    await once(socket, 'close')
    expect(text).toContain('Before')
    expect(text).not.toContain('Afterwards')
  })

  test('stop listening when the reader leaves', async () => {
    await expect.poll(() => subscriptions).toBe(0)
  })
})

test('a client that subscribes after a query misses no change of the chat', async () => {
  const caller = callerOf(server, ann.token)
  const { id } = await caller.chats.create({ title: 'Here' })
  const { data } = await graphql(server, 'query ($id: ID!) { chat(id: $id) { id title } }', { id }, ann)
  using events = await follow(CHATS, { id: data.chat.id })
  await caller.chats.update({ id, closed: true })
  expect((await events.next()).data.chatChanges.id).toBe(id)
})

test('a client that leaves before or as its stream begins causes no error', async () => {
  const body = JSON.stringify({ query: 'subscription { taskChanges { id } }' })
  const headers = {
    authorization: `Bearer ${ann.token}`,
    'content-type': 'application/json',
    accept: 'text/event-stream',
  }
  server.logs.length = 0
  for (let ms = 0; ms < 30; ms++) {
    const gone = new AbortController()
    const asked = fetch(`${server.url}/graphql`, { method: 'POST', headers, body, signal: gone.signal }).catch(() => {})
    setTimeout(() => gone.abort(), ms)
    await asked
    gone.abort()
  }
  await expect.poll(() => subscriptions).toBe(0)
  expect(server.logs.filter((line) => line.includes('"level":50'))).toEqual([])
})
