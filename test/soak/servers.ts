import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { violations, watchTransitions } from '../engine/invariants.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { startPostgres } from '../support/postgres.ts'
import { request } from '../support/rest.ts'
import { openStream } from '../support/sse.ts'
import { createRandom, settled } from './service.ts'

export type ServersReport = {
  seed: number
  accepted: number
  byOutcome: Record<string, number>
  /** How often a server was ended. */
  ends: number
  /** Streams that broke and were taken up again, on either server. */
  resumed: number
  /** From the end of the violence until nothing was pending or running (ms). */
  settledAfter: number
}

type Options = {
  /** How long the violence lasts. */
  seconds: number
  inFlight: number
  /** How one or the other server is ended, again and again: killed, or told to stop, as in a rolling restart. */
  signal: 'SIGKILL' | 'SIGTERM'
  /** Between the start of one and the end of the other (ms). */
  pause: number
  databaseRestarts: number
  /** In seconds. */
  lease?: number
  seed?: number
}

/** What a client of either server goes through: it tries again until it has an answer. */
function createClients(cluster: Cluster, agentId: string, random: () => number) {
  const ids = new Set<string>()
  let resumed = 0
  const either = () => cluster.at(random() < 0.5 ? 0 : 1)

  async function accepted(message: string): Promise<string> {
    const headers = { 'Idempotency-Key': crypto.randomUUID() }
    for (;;) {
      const path = `/api/v1/agents/${agentId}/execute`
      const options = { body: { message, background: true }, headers }
      const answer = await request(either(), 'POST', path, options).catch(whenCut)
      if (answer?.status === 200) return answer.body.executionId
      assert([undefined, 409, 503].includes(answer?.status), JSON.stringify(answer?.body))
      await sleep(50)
    }
  }

  /** Follows to the end, on whichever server answers. */
  async function follow(executionId: string): Promise<void> {
    let last = 0
    let isEnded = false
    while (!isEnded) {
      try {
        await using stream = await openStream(either(), `/api/v1/executions/${executionId}/events?after=${last}`)
        if (stream.status === 200) {
          for (let event = await stream.next(); event; event = await stream.next()) {
            assert(event.id > last, `${executionId}: ${event.id} after ${last}`)
            assert(!isEnded, `${executionId} goes on after its end`)
            last = event.id
            isEnded = event.event === 'result' || event.event === 'error'
          }
        } else assert.equal(stream.status, 503)
      } catch (error) {
        whenCut(error)
      }
      if (isEnded) return
      resumed++
      await sleep(50)
    }
  }

  return {
    ids,
    resumed: () => resumed,
    async live(number: number, goesOn: () => boolean): Promise<void> {
      for (let count = 0; goesOn(); count++) {
        const executionId = await accepted(`client ${number}, message ${count}`)
        ids.add(executionId)
        await follow(executionId)
      }
    },
  }
}

/** What `fetch` and the reader of a stream say of a connection that broke. */
function whenCut(error: unknown): undefined {
  const isCut =
    error instanceof TypeError || (error instanceof Error && /broke off|aborted|terminated/.test(error.message))
  if (!isCut) throw error
}

/**
 * Two servers on a PostgreSQL with many runs in flight, one or the other ended again and again, and the database
 * stopped and started. Whatever was accepted ends once, and every stream comes to its end on either server.
 */
export async function servers(options: Options): Promise<ServersReport> {
  const { seconds, inFlight, signal, pause, databaseRestarts, lease = 15 } = options
  const { seed = Math.floor(Math.random() * 2 ** 31) } = options
  const random = createRandom(seed)
  await using postgres = await startPostgres()
  const env = { LEASE_DURATION: String(lease), LOG_LEVEL: 'fatal' }
  await using cluster = await startCluster(await postgres.createDatabase(), [env, env])
  const transitions = await watchTransitions(cluster.db)
  const agentId = await cluster.createAgent()
  cluster.model.fallback = () => ({
    tokens: Array.from({ length: random() * 40 }, (_, index) => `token${index} `),
    delay: 5 + random() * 50,
  })
  const clients = createClients(cluster, agentId, random)
  const until = Date.now() + seconds * 1_000
  const goesOn = () => Date.now() < until
  const lives = Promise.all(Array.from({ length: inFlight }, (_, number) => clients.live(number, goesOn)))
  let ends = 0

  async function kill(): Promise<void> {
    await sleep(pause)
    while (goesOn()) {
      const start = await cluster.kill(ends++ % 2, signal)
      // It cannot start while the database is away.
      while (!(await start().then(Boolean.bind(null, true), () => false))) await sleep(100)
      await sleep(pause)
    }
  }

  async function restartDatabase(): Promise<void> {
    for (let time = 0; time < databaseRestarts; time++) {
      await sleep((seconds * 1_000) / (databaseRestarts + 1))
      await postgres.stop()
      await sleep(500 + random() * 1_000)
      await postgres.start()
    }
  }

  await Promise.all([kill(), restartDatabase()])
  const calm = Date.now()
  await settled(cluster.db, 35_000)
  const settledAfter = Date.now() - calm
  await lives

  const rows = await cluster.db.execution.findMany()
  const found = new Set(rows.map(({ id }) => id))
  for (const id of clients.ids) assert(found.has(id), `${id} was accepted and is missing`)
  assert.equal(rows.length, clients.ids.size, 'more runs than were asked for')
  assert.deepEqual(await transitions(), [])
  assert.deepEqual(await violations(cluster.db), [], `seed ${seed}`)
  const byOutcome: Record<string, number> = {}
  for (const { status, error, attempt } of rows) {
    const outcome = [status, error, attempt > 1 && status === 'completed' && 'at a later attempt'].filter(Boolean)
    byOutcome[outcome.join(', ')] = (byOutcome[outcome.join(', ')] ?? 0) + 1
  }
  return { seed, accepted: rows.length, byOutcome, ends, resumed: clients.resumed(), settledAfter }
}
