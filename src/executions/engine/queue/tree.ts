import type { Db, Tx } from '../../../db/client.ts'
import { badRequest, cancelled, conflict } from '../../../errors.ts'
import type { ExecutionRow } from '../events/events.ts'

/** How deep below its root an execution may lie. */
export const MAX_DEPTH = 5

/** How many executions a tree may have before no call starts another in it: what a call starts needs no room. */
export const MAX_TREE = 200

/** How many it may have at all: they are shown in one answer. */
const MAX_FAMILY = 1000

/** What has to be known of a run in order to end it. */
const STANDING = {
  id: true,
  status: true,
  waitingFor: true,
  attempt: true,
  seqReserved: true,
  terminalSeq: true,
} as const
export type Standing = Pick<ExecutionRow, keyof typeof STANDING>

/** All of an execution's tree but the root, which alone has no parent: the index has only rows that have one. */
export const belowRoot = ({
  organizationId,
  rootExecutionId,
}: Pick<ExecutionRow, 'organizationId' | 'rootExecutionId'>) => ({
  organizationId,
  rootExecutionId,
  parentExecutionId: { not: null },
})

/** The descendants of an execution that have not ended, children before their own children. */
export async function findDescendants(db: Db | Tx, row: ExecutionRow) {
  const select = { ...STANDING, parentExecutionId: true }
  const tree = await db.execution.findMany({ where: belowRoot(row), orderBy: { depth: 'asc' }, select })
  const family = new Set([row.id])
  for (const { id, parentExecutionId } of tree) if (parentExecutionId && family.has(parentExecutionId)) family.add(id)
  return tree.filter(({ id, terminalSeq }) => id !== row.id && family.has(id) && terminalSeq === null)
}

/**
 * How long the runs that an execution's calls have started, and theirs, have waited for approvals (ms): of those that did
 * so side by side, each.
 */
export async function waitedBelow(db: Db, row: ExecutionRow, now: Date): Promise<number> {
  const calls = await db.toolCall.findMany({
    where: { executionId: row.id, childExecutionId: { not: null } },
    select: { childExecutionId: true },
  })
  if (!calls.length) return 0
  const tree = await db.execution.findMany({
    where: belowRoot(row),
    orderBy: { depth: 'asc' },
    select: { id: true, parentExecutionId: true, waitedMs: true, waitingSince: true, completedAt: true },
  })
  const family = new Set(calls.map(({ childExecutionId }) => childExecutionId))
  let waited = 0
  for (const { id, parentExecutionId, waitedMs, waitingSince, completedAt } of tree) {
    if (!family.has(id) && !family.has(parentExecutionId)) continue
    family.add(id)
    waited += waitedMs + (waitingSince ? Math.max(0, (completedAt ?? now).getTime() - waitingSince.getTime()) : 0)
  }
  return waited
}

/** Whoever cancels a tree marks the parent before looking for children: this waits for the mark, or is found. */
export async function holdParent(tx: Tx, parent: ExecutionRow, now: Date): Promise<void> {
  if (parent.depth >= MAX_DEPTH) {
    throw badRequest(`Invalid parentExecutionId. Must be less than ${MAX_DEPTH} levels deep`)
  }
  const { count } = await tx.execution.updateMany({
    where: { id: parent.id, wantsCancel: false, status: { not: 'cancelled' } },
    data: { updatedAt: now },
  })
  if (!count) throw cancelled()
  if ((await tx.execution.count({ where: belowRoot(parent) })) >= MAX_FAMILY - 1) {
    throw conflict(`A tree has at most ${MAX_FAMILY} executions`)
  }
}
