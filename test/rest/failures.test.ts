import { subscribe } from 'node:diagnostics_channel'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { APIS, apis, expectError, onEachApi } from '../support/api.ts'
import { tickingClock } from '../support/clock.ts'
import { createFolder } from '../support/folder.ts'
import { event, type Reply } from '../support/model-replies.ts'
import { startModelServer } from '../support/model-server.ts'
import { postgresEnv } from '../support/postgres.ts'
import { hasPostgres, shareDatabase } from '../support/postgres-shared.ts'
import { type Answer, request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const KEY = 'canary-key-6f0d3b8e'
const UNAVAILABLE = 'Service temporarily unavailable. Please retry.'
const BUSY = 'Rate limit exceeded. Retry after 60 seconds.'

const env = (more: Record<string, string> = {}) => ({
  OPENAI_BASE_URL: model.baseUrl,
  OPENAI_API_KEY: KEY,
  DEFAULT_MODEL: 'compatible/test',
  ...more,
})
const model = await use(startModelServer())

type Server = Pick<TestServer, 'url' | 'token'>

const create = async (server: Server): Promise<string> => {
  const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
  return (await request(server, 'POST', '/api/v1/agents', { body })).body.id
}
const execute = (server: Server, id: string, fields: Record<string, unknown> = {}): Promise<Answer> =>
  request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi', ...fields } })
const last = async (server: Server) => (await request(server, 'GET', '/api/v1/executions?limit=1')).body.executions[0]

const forever = new Promise<never>(() => {})

describe('a run that fails', () => {
  let server: TestServer
  let agent: string
  beforeAll(async () => {
    server = await startServer(env(), { clock: tickingClock() })
    agent = await create(server)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  type Case = [what: string, reply: Reply, error: string | RegExp, detail?: string]
  const causes: Case[] = [
    ['an error', { error: { status: 500, message: 'The model is on fire' } }, 'HTTP 500: The model is on fire'],
    ['a refusal', { error: { status: 429, message: 'Slow down' } }, 'HTTP 429: Slow down'],
    ['an error that is no JSON', { error: { status: 502, body: '<html>Bad gateway</html>' } }, /^HTTP 502/],
    [
      'an error that repeats the key',
      { error: { status: 401, message: `Wrong: ${KEY}` } },
      'HTTP 401: Wrong: [redacted]. Check OPENAI_API_KEY',
    ],
    ['nothing', { end: 'hang' }, 'timeout'],
    ['nothing more after a while', { tokens: ['Well, '], end: 'hang' }, 'timeout', 'Well, '],
    [
      'no answer',
      { tokens: [event({ choices: [{ delta: { role: 'assistant' } }] })], end: 'cut' },
      /without an answer/,
    ],
    ['a broken connection', { tokens: ['Well, '], end: 'drop' }, /^The connection to the model broke/, 'Well, '],
    ['no end', { tokens: Array(200).fill('on '), delay: 20 }, 'timeout'],
    ['another protocol', { tokens: [Buffer.from('HELO\r\n\r\n')], end: 'cut' }, /./],
    ['an unreadable reply', { tokens: [Buffer.from('data: {"choices": 5}\n\n')] }, /cannot be read/],
  ]

  it.each(onEachApi(causes))('%s: gives a 500 with the reason if the model gives %s', async (...row) => {
    const [api, what, reply, error, output] = row
    const before = model.requests.length
    // A stream that ends before its first token, or with an error of an unknown kind, is asked for once more.
    const attempts = what === 'no answer' || what === 'another protocol' ? 2 : 1
    model.script(...Array(attempts).fill(reply))
    const { settings } = server.service.deps
    const { MODEL_IDLE_TIMEOUT, EXECUTION_TIMEOUT } = settings
    // On a slow machine other runs take longer than this.
    if (error === 'timeout') Object.assign(settings, { MODEL_IDLE_TIMEOUT: 700, EXECUTION_TIMEOUT: 2_000 })
    const answer = await apis[api](server, 'agents.execute', { id: agent, message: 'Hi' })
    Object.assign(settings, { MODEL_IDLE_TIMEOUT, EXECUTION_TIMEOUT })
    expectError(answer, 500, 'Chat execution failed')
    expect(model.requests.length).toBe(before + attempts)
    const execution = await last(server)
    expect(execution).toMatchObject({ status: 'failed', usageEstimated: true })
    if (typeof error === 'string') expect(execution.error).toBe(error)
    else expect(execution.error).toMatch(error)
    expect(JSON.stringify(execution)).not.toContain(KEY)
    expect(execution.error).not.toMatch(/\n| at .*\.(ts|js)/)
    const lines = server.logs.map((line) => JSON.parse(line)).filter(({ executionId }) => executionId === execution.id)
    const { requestId } = answer.body
    const asked = api === 'REST' ? { requestId } : { requestId: expect.any(String) }
    const limit = what === 'no end' ? /EXECUTION_TIMEOUT/ : /MODEL_IDLE_TIMEOUT/
    const detail = error === 'timeout' ? expect.stringMatching(limit) : expect.any(String)
    const facts = { provider: 'compatible', model: expect.any(String), detail }
    expect(lines).toMatchObject([{ level: 40, msg: 'a run failed', ...asked, ...facts }])
    expect(JSON.stringify(lines)).not.toMatch(/You are Ada|on fire|test-key/)

    // The session is free, and the message is stored.
    const next = await execute(server, agent, { sessionId: execution.sessionId, message: 'Again' })
    expect(next.body).toMatchObject({ status: 'completed' })
    const contents = model.requests.at(-1)?.body.messages.map(({ content }) => content)
    if (output) expect(contents).toEqual(['You are Ada.', 'Hi', output, 'Again'])
    // Without an answer between them, two user messages form one turn.
    else expect(contents?.slice(1).join('\n\n')).toMatch(/^Hi\n\n[\s\S]*Again$/)
  })

  it('counts the usage that the provider reported before it broke off', async () => {
    const usage = event({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 5 } })
    model.script({ tokens: ['Well, ', usage], end: 'drop' })
    expectError(await execute(server, agent), 500, 'Chat execution failed')
    const used = { usage: { input_tokens: 3, output_tokens: 5 }, usageEstimated: true }
    expect(await last(server)).toMatchObject({ status: 'failed', ...used })
  })

  it('gives the same without any model server', async () => {
    const gone = await startModelServer()
    await gone.close()
    await using other = await startServer(env({ OPENAI_BASE_URL: gone.baseUrl }))
    const answer = await execute(other, await create(other))
    expectError(answer, 500, 'Chat execution failed')
    const id = answer.headers.get('x-execution-id')
    const { requestId } = answer.body
    const lines = other.logs.map((line) => JSON.parse(line)).filter(({ level, database }) => level >= 40 && !database)
    expect(lines).toMatchObject([
      { msg: 'a run failed', executionId: id, requestId, detail: expect.stringMatching(/ECONNREFUSED/) },
      { msg: 'request', requestId, status: 500 },
    ])
    expect(await last(other)).toMatchObject({
      id,
      status: 'failed',
      error: expect.stringMatching(/ECONNREFUSED|fetch failed/),
    })
  })

  it('leaves the server running', async () => {
    expect((await execute(server, agent)).status).toBe(200)
    expect((await request(server, 'GET', '/readyz')).status).toBe(200)
  })
})

it('errors of normal use leave no warning in the log, and other errors do', async () => {
  await using server = await startServer()
  const statuses: number[] = []
  for (const path of ['/api/v1/agents/none', '/mcp', '/api/v1/agents?limit=x'])
    statuses.push((await request(server, 'GET', path)).status)
  expect(statuses).toEqual([404, 405, 400])
  const warnings = server.logs
    .map((line) => JSON.parse(line))
    .filter(({ level, msg }) => level >= 40 && msg === 'request')
  expect(warnings.map(({ status }) => status)).toEqual([400])
})

it('a model that sends more than 16 MiB fails the run, which stores the text so far', async () => {
  await using server = await startServer(env())
  const piece = 'x'.repeat(1024 * 1024)
  model.script({ tokens: Array(100).fill(piece) })
  expectError(await execute(server, await create(server)), 500, 'Chat execution failed')
  const { id, status, error, chatId } = await last(server)
  expect([status, error]).toEqual(['failed', 'The reply of the model is longer than 16 MiB'])
  const path = `/api/v1/chats/${chatId}/messages`
  const { messages } = (await request(server, 'GET', path)).body
  // Long texts of a list are cut; the run's log has all of it.
  expect(messages.at(-1)).toMatchObject({ content: piece.slice(0, 4_000), truncated: true })
  const { logs } = (await request(server, 'GET', `/api/v1/executions/${id}/logs?limit=5`)).body
  expect(JSON.stringify(logs)).toContain(piece)
})

it('a run that was pending too long fails with a timeout', async () => {
  await using server = await startServer(env({ QUEUE_TIMEOUT: '0.5' }))
  const agent = await create(server)
  const gate = Promise.withResolvers<void>()
  model.script({ tokens: [gate.promise, 'Hi'] })
  const { sessionId } = (await execute(server, agent, { background: true })).body
  expectError(await execute(server, agent, { sessionId }), 500, 'Chat execution failed')
  expect(await last(server)).toMatchObject({ status: 'failed', error: 'timeout' })
  gate.resolve()
})

describe('too many pending runs', () => {
  it('give a 429 if the operator set a limit, and leave nothing behind', async () => {
    await using server = await startServer(env({ MAX_PENDING_RUNS: '1' }))
    const agent = await create(server)
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: [gate.promise, 'Hi'] })
    const { sessionId } = (await execute(server, agent, { background: true })).body
    expect((await execute(server, agent, { sessionId, background: true })).body.status).toBe('pending')
    for (const api of APIS) {
      const answer = await apis[api](server, 'agents.execute', { id: agent, message: 'Hi', sessionId })
      expectError(answer, 429, BUSY)
      expect(answer.headers.get('retry-after')).toBe('60')
    }
    expect((await request(server, 'GET', '/api/v1/executions')).body.executions).toHaveLength(2)
    gate.resolve()
    await expect.poll(async () => (await last(server)).status).toBe('completed')
    expect((await execute(server, agent, { sessionId })).status).toBe(200)
  })
})

describe('a server that shuts down', () => {
  let server: TestServer
  let agent: string
  beforeEach(async () => {
    server = await startServer(env({ DRAIN_TIMEOUT: '20' }))
    agent = await create(server)
  })

  it('accepts no new run, is not ready, and lets active runs end', async () => {
    const gate = Promise.withResolvers<void>()
    const index = model.requests.length
    model.script({ tokens: [gate.promise, 'Done.'] })
    const waiting = execute(server, agent)
    await model.request(index)
    const stopped = server[Symbol.asyncDispose]()
    for (const api of APIS) {
      const answer = await apis[api](server, 'agents.execute', { id: agent, message: 'Hi' })
      expectError(answer, 503, UNAVAILABLE)
      expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
    }
    for (const path of ['/readyz', '/api/health']) expectError(await request(server, 'GET', path), 503, UNAVAILABLE)
    expect((await request(server, 'GET', '/healthz')).status).toBe(200)
    expect((await last(server)).status).toBe('running')
    gate.resolve()
    expect((await waiting).body).toMatchObject({ status: 'completed', result: 'Done.' })
    await stopped
    await expect(request(server, 'GET', '/healthz')).rejects.toThrow('fetch failed')
  })

  it('asks a caller to come again if its run does not end in time', async () => {
    await server[Symbol.asyncDispose]()
    server = await startServer(env({ DRAIN_TIMEOUT: '0.2' }))
    const index = model.requests.length
    model.script({ tokens: [forever] }, { tokens: [forever] })
    const id = await create(server)
    const waiting = execute(server, id)
    const request = await model.request(index)
    // A cut connection ends programs with the client of AG-UI.
    const streamed = await fetch(`${server.url}/api/v1/agents/${id}/ag-ui`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${server.token}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ threadId: 't', runId: 'r', messages: [{ id: 'm', role: 'user', content: 'Hi' }] }),
    })
    const stopped = server[Symbol.asyncDispose]()
    expectError(await waiting, 503, UNAVAILABLE)
    expect(await streamed.text()).toMatch(new RegExp(`"type":"RUN_ERROR","message":"${UNAVAILABLE}`))
    await request.aborted
    await stopped
  })
})

it.runIf(hasPostgres)('a stopping server is not ready, even if its database delays earlier callers', async () => {
  await using cleanup = new AsyncDisposableStack()
  const { url } = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
  const { path } = cleanup.use(await createFolder())
  const server = cleanup.use(await startServer(env(postgresEnv(url, path))))
  const { db, settings } = server.service.deps
  const free = Promise.withResolvers<void>()
  let held = 0
  const hold = () =>
    db.$transaction(() => {
      held++
      return free.promise
    })
  const holders = Array.from({ length: settings.DATABASE_POOL_SIZE }, hold)
  await expect.poll(() => held).toBe(settings.DATABASE_POOL_SIZE)
  const arrived = new Promise<unknown>((resolve) => subscribe('http.server.request.start', resolve))
  const asked = request(server, 'GET', '/readyz')
  await arrived
  const stopped = server[Symbol.asyncDispose]()
  expectError(await asked, 503, UNAVAILABLE)
  free.resolve()
  await Promise.all([...holders, stopped])
})

it('a database without write access gives each writer a 503, and no partial write', async () => {
  await using server = await startServer(env())
  const agent = await create(server)
  const { db } = server.service.deps
  const counts = async () => [await db.agent.count(), await db.chat.count(), await db.execution.count()]
  const before = await counts()
  const other = new Sqlite(join(server.folder, 'muster.db'))
  other.exec('BEGIN IMMEDIATE')
  for (const answer of await Promise.all(Array.from({ length: 3 }, () => execute(server, agent)))) {
    expectError(answer, 503, UNAVAILABLE)
    expect(answer.body.detail).toContain('holds a lock on the database file')
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
  }
  expect((await request(server, 'GET', `/api/v1/agents/${agent}`)).status).toBe(200)
  other.exec('ROLLBACK')
  other.close()
  expect(await counts()).toEqual(before)
  expect((await execute(server, agent)).status).toBe(200)
})
