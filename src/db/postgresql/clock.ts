import type { Logger } from 'pino'
import { type Clock, systemClock } from '../../lib/clock.ts'
import { type Db, Prisma } from '../client.ts'

/** Interval of clock comparisons (ms). */
const INTERVAL = 5_000
/** Maximum rounding error of a comparison (ms). */
const ROUNDING = 2
/** Maximum clock difference that is not logged (ms). */
const TOLERANCE = 1_000

/**
 * Opens a clock that follows PostgreSQL, so that all servers agree on times such as lease expiries. It is the machine's
 * clock plus an offset that is measured now and every five seconds until `stop`. Logs a difference of more than a
 * second once. Changes of the machine's clock, and sleep, trigger a new measurement first. Rejects if the database does
 * not answer.
 */
export async function openDatabaseClock(
  db: Db,
  log: Logger,
  machine: Clock = systemClock,
): Promise<Clock & { stop: () => void }> {
  /** Offset of the database's clock (ms). */
  let ahead = 0
  let hasWarned = false
  let looking = false
  /** Time of the last measurement, by the machine's clock and by the monotonic clock (ms). */
  let at = { machine: 0, steady: 0 }

  async function compare(): Promise<void> {
    const begun = { machine: machine.now().getTime(), steady: performance.now() }
    const [row] = await db.$queryRaw<{ now: number }[]>(Prisma.sql`
      SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "now"`)
    // The database read its clock between question and answer: halfway, within `half`. A known offset within that range
    // is kept.
    const half = (performance.now() - begun.steady) / 2
    const seen = Math.round(begun.machine + half - (row?.now ?? 0))
    if (Math.abs(seen - ahead) > half + ROUNDING) ahead = seen
    at = begun
    if (hasWarned || Math.abs(ahead) <= TOLERANCE) return
    hasWarned = true
    log.warn({ aheadMs: ahead }, 'the clock of this machine differs from the database clock, which servers use')
  }

  /** Failures are retried five seconds later, or when the time is needed sooner. */
  async function lookAgain(): Promise<void> {
    if (looking) return
    looking = true
    await compare().catch(() => {})
    looking = false
  }

  function now(): Date {
    const time = machine.now().getTime()
    const steady = at.machine + performance.now() - at.steady
    if (Math.abs(time - steady) <= TOLERANCE) return new Date(time - ahead)
    void lookAgain()
    return new Date(steady - ahead)
  }

  await compare()
  // The second comparison excludes the connection time.
  await compare()
  const timer = setInterval(() => void lookAgain(), INTERVAL)
  return { now, stop: () => clearInterval(timer) }
}
