import type { Logger } from 'pino'
import { type Clock, systemClock } from '../../lib/clock.ts'
import { type Db, Prisma } from '../client.ts'

/** How often the clocks are compared (ms). */
const INTERVAL = 5_000
/** What they leave out (ms). */
const ROUNDING = 2
/** How much they may differ without a word of it (ms). */
const TOLERANCE = 1_000

/**
 * The time of PostgreSQL, by which all servers on it go: each reads what others have written, such as until when a lease
 * lasts. It is the machine's own, put right by how far it is ahead, which is looked at now and every five seconds until `stop`;
 * a difference of more than a second is logged once. A machine whose clock is set meanwhile, or that has slept, is not
 * followed until that has been looked at. Rejects when the database does not answer.
 */
export async function openDatabaseClock(
  db: Db,
  log: Logger,
  machine: Clock = systemClock,
): Promise<Clock & { stop: () => void }> {
  /** In milliseconds. */
  let ahead = 0
  let isTold = false
  let looking = false
  /** When it was last looked at: by the machine's clock, and by the one that nobody sets (ms). */
  let at = { machine: 0, steady: 0 }

  async function compare(): Promise<void> {
    const begun = { machine: machine.now().getTime(), steady: performance.now() }
    const [row] = await db.$queryRaw<{ now: number }[]>(Prisma.sql`
      SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "now"`)
    // It read its clock somewhere between question and answer: half way, give or take `half`. A known difference within that
    // is kept.
    const half = (performance.now() - begun.steady) / 2
    const seen = Math.round(begun.machine + half - (row?.now ?? 0))
    if (Math.abs(seen - ahead) > half + ROUNDING) ahead = seen
    at = begun
    if (isTold || Math.abs(ahead) <= TOLERANCE) return
    isTold = true
    log.warn({ aheadMs: ahead }, 'the clock of this machine is not that of the database, by which servers go')
  }

  /** What fails is tried again five seconds later, or when somebody asks for the time and it is wanted sooner. */
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
  // Without the time that the connection took.
  await compare()
  const timer = setInterval(() => void lookAgain(), INTERVAL)
  return { now, stop: () => clearInterval(timer) }
}
