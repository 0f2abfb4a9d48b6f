import { Prisma, type Tx } from '../db/client.ts'
import { lockMissionCounts } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import type { ExecutionRow } from '../executions/engine/events/events.ts'
import { registerRunHooks } from '../executions/engine/queue/run-hooks.ts'
import type { MissionRow } from './rows.ts'
import { hasAllRuns, pauseOf } from './schedule.ts'

/**
 * Takes the locks that {@link onRunEnded} may need, in the final transaction of a run before its organization's row is
 * locked.
 */
export async function lockForRunEnded(tx: Tx, deps: Pick<Deps, 'settings'>, ended: ExecutionRow): Promise<void> {
  if (!ended.missionId) return
  const ends = { completed: ['none', 'once'], failed: ['once'] }[ended.status as string] ?? []
  const isLast = Prisma.sql`"runCount" >= "maxRuns"`
  const types = ends.map((type) => Prisma.sql`"scheduleType" = ${Prisma.raw(`'${type}'`)}`)
  const mayEnd = Prisma.join([isLast, ...types], ' OR ')
  await lockMissionCounts(tx, deps.settings, Prisma.sql`"id" = ${ended.missionId} AND (${mayEnd})`)
}

const MAX_LAST_ERROR = 1_000

/** Returns the changes of a mission's health after a run (contract-2.md section 1.7). */
const healthOf = ({ id, status, error }: ExecutionRow) => ({
  lastStatus: status,
  lastError: error?.slice(0, MAX_LAST_ERROR) ?? null,
  lastExecutionId: id,
  ...(status === 'completed' && { failureCount: 0 }),
  ...(status === 'failed' && { failureCount: { increment: 1 } }),
})

/** Returns the status of a mission after a run. A mission that was run by hand early keeps its fire time. */
function statusAfter({ scheduleType, nextRunAt, ...mission }: MissionRow, ended: ExecutionRow['status']) {
  const isOnce = scheduleType === 'once' && nextRunAt === null
  if (isOnce && ended === 'failed') return 'failed'
  if (hasAllRuns(mission)) return 'completed'
  return ended === 'completed' && (isOnce || scheduleType === 'none') ? 'completed' : 'pending'
}

/**
 * Records the end of a run and moves its mission on, in the run's final transaction, unless the mission was paused or
 * has started another run.
 */
export async function onRunEnded(tx: Tx, ended: ExecutionRow, now: Date): Promise<void> {
  if (!ended.missionId) return
  const where = { id: ended.missionId, executionId: ended.id }
  // The update locks the row, so that the schedule read here stays current.
  const [mission] = await tx.mission.updateManyAndReturn({ where, data: { ...healthOf(ended), updatedAt: now } })
  if (mission?.status !== 'running') return
  const status = statusAfter(mission, ended.status)
  const goesOn = status === 'pending' && mission.scheduleType === 'continuous'
  await tx.mission.updateMany({
    where: { ...where, status: 'running' },
    data: {
      status,
      ...(goesOn && { nextRunAt: new Date(now.getTime() + pauseOf(mission) * 1000) }),
      updatedAt: now,
    },
  })
}

registerRunHooks({ lockForRunEnded, onRunEnded })
