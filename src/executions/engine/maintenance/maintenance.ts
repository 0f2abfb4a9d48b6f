import type { Logger } from 'pino'
import { type Db, databaseFile, Prisma } from '../../../db/client.ts'
import { analyzeNew } from '../../../db/statistics.ts'
import { chunk } from '../../../lib/chunk.ts'
import type { Clock } from '../../../lib/clock.ts'
import { watchTask } from '../../../lib/watch-task.ts'
import type { Pause } from '../../../pause.ts'
import type { Settings } from '../../../settings.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { ApprovalRow } from '../queue/approvals.ts'
import { removeOld } from './retention.ts'

/** Maximum number of leases that one statement renews. Thousands at once would delay other requests. */
const HEARTBEAT_SIZE = 500
/** Number of concurrent heartbeats, each on its own connection, so that a hung one does not block renewal. */
const HEARTBEATS = 3
const SWEEP_INTERVAL = 2_000
const SWEEP_SIZE = 100
/** Maximum clock difference between servers (ms). */
const SKEW = 2_000
/**
 * Maximum number of runs taken over concurrently. One can read while another writes, and connections remain for
 * requests.
 */
const TAKEN_AT_ONCE = 4
const COMPACTION_INTERVAL = 1_000
const RETENTION_INTERVAL = 60_000
const STATISTICS_INTERVAL = 5_000

export type MaintenanceDeps = {
  settings: Settings
  db: Db
  clock: Clock
  log: Logger
  pause: Pause
  owner: string
  /** Returns the claimed rows of the runs of this process. */
  heldRows: () => ExecutionRow[]
  stop: (executionId: string, why: 'lost' | 'cancelled') => void
  rescue: (row: ExecutionRow) => Promise<void>
  /** Ends a run that has waited too long or is marked for cancellation. */
  expire: (row: ExecutionRow) => Promise<void>
  expireApproval: (approval: ApprovalRow) => Promise<void>
  /** Lets a run continue whose user did not connect to an MCP server in time. */
  expireConnection: (row: ExecutionRow) => Promise<void>
  /** Starts pending runs that are due. */
  begin: () => Promise<void>
  /** Merges the event segments of ended runs. */
  compact: () => Promise<void>
}

/** Creates the periodic maintenance: renews leases, takes over runs of dead processes, removes old rows. */
export function createMaintenance(deps: MaintenanceDeps) {
  const { settings, db, clock, log, pause, owner } = deps
  const heartbeatInterval = settings.LEASE_DURATION / 3
  const timers: NodeJS.Timeout[] = []
  const inProgress = new Set<Promise<void>>()
  let stopped = false
  /** Last time the database was unavailable or slow. */
  let awayAt = Number.NEGATIVE_INFINITY

  /** Runs a query and records whether the database failed or was slow. */
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

  /** Renews the leases of local runs and applies cancellations requested by other processes. */
  async function heartbeat(): Promise<void> {
    for (const held of chunk(deps.heldRows(), HEARTBEAT_SIZE)) await timed(() => keep(held))
  }

  async function keep(held: readonly ExecutionRow[]): Promise<void> {
    const ours = { id: { in: held.map(({ id }) => id) }, leaseOwner: owner, status: 'running' as const }
    const leaseUntil = new Date(clock.now().getTime() + settings.LEASE_DURATION)
    // Never shortens a lease: a delayed heartbeat may reach the database after a newer one.
    await db.execution.updateMany({ where: { ...ours, leaseUntil: { lt: leaseUntil } }, data: { leaseUntil } })
    const kept = await db.execution.findMany({ where: ours, select: { id: true, attempt: true, wantsCancel: true } })
    const found = new Map(kept.map((row) => [row.id, row]))
    // A run that ended or was suspended meanwhile may be active again in another attempt, which is not lost.
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
   * Marks the runs of former members, and of keys revoked with `cascade`, for cancellation. Both ends mark the existing
   * ones, but a run that was being accepted at that moment escapes them.
   */
  async function markOrphaned(now: Date): Promise<void> {
    const found = await db.$queryRaw<{ id: string }[]>(Prisma.sql`
      SELECT e."id" FROM "Execution" e
      WHERE e."terminalSeq" IS NULL AND e."status" IN ('pending', 'running') AND e."wantsCancel" = ${false}
        AND (NOT EXISTS (
            SELECT 1 FROM "Membership" m WHERE m."organizationId" = e."organizationId" AND m."userId" = e."userId")
          OR EXISTS (SELECT 1 FROM "Token" t WHERE t."id" = e."tokenId" AND t."cascade" = ${true}))
      LIMIT ${Prisma.raw(String(SWEEP_SIZE))}`)
    if (!found.length) return
    const where = { id: { in: found.map(({ id }) => id) }, terminalSeq: null }
    await db.execution.updateMany({ where, data: { wantsCancel: true, updatedAt: now } })
  }

  /** Recovers runs that no live process owns. With `all`, treats every run not owned by this process as orphaned. */
  async function sweep(all: boolean): Promise<void> {
    const now = clock.now()
    await timed(() => markOrphaned(now))
    const tooLong = new Date(now.getTime() - settings.CLIENT_TOOL_TIMEOUT)
    const overdueClient = { waitingFor: 'client_tool' as const, waitingSince: { lt: tooLong } }
    const undecided = new Date(now.getTime() - settings.APPROVAL_TIMEOUT)
    const unconnected = { waitingFor: 'authorization' as const, waitingSince: { lt: undecided } }
    const stale = await timed(() =>
      db.execution.findMany({
        where: {
          terminalSeq: null,
          status: 'pending',
          OR: [...(pause.isPaused() ? [] : [overdueClient, unconnected]), { wantsCancel: true }],
        },
        take: SWEEP_SIZE,
      }),
    )
    for (const row of stale) {
      const isUnconnected = row.waitingFor === 'authorization' && !row.wantsCancel
      await tryFor(row, isUnconnected ? deps.expireConnection : deps.expire)
    }
    const overdue = await timed(() =>
      db.approval.findMany({ where: { status: 'pending', expiresAt: { lt: now } }, take: SWEEP_SIZE }),
    )
    for (const approval of pause.isPaused() ? [] : overdue)
      await tryFor({ id: approval.executionId }, () => deps.expireApproval(approval))
    // While the database was unavailable, no process could renew a lease. Live processes get the time to do so first.
    const awayLately = now.getTime() - awayAt < settings.LEASE_DURATION + SWEEP_INTERVAL
    await shortenLeases(now)
    if (!awayLately) await rescueOrphans(all, now)
    await deps.begin()
    if (!pause.isPaused()) await expireWaiting(now)
  }

  /**
   * Ends runs that have waited longer than QUEUE_TIMEOUT. Runs that can start have started before. They waited while no
   * server was running, or while it was paused.
   */
  async function expireWaiting(now: Date): Promise<void> {
    const createdAt = { lt: new Date(now.getTime() - settings.QUEUE_TIMEOUT) }
    const where = { terminalSeq: null, status: 'pending' as const, createdAt, attempt: 0 }
    for (const row of await timed(() => db.execution.findMany({ where, take: SWEEP_SIZE }))) {
      await tryFor(row, deps.expire)
    }
  }

  /**
   * Shortens leases that end later than a new one would, because they were taken before the clock was set back. Live
   * processes renew theirs; without this, a killed server's run would wait until the clock has caught up.
   */
  async function shortenLeases(now: Date): Promise<void> {
    const longest = now.getTime() + settings.LEASE_DURATION
    const where = { terminalSeq: null, status: 'running' as const, leaseUntil: { gt: new Date(longest + SKEW) } }
    const ahead = await timed(() => db.execution.findMany({ where, select: { id: true }, take: SWEEP_SIZE }))
    if (!ahead.length) return
    const ids = ahead.map(({ id }) => id)
    await db.execution.updateMany({ where: { ...where, id: { in: ids } }, data: { leaseUntil: new Date(longest) } })
    log.warn({ runs: ids.length }, 'clock was set back: shortened leases that lay too far in the future')
  }

  async function rescueOrphans(all: boolean, now: Date): Promise<void> {
    const left = (after?: ExecutionRow) =>
      db.execution.findMany({
        where: {
          terminalSeq: null,
          status: 'running',
          ...(all ? { leaseOwner: { not: owner } } : { leaseUntil: { lt: now } }),
          // A paused server takes over only runs that it must cancel.
          ...(pause.isPaused() && { wantsCancel: true }),
          ...(after && { OR: laterThan(after) }),
        },
        orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
        take: SWEEP_SIZE,
      })
    for (let page = await left(); page.length && !stopped; page = await left(page.at(-1))) {
      for (const some of chunk(page, TAKEN_AT_ONCE)) {
        await Promise.all(some.map((row) => tryFor(row, deps.rescue)))
      }
      if (page.length < SWEEP_SIZE) return
    }
  }

  /** Runs a task for one row, so that a failure does not affect the others. */
  async function tryFor<Row extends { id: string }>(row: Row, task: (row: Row) => Promise<void>): Promise<void> {
    await task(row).catch((error) => log.error({ err: error, executionId: row.id }, 'failed to recover or end a run'))
  }

  /** Repeats a task with at most `atOnce` concurrent executions. Logs failures and tries again. */
  function every(interval: number, action: string, task: () => Promise<void>, atOnce = 1): void {
    let busy = 0
    // After the stop, the database may be closed, and other servers do the rest.
    const watch = watchTask((error) => stopped || log.error({ err: error }, `failed to ${action}, retrying`))
    const run = async () => {
      await watch(task())
      busy--
    }
    const timer = setInterval(() => {
      if (busy === atOnce) return
      busy++
      const running = run().finally(() => inProgress.delete(running))
      inProgress.add(running)
    }, interval)
    timers.push(timer)
  }

  /** Starts no further tasks, and waits for those in progress. */
  async function stop(): Promise<void> {
    stopped = true
    for (const timer of timers) clearInterval(timer)
    await Promise.all(inProgress)
  }

  return {
    async start(exclusive: boolean): Promise<void> {
      // Runs that the first sweep takes over need renewed leases before the sweep has finished.
      every(heartbeatInterval, 'renew leases', heartbeat, HEARTBEATS)
      await sweep(exclusive)
      every(SWEEP_INTERVAL, 'recover runs', () => sweep(false))
      every(COMPACTION_INTERVAL, 'compact events', deps.compact)
      every(RETENTION_INTERVAL, 'remove old events', async () => void (pause.isPaused() || (await removeOld(deps))))
      if (!databaseFile(settings)) every(STATISTICS_INTERVAL, 'analyze grown tables', () => analyzeNew(db))
    },
    stop,
  }
}

const laterThan = ({ createdAt, id }: ExecutionRow): Prisma.ExecutionWhereInput[] => [
  { createdAt: { gt: createdAt } },
  { createdAt, id: { gt: id } },
]
