import { setImmediate } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type Db, databaseFile, Prisma } from '../../../db/client.ts'
import { analyzeNew } from '../../../db/statistics.ts'
import { LIFETIME } from '../../../idempotency.ts'
import type { Clock } from '../../../lib/clock.ts'
import { timedIdsSince } from '../../../lib/id.ts'
import { inParts } from '../../../lib/parts.ts'
import type { Pause } from '../../../pause.ts'
import type { Settings } from '../../../settings.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { ApprovalRow } from '../queue/approvals.ts'

/** How many leases one statement keeps: of thousands at once everybody else would notice. */
const HEARTBEAT_SIZE = 500
/** How many heartbeats there are at once, each on a connection of its own: one that hangs keeps no lease. */
const HEARTBEATS = 3
const SWEEP_INTERVAL = 2_000
const SWEEP_SIZE = 100
/** How far the clocks of servers may be apart (ms). */
const SKEW = 2_000
/** How many runs are taken over at once: while one reads, another writes, and others have connections left. */
const TAKEN_AT_ONCE = 4
const COMPACTION_INTERVAL = 1_000
const RETENTION_INTERVAL = 60_000
const RETENTION_BATCH = 500
/** The share of all events that one look removes at most; no more of them are counted than this. */
const RETENTION_SHARE = 0.1
const MAX_COUNTED_EVENTS = 500_000
const STATISTICS_INTERVAL = 5_000
const DAY = 24 * 60 * 60 * 1000

export type CaretakerDeps = {
  settings: Settings
  db: Db
  clock: Clock
  log: Logger
  pause: Pause
  owner: string
  /** The rows, as claimed, of what runs in this process. */
  heldRows: () => ExecutionRow[]
  stop: (executionId: string, why: 'lost' | 'cancelled') => void
  recover: (row: ExecutionRow) => Promise<void>
  /** Ends a run that has waited too long, or shall be cancelled. */
  expire: (row: ExecutionRow) => Promise<void>
  expireApproval: (approval: ApprovalRow) => Promise<void>
  /** Begins pending runs whose turn it is. */
  begin: () => Promise<void>
  /** Puts together what ended runs have said. */
  compact: () => Promise<void>
}

/** What is done again and again: leases kept, those of dead processes taken over, old rows removed. */
export function createCaretaker(deps: CaretakerDeps) {
  const { settings, db, clock, log, pause, owner } = deps
  const heartbeatInterval = settings.LEASE_DURATION / 3
  const timers: NodeJS.Timeout[] = []
  let stopped = false
  /** When the database was last away: it failed this process, or was late. */
  let awayAt = Number.NEGATIVE_INFINITY

  /** What the database answers, and whether it took too long to. */
  async function timed<T>(question: () => Promise<T>): Promise<T> {
    const asked = performance.now()
    let isLate = true
    try {
      const answer = await question()
      isLate = performance.now() - asked > heartbeatInterval
      return answer
    } finally {
      if (isLate) awayAt = clock.now().getTime()
    }
  }

  /** Keeps the leases of what runs here, and hears what other processes want of it. */
  async function heartbeat(): Promise<void> {
    for (const held of inParts(deps.heldRows(), HEARTBEAT_SIZE)) await timed(() => keep(held))
  }

  async function keep(held: readonly ExecutionRow[]): Promise<void> {
    const ours = { id: { in: held.map(({ id }) => id) }, leaseOwner: owner, status: 'running' as const }
    const leaseUntil = new Date(clock.now().getTime() + settings.LEASE_DURATION)
    // Never back: the database may come to this when it was given up long ago.
    await db.execution.updateMany({ where: { ...ours, leaseUntil: { lt: leaseUntil } }, data: { leaseUntil } })
    const kept = await db.execution.findMany({ where: ours, select: { id: true, attempt: true, wantsCancel: true } })
    const found = new Map(kept.map((row) => [row.id, row]))
    // What has ended or waited meanwhile may be on again, in another attempt: that one is not lost.
    const stillHeld = new Set(deps.heldRows())
    for (const row of held) {
      if (!stillHeld.has(row)) continue
      const { id, attempt } = row
      const mine = found.get(id)
      if (mine?.attempt !== attempt) deps.stop(id, 'lost')
      else if (mine.wantsCancel) deps.stop(id, 'cancelled')
    }
  }

  /**
   * Marks the runs of those who are members no longer: whoever ended a membership has marked those that there were
   * (`removeMember`), and one that was being accepted was not among them.
   */
  async function markOrphaned(now: Date): Promise<void> {
    const found = await db.$queryRaw<{ id: string }[]>(Prisma.sql`
      SELECT e."id" FROM "Execution" e
      WHERE e."terminalSeq" IS NULL AND e."status" IN ('pending', 'running') AND e."wantsCancel" = ${false}
        AND NOT EXISTS (
          SELECT 1 FROM "Membership" m WHERE m."organizationId" = e."organizationId" AND m."userId" = e."userId")
      LIMIT ${Prisma.raw(String(SWEEP_SIZE))}`)
    if (!found.length) return
    const where = { id: { in: found.map(({ id }) => id) }, terminalSeq: null }
    await db.execution.updateMany({ where, data: { wantsCancel: true, updatedAt: now } })
  }

  /** What no process takes care of. `all`: every run that is not of this process is such a one. */
  async function sweep(all: boolean): Promise<void> {
    const now = clock.now()
    await timed(() => markOrphaned(now))
    const tooOld = new Date(now.getTime() - settings.QUEUE_TIMEOUT)
    const stale = await timed(() =>
      db.execution.findMany({
        where: {
          terminalSeq: null,
          status: 'pending',
          OR: [...(pause.isPaused() ? [] : [{ createdAt: { lt: tooOld }, attempt: 0 }]), { wantsCancel: true }],
        },
        take: SWEEP_SIZE,
      }),
    )
    for (const row of stale) await tryFor(row, deps.expire)
    const overdue = await timed(() =>
      db.approval.findMany({ where: { status: 'pending', expiresAt: { lt: now } }, take: SWEEP_SIZE }),
    )
    for (const approval of pause.isPaused() ? [] : overdue)
      await tryFor({ id: approval.executionId }, () => deps.expireApproval(approval))
    // While it was away, nobody could keep a lease: those who live do that first.
    const awayLately = now.getTime() - awayAt < settings.LEASE_DURATION + SWEEP_INTERVAL
    await shortenLeases(now)
    if (!awayLately) await recover(all, now)
    await deps.begin()
  }

  /**
   * Has a lease that is further ahead than it may last count from now: it was taken before the clock was put back. Who
   * lives renews it. Without this a killed server's run would wait until the clock has caught up.
   */
  async function shortenLeases(now: Date): Promise<void> {
    const longest = now.getTime() + settings.LEASE_DURATION
    const where = { terminalSeq: null, status: 'running' as const, leaseUntil: { gt: new Date(longest + SKEW) } }
    const ahead = await timed(() => db.execution.findMany({ where, select: { id: true }, take: SWEEP_SIZE }))
    if (!ahead.length) return
    const ids = ahead.map(({ id }) => id)
    await db.execution.updateMany({ where: { ...where, id: { in: ids } }, data: { leaseUntil: new Date(longest) } })
    log.warn({ runs: ids.length }, 'the clock was put back: leases of runs that lay too far ahead count from now')
  }

  async function recover(all: boolean, now: Date): Promise<void> {
    const left = (after?: ExecutionRow) =>
      db.execution.findMany({
        where: {
          terminalSeq: null,
          status: 'running',
          ...(all ? { leaseOwner: { not: owner } } : { leaseUntil: { lt: now } }),
          // A paused server takes over no run but to end it.
          ...(pause.isPaused() && { wantsCancel: true }),
          ...(after && { OR: laterThan(after) }),
        },
        orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
        take: SWEEP_SIZE,
      })
    for (let page = await left(); page.length && !stopped; page = await left(page.at(-1))) {
      for (const some of inParts(page, TAKEN_AT_ONCE)) {
        await Promise.all(some.map((row) => tryFor(row, deps.recover)))
      }
      if (page.length < SWEEP_SIZE) return
    }
  }

  /** What cannot be done for one run is no reason not to do it for the others. */
  async function tryFor<Row extends { id: string }>(row: Row, task: (row: Row) => Promise<void>): Promise<void> {
    await task(row).catch((error) => log.error({ err: error, executionId: row.id }, 'a run could not be taken care of'))
  }

  /**
   * Events past their time and idempotency records past theirs, a small batch at a time; executions stay. What is that
   * old is of runs that began before: by their ids, they are the first.
   */
  async function forget(): Promise<void> {
    if (pause.isPaused()) return
    const now = clock.now().getTime()
    const events = new Date(now - settings.EVENT_RETENTION_DAYS * DAY)
    const records = new Date(now - LIFETIME)
    await inBatches(await mayForget(events), (limit) =>
      db.$executeRaw(Prisma.sql`
        DELETE FROM "ExecutionEvent" WHERE ("executionId", "firstSeq") IN (
          SELECT "executionId", "firstSeq" FROM "ExecutionEvent"
          WHERE "executionId" < ${timedIdsSince('exec', events)} AND "at" < ${events}
          ORDER BY "executionId", "firstSeq" LIMIT ${limit})`),
    )
    await inBatches(Number.POSITIVE_INFINITY, (limit) =>
      db.$executeRaw(Prisma.sql`
        DELETE FROM "IdempotencyRecord" WHERE "id" IN (
          SELECT "id" FROM "IdempotencyRecord" WHERE "createdAt" < ${records} LIMIT ${limit})`),
    )
  }

  /**
   * Returns how many events one look may remove of those before a moment: a share of all, so that a clock which is wrong
   * for a minute does not cost the history. Logs where there are more.
   */
  async function mayForget(before: Date): Promise<number> {
    const count = async (which: Prisma.Sql, limit: number) => {
      const [row] = await db.$queryRaw<{ count: number | bigint }[]>(Prisma.sql`
        SELECT count(*) AS "count" FROM (SELECT 1 FROM "ExecutionEvent" WHERE ${which} LIMIT ${limit}) AS "found"`)
      return Number(row?.count ?? 0)
    }
    const old = Prisma.sql`"executionId" < ${timedIdsSince('exec', before)} AND "at" < ${before}`
    if (!(await count(old, 1))) return 0
    const most = Math.ceil((await count(Prisma.sql`1 = 1`, MAX_COUNTED_EVENTS)) * RETENTION_SHARE)
    const found = await count(old, most + 1)
    if (found > most)
      log.warn(
        { removed: most, olderThan: before },
        'more than a tenth of the events is past EVENT_RETENTION_DAYS: check the clock; the others are removed later',
      )
    return Math.min(found, most)
  }

  /** Repeats a task, so many times at once at most; what fails is logged and tried again. */
  function every(interval: number, what: string, task: () => Promise<void>, atOnce = 1): void {
    let busy = 0
    const timer = setInterval(async () => {
      if (busy === atOnce) return
      busy++
      await task().catch((error) => log.error({ err: error }, `${what} failed, trying again`))
      busy--
    }, interval)
    timers.push(timer)
  }

  function stop(): void {
    stopped = true
    for (const timer of timers) clearInterval(timer)
  }

  return {
    async start(alone: boolean): Promise<void> {
      // What the first sweep takes over has leases to keep, before it has come to its end.
      every(heartbeatInterval, 'the heartbeat', heartbeat, HEARTBEATS)
      await sweep(alone)
      every(SWEEP_INTERVAL, 'the sweep', () => sweep(false))
      every(COMPACTION_INTERVAL, 'putting events together', deps.compact)
      every(RETENTION_INTERVAL, 'the removal of old events', forget)
      if (!databaseFile(settings)) every(STATISTICS_INTERVAL, 'looking at tables that have grown', () => analyzeNew(db))
    },
    stop,
  }
}

const laterThan = ({ createdAt, id }: ExecutionRow): Prisma.ExecutionWhereInput[] => [
  { createdAt: { gt: createdAt } },
  { createdAt, id: { gt: id } },
]

/** Everybody else has a turn between two batches: SQLite answers at once, and would not let go of the event loop. */
async function inBatches(most: number, remove: (limit: number) => Promise<number>): Promise<void> {
  for (let left = most; left > 0; left -= RETENTION_BATCH) {
    const limit = Math.min(left, RETENTION_BATCH)
    if ((await remove(limit)) < limit) return
    await setImmediate()
  }
}
