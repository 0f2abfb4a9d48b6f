import type { z } from 'zod'
import { executable } from '../agents/visibility.ts'
import { type Actor, actorOf, holdCredential, holdMembership } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { toColumn } from '../auth/scopes.ts'
import type { Prisma, Tx } from '../db/client.ts'
import { lockCounts } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { badRequest, forbidden, notFound } from '../errors.ts'
import { LIVE, markRuns } from '../executions/engine/queue/cancel-marks.ts'
import { asDb, type KeyClaim, type Precondition, store, takeClaim, whenCommitted } from '../idempotency.ts'
import { hasChanges, omitUndefined } from '../lib/changes.ts'
import { newId } from '../lib/id.ts'
import { toOutputColumn } from '../lib/output.ts'
import { searchedIn } from '../lib/search.ts'
import { findOrDefault } from '../spaces/service.ts'
import {
  authorize,
  find,
  hold,
  lockPhase,
  type MissionRow,
  scopesBy,
  toMission,
  updateMission,
  viewOf,
} from './rows.ts'
import './run-ended.ts'
import { changeSchedule, checkSchedule, firstFire, hasAllRuns, isSameTime, NO_SCHEDULE } from './schedule.ts'
import type { CreateMission, ScheduleChange, UpdateMission } from './schema.ts'
import { beginNow, checkMove, completeIn, holdRun, pauseIn, resumeIn } from './status.ts'

const agentOf = (input: { agentId?: string | null | undefined; characterId?: string | null | undefined }) =>
  input.agentId ?? input.characterId ?? undefined

async function findAgent(actor: Actor, { db }: Deps, id: string) {
  const agent = await db.agent.findFirst({
    where: { AND: [{ id }, executable(actor)] },
    select: { id: true, organizationId: true },
  })
  if (!agent) throw notFound('Agent')
  return { agentId: agent.id, agentOrganizationId: agent.organizationId }
}

/** Finds the agent and the space of a new mission. Throws 404 if the caller cannot run or reach them. */
export async function findPlace(actor: Actor, deps: Deps, input: z.output<typeof CreateMission>) {
  const agentId = agentOf(input)
  if (agentId === undefined) throw badRequest('Missing required field: agentId')
  return { ...(await findAgent(actor, deps, agentId)), spaceId: await findOrDefault(actor, deps, input.spaceId) }
}

/** POST /missions. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateMission>) {
  const { title, goal, icon, visibility, maxTurns, agentType } = input
  const now = deps.clock.now()
  const schedule = changeSchedule(NO_SCHEDULE, input.schedule ?? null)
  checkSchedule(schedule, now)
  const place = await findPlace(actor, deps, input)
  const row = await deps.db.$transaction(async (tx) => {
    await holdCredential(tx, deps.settings, actor)
    const created = await tx.mission.create({
      data: {
        id: newId(),
        organizationId: actor.organizationId,
        userId: actor.userId,
        scopes: toColumn(actor.scopes),
        tokenId: actor.tokenId || null,
        ...place,
        ...schedule,
        nextRunAt: firstFire(schedule, now),
        title,
        ...searchedIn(title),
        goal,
        icon: icon ?? null,
        visibility: visibility ?? 'organization',
        maxTurns: maxTurns ?? null,
        output: toOutputColumn(input.output ?? null) as Prisma.InputJsonObject,
        agentType: agentType ?? null,
        status: 'pending',
        createdAt: now,
        updatedAt: now,
      },
    })
    // Behind the mission counts, which the end of a membership locks first.
    if (!(await holdMembership(tx, deps.settings, actor))) throw forbidden()
    await audit(tx, actor, 'mission.create', created.id, now)
    return created
  })
  const mission = toMission(actor, row, false)
  return { id: row.id, title: row.title, status: row.status, schedule: mission.schedule, mission }
}

/** Returns the authority of a mission after the caller has written it: the scopes, and its owner's token. */
const authorityBy = (actor: Actor, mission: Pick<MissionRow, 'userId' | 'scopes' | 'tokenId'>) => ({
  scopes: toColumn(scopesBy(actor, mission)),
  tokenId: mission.userId === actor.userId ? actor.tokenId || null : mission.tokenId,
})

/** Fields that change the visibility of a mission and its chats. */
const COUNTED = ['visibility', 'agentId', 'spaceId'] as const

/**
 * PATCH /missions/{id}. A new `status` runs, pauses, resumes or completes the mission as it is after the other changes,
 * all or nothing; the current status changes nothing. A new schedule starts over. The mission then runs within the
 * scopes of its owner's token, or within the common scopes of the mission and an admin's token ({@link scopesBy}),
 * unless only its status changes.
 */
export async function update(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof UpdateMission>,
  { key = null, precondition = null }: { key?: KeyClaim | null; precondition?: Precondition | null } = {},
) {
  const mission = authorize(actor, await find(actor, deps, input.id))
  const status = input.status === mission.status ? undefined : input.status
  if (status) checkMove(mission.status, status)
  const now = deps.clock.now()
  const { schedule } = input
  // An invalid schedule is rejected before anything else is looked up.
  const times = schedule === undefined ? {} : reschedule(mission, schedule, now)
  const columns = await assignedColumns(actor, deps, mission, input)
  const changes = hasChanges(mission, { ...columns, ...times })
  const data = changes ? { ...columns, ...authorityBy(actor, mission) } : {}
  const changed = { ...mission, ...data }
  const lock = async (tx: Tx) => {
    if (changes) await holdCredential(tx, deps.settings, actor)
    const isCounted = COUNTED.some((field) => changed[field] !== mission[field])
    if (isCounted) await lockCounts(tx, deps.settings, mission.organizationId)
  }
  let written: MissionRow = mission
  const check = async (tx: Tx) => precondition?.(tx, asDb(tx))
  const keep = async (tx: Tx) => {
    if (key) await store(tx, key, { mission: await viewOf(actor, { db: tx }, written) })
  }
  const change = async (tx: Tx) => {
    if (changes) {
      const current = await hold(tx, actor, deps, mission.id)
      const currentTimes = schedule !== undefined && reschedule(current, schedule, now)
      const data = { ...columns, ...currentTimes, ...authorityBy(actor, current) }
      await updateMission(tx, actor, current, { action: 'mission.update', now, data })
    }
    // After this change the mission may be private and invisible to the admin.
    written = await tx.mission.findUniqueOrThrow({ where: { id: mission.id } })
  }
  if (status === 'running') {
    const first = async (tx: Tx) => {
      await check(tx)
      await lock(tx)
    }
    const also = async (tx: Tx) => {
      await change(tx)
      await keep(tx)
    }
    await beginNow(actor, deps, changed, { key, first, also })
  } else if (status || changes || key || precondition) {
    await deps.db.$transaction(async (tx) => {
      if (key) await takeClaim(tx, key, now)
      await check(tx)
      if (status === 'pending') await holdRun(tx, mission)
      await lock(tx)
      if (schedule !== undefined) await lockPhase(tx, deps, mission.id)
      if (status === 'paused') await pauseIn(tx, actor, deps, mission, now)
      if (status === 'pending') await resumeIn(tx, actor, deps, mission, now)
      await change(tx)
      if (status === 'completed') {
        await completeIn(tx, actor, deps, mission, now)
        written = await tx.mission.findUniqueOrThrow({ where: { id: mission.id } })
      }
      await keep(tx)
    })
  }
  return { mission: await viewOf(actor, deps, written) }
}

/**
 * Returns the changes of a PATCH besides schedule and status. Throws 404 for an agent or space that the caller or the
 * mission's owner cannot use, because the mission runs as its owner.
 */
async function assignedColumns(actor: Actor, deps: Deps, mission: MissionRow, input: z.output<typeof UpdateMission>) {
  const { title, goal, icon, visibility, maxTurns, agentType, spaceId } = input
  const agentId = agentOf(input)
  const placeFor = async (who: Actor) => ({
    ...(agentId !== undefined && (await findAgent(who, deps, agentId))),
    ...(spaceId !== undefined && { spaceId: await findOrDefault(who, deps, spaceId) }),
  })
  const place = await placeFor(actor)
  const isMoved = Object.keys(place).length > 0
  const owner = isMoved && mission.userId !== actor.userId ? await actorOf(deps.db, mission) : null
  if (owner) await placeFor(owner)
  const output = input.output === undefined ? undefined : (toOutputColumn(input.output) as Prisma.JsonObject)
  const named = title !== undefined && { title, ...searchedIn(title) }
  return omitUndefined({ ...named, goal, icon, visibility, maxTurns, agentType, output, ...place })
}

/**
 * Returns the changes of a new schedule. A paused mission still has no fire time, and a completed one becomes pending.
 * A mission that already had `maxRuns` runs is completed.
 */
function reschedule(mission: MissionRow, change: z.output<typeof ScheduleChange> | null, now: Date) {
  const schedule = changeSchedule(mission, change)
  if (isSameTime(schedule, mission)) return schedule
  checkSchedule(schedule, now)
  const { status } = mission
  const hasAll = hasAllRuns({ ...mission, ...schedule })
  const nextRunAt = status === 'paused' || hasAll ? null : firstFire(schedule, now)
  const isOver = status === 'completed' || status === 'failed'
  return {
    ...schedule,
    nextRunAt,
    ...(isOver && nextRunAt && { status: 'pending' as const }),
    ...(status === 'pending' && hasAll && { status: 'completed' as const }),
  }
}

/** DELETE /missions/{id}: archives it and cancels the active run; its runs and chats stay. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const mission = authorize(actor, await find(actor, deps, id))
  const now = deps.clock.now()
  const live = { organizationId: mission.organizationId, missionId: id, ...LIVE }
  await deps.db.$transaction(async (tx) => {
    await markRuns(tx, live, actor, now)
    await lockPhase(tx, deps, id)
    const data = { archivedAt: now, nextRunAt: null }
    if (!(await updateMission(tx, actor, mission, { action: 'mission.archive', now, data }))) throw notFound('Mission')
  })
  // No other run starts from here on.
  const runs = await deps.db.execution.findMany({ where: live })
  await whenCommitted(deps, () => Promise.all(runs.map((run) => deps.engine.cancel(run, actor))))
  return { message: 'Mission deleted successfully' }
}
