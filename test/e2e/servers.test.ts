import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { violations, watchTransitions } from '../engine/invariants.ts'
import { killed, rollingRestart } from '../soak/servers.ts'
import { until } from '../soak/service.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { type Forwarder, startForwarder } from '../support/forwarder.ts'
import { questionOf } from '../support/model-server.ts'
import { hasPostgres, type SharedDatabase, shareDatabase, shareEmptyDatabase } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { openStream, type StreamEvent } from '../support/sse.ts'

const notices = async ({ url }: { url: string }) =>
  ((await (await fetch(`${url}/readyz`)).json()) as { notices?: string }).notices

const kinds = (events: readonly StreamEvent[]) => events.map(({ event }) => event)

/** Sets the clock of a process 20 s ahead, which is more than a lease. */
const AHEAD = `data:text/javascript,${encodeURIComponent(`
  const { now } = Date
  globalThis.Date = class extends Date {
    static now = () => now() + 20_000
    constructor(...given) {
      super(...(given.length ? given : [now() + 20_000]))
    }
  }`)}`

describe.runIf(hasPostgres)('two servers on one PostgreSQL', () => {
  let database: SharedDatabase
  /** The connection on which the second server gets notices of the first. */
  let way: Forwarder
  let cluster: Cluster
  let agentId: string
  let transitions: () => Promise<string[]>

  beforeAll(async () => {
    database = await shareEmptyDatabase()
    way = await startForwarder(database.url)
    // All start at once on a database without a table. The last two serve the tests at the end.
    const roles = [{ ROLE: 'api' }, { ROLE: 'worker' }]
    const second = { DATABASE_DIRECT_URL: way.url, NODE_OPTIONS: `--import=${AHEAD}` }
    cluster = await startCluster(database.url, [{}, second, ...roles])
    agentId = await cluster.createAgent()
    transitions = await watchTransitions(cluster.db)
    for (const index of [0, 1]) {
      await until('notices arrive', async () => (await notices(cluster.at(index))) === 'listening')
    }
  })

  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]()
    await way?.[Symbol.asyncDispose]()
    await database?.drop()
  })

  const executeOn = (index: number, body: object, headers: Record<string, string> = {}) =>
    request(cluster.at(index), 'POST', `/api/v1/agents/${agentId}/execute`, {
      body: { message: 'Hello', ...body },
      headers,
    })

  const followOn = (index: number, executionId: string, after = 0) =>
    openStream(cluster.at(index), `/api/v1/executions/${executionId}/events?after=${after}`)

  const settled = () =>
    expect.poll(() => cluster.db.execution.count({ where: { status: { in: ['pending', 'running'] } } })).toBe(0)

  const sound = async () => {
    await settled()
    expect(await transitions()).toEqual([])
    expect(await violations(cluster.db)).toEqual([])
  }

  async function beginOnFirst() {
    const resume = Promise.withResolvers<void>()
    cluster.model.script({ tokens: ['one ', resume.promise, 'two'] })
    const { executionId, sessionId } = (await executeOn(0, { background: true })).body
    return { executionId, sessionId, resume }
  }

  test('that started at once with two more on an empty database made one organization and token', async () => {
    const { db } = cluster
    expect([await db.organization.count(), await db.token.count(), await db.installation.count()]).toEqual([1, 1, 1])
    for (const index of [0, 1, 2]) expect((await request(cluster.at(index), 'GET', '/api/v1/agents')).status).toBe(200)
  })

  test("use the database's clock, and the one with a wrong clock reports it once", async () => {
    const body = { name: 'Ada', systemPrompt: 'S' }
    const { id } = (await request(cluster.at(1), 'POST', '/api/v1/agents', { body })).body
    const { createdAt } = await cluster.db.agent.findUniqueOrThrow({ where: { id } })
    expect(Math.abs(createdAt.getTime() - Date.now())).toBeLessThan(10_000)
    const warnings = (index: number) => cluster.servers[index]!.out.match(/differs from the database clock/g)
    expect([warnings(0), warnings(1)]).toEqual([null, [expect.anything()]])
  })

  test('let a client follow a run on the other server, cut and resumed without gap or duplicate', async () => {
    const { executionId, resume } = await beginOnFirst()
    await using stream = await followOn(1, executionId)
    const seen = [(await stream.next())!, (await stream.next())!]
    expect(seen[1]!.data.delta.text).toBe('one ')
    await stream.close()
    await using resumed = await followOn(1, executionId, seen[1]!.id)
    resume.resolve()
    const rest = await resumed.rest()
    expect(kinds([...seen, ...rest])).toEqual(['meta', 'message', 'message', 'message', 'result'])
    await using whole = await followOn(0, executionId)
    const texts = (await whole.rest()).flatMap(({ data }) => data.delta?.text ?? []).join('')
    expect(texts).toBe('one two')
    await sound()
  })

  test('cancel a run of the other server, down to its model', async () => {
    const before = cluster.model.requests.length
    const { executionId } = await beginOnFirst()
    const asked = await cluster.model.request(before)
    const { status, body } = await request(cluster.at(1), 'POST', `/api/v1/executions/${executionId}/cancel`)
    expect([status, body.status ?? body.execution?.status]).toEqual([200, 'cancelled'])
    await asked.aborted
    await sound()
  })

  test('queue messages of one session in the order of their arrival, on either server', async () => {
    const { sessionId, resume } = await beginOnFirst()
    const before = cluster.model.requests.length
    const ids: string[] = []
    for (let index = 0; index < 10; index++) {
      const { body } = await executeOn(index % 2, { message: `m${index}`, sessionId, background: true })
      expect(body.status).toBe('pending')
      ids.push(body.executionId)
    }
    resume.resolve()
    await settled()
    const asked = cluster.model.requests.slice(before).map(questionOf)
    expect(asked.filter((message) => /^m\d/.test(String(message)))).toEqual(ids.map((_, index) => `m${index}`))
    await sound()
  })

  test('answer each of 20 concurrent messages to a session once', async () => {
    const { sessionId, resume } = await beginOnFirst()
    resume.resolve()
    const sent = Array.from({ length: 20 }, (_, index) =>
      executeOn(index % 2, { message: `at once ${index}`, sessionId }),
    )
    expect((await Promise.all(sent)).map(({ status }) => status)).toEqual(Array(20).fill(200))
    expect(await cluster.db.message.count({ where: { sessionId, role: 'assistant' } })).toBe(21)
    await sound()
  })

  test('start one run for a fire time that both find', async () => {
    const body = { title: 'M', goal: 'Go', agentId, schedule: { type: 'cron', value: '0 0 1 1 *' } }
    const ids: string[] = []
    for (let index = 0; index < 10; index++) {
      const { status, body: created } = await request(cluster.at(index % 2), 'POST', '/api/v1/missions', { body })
      expect(status, JSON.stringify(created)).toBe(200)
      ids.push(created.id)
    }
    const due = new Date(Date.now() - 1_000)
    await cluster.db.mission.updateMany({ where: { id: { in: ids } }, data: { nextRunAt: due, status: 'pending' } })
    const runs = () => cluster.db.execution.findMany({ where: { missionId: { in: ids } } })
    await expect.poll(async () => (await runs()).length).toBe(10)
    await settled()
    const left = { id: { in: ids }, nextRunAt: { lte: new Date() } }
    expect(await cluster.db.mission.count({ where: left })).toBe(0)
    expect(new Set((await runs()).map(({ missionId }) => missionId))).toEqual(new Set(ids))
    expect(await runs()).toHaveLength(10)
    await sound()
  })

  test('refuse a key that the other server revoked, and end its streams', async () => {
    const { body: key } = await request(cluster.at(0), 'POST', '/api/v1/keys', { body: { name: 'k' } })
    const other = { url: cluster.at(1).url, token: key.token }
    const { executionId, resume } = await beginOnFirst()
    await using stream = await openStream(other, `/api/v1/executions/${executionId}/events`)
    expect((await stream.next())?.event).toBe('meta')
    expect((await request(cluster.at(0), 'DELETE', `/api/v1/keys/${key.id}`)).status).toBe(200)
    await expect.poll(async () => (await request(other, 'GET', '/api/v1/agents')).status, { interval: 20 }).toBe(401)
    expect(kinds(await stream.rest())).not.toContain('result')
    resume.resolve()
    await sound()
  })

  test('share idempotency keys: 20 concurrent requests have one effect and join one run', async () => {
    const key = crypto.randomUUID()
    const post = (index: number) =>
      request(cluster.at(index % 2), 'POST', '/api/v1/tasks', {
        body: { title: 'Once' },
        headers: { 'Idempotency-Key': key },
      })
    const answers = await Promise.all(Array.from({ length: 20 }, (_, index) => post(index)))
    for (const { status } of answers) expect([200, 409]).toContain(status)
    const done = answers.filter(({ status }) => status === 200)
    expect(new Set(done.map(({ body }) => body.id)).size).toBe(1)
    expect(await cluster.db.task.count({ where: { title: 'Once' } })).toBe(1)

    const resume = Promise.withResolvers<void>()
    cluster.model.script({ tokens: ['one ', resume.promise, 'two'] })
    const before = cluster.model.requests.length
    const first = executeOn(0, {}, { 'Idempotency-Key': `${key}-run` })
    await cluster.model.request(before)
    const second = executeOn(1, {}, { 'Idempotency-Key': `${key}-run` })
    resume.resolve()
    expect((await second).body.executionId).toBe((await first).body.executionId)
    expect(cluster.model.requests.length).toBe(before + 1)
    await sound()
  })

  test('look for changes without notices, report it, and recover once notices arrive again', async () => {
    way.cut()
    await expect.poll(() => notices(cluster.at(1))).toBe('polling')
    const { executionId, resume } = await beginOnFirst()
    await using stream = await followOn(1, executionId)
    const seen = [(await stream.next())!, (await stream.next())!]
    resume.resolve()
    expect(kinds([...seen, ...(await stream.rest())]).at(-1)).toBe('result')
    const hanging = await beginOnFirst()
    const { status } = await request(cluster.at(1), 'POST', `/api/v1/executions/${hanging.executionId}/cancel`)
    expect(status).toBe(200)
    way.mend()
    await expect.poll(() => notices(cluster.at(1))).toBe('listening')
    await sound()
  })

  test('run the runs of a third that only accepts; one that only runs serves only health checks', async () => {
    const [api, worker] = [2, 3]
    const { status, body } = await executeOn(api, { message: 'for others' })
    expect([status, body.success]).toEqual([200, true])
    await using stream = await openStream(cluster.at(api), `/api/v1/agents/${agentId}/execute`, {
      method: 'POST',
      body: { message: 'as a stream', stream: true },
    })
    expect(kinds(await stream.rest()).at(-1)).toBe('result')
    const statusOf = async (path: string) => (await fetch(cluster.at(worker).url + path)).status
    expect([await statusOf('/healthz'), await statusOf('/readyz')]).toEqual([200, 200])
    for (const path of ['/api/v1/agents', '/graphql', '/trpc/agents.list', '/api/docs']) {
      expect(await statusOf(path)).toBe(404)
    }
    await sound()
  })
})

// `npm run test:soak` has the same at full length.
describe.runIf(hasPostgres)('two servers with runs in flight', () => {
  let database: SharedDatabase
  let way: Forwarder
  let cluster: Cluster
  let transitions: () => Promise<string[]>

  beforeAll(async () => {
    database = await shareDatabase()
    way = await startForwarder(database.url)
    const env = { LEASE_DURATION: '3', SHUTDOWN_DELAY: '3', LOG_LEVEL: 'fatal' }
    cluster = await startCluster(way.url, [env, env])
    transitions = await watchTransitions(cluster.db)
  })

  afterAll(async () => {
    await cluster?.[Symbol.asyncDispose]()
    await way?.[Symbol.asyncDispose]()
    await database?.drop()
  })

  test('report 503 on /readyz within 5 s of a silent database, and recover with it', async () => {
    const ready = async () =>
      (await fetch(`${cluster.at(0).url}/readyz`, { signal: AbortSignal.timeout(5_000) })).status
    expect(await ready()).toBe(200)
    way.hang()
    expect(await ready()).toBe(503)
    way.mend()
    await expect.poll(ready).toBe(200)
  })

  test('restart one by one behind a proxy without a failed request, and complete every run', async () => {
    const { accepted, ends } = await rollingRestart({
      cluster,
      transitions,
      seconds: 0,
      ends: 2,
      inFlight: 16,
      pause: 0,
    })
    expect(ends).toBe(2)
    expect(accepted).toBeGreaterThan(0)
  })

  test('lose, repeat and block no accepted run over kill -9 and two database outages', async () => {
    const restartDatabase = async () => {
      way.cut()
      await sleep(500)
      way.mend()
    }
    const violence = { seconds: 2, ends: 1, inFlight: 8, pause: 0, databaseRestarts: 2, restartDatabase }
    const { accepted } = await killed({ cluster, transitions, ...violence })
    expect(accepted).toBeGreaterThan(0)
  })
})
