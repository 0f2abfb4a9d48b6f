import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { chunk } from '../lib/chunk.ts'
import { watchTask } from '../lib/watch-task.ts'
import { fire, putBack } from './runs.ts'

/** Polling interval for due missions (ms). */
const INTERVAL = 500
const PAGE = 100
/** Maximum number of missions fired concurrently. One can read while another writes. */
const AT_ONCE = 10

export type Scheduler = {
  /** Fires due missions. */
  tick(): Promise<void>
  stop(): Promise<void>
}

type Due = Prisma.MissionGetPayload<object>

/**
 * Fires missions when they are due. Any number of servers can do so concurrently, because each fire time is claimed
 * conditionally.
 */
export function createScheduler(deps: Deps): Scheduler {
  const { db, clock, log } = deps
  let ticking: Promise<void> | null = null
  let stopped = false
  /** Time of the last poll. An earlier current time means that the clock was set back. */
  let seen = new Date(8.64e15)

  async function fireAll(): Promise<void> {
    if (deps.pause.isPaused()) return
    const now = clock.now()
    if (now < seen) await putAllBack(now)
    seen = now
    for (let page = await read(now); page.length; page = await read(now, page.at(-1))) {
      for (const some of chunk(page, AT_ONCE)) {
        if (stopped) return
        await Promise.all(some.map((mission) => tryToFire(mission, now)))
      }
    }
  }

  /**
   * Corrects fire times that were set under a clock that was ahead, at the start and whenever the clock is set back.
   */
  async function putAllBack(now: Date): Promise<void> {
    const later = (after?: Due) =>
      db.mission.findMany({
        where: {
          archivedAt: null,
          scheduleType: { in: ['cron', 'continuous'] },
          status: { in: ['pending', 'running'] },
          nextRunAt: { gt: now },
          ...(after && { AND: { OR: laterThan(after) } }),
        },
        orderBy: [{ nextRunAt: 'asc' }, { id: 'asc' }],
        take: PAGE,
      })
    for (let page = await later(); page.length && !stopped; page = await later(page.at(-1))) {
      for (const mission of page) await putBack(deps, mission, now)
    }
  }

  /** Reads due missions by fire time, so that a failing one does not block later ones. */
  const read = (now: Date, after?: Due): Promise<Due[]> =>
    db.mission.findMany({
      where: {
        archivedAt: null,
        // A mission that waits for its own run is handled when that has ended.
        OR: [{ status: 'pending' }, { status: 'running', overlap: 'skip' }],
        nextRunAt: { lte: now },
        ...(after && { AND: { OR: laterThan(after) } }),
      },
      orderBy: [{ nextRunAt: 'asc' }, { id: 'asc' }],
      take: PAGE,
    })

  const tryToFire = (mission: Due, now: Date) =>
    fire(deps, mission, now).catch((error) => {
      log.error({ err: error, missionId: mission.id }, 'failed to start a mission, retrying')
    })

  const tick = () => {
    ticking ??= fireAll().finally(() => {
      ticking = null
    })
    return ticking
  }
  const watch = watchTask((error) => log.error({ err: error }, 'failed to read due missions, retrying'))
  const timer = setInterval(() => void watch(tick()), INTERVAL)

  return {
    tick,
    async stop() {
      stopped = true
      clearInterval(timer)
      await ticking?.catch(() => {})
    },
  }
}

const laterThan = ({ nextRunAt, id }: Due): Prisma.MissionWhereInput[] =>
  nextRunAt ? [{ nextRunAt: { gt: nextRunAt } }, { nextRunAt, id: { gt: id } }] : []
