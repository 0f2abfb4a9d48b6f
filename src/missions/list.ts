import type { z } from 'zod'
import { type Actor, isAdmin } from '../auth/actor.ts'
import type { Db, Prisma } from '../db/client.ts'
import { totalOf } from '../db/totals.ts'
import type { Deps } from '../deps.ts'
import { list as listExecutions } from '../executions/service.ts'
import { listPage } from '../lib/page.ts'
import { having } from '../lib/search.ts'
import { find, LONG_TEXTS, type MissionRow, reachable, toMissions } from './rows.ts'
import type { ListMissions, ListRuns } from './schema.ts'

// The list of missions, and that of a mission's runs.

/** Returns the filter of `list`: its input on top of {@link reachable}. */
export const listedBy = (
  actor: Actor,
  { status, search }: z.output<typeof ListMissions>,
): Prisma.MissionWhereInput => ({
  ...reachable(actor),
  ...(status && { status }),
  ...having(search),
})

/** Statuses with kept totals. Running missions count as pending, because runs change that often. */
const COUNTED_STATUSES = ['pending', 'completed', 'paused', 'failed'] as const

/**
 * Counts the missions that {@link listedBy} finds, with a search row by row. The few running ones are counted and
 * subtracted from the others.
 */
export async function countListed(actor: Actor, db: Db, input: z.output<typeof ListMissions>): Promise<number> {
  const { status, search } = input
  if (status === 'running' || search) return db.mission.count({ where: listedBy(actor, input) })
  const total = await totalOf(db, {
    organizationId: actor.organizationId,
    list: isAdmin(actor) ? 'missions for admins' : 'missions',
    userId: { in: ['', actor.userId] },
    value: status ?? { in: [...COUNTED_STATUSES] },
  })
  // A mission may have completed between the two statements.
  return status === 'pending' ? Math.max(0, total - (await countListed(actor, db, { status: 'running' }))) : total
}

/** GET /missions, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListMissions>) {
  const where = listedBy(actor, input)
  const { rows, nextCursor } = await listPage<MissionRow>(input, LONG_TEXTS, ({ where: after, ...page }) =>
    db.mission.findMany({ where: { AND: [where, after ?? {}] }, ...page }),
  )
  const count = input.cursor !== undefined || nextCursor ? await countListed(actor, db, input) : rows.length
  return { missions: await toMissions(actor, db, rows), count, nextCursor }
}

/** GET /missions/{id}/runs, newest first. */
export async function runs(actor: Actor, deps: Deps, { id, ...input }: z.output<typeof ListRuns>) {
  await find(actor, deps, id)
  const { executions, ...page } = await listExecutions(actor, deps, { ...input, missionId: id })
  return { runs: executions, ...page }
}
