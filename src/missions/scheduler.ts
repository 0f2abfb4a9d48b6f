import type { Deps } from '../deps.ts'
import { fire } from './runs.ts'

/** How often due missions are looked for (ms). */
const INTERVAL = 500
const BATCH = 100

export type Scheduler = {
  /** Fires what is due; resolves when nothing is. */
  tick(): Promise<void>
  stop(): Promise<void>
}

/** Fires missions when they are due. Any number of servers do so at once: a fire time is claimed by a condition. */
export function createScheduler(deps: Deps): Scheduler {
  const { db, clock, log } = deps
  let ticking: Promise<void> | null = null
  let stopped = false

  async function fireAll(): Promise<void> {
    for (let more = true; more && !stopped; ) {
      const now = clock.now()
      const due = await db.mission.findMany({
        where: {
          nextRunAt: { lte: now },
          // One that waits for its own run to end is looked at when that has ended.
          OR: [{ status: { not: 'running' } }, { overlap: 'skip' }],
        },
        orderBy: { nextRunAt: 'asc' },
        take: BATCH,
      })
      let failed = false
      for (const mission of due) {
        if (stopped) return
        await fire(deps, mission, now).catch((error) => {
          failed = true
          log.error({ err: error, missionId: mission.id }, 'a mission could not be started, trying again')
        })
      }
      more = due.length === BATCH && !failed
    }
  }

  const tick = () => {
    ticking ??= fireAll().finally(() => {
      ticking = null
    })
    return ticking
  }
  const timer = setInterval(() => {
    tick().catch((error) => log.error({ err: error }, 'due missions could not be read, trying again'))
  }, INTERVAL)

  return {
    tick,
    async stop() {
      stopped = true
      clearInterval(timer)
      await ticking?.catch(() => {})
    },
  }
}
