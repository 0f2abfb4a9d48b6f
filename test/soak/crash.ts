import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { violations, watchTransitions } from '../engine/invariants.ts'
import type { ModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { openStream, type StreamEvent } from '../support/sse.ts'
import { createRandom, execute, executePath, type Subject, settled, until } from './service.ts'

const IN_FLIGHT = 8

/** The client's view of the run before the server died. */
type Client = { executionId: string | null; seen: StreamEvent[]; error: unknown }

export type CrashReport = {
  rounds: number
  seed: number
  accepted: number
  byOutcome: Record<string, number>
  /** Number of streams that were cut, and resumed after the restart. */
  resumed: number
  /** The longest time from the start of the next process until nothing was pending or running (ms). */
  slowestRecovery: number
}

/** Replies of 0 to 30 tokens, some of which start late, so that a kill meets runs at any moment of their lives. */
function answerAtRandom(model: ModelServer, random: () => number): void {
  model.fallback = () => {
    const pause = sleep(random() * 120)
    return { tokens: [pause, ...Array.from({ length: random() * 30 }, (_, index) => `token${index} `)], delay: 4 }
  }
}

async function read(subject: Subject, client: Client, path: string, options: object): Promise<void> {
  const stream = await openStream(subject, path, options)
  for (let event = await stream.next(); event; event = await stream.next()) {
    client.executionId ??= event.data.executionId
    client.seen.push(event)
  }
}

/** Eight runs in flight, of every kind, half of them in one session. */
function* begin(subject: Subject, random: () => number, sessionId: string): Generator<[Client, Promise<void>]> {
  for (let index = 0; index < IN_FLIGHT; index++) {
    const client: Client = { executionId: null, seen: [], error: null }
    const onBusy = random() < 0.1 ? 'interrupt' : 'queue'
    const body = { message: `message ${index}`, ...(index % 2 && { sessionId, onBusy }) }
    const inBackground = async () => {
      const { body: accepted } = await execute(subject, { ...body, background: true })
      client.executionId = accepted.executionId
      if (random() < 0.2) await request(subject, 'POST', `/api/v1/executions/${client.executionId}/cancel`)
      else await read(subject, client, `/api/v1/executions/${client.executionId}/events`, {})
    }
    const waiting = async () => {
      const { status, body: answer } = await execute(subject, body)
      if (status === 200) client.executionId = answer.executionId
    }
    const streamed = () =>
      read(subject, client, executePath(subject), { method: 'POST', body: { ...body, stream: true } })
    const run = [streamed, inBackground, streamed, waiting][index % 4]!
    const keep = (error: unknown) => {
      client.error = error
    }
    yield [client, run().catch(keep)]
  }
}

/** Errors of `fetch` and of the stream's reader when a connection breaks. */
const isCut = (error: unknown): boolean =>
  error instanceof TypeError || (error instanceof Error && error.message.startsWith('The stream broke off'))

/** Checks that all events of the client are still there and unchanged, and that its stream ends. */
async function check(subject: Subject, { executionId, seen, error }: Client): Promise<boolean> {
  if (error && !isCut(error)) throw error
  if (!executionId) return false
  const row = await subject.db.execution.findUnique({ where: { id: executionId } })
  assert(row, `${executionId} was accepted and is missing`)
  const last = seen.at(-1)?.id ?? 0
  const headers = { 'Last-Event-ID': String(last) }
  const stream = await openStream(subject, `/api/v1/executions/${executionId}/events`, { headers })
  const rest = await stream.rest()
  const whole = [...seen, ...rest]
  const ends = whole.filter(({ event }) => event === 'result' || event === 'error')
  assert.equal(ends.length, 1, `${executionId} has ${ends.length} terminal events`)
  assert.equal(whole.at(-1), ends[0], `${executionId} goes on after its end`)
  assert.equal(ends[0]!.data.status, row.status)
  for (const [index, { id }] of whole.entries())
    assert(index === 0 || id > whole[index - 1]!.id, `${executionId}: ${id}`)
  const seenBefore = seen.some(({ event }) => event === 'message') && !seen.includes(ends[0]!)
  if (seenBefore && row.attempt > 1) assert.notEqual(row.status, 'completed', `${executionId} was shown twice`)

  const replayed = await openStream(subject, `/api/v1/executions/${executionId}/events`)
  const stored = new Map((await replayed.rest()).map((event) => [event.id, event.text]))
  for (const { id, text } of seen) if (stored.has(id)) assert.equal(stored.get(id), text)
  return !seen.includes(ends[0]!)
}

const hasAccepted = async ({ db }: Subject, count: number, since: Date) =>
  (await db.execution.count({ where: { createdAt: { gte: since } } })) >= count

/** Settings of a server for `crash`. */
export const CROWDED = { MAX_RUNNING_PER_ORGANIZATION: '6' }

/**
 * Kills a new server at a random moment with eight runs in flight, restarts it and checks, for a number of rounds.
 * Leaves it idle.
 */
export async function crash(
  subject: Subject,
  rounds: number,
  seed = Math.floor(Math.random() * 2 ** 31),
): Promise<CrashReport> {
  const random = createRandom(seed)
  const transitions = await watchTransitions(subject.db)
  const { sessionId } = (await execute(subject, { message: 'Begin' })).body
  answerAtRandom(subject.model, random)
  const report: CrashReport = { rounds, seed, accepted: 0, byOutcome: {}, resumed: 0, slowestRecovery: 0 }
  for (let round = 0; round < rounds; round++) {
    const began = new Date()
    const runs = [...begin(subject, random, sessionId)]
    // At any moment of the runs, and in every second round during their acceptance.
    if (round % 2) await until('eight runs accepted', () => hasAccepted(subject, IN_FLIGHT, began))
    await sleep(random() * 300)
    await subject.kill()
    await Promise.all(runs.map(([, run]) => run))
    const restarted = Date.now()
    await subject.start()
    await settled(subject.db)
    report.slowestRecovery = Math.max(report.slowestRecovery, Date.now() - restarted)
    for (const [client] of runs) if (await check(subject, client)) report.resumed++
    assert.deepEqual(await violations(subject.db, began), [], `seed ${seed}, round ${round}`)
  }
  assert.deepEqual(await transitions(), [])
  assert.deepEqual(await violations(subject.db), [])
  for (const { status, error, attempt } of await subject.db.execution.findMany()) {
    const outcome = [status, error, attempt > 1 && status === 'completed' && 'at the second attempt']
      .filter(Boolean)
      .join(', ')
    report.byOutcome[outcome] = (report.byOutcome[outcome] ?? 0) + 1
    report.accepted++
  }
  return report
}
