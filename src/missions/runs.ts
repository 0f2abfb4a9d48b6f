import { executable } from '../agents/service.ts'
import { type Actor, actorOf } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import type { ExecutionRow } from '../executions/engine/events.ts'
import { reachable as reachableSpace } from '../spaces/service.ts'
import { lastDue, nextFire } from './schedule.ts'

type MissionRow = Prisma.MissionGetPayload<object>

/** A fire time that is late by more than this (ms) was missed: nobody was there. */
const MISSED = 60_000

/** Somebody else has claimed the fire time, or the mission was paused or is running. */
class NotNow extends Error {
  override name = 'NotNow'
}

/** How a run begins: by hand, or at a fire time that is thereby claimed. */
type Cause = { actor: Actor; fire: null } | { actor: Actor; fire: { due: Date; at: Date; next: Date | null } }

/**
 * Begins a run of a mission in a chat of its own. The mission moves on in the transaction that accepts the run, so that
 * each fire time starts one, whatever the number of servers; null when it is not to be. Throws 404 when the owner may
 * not use the agent or the space any more.
 */
export async function run(deps: Deps, mission: MissionRow, { actor, fire }: Cause): Promise<ExecutionRow | null> {
  const { db, engine } = deps
  const agent = await db.agent.findFirst({ where: { AND: [{ id: mission.agentId }, executable(actor)] } })
  if (!agent) throw notFound('Agent')
  const space = await db.space.findFirst({ where: { AND: [{ id: mission.spaceId }, reachableSpace(actor)] } })
  if (!space) throw notFound('Space')
  const runNumber = mission.runCount + 1
  try {
    return await engine.accept({
      actor,
      agent: { ...agent, maxTurns: mission.maxTurns ?? agent.maxTurns },
      message: mission.goal,
      mediaIds: [],
      model: null,
      conversation: { spaceId: mission.spaceId },
      onBusy: 'queue',
      parent: null,
      key: null,
      taskId: null,
      mission: { id: mission.id, title: mission.title, runNumber },
      async also(tx, executionId, now) {
        const { count } = await tx.mission.updateMany({
          where: {
            id: mission.id,
            archivedAt: null,
            runCount: mission.runCount,
            ...(fire ? { status: 'pending', nextRunAt: fire.due } : { status: { in: ['pending', 'completed'] } }),
          },
          data: {
            status: 'running',
            executionId,
            runCount: runNumber,
            lastRunAt: fire?.at ?? now,
            ...(fire && { nextRunAt: fire.next }),
            updatedAt: now,
          },
        })
        if (!count) throw new NotNow()
      },
    })
  } catch (error) {
    if (error instanceof NotNow) return null
    throw error
  }
}

/** Does what a mission's due fire time asks for: a run, nothing but the next one, or a pause with its reason. */
export async function fire(deps: Deps, mission: MissionRow, now: Date): Promise<void> {
  const due = mission.nextRunAt
  if (!due) return
  const at = lastDue(mission, due, now)
  const next = nextFire(mission, at)
  const skipped =
    (mission.status === 'running' && mission.overlap === 'skip') ||
    (mission.catchUp === 'skip' && mission.overlap === 'skip' && now.getTime() - at.getTime() > MISSED)
  if (skipped) return moveOn(deps, mission, { nextRunAt: next }, now)
  // A fire time that waits stays due until the run before it has ended.
  if (mission.status === 'running') return
  const actor = await actorOf(deps.db, mission)
  if (!actor) return moveOn(deps, mission, stopped('The owner is no longer a member'), now)
  try {
    await run(deps, mission, { actor, fire: { due, at, next } })
  } catch (error) {
    const { status, message } = error as { status?: number; message?: string }
    if (status !== 404) throw error
    await moveOn(deps, mission, stopped(message ?? ''), now)
  }
}

const stopped = (pauseReason: string) => ({ status: 'paused' as const, pauseReason, nextRunAt: null })

/** Changes a mission unless its fire time was claimed meanwhile. */
async function moveOn({ db }: Deps, mission: MissionRow, data: Prisma.MissionUncheckedUpdateManyInput, now: Date) {
  const where = { id: mission.id, nextRunAt: mission.nextRunAt, runCount: mission.runCount }
  await db.mission.updateMany({ where, data: { ...data, updatedAt: now } })
}
