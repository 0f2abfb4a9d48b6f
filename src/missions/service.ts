import type { z } from 'zod'
import { executable, notPrivate } from '../agents/service.ts'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, notFound } from '../errors.ts'
import type { ExecutionRow } from '../executions/engine/events.ts'
import { list as listExecutions } from '../executions/service.ts'
import { newId } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { reachable as reachableSpace, visible as visibleSpace } from '../spaces/service.ts'
import { run as begin } from './runs.ts'
import { checkSchedule, firstFire, nextFires, pauseOf } from './schedule.ts'
import type { CreateMission, ListMissions, ListRuns, Mission, NextRuns, UpdateMission } from './schema.ts'

export type MissionRow = Prisma.MissionGetPayload<object>

/** The organization's, but for what is private, lies in a private space or belongs to a private agent. */
export const reachable = (actor: Actor): Prisma.MissionWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  space: visibleSpace(actor),
  AND: [notPrivate(actor), { OR: [{ visibility: { not: 'private' } }, { userId: actor.userId }] }],
})

const authorize = (actor: Actor, mission: MissionRow): Authorized<MissionRow> =>
  permit(mission, mission.userId === actor.userId || (isAdmin(actor) && mission.visibility !== 'private'))

export const toMission = (row: MissionRow): z.input<typeof Mission> => ({
  id: row.id,
  title: row.title,
  goal: row.goal,
  agentId: row.agentId,
  agentType: row.agentType,
  spaceId: row.spaceId,
  icon: row.icon,
  visibility: row.visibility,
  maxTurns: row.maxTurns,
  organizationId: row.organizationId,
  userId: row.userId,
  status: row.status,
  ...(row.pauseReason !== null && { pauseReason: row.pauseReason }),
  schedule: {
    type: row.scheduleType,
    value: row.scheduleValue,
    timezone: row.timezone,
    overlap: row.overlap,
    catchUp: row.catchUp,
    lastRun: row.lastRunAt?.toISOString() ?? null,
    nextRun: row.nextRunAt?.toISOString() ?? null,
    runCount: row.runCount,
  },
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
})

/** What `list` lists: the filter of its input on top of {@link reachable}. */
export const listedBy = (actor: Actor, { status }: z.output<typeof ListMissions>): Prisma.MissionWhereInput => ({
  ...reachable(actor),
  ...(status && { status }),
})

/** GET /missions, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListMissions>) {
  const where = listedBy(actor, input)
  const { where: after, ...page } = pageQuery(input)
  const found = await db.mission.findMany({ where: { AND: [where, after ?? {}] }, ...page })
  const { rows, nextCursor } = toPage(found, input)
  const count = after || nextCursor ? await db.mission.count({ where }) : rows.length
  return { missions: rows.map(toMission), count, nextCursor }
}

async function find(actor: Actor, { db }: Pick<Deps, 'db'>, id: string): Promise<MissionRow> {
  const row = await db.mission.findFirst({ where: { AND: [{ id }, reachable(actor)] } })
  if (!row) throw notFound('Mission')
  return row
}

/** GET /missions/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { mission: toMission(await find(actor, deps, id)) }
}

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

async function findSpace(actor: Actor, { db }: Deps, id: string | null | undefined): Promise<string> {
  const wanted: Prisma.SpaceWhereInput = id ? { id } : { isDefault: true }
  const space = await db.space.findFirst({ where: { AND: [wanted, reachableSpace(actor)] }, select: { id: true } })
  if (!space) throw notFound('Space')
  return space.id
}

type ScheduleInput = NonNullable<z.output<typeof CreateMission>['schedule']>

function toSchedule(input: ScheduleInput | null | undefined, now: Date) {
  const { type = 'none', value, timezone = 'UTC', overlap = 'skip', catchUp = 'last' } = input ?? { type: 'none' }
  const schedule = { scheduleType: type, scheduleValue: value ?? null, timezone, overlap, catchUp }
  checkSchedule(schedule, now)
  return { ...schedule, nextRunAt: firstFire(schedule, now) }
}

/** POST /missions. */
export async function create(actor: Actor, deps: Deps, input: z.output<typeof CreateMission>) {
  const { title, goal, icon, visibility, maxTurns, agentType } = input
  const agentId = agentOf(input)
  if (!agentId) throw badRequest('Missing required field: agentId')
  const now = deps.clock.now()
  const [agent, spaceId] = [await findAgent(actor, deps, agentId), await findSpace(actor, deps, input.spaceId)]
  const schedule = toSchedule(input.schedule, now)
  const row = await deps.db.$transaction(async (tx) => {
    const created = await tx.mission.create({
      data: {
        id: newId(),
        organizationId: actor.organizationId,
        userId: actor.userId,
        ...agent,
        ...schedule,
        spaceId,
        title,
        goal,
        icon: icon ?? null,
        visibility: visibility ?? 'organization',
        maxTurns: maxTurns ?? null,
        agentType: agentType ?? null,
        status: 'pending',
        createdAt: now,
        updatedAt: now,
      },
    })
    await audit(tx, actor, 'mission.create', created.id, now)
    return created
  })
  return { id: row.id, title: row.title, status: row.status, mission: toMission(row) }
}

/** PATCH /missions/{id}. `status` runs, pauses or resumes it; a schedule that is said begins anew. */
export async function update(actor: Actor, deps: Deps, input: z.output<typeof UpdateMission>) {
  const mission = authorize(actor, await find(actor, deps, input.id))
  const { title, goal, icon, visibility, maxTurns, agentType, status } = input
  const said = Object.entries({ title, goal, icon, visibility, maxTurns, agentType })
  const agentId = agentOf(input)
  const now = deps.clock.now()
  const data: Prisma.MissionUncheckedUpdateManyInput = {
    ...Object.fromEntries(said.filter(([, value]) => value !== undefined)),
    ...(agentId && (await findAgent(actor, deps, agentId))),
    ...(input.spaceId !== undefined && { spaceId: await findSpace(actor, deps, input.spaceId) }),
  }
  if (input.schedule !== undefined) {
    const { nextRunAt, ...schedule } = toSchedule(input.schedule, now)
    Object.assign(data, schedule, { nextRunAt: mission.status === 'paused' ? null : nextRunAt })
    if (nextRunAt && mission.status === 'completed') data.status = 'pending'
  }
  if (Object.keys(data).length) await write(actor, deps, mission, 'mission.update', data)
  if (status === 'running') await run(actor, deps, input.id)
  if (status === 'paused') return pause(actor, deps, input.id)
  if (status === 'pending') return resume(actor, deps, input.id)
  return get(actor, deps, input.id)
}

async function write(
  actor: Actor,
  { db, clock }: Deps,
  { id }: Authorized<MissionRow>,
  action: string,
  data: Prisma.MissionUncheckedUpdateManyInput,
  condition: Prisma.MissionWhereInput = {},
): Promise<boolean> {
  const now = clock.now()
  return db.$transaction(async (tx) => {
    const { count } = await tx.mission.updateMany({ where: { id, ...condition }, data: { ...data, updatedAt: now } })
    if (count) await audit(tx, actor, action, id, now)
    return count === 1
  })
}

/** POST /missions/{id}/run: now, whatever its schedule says. 409 while it runs or is paused. */
export async function run(actor: Actor, deps: Deps, id: string) {
  const mission = authorize(actor, await find(actor, deps, id))
  if (mission.status === 'paused') throw conflict('Mission is paused')
  const started = await begin(deps, mission, { actor, fire: null })
  if (!started) throw conflict('Mission is already running')
  const { id: executionId, chatId, sessionId, status } = started
  return { ...(await get(actor, deps, id)), executionId, chatId, sessionId, status }
}

/** POST /missions/{id}/pause: once this has answered no run starts; one that is on goes on. */
export async function pause(actor: Actor, deps: Deps, id: string) {
  const mission = authorize(actor, await find(actor, deps, id))
  const data = { status: 'paused', pauseReason: null, nextRunAt: null } as const
  const paused = await write(actor, deps, mission, 'mission.pause', data, { status: { not: 'completed' } })
  if (!paused) throw conflict('Mission is completed')
  return get(actor, deps, id)
}

/** POST /missions/{id}/resume: it waits for its next fire time; those it was paused for have passed. */
export async function resume(actor: Actor, deps: Deps, id: string) {
  const mission = authorize(actor, await find(actor, deps, id))
  const data = { status: 'pending', pauseReason: null, nextRunAt: firstFire(mission, deps.clock.now()) } as const
  const resumed = await write(actor, deps, mission, 'mission.resume', data, { status: 'paused' })
  if (!resumed) throw conflict('Mission is not paused')
  return get(actor, deps, id)
}

/** DELETE /missions/{id}: archives it, and cancels the run that is on; its runs and chats stay. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const mission = authorize(actor, await find(actor, deps, id))
  await write(actor, deps, mission, 'mission.archive', { archivedAt: deps.clock.now(), nextRunAt: null })
  const { executionId } = mission
  const run = executionId ? await deps.db.execution.findUnique({ where: { id: executionId } }) : null
  if (run && run.terminalSeq === null) await deps.engine.cancel(run)
  return { message: 'Mission deleted successfully' }
}

/** GET /missions/{id}/runs, newest first. */
export async function runs(actor: Actor, deps: Deps, { id, ...page }: z.output<typeof ListRuns>) {
  await find(actor, deps, id)
  const { executions, nextCursor } = await listExecutions(actor, deps, { ...page, missionId: id })
  return { runs: executions, nextCursor }
}

/** GET /missions/{id}/next: the fire times to come. */
export async function next(actor: Actor, deps: Deps, { id, count = 10 }: z.output<typeof NextRuns>) {
  const mission = await find(actor, deps, id)
  const fires = mission.status === 'paused' ? [] : nextFires(mission, deps.clock.now(), count)
  return { next: fires.map((fire) => fire.toISOString()) }
}

/** In the terminal transaction of a run: moves its mission on, unless it was paused or has begun another run. */
export async function settle(tx: Tx, ended: ExecutionRow, now: Date): Promise<void> {
  if (!ended.missionId) return
  const where = { id: ended.missionId, executionId: ended.id, status: 'running' as const }
  const mission = await tx.mission.findFirst({ where })
  if (!mission) return
  const { scheduleType } = mission
  const over = scheduleType === 'none' || scheduleType === 'once'
  await tx.mission.updateMany({
    where,
    data: {
      status: over && ended.status === 'completed' ? 'completed' : 'pending',
      ...(scheduleType === 'continuous' && { nextRunAt: new Date(now.getTime() + pauseOf(mission)) }),
      updatedAt: now,
    },
  })
}
