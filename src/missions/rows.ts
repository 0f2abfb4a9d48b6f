import type { z } from 'zod'
import { notPrivate } from '../agents/visibility.ts'
import { type Actor, type Authorized, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { fromColumn, intersect } from '../auth/scopes.ts'
import { lockRows, Prisma, rowLock, type Tx } from '../db/client.ts'
import { lockMissionCounts } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import { readableOf as findRuns } from '../executions/service.ts'
import { outputOf } from '../lib/output.ts'
import { visible as visibleSpace } from '../spaces/visibility.ts'
import { pauseOf } from './schedule.ts'
import type { Mission } from './schema.ts'

// Finds, shows, locks and changes the rows of missions.

export type MissionRow = Prisma.MissionGetPayload<object> & { truncated?: boolean }

/** The long texts of a mission, which long lists cut. */
export const LONG_TEXTS = ['goal', 'lastError'] as const

/** Filters the organization's missions, except private ones and those of private spaces or agents of others. */
export const reachable = (actor: Actor): Prisma.MissionWhereInput => ({
  organizationId: actor.organizationId,
  archivedAt: null,
  space: visibleSpace(actor),
  AND: [notPrivate(actor), { OR: [{ visibility: { not: 'private' } }, { userId: actor.userId }] }],
})

/** Checks that the caller may change a mission: its owner, and admins unless it is private. Throws 403. */
export const authorize = (actor: Actor, mission: MissionRow): Authorized<MissionRow> =>
  permit(mission, mission.userId === actor.userId || (isAdmin(actor) && mission.visibility !== 'private'))

/**
 * Returns missions as the caller sees them, in at most one statement. The error of a run is visible only to users who
 * can read the run.
 */
export async function toMissions(
  actor: Actor,
  db: Tx,
  rows: readonly MissionRow[],
): Promise<z.input<typeof Mission>[]> {
  const ids = rows.flatMap(({ lastError, lastExecutionId }) =>
    lastError === null || lastExecutionId === null ? [] : [lastExecutionId],
  )
  const runs = await findRuns(actor, db, ids)
  return rows.map((row) => toMission(actor, row, row.lastExecutionId !== null && runs.has(row.lastExecutionId)))
}

/** Returns a mission as the caller sees it. */
export async function viewOf(actor: Actor, { db }: { db: Tx }, row: MissionRow): Promise<z.input<typeof Mission>> {
  const [mission] = await toMissions(actor, db, [row])
  return mission!
}

/** Returns the pause of a continuous mission that was extended because of failures (seconds), or null. */
export const backoffOf = (row: Pick<MissionRow, 'scheduleType' | 'scheduleValue' | 'timezone' | 'failureCount'>) =>
  row.scheduleType === 'continuous' && row.failureCount > 0 ? pauseOf(row) : null

/** Converts a mission's row for the API. `showsError`: whether the caller can read its latest run. */
export const toMission = (actor: Actor, row: MissionRow, showsError: boolean): z.input<typeof Mission> => ({
  id: row.id,
  title: row.title,
  goal: row.goal,
  agentId: row.agentId,
  agentType: row.agentType,
  spaceId: row.spaceId,
  icon: row.icon,
  visibility: row.visibility,
  maxTurns: row.maxTurns,
  output: outputOf(row.output),
  organizationId: row.organizationId,
  userId: row.userId,
  tokenId: isAdmin(actor) || actor.userId === row.userId ? row.tokenId : null,
  status: row.status,
  ...(row.pauseReason !== null && { pauseReason: row.pauseReason }),
  lastStatus: row.lastStatus as z.input<typeof Mission>['lastStatus'],
  lastError: showsError ? row.lastError : null,
  lastExecutionId: row.lastExecutionId,
  failureCount: row.failureCount,
  skippedCount: row.skippedCount,
  schedule: {
    type: row.scheduleType,
    value: row.scheduleValue,
    timezone: row.timezone,
    overlap: row.overlap,
    catchUp: row.catchUp,
    lastRun: row.lastRunAt?.toISOString() ?? null,
    nextRun: row.nextRunAt?.toISOString() ?? null,
    runCount: row.runCount,
    maxRuns: row.maxRuns,
    backoffSeconds: backoffOf(row),
  },
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
  ...(row.truncated && { truncated: true }),
})

/** Finds a mission that the caller can reach. Throws 404 for any other. */
export async function find(actor: Actor, { db }: { db: Tx }, id: string): Promise<MissionRow> {
  const row = await db.mission.findFirst({ where: { AND: [{ id }, reachable(actor)] } })
  if (!row) throw notFound('Mission')
  return row
}

/** GET /missions/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { mission: await viewOf(actor, deps, await find(actor, deps, id)) }
}

/** Returns the missions with these ids that the caller can reach, archived ones too. */
export async function findMany(actor: Actor, { db }: Deps, ids: readonly string[]) {
  const { archivedAt: _, ...where } = reachable(actor)
  return toMissions(actor, db, await db.mission.findMany({ where: { AND: [{ id: { in: [...ids] } }, where] } }))
}

/** Finds and locks a mission until the transaction ends. */
export async function hold(tx: Tx, actor: Actor, { settings }: Deps, id: string): Promise<Authorized<MissionRow>> {
  await lockRows(tx, 'Mission', [id], rowLock(settings))
  return authorize(actor, await find(actor, { db: tx }, id))
}

/**
 * Returns the scopes of a mission that the caller writes or runs. The owner contributes those of the current token. Any
 * other caller can only narrow the mission's scopes, because the mission acts for its owner.
 */
export const scopesBy = (actor: Actor, mission: Pick<MissionRow, 'userId' | 'scopes'>): readonly string[] =>
  mission.userId === actor.userId ? actor.scopes : intersect(fromColumn(mission.scopes), actor.scopes)

/** Locks the mission counts before a row changes that may be completed, paused or reactivated. */
export const lockPhase = (tx: Tx, { settings }: Pick<Deps, 'settings'>, id: string) =>
  lockMissionCounts(tx, settings, Prisma.sql`"id" = ${id}`)

/** A change of a mission, the action of its audit event, and the condition that the mission has to meet. */
type MissionChange = {
  action: `mission.${string}`
  now: Date
  data: Prisma.MissionUncheckedUpdateManyInput
  condition?: Prisma.MissionWhereInput
}

/** Changes a mission that meets the condition and is not archived. Returns whether it did. */
export async function updateMission(
  tx: Tx,
  actor: Actor,
  { id }: Authorized<MissionRow>,
  { action, now, data, condition }: MissionChange,
): Promise<boolean> {
  const where = { id, archivedAt: null, ...condition }
  const { count } = await tx.mission.updateMany({ where, data: { ...data, updatedAt: now } })
  if (count) await audit(tx, actor, action, id, now)
  return count === 1
}
