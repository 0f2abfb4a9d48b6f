import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { violations } from '../engine/invariants.ts'
import type { Cluster } from '../support/cluster.ts'
import { AGE_OF_LOOK, startProxy } from '../support/proxy.ts'
import { request } from '../support/rest.ts'
import { openStream } from '../support/sse.ts'
import { createRandom, settled } from './service.ts'

export type ServersReport = {
  seed: number
  accepted: number
  byOutcome: Record<string, number>
  /** Number of times that a server was ended. */
  ends: number
  /** Streams that broke and were resumed, on either server. */
  resumed: number
  /** Time from the last disturbance until nothing was pending or running (ms). */
  settledAfter: number
}

type Options = {
  cluster: Cluster
  /** The result of `watchTransitions` on its database. */
  transitions: () => Promise<string[]>
  inFlight: number
  /** Minimum duration, and minimum number of times that a server is ended. */
  seconds: number
  ends: number
  /** Time between the start of one server and the end of the other (ms). */
  pause: number
  seed?: number
}

const newSeed = () => Math.floor(Math.random() * 2 ** 31)

type Client = {
  at: () => { url: string; token: string }
  agentId: string
  /** Answers after which the client asks again. Null is a connection that broke. */
  patientWith: readonly (number | null)[]
  ids: Set<string>
}

/** Starts a run. Returns its id. */
async function accepted({ at, agentId, patientWith, ids }: Client, message: string): Promise<string> {
  const headers = { 'Idempotency-Key': crypto.randomUUID() }
  for (;;) {
    const path = `/api/v1/agents/${agentId}/execute`
    const answer = await request(at(), 'POST', path, { body: { message, background: true }, headers }).catch(whenCut)
    if (answer?.status === 200) {
      ids.add(answer.body.executionId)
      return answer.body.executionId
    }
    const age = answer?.headers.get(AGE_OF_LOOK)
    assert(
      patientWith.includes(answer?.status ?? null),
      `${answer?.status}: ${JSON.stringify(answer?.body)}, after a look ${age} ms ago`,
    )
    await sleep(50)
  }
}

/** Follows a run to its end, from server to server. Returns the number of reconnections. */
async function follow({ at, patientWith }: Client, executionId: string): Promise<number> {
  let last = 0
  for (let resumed = 0; ; resumed++) {
    try {
      await using stream = await openStream(at(), `/api/v1/executions/${executionId}/events?after=${last}`)
      assert(stream.status === 200 || patientWith.includes(stream.status), `${stream.status}: ${stream.text}`)
      for (let event = stream.status === 200 && (await stream.next()); event; event = await stream.next()) {
        assert(event.id > last, `${executionId}: ${event.id} after ${last}`)
        last = event.id
        if (event.event !== 'result' && event.event !== 'error') continue
        assert.equal(await stream.next(), null, `${executionId} goes on after its end`)
        return resumed
      }
    } catch (error) {
      whenCut(error)
    }
    await sleep(50)
  }
}

/** Errors of `fetch` and of the stream's reader when a connection breaks. */
function whenCut(error: unknown): undefined {
  const isCut =
    error instanceof TypeError || (error instanceof Error && /broke off|aborted|terminated/.test(error.message))
  if (!isCut) throw error
}

/** Has clients start runs and follow them to their ends during a disturbance of the servers, and after it. */
async function under(
  { cluster, transitions, inFlight, seed = newSeed() }: Options,
  at: Client['at'],
  patientWith: Client['patientWith'],
  violence: (goesOn: () => boolean) => Promise<number>,
): Promise<ServersReport> {
  const random = createRandom(seed)
  const client = { at, agentId: await cluster.createAgent(), patientWith, ids: new Set<string>() }
  cluster.model.fallback = () => ({
    tokens: Array.from({ length: 1 + random() * 40 }, (_, index) => `token${index} `),
    delay: 5 + random() * 50,
  })
  let over = false
  let resumed = 0
  let ends = 0
  let settledAfter = 0
  const live = async (number: number) => {
    for (let count = 0; !over; count++) {
      const again = await follow(client, await accepted(client, `${seed}: client ${number}, message ${count}`))
      resumed += again
    }
  }
  const happen = async () => {
    ends = await violence(() => !over)
    over = true
    const calm = Date.now()
    await settled(cluster.db)
    settledAfter = Date.now() - calm
  }
  // Stops everything before it returns, also after a failure.
  const all = [happen(), ...Array.from({ length: inFlight }, (_, number) => live(number))]
  const failed = (await Promise.allSettled(all.map((each) => each.finally(() => (over = true))))).find(
    (result) => result.status === 'rejected',
  )
  if (failed) throw new Error(`seed ${seed}`, { cause: failed.reason })

  const rows = await cluster.db.execution.findMany({ where: { message: { startsWith: `${seed}: ` } } })
  const found = new Set(rows.map(({ id }) => id))
  for (const id of client.ids) assert(found.has(id), `${id} was accepted and is missing`)
  assert.equal(rows.length, client.ids.size, 'more runs than were asked for')
  assert.deepEqual(await transitions(), [], `seed ${seed}`)
  assert.deepEqual(await violations(cluster.db), [], `seed ${seed}`)
  const byOutcome: Record<string, number> = {}
  for (const { status, error, attempt } of rows) {
    const outcome = [status, error, attempt > 1 && status === 'completed' && 'at a later attempt'].filter(Boolean)
    byOutcome[outcome.join(', ')] = (byOutcome[outcome.join(', ')] ?? 0) + 1
  }
  return { seed, accepted: rows.length, byOutcome, ends, resumed, settledAfter }
}

/** Ends the two servers in turn, and restarts each. Returns the number of ends. */
async function endInTurn(
  { cluster, seconds, ends: atLeast, pause }: Options,
  signal: NodeJS.Signals,
  goesOn: () => boolean,
  allReady = () => true,
): Promise<number> {
  const until = Date.now() + seconds * 1_000
  let ends = 0
  while (goesOn() && (Date.now() < until || ends < atLeast)) {
    const start = await cluster.kill(ends++ % 2, signal)
    // It cannot start while the database is away.
    while (goesOn() && !(await start().then(Boolean.bind(null, true), () => false))) await sleep(100)
    while (goesOn() && !allReady()) await sleep(50)
    await sleep(pause)
  }
  return ends
}

/**
 * Two servers with many runs in flight. One or the other is killed again and again, and their database goes away and
 * returns. Every accepted run ends once, and every stream ends on either server.
 */
export async function killed(
  options: Options & { databaseRestarts: number; restartDatabase: () => Promise<void> },
): Promise<ServersReport> {
  const { cluster, seconds, databaseRestarts, restartDatabase } = options
  let turn = 0
  const restarts = async () => {
    for (let time = 0; time < databaseRestarts; time++) {
      await sleep((seconds * 1_000) / (databaseRestarts + 1))
      await restartDatabase()
    }
  }
  const either = () => cluster.at(turn++ % 2)
  const report = await under(options, either, [null, 409, 503], async (goesOn) => {
    const [ends] = await Promise.all([endInTurn(options, 'SIGKILL', goesOn), restarts()])
    return ends
  })
  for (const outcome of Object.keys(report.byOutcome))
    assert(AFTER_A_CUT.includes(outcome), `${outcome}, seed ${report.seed}`)
  return report
}

/** Outcomes of runs whose server or database was away. Text that was seen cannot be produced again. */
const AFTER_A_CUT = ['completed', 'completed, at a later attempt', 'failed, interrupted']

/**
 * Two servers with many runs in flight, whose database fails over once. `failOver` resolves when the other host accepts
 * writes. Returns the time from then until both servers were ready (ms).
 */
export async function failedOver(
  options: Omit<Options, 'ends' | 'pause'> & { failOver: () => Promise<void> },
): Promise<ServersReport & { readyAfter: number }> {
  const { cluster, seconds, failOver } = options
  let turn = 0
  let readyAfter = 0
  const isReady = ({ url }: { url: string }) =>
    fetch(`${url}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    )
  const either = () => cluster.at(turn++ % 2)
  const report = await under({ ...options, ends: 0, pause: 0 }, either, [null, 409, 503], async () => {
    await sleep(seconds * 500)
    await failOver()
    const promoted = Date.now()
    for (const server of cluster.servers) while (!(await isReady(server))) await sleep(20)
    readyAfter = Date.now() - promoted
    await sleep(seconds * 500)
    return 0
  })
  for (const outcome of Object.keys(report.byOutcome))
    assert(AFTER_A_CUT.includes(outcome), `${outcome}, seed ${report.seed}`)
  return { ...report, readyAfter }
}

/**
 * Two servers with many runs in flight behind a proxy, restarted in turn. No request fails, and no client asks twice,
 * except for the rest of a stream.
 */
export async function rollingRestart(options: Options): Promise<ServersReport> {
  const { servers, token } = options.cluster
  await using proxy = await startProxy(() => servers.map(({ url }) => url))
  const report = await under(
    options,
    () => ({ url: proxy.url, token }),
    [],
    (goesOn) => endInTurn(options, 'SIGTERM', goesOn, proxy.allReady),
  )
  assert.deepEqual(Object.keys(report.byOutcome), ['completed'])
  return report
}
