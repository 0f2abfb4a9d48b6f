import { type AuditSource, auditEach } from '../auth/audit.ts'
import { Prisma, type Tx } from '../db/client.ts'
import { MAX_IN } from '../db/fast-path/index.ts'
import { lockMissionCounts } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { chunk } from '../lib/chunk.ts'
import { watchTask } from '../lib/watch-task.ts'

// The missions and tasks of a membership, a key or an agent that ends. Its transaction changes a bounded number of
// them, and records the ending if there are more. Later transactions change these, also after a restart. Meanwhile none
// of the missions starts at its fire time, which checks membership, key and agent.

/** Maximum number of missions, and of tasks, that one transaction changes. */
const PART = MAX_IN

/** Interval at which servers look for recorded endings (ms). */
const INTERVAL = 2_000

/** Order of endings: that of their key, which needs no sorting. */
const BY_KEY: Prisma.EndingOrderByWithRelationInput[] = [{ organizationId: 'asc' }, { kind: 'asc' }, { target: 'asc' }]

/** A membership, named by its user, a key or an agent that has ended. */
type Ending = Pick<EndingRow, 'organizationId' | 'kind' | 'target'>
type EndingRow = Prisma.EndingGetPayload<object>

type Change = { settings: Deps['settings']; by: AuditSource; now: Date }

/** Reasons with which the missions of an ending are paused. */
export const REASONS: Record<Ending['kind'], string> = {
  member: 'The owner is no longer a member',
  key: 'The key it was written with was revoked',
  agent: 'The agent was archived',
}

/** Filters the missions that an ending pauses and has not paused yet. */
function missionsOf({ organizationId, kind, target }: Ending): Prisma.MissionWhereInput {
  const running: Prisma.MissionWhereInput = { status: { in: ['pending', 'running'] } }
  if (kind === 'agent') return { agentOrganizationId: organizationId, agentId: target, ...running }
  const other = [{ pauseReason: null }, { pauseReason: { not: REASONS[kind] } }]
  const left = { OR: [running, { status: 'failed' as const }, { status: 'paused' as const, OR: other }] }
  if (kind === 'member') return { organizationId, userId: target, ...left }
  return { organizationId, tokenId: target, archivedAt: null, ...left }
}

/** Pauses a part of the missions of an ending. Returns their ids, and whether more may remain. */
async function pauseMissions(tx: Tx, { settings, by, now }: Change, ending: Ending) {
  const where = missionsOf(ending)
  const found = await tx.mission.findMany({ where, select: { id: true, organizationId: true }, take: PART })
  if (!found.length) return { missions: [], more: false }
  const oneOfEach = new Map(found.map(({ id, organizationId }) => [organizationId, id]))
  await lockMissionCounts(tx, settings, Prisma.sql`"id" IN (${Prisma.join([...oneOfEach.values()])})`)
  const paused = await tx.mission.updateManyAndReturn({
    where: { AND: [where, { id: { in: found.map(({ id }) => id) } }] },
    data: { status: 'paused', pauseReason: REASONS[ending.kind], nextRunAt: null, updatedAt: now },
    select: { id: true },
  })
  const missions = paused.map(({ id }) => id)
  if (ending.kind === 'key') await auditEach(tx, by, 'mission.pause', missions, now)
  return { missions, more: found.length === PART }
}

/** Unassigns a part of the open tasks of a former member. Returns their number, and whether more may remain. */
async function unassignTasks(tx: Tx, { now }: Change, { organizationId, kind, target }: Ending) {
  if (kind !== 'member') return { tasks: 0, more: false }
  const where: Prisma.TaskWhereInput = {
    organizationId,
    assignedTo: target,
    status: { in: ['pending', 'in_progress'] },
  }
  const found = await tx.task.findMany({ where, select: { id: true }, take: PART })
  if (!found.length) return { tasks: 0, more: false }
  const { count } = await tx.task.updateMany({
    where: { ...where, id: { in: found.map(({ id }) => id) } },
    data: { assignedTo: null, updatedAt: now },
  })
  return { tasks: count, more: found.length === PART }
}

/** Changes a part of the tasks and missions of an ending. */
async function changePart(tx: Tx, change: Change, ending: Ending) {
  const { missions, more: moreMissions } = await pauseMissions(tx, change, ending)
  const { tasks, more: moreTasks } = await unassignTasks(tx, change, ending)
  return { tasks, missions, more: moreTasks || moreMissions }
}

/**
 * Unassigns the open tasks of a former member, and pauses the missions of a membership, key or agent, in the
 * transaction that ends it. If there are too many for one transaction, {@link finishEndings} changes the others.
 * Returns the number of tasks and the ids of the missions.
 */
export async function end(tx: Tx, change: Change, ending: Ending): Promise<{ tasks: number; missions: string[] }> {
  const { tasks, missions, more } = await changePart(tx, change, ending)
  if (more) await recordEnding(tx, change, ending)
  return { tasks, missions }
}

/** Leaves the missions and tasks of an ending to {@link finishEndings}. */
async function recordEnding(tx: Tx, { by, now }: Change, ending: Ending): Promise<void> {
  const row = { ...ending, actor: by.userId, tokenId: by.tokenId || null, createdAt: now }
  if (!(await tx.ending.count({ where: ending }))) await tx.ending.createMany({ data: row })
}

/** Maximum number of keys whose missions one transaction pauses. */
const KEYS = 100

/** Pauses the missions that were written with some keys, as {@link end} does. Returns the ids of the paused ones. */
export async function endKeys(
  tx: Tx,
  change: Change,
  organizationId: string,
  tokenIds: readonly string[],
): Promise<string[]> {
  const used: string[] = []
  for (const ids of chunk(tokenIds, MAX_IN)) {
    const rows = await tx.$queryRaw<{ tokenId: string }[]>(Prisma.sql`
      SELECT DISTINCT "tokenId" FROM "Mission"
      WHERE "tokenId" IN (${Prisma.join(ids)}) AND "organizationId" = ${organizationId} AND "archivedAt" IS NULL`)
    used.push(...rows.map(({ tokenId }) => tokenId))
  }
  const paused: string[] = []
  for (const [index, target] of used.entries()) {
    const ending = { organizationId, kind: 'key' as const, target }
    if (index < KEYS && paused.length < PART) paused.push(...(await end(tx, change, ending)).missions)
    else await recordEnding(tx, change, ending)
  }
  return paused
}

type Parts = Pick<Deps, 'db' | 'settings' | 'clock'>

/** Changes the missions and tasks that an ending has left, a part in each transaction. Returns the number of tasks. */
async function finishEnding({ db, settings, clock }: Parts, row: EndingRow, isOver: () => boolean): Promise<number> {
  const { organizationId, kind, target, actor, tokenId } = row
  const by = { organizationId, userId: actor, tokenId: tokenId ?? '' }
  const ending = { organizationId, kind, target }
  const finish = async (tx: Tx) => {
    // If another server has finished it, the user may be a member again.
    const { count } = await tx.ending.updateMany({ where: ending, data: { actor } })
    if (!count) return { tasks: 0, more: false }
    const change = { settings, by, now: clock.now() }
    const { tasks, more } = await changePart(tx, change, ending)
    if (!more) await tx.ending.deleteMany({ where: ending })
    return { tasks, more }
  }
  let all = 0
  for (let more = true; more && !isOver(); ) {
    const done = await db.$transaction(finish)
    all += done.tasks
    more = done.more
  }
  return all
}

/**
 * Tries each ending once, so that those that fail do not delay the others. Returns the number of tasks, and the first
 * failure. Throws if the endings cannot be read.
 */
async function tryEach(parts: Parts, where: Prisma.EndingWhereInput, isOver: () => boolean) {
  let tasks = 0
  const failures: { ending: Ending; error: unknown }[] = []
  while (!isOver()) {
    // Those that failed are the first ones now.
    const row = await parts.db.ending.findFirst({ where, orderBy: BY_KEY, skip: failures.length })
    if (!row) break
    try {
      tasks += await finishEnding(parts, row, isOver)
    } catch (error) {
      const { organizationId, kind, target } = row
      failures.push({ ending: { organizationId, kind, target }, error })
    }
  }
  return { tasks, failure: failures[0] }
}

/**
 * Changes the missions and tasks that endings have left. Servers may do so side by side. Returns the number of tasks.
 * Throws the first failure after all endings were tried.
 */
export async function finishEndings(parts: Parts, where: Prisma.EndingWhereInput = {}): Promise<number> {
  const { tasks, failure } = await tryEach(parts, where, () => false)
  if (failure) throw failure.error
  return tasks
}

export type Finisher = { stop(): Promise<void> }

/** Finishes recorded endings from time to time, until it is stopped. */
export function createFinisher(deps: Parts & Pick<Deps, 'log'>): Finisher {
  let stopped = false
  let running: Promise<void> | null = null
  let failed: Ending | undefined
  const look = async () => {
    failed = undefined
    const { failure } = await tryEach(deps, {}, () => stopped)
    failed = failure?.ending
    if (failure) throw failure.error
  }
  const watch = watchTask((err) =>
    deps.log.error({ err, ...failed }, 'failed to pause missions or unassign tasks after an end of access, retrying'),
  )
  const timer = setInterval(() => {
    running ??= watch(look()).finally(() => {
      running = null
    })
  }, INTERVAL)
  return {
    async stop() {
      stopped = true
      clearInterval(timer)
      await running
    },
  }
}
