import type { PoolClient } from 'pg'
import { type Answer, type Prepared, sendBatch, sendTogether } from './batch.ts'
import { type Connections, isOfStatement } from './pool.ts'
import { isRead } from './retry.ts'

/** Maximum number of unanswered queries on a connection. */
const MAX_IN_FLIGHT = 8

/**
 * Maximum mean time of a query that shares a connection (ms), and the weight of its latest execution. Without the
 * limit, one slow query delays short ones from 3 to 180 ms (docs/adr/0016).
 */
const MAX_MEAN = 10
const WEIGHT = 0.1

type Asked = PromiseWithResolvers<Answer> & { statement: Prepared; key: string }

type Lane = {
  client: PoolClient
  /** Queries that are sent at the end of the event loop turn. */
  waiting: Asked[]
  inFlight: number
  answeredAt: number
  failure: unknown
}

const hasCapacity = ({ inFlight, failure }: Lane): boolean => inFlight < MAX_IN_FLIGHT && failure === undefined

/** Returns whether a statement only reads, takes no lock and is prepared. */
const isQuery = ({ sql, name, returns }: Prepared): boolean => returns && name !== '' && isRead(sql)

/**
 * Sends statements outside transactions. Short prepared queries share connections: those of an event loop turn are sent
 * as one group, and PostgreSQL writes one answer for all, which costs both sides less than many messages. Every other
 * statement has a connection of its own, because it may wait for a lock or read many rows.
 */
export function createLanes({ take, give }: Connections) {
  const lanes: Lane[] = []
  let opening: Promise<Lane> | null = null
  /** Mean time of each prepared query (ms). */
  const means = new Map<string, number>()
  /** Answers to the shared queries that are not sent yet, by name and parameters. */
  const unsent = new Map<string, Promise<Answer>>()

  async function open(): Promise<Lane> {
    const lane = { client: await take(), waiting: [], inFlight: 0, answeredAt: 0, failure: undefined }
    lanes.push(lane)
    return lane
  }

  /**
   * Takes a place on a shared connection, or on a new one, for which all queries of this moment wait. The place is
   * taken at once, because a connection without queries is given back.
   */
  async function join(): Promise<Lane> {
    let lane = lanes.find(hasCapacity)
    while (!lane) {
      opening ??= open().finally(() => {
        opening = null
      })
      const opened = await opening
      lane = hasCapacity(opened) ? opened : lanes.find(hasCapacity)
    }
    lane.inFlight++
    return lane
  }

  function leave(lane: Lane): void {
    if (--lane.inFlight) return
    lanes.splice(lanes.indexOf(lane), 1)
    give(lane.client, lane.failure)
  }

  /** The first execution does not count, because it prepares the statement. */
  function learn(name: string, time: number): void {
    const before = means.get(name)
    if (before === undefined) means.set(name, Number.POSITIVE_INFINITY)
    else means.set(name, Number.isFinite(before) ? before + (time - before) * WEIGHT : time)
  }

  async function askAlone(statement: Prepared): Promise<Answer> {
    const client = await take()
    const begun = performance.now()
    let failure: unknown
    try {
      const [answer] = await sendTogether(client, [statement])
      if (isQuery(statement)) learn(statement.name, performance.now() - begun)
      return answer!
    } catch (error) {
      failure = error
      throw error
    } finally {
      give(client, failure)
    }
  }

  /** Asks equal queries once until they are sent, so an answer is never older than its question. */
  function askTogether(statement: Prepared): Promise<Answer> {
    const key = JSON.stringify([statement.name, statement.values])
    const equal = unsent.get(key)
    if (equal) return equal
    const answer = place(statement, key)
    unsent.set(key, answer)
    return answer
  }

  async function place(statement: Prepared, key: string): Promise<Answer> {
    const lane = await join().catch((error) => {
      unsent.delete(key)
      throw error
    })
    const asked = { ...Promise.withResolvers<Answer>(), statement, key }
    if (lane.waiting.push(asked) === 1) process.nextTick(send, lane)
    return asked.promise
  }

  /**
   * Sends the waiting queries. Each learns from the time that their means do not explain. If one fails, those after it
   * were not executed, and are sent again.
   */
  async function send(lane: Lane): Promise<void> {
    const asked = lane.waiting.splice(0)
    for (const { key } of asked) unsent.delete(key)
    const statements = asked.map(({ statement }) => statement)
    const begun = performance.now()
    const { answers, error } = await sendBatch(lane.client, statements)
    const now = performance.now()
    const expected = statements.reduce((sum, { name }) => sum + means.get(name)!, 0)
    const excess = now - Math.max(begun, lane.answeredAt) - expected
    lane.answeredAt = now
    if (error !== undefined) lane.failure ??= error
    for (const [index, { statement, resolve, reject }] of asked.entries()) {
      learn(statement.name, Math.max(0, means.get(statement.name)! + excess))
      if (answers[index]) resolve(answers[index])
      else if (index > answers.length && isOfStatement(error)) resolve(askAlone(statement))
      else reject(error)
      leave(lane)
    }
  }

  return {
    ask(statement: Prepared): Promise<Answer> {
      const mean = means.get(statement.name)
      return mean !== undefined && mean < MAX_MEAN ? askTogether(statement) : askAlone(statement)
    },
  }
}
