import type { Logger } from 'pino'
import { type Db, databaseFile, Prisma } from '../db/client.ts'
import type { Clock } from '../lib/clock.ts'
import { watchTask } from '../lib/watch-task.ts'
import type { Settings } from '../settings.ts'
import type { Actor } from './actor.ts'

// Rate limits (contract-2.md section 3.8): fixed windows, counted in each process and added up in the database.

/** Interval at which a server adds its counts to the database (ms). */
const EXCHANGE_INTERVAL = 1_000

/** The limits: of requests, and of runs. */
export type LimitName = 'default' | 'execute'

/** A limit of one caller. */
export type LimitState = {
  name: LimitName
  /** Maximum number of calls in a window. */
  limit: number
  /** Length of the window (ms). */
  window: number
  remaining: number
  /** End of the window (ms since 1970). */
  resetsAt: number
}

/** The outcome of calls: `retryAfter` is the time to wait (seconds), or null if they were counted. */
export type Taken = { state: LimitState; retryAfter: number | null }

export type RateLimits = {
  /** Counts calls of a caller unless they exceed the limit. Returns null if no limit has that name. */
  take(name: LimitName, caller: string, calls: number): Promise<Taken | null>
  /** Returns the limits of a caller at this server. */
  statesOf(caller: string): LimitState[]
  stop(): Promise<void>
}

/** Counts of one caller in one window. */
type Counter = {
  key: string
  startsAt: number
  endsAt: number
  /** The last known total of all servers. */
  known: number
  /** Accepted calls that the database does not contain yet, including those on their way. */
  unsent: number
  sending: number
}

/** Returns the name of the caller for whom calls are counted: a key, a browser session, or the user of an ID token. */
export const callerOf = ({ tokenId, sessionId, userId }: Pick<Actor, 'tokenId' | 'sessionId' | 'userId'>): string =>
  tokenId ? `token:${tokenId}` : sessionId !== undefined ? `session:${sessionId}` : `user:${userId}`

/**
 * Creates the limits of the operator; null without any. On SQLite the only server counts alone. On PostgreSQL each of n
 * servers withholds at most limit ÷ window (s) calls of a caller from the others. Together they accept at most limit +
 * n × limit ÷ window.
 */
export function createRateLimits(deps: { settings: Settings; db: Db; clock: Clock; log: Logger }): RateLimits | null {
  const { settings, db, clock, log } = deps
  const limits = { default: settings.RATE_LIMIT, execute: settings.EXECUTE_RATE_LIMIT }
  if (!limits.default && !limits.execute) return null
  const isShared = databaseFile(settings) === null
  const counters = new Map<string, Counter>()

  function counterOf(name: LimitName, caller: string, window: number): Counter {
    const key = `${name} ${caller}`
    const startsAt = Math.floor(clock.now().getTime() / window) * window
    const found = counters.get(key)
    if (found?.startsAt === startsAt) return found
    // The rest of the previous window is obsolete.
    const counter = { key, startsAt, endsAt: startsAt + window, known: 0, unsent: 0, sending: 0 }
    counters.set(key, counter)
    return counter
  }

  const rowOf = ({ key, startsAt }: Counter) => Prisma.sql`"key" = ${key} AND "startsAt" = ${new Date(startsAt)}`

  /** Adds the unsent calls to the count of all servers, and stores the returned total. */
  async function flush(counter: Counter): Promise<void> {
    const { key, startsAt, endsAt, unsent } = counter
    counter.unsent = 0
    // The calls stay unconfirmed during the statement.
    counter.sending += unsent
    try {
      const [row] = await db.$queryRaw<{ count: number }[]>(Prisma.sql`
        INSERT INTO "RateWindow" ("key", "startsAt", "endsAt", "count")
        VALUES (${key}, ${new Date(startsAt)}, ${new Date(endsAt)}, ${unsent})
        ON CONFLICT ("key", "startsAt") DO UPDATE SET "count" = "RateWindow"."count" + ${unsent}
        RETURNING "count"`)
      counter.known = Math.max(counter.known, Number(row?.count ?? 0))
    } catch (error) {
      counter.unsent += unsent
      throw error
    } finally {
      counter.sending -= unsent
    }
  }

  /** Counts calls in the database unless they exceed the limit. Returns whether they were counted. */
  async function reserve(counter: Counter, calls: number, limit: number): Promise<boolean> {
    await flush(counter)
    const [row] = await db.$queryRaw<{ count: number }[]>(Prisma.sql`
      UPDATE "RateWindow" SET "count" = "count" + ${calls}
      WHERE ${rowOf(counter)} AND "count" + ${calls} <= ${limit} RETURNING "count"`)
    // No row means that the limit is reached, so later calls can skip the statement.
    counter.known = Math.max(counter.known, row ? Number(row.count) : limit - calls + 1)
    return row !== undefined
  }

  async function exchange(): Promise<void> {
    const now = clock.now().getTime()
    for (const [key, counter] of counters) {
      if (counter.endsAt <= now) counters.delete(key)
      else if (isShared && counter.unsent) await flush(counter)
    }
  }

  const secondsLeft = ({ endsAt }: Counter): number => Math.max(1, Math.ceil((endsAt - clock.now().getTime()) / 1000))

  const toState = (name: LimitName, limit: number, window: number, counter: Counter): LimitState => ({
    name,
    limit,
    window,
    resetsAt: counter.endsAt,
    remaining: Math.max(0, limit - counter.known - counter.unsent - counter.sending),
  })

  const watch = watchTask((error) => log.error({ err: error }, 'failed to exchange counts of rate limits, retrying'))
  const timer = setInterval(() => void watch(exchange()), EXCHANGE_INTERVAL)

  return {
    async take(name, caller, calls) {
      const set = limits[name]
      if (!set) return null
      const { limit, window } = set
      const counter = counterOf(name, caller, window)
      const refused = () => ({ state: toState(name, limit, window, counter), retryAfter: secondsLeft(counter) })
      const unconfirmed = counter.unsent + counter.sending
      if (counter.known + unconfirmed + calls > limit) return refused()
      if (!isShared || unconfirmed + calls <= Math.floor((limit * 1000) / window)) counter.unsent += calls
      else if (!(await reserve(counter, calls, limit))) return refused()
      return { state: toState(name, limit, window, counter), retryAfter: null }
    },
    statesOf(caller) {
      return (['default', 'execute'] as const).flatMap((name) => {
        const set = limits[name]
        return set ? [toState(name, set.limit, set.window, counterOf(name, caller, set.window))] : []
      })
    },
    async stop() {
      clearInterval(timer)
      await exchange().catch((error) => log.warn({ err: error }, 'the last counts of rate limits were lost'))
    },
  }
}

/**
 * Returns the headers of the limits of a request, in the form of the IETF's draft and of older clients. The older form
 * can describe only one limit: the one with the smallest rest.
 */
export function headersOf(states: readonly LimitState[], now: number): Record<string, string> {
  const [tightest] = states.toSorted((a, b) => a.remaining - b.remaining)
  if (!tightest) return {}
  const secondsTo = (time: number) => Math.max(0, Math.ceil((time - now) / 1000))
  return {
    'RateLimit-Policy': states.map(({ name, limit, window }) => `"${name}";q=${limit};w=${window / 1000}`).join(', '),
    RateLimit: states
      .map(({ name, remaining, resetsAt }) => `"${name}";r=${remaining};t=${secondsTo(resetsAt)}`)
      .join(', '),
    'X-RateLimit-Limit': String(tightest.limit),
    'X-RateLimit-Remaining': String(tightest.remaining),
    'X-RateLimit-Reset': String(Math.ceil(tightest.resetsAt / 1000)),
  }
}
