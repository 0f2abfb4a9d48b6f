import type { z } from 'zod'
import type { Actor, Authorized } from '../auth/actor.ts'
import { fromColumn } from '../auth/scopes.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict } from '../errors.ts'
import { type KeyClaim, store } from '../idempotency.ts'
import type { Context } from '../trpc.ts'
import { authorize, find, get, hold, lockPhase, type MissionRow, scopesBy, updateMission, viewOf } from './rows.ts'
import { beginRun, type RunTrigger } from './runs.ts'
import { firstFire, hasAllRuns } from './schedule.ts'
import type { MissionRun } from './schema.ts'

// Runs, pauses, resumes and completes missions.

const missionPaused = () =>
  conflict('Mission is paused', { detail: 'Resume it with POST /missions/{id}/resume first.' })
const missionOver = (status: 'completed' | 'failed') =>
  conflict(status === 'completed' ? 'Mission is completed' : 'Mission has failed', {
    detail: 'The mission has ended. A PATCH with a new `schedule` starts it again.',
  })
const missionNotPaused = () =>
  conflict('Mission is not paused', {
    detail: 'Only a paused mission can be resumed. To run this one now, use POST /missions/{id}/run.',
  })

/** Checks a status of a PATCH before the PATCH writes anything. Throws 400 and 409. */
export function checkMove(from: MissionRow['status'], to: MissionRow['status']): void {
  if (to === 'failed')
    throw badRequest(`Invalid status transition: ${from} to ${to}`, {
      detail: 'A mission fails by itself only: set it to paused or completed.',
    })
  if (to === 'running' && from === 'paused') throw missionPaused()
  if (to === 'paused' && (from === 'completed' || from === 'failed')) throw missionOver(from)
  if (to === 'pending' && from !== 'paused') throw missionNotPaused()
}

/**
 * Starts a run by hand if the mission still exists and is neither paused nor running. It runs within the mission's
 * scopes, and for another user's mission within the caller's too, because the run acts as the caller on another user's
 * goal.
 */
export async function beginNow(
  actor: Actor,
  deps: Deps,
  mission: Authorized<MissionRow>,
  cause: Pick<RunTrigger, 'key' | 'first' | 'also'>,
): Promise<void> {
  const isOwn = mission.userId === actor.userId
  const runner = isOwn
    ? { ...actor, scopes: fromColumn(mission.scopes), tokenId: mission.tokenId ?? '' }
    : { ...actor, scopes: scopesBy(actor, mission) }
  if (await beginRun(deps, mission, { actor: runner, fire: null, ...cause })) return
  const { status } = await find(actor, deps, mission.id)
  throw status === 'paused'
    ? missionPaused()
    : conflict('Mission is already running', { detail: 'Wait until its run has ended, or cancel the run.' })
}

/** The key of a request that runs a mission, and the count of the runs of its caller. */
type RunCall = Pick<Context, 'countRun'> & { key: KeyClaim | null }

/**
 * POST /missions/{id}/run: runs now regardless of the schedule. Throws 409 while it runs or is paused. The response is
 * stored under the Idempotency-Key, if there is one, in the transaction that accepts the run.
 */
export async function run(actor: Actor, deps: Deps, id: string, { key, countRun }: RunCall) {
  const mission = authorize(actor, await find(actor, deps, id))
  if (mission.status === 'paused') throw missionPaused()
  await countRun?.(actor)
  let answer!: z.input<typeof MissionRun>
  const also = async (tx: Tx, executionId: string) => {
    const { chatId, sessionId, status } = await tx.execution.findUniqueOrThrow({ where: { id: executionId } })
    const begun = await viewOf(actor, { db: tx }, await tx.mission.findUniqueOrThrow({ where: { id } }))
    answer = { mission: begun, executionId, chatId, sessionId, status }
    if (key) await store(tx, key, answer)
  }
  await beginNow(actor, deps, mission, { key, also })
  return answer
}

/** POST /missions/{id}/pause: no run starts after the response; an active one continues. */
export async function pause(actor: Actor, deps: Deps, id: string) {
  const mission = authorize(actor, await find(actor, deps, id))
  await deps.db.$transaction((tx) => pauseIn(tx, actor, deps, mission, deps.clock.now()))
  return get(actor, deps, id)
}

/** Pauses a mission in a transaction. Throws 409 if it has ended. */
export async function pauseIn(
  tx: Tx,
  actor: Actor,
  deps: Deps,
  mission: Authorized<MissionRow>,
  now: Date,
): Promise<void> {
  await lockPhase(tx, deps, mission.id)
  const data = { status: 'paused', pauseReason: null, nextRunAt: null } as const
  const condition: Prisma.MissionWhereInput = { status: { notIn: ['completed', 'failed'] } }
  if (await updateMission(tx, actor, mission, { action: 'mission.pause', now, data, condition })) return
  const { status } = await find(actor, { db: tx }, mission.id)
  throw missionOver(status === 'failed' ? status : 'completed')
}

/** Completes a mission by hand: no further run starts; an active one continues and leaves the status unchanged. */
export async function completeIn(
  tx: Tx,
  actor: Actor,
  deps: Deps,
  mission: Authorized<MissionRow>,
  now: Date,
): Promise<void> {
  await lockPhase(tx, deps, mission.id)
  const data = { status: 'completed', pauseReason: null, nextRunAt: null } as const
  await updateMission(tx, actor, mission, { action: 'mission.complete', now, data })
}

/**
 * POST /missions/{id}/resume: waits for its next fire time; those during the pause have passed. The mission is
 * `running` again if its run is still active.
 */
export async function resume(actor: Actor, deps: Deps, id: string) {
  const mission = authorize(actor, await find(actor, deps, id))
  await deps.db.$transaction((tx) => resumeIn(tx, actor, deps, mission, deps.clock.now()))
  return get(actor, deps, id)
}

/** Resumes a mission in a transaction. Throws 409 if it is not paused. */
export async function resumeIn(
  tx: Tx,
  actor: Actor,
  deps: Deps,
  { id, executionId }: Authorized<MissionRow>,
  now: Date,
): Promise<void> {
  const isRunning = await holdRun(tx, { executionId })
  await lockPhase(tx, deps, id)
  const mission = await hold(tx, actor, deps, id)
  const hasAll = hasAllRuns(mission)
  const data = {
    status: isRunning ? 'running' : hasAll ? 'completed' : 'pending',
    pauseReason: null,
    nextRunAt: hasAll ? null : firstFire(mission, now),
  } as const
  const condition = { status: 'paused' as const, executionId }
  if (await updateMission(tx, actor, mission, { action: 'mission.resume', now, data, condition })) return
  throw missionNotPaused()
}

/**
 * Locks the latest run of a mission. Returns whether it is active: its end then waits for this transaction and sees the
 * updated mission. Runs are locked before the mission counts.
 */
export async function holdRun(tx: Tx, { executionId: id }: Pick<MissionRow, 'executionId'>): Promise<boolean> {
  if (id === null) return false
  // Updating the key instead would make SQLite check all references to it.
  const asItIs = { attempt: { increment: 0 } }
  const { count } = await tx.execution.updateMany({ where: { id, terminalSeq: null }, data: asItIs })
  return count === 1
}
