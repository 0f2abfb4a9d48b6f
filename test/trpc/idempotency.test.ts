import { describe, expect, test } from 'vitest'
import { type Answer, request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// Every POST procedure is tried in ../idempotency.test.ts.

const server = await use(startServer())
const { db } = server.service.deps

let keys = 0
const newKey = () => `trpc ${++keys}`

type Sent = { body: unknown; token?: string; headers?: Record<string, string> }
const call = (name: string, key: string, { headers, ...rest }: Sent): Promise<Answer> =>
  request(server, 'POST', `/trpc/${name}`, { ...rest, headers: { 'Idempotency-Key': key, ...headers } })

const isReplay = ({ headers }: Answer) => headers.get('idempotent-replayed') === 'true'
const outcome = (answer: Answer) => [answer.status, isReplay(answer)]
const dataOf = ({ body }: Answer) => body.result.data

const bo = { name: 'Bo', systemPrompt: 'You are Bo.' }
const create = async () => dataOf(await call('agents.create', newKey(), { body: bo })).id as string

test('ten mutations of tRPC at once with one key create one agent', async () => {
  const [key, before] = [newKey(), await db.agent.count()]
  const answers = await Promise.all(Array.from({ length: 10 }, () => call('agents.create', key, { body: bo })))
  expect(new Set(answers.map((answer) => `${answer.status} ${dataOf(answer).id}`)).size).toBe(1)
  expect(answers.filter(isReplay)).toHaveLength(9)
  expect(await db.agent.count()).toBe(before + 1)
})

test('a key of tRPC with another input is refused as over REST', async () => {
  const key = newKey()
  expect(outcome(await call('agents.create', key, { body: bo }))).toEqual([200, false])
  const { status, body } = await call('agents.create', key, { body: { ...bo, name: 'Bob' } })
  const { message, data } = body.error
  expect([status, message, data.code, data.errorCode]).toEqual([
    422,
    'Idempotency-Key was used with another request',
    'UNPROCESSABLE_CONTENT',
    'idempotency_conflict',
  ])
})

test("a key of tRPC means another request for another member, and for another organization's", async () => {
  const key = newKey()
  const [colleague, stranger] = [await server.member(), await server.member({ organization: 'Elsewhere' })]
  const answers = []
  for (const { token } of [server, colleague, stranger])
    answers.push(await call('agents.create', key, { body: bo, token }))
  expect(answers.map(outcome)).toEqual(Array(3).fill([200, false]))
  expect(new Set(answers.map((answer) => dataOf(answer).id)).size).toBe(3)
})

test('a replay over tRPC is refused to a token without the scope, and to nobody at all', async () => {
  const key = newKey()
  await call('agents.create', key, { body: bo })
  const { token } = await server.member({ scopes: ['agents:read'] })
  expect(outcome(await call('agents.create', key, { body: bo, token }))).toEqual([403, false])
  expect(outcome(await call('agents.create', key, { body: bo, token: 'mst_nobody' }))).toEqual([401, false])
})

test.each(['', 'x'.repeat(256), 'caf\u00e9'])('tRPC refuses the invalid key %j after authentication', async (key) => {
  const { status, body } = await call('agents.create', key, { body: bo })
  expect([status, body.error.message]).toEqual([
    400,
    'Invalid Idempotency-Key. Must be 1-255 printable ASCII characters',
  ])
  expect((await call('agents.create', key, { body: bo, token: 'mst_nobody' })).status).toBe(401)
})

describe('a change over tRPC', () => {
  test('a change over tRPC with a key is made once, although the agent has changed meanwhile', async () => {
    const [id, key] = [await create(), newKey()]
    const body = { id, role: 'Poet' }
    expect(outcome(await call('agents.update', key, { body }))).toEqual([200, false])
    await request(server, 'PATCH', `/api/v1/agents/${id}`, { body: { role: 'Judge' } })
    expect(outcome(await call('agents.update', key, { body }))).toEqual([200, true])
    expect((await db.agent.findUniqueOrThrow({ where: { id } })).role).toBe('Judge')
  })

  test('a deletion over tRPC with a key answers its repetition, over REST too', async () => {
    const [id, key] = [await create(), newKey()]
    expect(outcome(await call('agents.delete', key, { body: { id } }))).toEqual([200, false])
    expect(outcome(await call('agents.delete', key, { body: { id } }))).toEqual([200, true])
    const headers = { 'Idempotency-Key': key }
    expect(outcome(await request(server, 'DELETE', `/api/v1/agents/${id}`, { headers }))).toEqual([200, true])
  })

  test('a refused change over tRPC stores nothing, and has the error of the procedure', async () => {
    const [key, before] = [newKey(), await db.idempotencyRecord.count()]
    const { status, body } = await call('agents.update', key, { body: { id: 'nobody', role: 'Poet' } })
    expect([status, body.error.message, body.error.data.code]).toEqual([404, 'Agent not found', 'NOT_FOUND'])
    for (const wrong of [{}, [], 'text', null, 7]) {
      expect((await call('agents.update', key, { body: wrong })).status).toBe(400)
    }
    expect(await db.idempotencyRecord.count()).toBe(before)
  })
})

describe('a batch with a key', () => {
  test('a batch of several mutations with a key is refused, and nothing of it happens', async () => {
    const before = await db.agent.count()
    const { status, body } = await call('agents.create,agents.create?batch=1', newKey(), { body: { 0: bo, 1: bo } })
    expect([status, body[0].error.message]).toEqual([400, 'An Idempotency-Key is for one call, not for a batch'])
    expect(await db.agent.count()).toBe(before)
  })

  test.each(['agents.create', 'agents%2Ecreate'])('a batch of one mutation, %s, takes a key', async (name) => {
    const [key, before] = [newKey(), await db.agent.count()]
    const send = () => call(`${name}?batch=1`, key, { body: { 0: bo } })
    expect([outcome(await send()), outcome(await send())]).toEqual([
      [200, false],
      [200, true],
    ])
    expect(await db.agent.count()).toBe(before + 1)
  })

  test('a streamed answer to one mutation takes a key', async () => {
    const [key, before] = [newKey(), await db.agent.count()]
    for (let sent = 0; sent < 2; sent++) {
      const response = await fetch(`${server.url}/trpc/agents.create?batch=1`, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${server.token}`,
          'Content-Type': 'application/json',
          'Idempotency-Key': key,
          'trpc-accept': 'application/jsonl',
        },
        body: JSON.stringify({ 0: bo }),
      })
      expect(await response.text()).toContain('Bo')
    }
    expect(await db.agent.count()).toBe(before + 1)
  })
})

test('reads over tRPC, and names that are no procedures, pay no attention to a key', async () => {
  const headers = { 'Idempotency-Key': newKey() }
  const batch = '/trpc/agents.list,models.list?batch=1&input={}'
  expect((await request(server, 'GET', batch, { headers })).status).toBe(200)
  expect((await call('agents.nothing', newKey(), { body: {} })).status).toBe(404)
  expect((await call('constructor', newKey(), { body: {} })).status).toBe(404)
  expect((await call('agents.list', newKey(), { body: {} })).status).toBe(405)
})
