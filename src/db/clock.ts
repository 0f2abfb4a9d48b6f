import type { Logger } from 'pino'
import { type Clock, systemClock } from '../lib/clock.ts'
import { type Db, Prisma } from './client.ts'

/** How often the clocks are compared (ms). */
const INTERVAL = 60_000
/** What they leave out (ms). */
const ROUNDING = 2
/** How much they may differ without a word of it (ms). */
const TOLERANCE = 1_000

/**
 * The time of PostgreSQL, by which all servers on it go: each reads what others have written, such as until when a lease
 * lasts. It is the machine's own, put right by how far it is ahead, which is looked at now and once a minute until `stop`;
 * a difference of more than a second is logged once. Rejects when the database does not answer.
 */
export async function openDatabaseClock(
  db: Db,
  log: Logger,
  machine: Clock = systemClock,
): Promise<Clock & { stop: () => void }> {
  /** In milliseconds. */
  let ahead = 0
  let isTold = false

  async function compare(): Promise<void> {
    const begun = performance.now()
    const before = machine.now().getTime()
    const [row] = await db.$queryRaw<{ now: number }[]>(Prisma.sql`
      SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "now"`)
    // When it looked at its clock is not known: half way there and back, or as much sooner or later. What may be right stays.
    const half = (performance.now() - begun) / 2
    const seen = Math.round(before + half - (row?.now ?? 0))
    if (Math.abs(seen - ahead) > half + ROUNDING) ahead = seen
    if (isTold || Math.abs(ahead) <= TOLERANCE) return
    isTold = true
    log.warn({ aheadMs: ahead }, 'the clock of this machine is not that of the database, by which servers go')
  }

  await compare()
  // Without the time that the connection took.
  await compare()
  // What fails is tried again a minute later.
  const timer = setInterval(() => void compare().catch(() => {}), INTERVAL)
  return {
    now: () => new Date(machine.now().getTime() - ahead),
    stop: () => clearInterval(timer),
  }
}
