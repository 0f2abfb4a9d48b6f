import { executable } from '../agents/visibility.ts'
import { type Actor, actorOf } from '../auth/actor.ts'
import { Prisma, type Tx } from '../db/client.ts'
import { lockMissionCounts } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { notFound, paused } from '../errors.ts'
import type { ExecutionRow } from '../executions/engine/events/events.ts'
import type { KeyClaim } from '../idempotency.ts'
import { outputOf } from '../lib/output.ts'
import { reachable as reachableSpace } from '../spaces/visibility.ts'
import { REASONS } from './endings.ts'
import { countDue, hasAllRuns, lastDue, nextFire, pauseOf } from './schedule.ts'

type MissionRow = Prisma.MissionGetPayload<object>

/** Delay after which a fire time counts as missed because no server was running (ms). */
const MISSED = 60_000
const SECOND = 1000

/** Returns the columns that change when a fire time is claimed or the schedule changes. */
const timesOf = ({ nextRunAt, scheduleType, scheduleValue, timezone }: MissionRow) => ({
  nextRunAt,
  scheduleType,
  scheduleValue,
  timezone,
})

/** Thrown if another server has claimed the fire time, or the mission was paused or is running. */
class NotNow extends Error {
  override name = 'NotNow'
}

/** Trigger of a run: by hand, or a fire time that the run claims. */
export type RunTrigger = {
  actor: Actor
  fire: { at: Date; next: Date | null; skipped: number } | null
  /** The Idempotency-Key of a run by hand. */
  key: KeyClaim | null
  /** Takes the locks that must precede all others in the accepting transaction. */
  first?: (tx: Tx) => Promise<void>
  /** Further changes in that transaction. */
  also?: (tx: Tx, executionId: string) => Promise<void>
}

/**
 * Starts a run of a mission in a chat of its own. The mission moves on in the transaction that accepts the run, so that
 * each fire time starts one run regardless of the number of servers. Returns null if the run must not start. Throws 404
 * if the actor may no longer use the agent or the space, and the engine's errors.
 */
export async function beginRun(
  deps: Deps,
  mission: MissionRow,
  { actor, fire, key, first, also }: RunTrigger,
): Promise<ExecutionRow | null> {
  const { db, engine, settings } = deps
  if (deps.pause.isPaused()) throw paused()
  const agent = await db.agent.findFirst({ where: { AND: [{ id: mission.agentId }, executable(actor)] } })
  if (!agent) throw notFound('Agent')
  const space = await db.space.findFirst({ where: { AND: [{ id: mission.spaceId }, reachableSpace(actor)] } })
  if (!space) throw notFound('Space')
  const runNumber = mission.runCount + 1
  const output = outputOf(mission.output)
  try {
    return await engine.accept({
      actor,
      agent: { ...agent, maxTurns: mission.maxTurns ?? agent.maxTurns },
      message: mission.goal,
      mediaIds: [],
      model: null,
      overrides: output ? { output } : {},
      conversation: { spaceId: mission.spaceId },
      onBusy: 'queue',
      parent: null,
      key,
      taskId: null,
      mission: { id: mission.id, title: mission.title, runNumber },
      async first(tx) {
        await first?.(tx)
        // A completed mission becomes active again. Transactions that count missions wait for writers of chats, and
        // this one writes a chat next.
        if (mission.status !== 'pending') await lockMissionCounts(tx, settings, Prisma.sql`"id" = ${mission.id}`)
      },
      async also(tx, executionId, now) {
        const { count } = await tx.mission.updateMany({
          where: {
            id: mission.id,
            archivedAt: null,
            runCount: mission.runCount,
            ...(fire
              ? { status: 'pending', ...timesOf(mission) }
              : { status: { in: ['pending', 'completed', 'failed'] } }),
          },
          data: {
            status: 'running',
            executionId,
            runCount: runNumber,
            lastRunAt: fire?.at ?? now,
            ...(fire && { nextRunAt: fire.next }),
            ...(fire?.skipped && { skippedCount: { increment: fire.skipped } }),
            ...(hasAllRuns({ ...mission, runCount: runNumber }) && { nextRunAt: null }),
            updatedAt: now,
          },
        })
        if (!count) throw new NotNow()
        await also?.(tx, executionId)
      },
    })
  } catch (error) {
    if (error instanceof NotNow) return null
    throw error
  }
}

/** Maximum clock difference between servers (ms), so that a just claimed fire time is not claimed again. */
const SKEW = 60_000

/**
 * Moves the fire time of a mission back if it is later than the next one from now. It then was set under a wrong clock,
 * or the clock was set back since.
 */
export async function putBack(deps: Deps, mission: MissionRow, now: Date): Promise<void> {
  const { nextRunAt, lastRunAt } = mission
  const isRecent = lastRunAt && lastRunAt > now && lastRunAt.getTime() - now.getTime() < SKEW
  const isContinuous = mission.scheduleType === 'continuous'
  const next = isContinuous
    ? new Date(now.getTime() + pauseOf(mission) * 1000)
    : nextFire(mission, isRecent ? lastRunAt : now)
  if (!next || !nextRunAt || nextRunAt.getTime() - next.getTime() < SECOND) return
  if (await moveOn(deps, mission, { nextRunAt: next }, now))
    deps.log.warn(
      { missionId: mission.id, nextRunAt, putBackTo: next },
      'moved back the fire time of a mission that was set under a wrong clock',
    )
}

/**
 * Handles the due fire time of a mission: starts a run, skips it, or pauses the mission with a reason. A mission that
 * waits for its previous run (`overlap: queue`) stays due until that has ended.
 */
export async function fire(deps: Deps, mission: MissionRow, now: Date): Promise<void> {
  const due = mission.nextRunAt
  if (!due) return
  const before = await findLastRun(deps, mission)
  if (mission.status === 'running') {
    // A fire time from before the run started is late, but does not overlap with it.
    const passes = mission.overlap === 'skip' && !(before && due <= before.createdAt)
    if (passes) await skip(deps, mission, lastDue(mission, due, now), 'the previous run is still active', now)
    return
  }
  const { at, isMissed } = currentDue(mission, due, before, now)
  const next = nextFire(mission, at)
  if (mission.catchUp === 'skip' && isMissed) return skip(deps, mission, at, MISSED_REASON, now)
  const actor = await actorOf(deps.db, mission)
  if (!actor) return pauseFor(deps, mission, REASONS.member, now)
  const { tokenId } = mission
  if (tokenId && (await deps.db.token.count({ where: { id: tokenId, cascade: true } })))
    return pauseFor(deps, mission, REASONS.key, now)
  const skipped = countDue(mission, due, at) - 1
  try {
    if (!(await beginRun(deps, mission, { actor, fire: { at, next, skipped }, key: null }))) return
    if (skipped) logSkipped(deps, mission, skipped, MISSED_REASON)
    if (mission.scheduleType === 'continuous' && mission.failureCount) logBackoff(deps, mission)
  } catch (error) {
    const { status, message } = error as { status?: number; message: string }
    // The backlog is full, so the mission stays due.
    if (status === 429) return
    if (status !== 404) throw error
    await pauseFor(deps, mission, message, now)
  }
}

/** Returns the fire time to handle now: the due one, or the latest if no server was there in time for the due one. */
function currentDue(mission: MissionRow, due: Date, before: LastRun, now: Date): { at: Date; isMissed: boolean } {
  // The fire time may have waited until then. A run that was taken over from a dead process was itself late.
  const freeSince = mission.overlap === 'queue' && before?.attempt === 1 ? (before.completedAt?.getTime() ?? 0) : 0
  const isMissed = (time: Date) =>
    mission.scheduleType !== 'continuous' && now.getTime() - Math.max(time.getTime(), freeSince) > MISSED
  const at = isMissed(due) ? lastDue(mission, due, now) : due
  return { at, isMissed: isMissed(at) }
}

type LastRun = Awaited<ReturnType<typeof findLastRun>>

const MISSED_REASON = 'no server fired them in time'

const logSkipped = ({ log }: Deps, { id: missionId }: MissionRow, skipped: number, reason: string) =>
  log.warn({ missionId, skipped, reason }, 'fire times of a mission passed without a run')

const logBackoff = ({ log }: Deps, mission: MissionRow) =>
  log.warn(
    { missionId: mission.id, failureCount: mission.failureCount, seconds: pauseOf(mission) },
    'a continuous mission runs less often because its runs fail; its lastError says why',
  )

/** Skips the fire times of a mission from the one that is due to `last`. */
async function skip(deps: Deps, mission: MissionRow, last: Date, reason: string, now: Date): Promise<void> {
  const skipped = countDue(mission, mission.nextRunAt ?? last, last)
  const data = { nextRunAt: nextFire(mission, last), skippedCount: { increment: skipped } }
  if (await moveOn(deps, mission, data, now)) logSkipped(deps, mission, skipped, reason)
}

const findLastRun = async ({ db }: Deps, { executionId }: MissionRow) =>
  executionId === null
    ? null
    : db.execution.findUnique({
        where: { id: executionId },
        select: { createdAt: true, completedAt: true, attempt: true },
      })

/** Pauses a mission that cannot run any more, with a reason. */
const pauseFor = ({ db, settings }: Deps, mission: MissionRow, pauseReason: string, now: Date) =>
  db.$transaction(async (tx) => {
    await lockMissionCounts(tx, settings, Prisma.sql`"id" = ${mission.id}`)
    await moveOn({ db: tx }, mission, { status: 'paused', pauseReason, nextRunAt: null }, now)
  })

/** Changes a mission unless its fire time was claimed or its schedule changed meanwhile. Returns whether it did. */
async function moveOn(
  { db }: { db: Tx },
  mission: MissionRow,
  data: Prisma.MissionUncheckedUpdateManyInput,
  now: Date,
): Promise<boolean> {
  const { id, runCount, status } = mission
  // An archived mission has no fire time.
  const where = { id, ...timesOf(mission), runCount, status }
  const { count } = await db.mission.updateMany({ where, data: { ...data, updatedAt: now } })
  return count === 1
}
