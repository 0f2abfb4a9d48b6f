import type { Db, Tx } from '../../../db/client.ts'
import { badRequest, cancelled, conflict } from '../../../errors.ts'
import type { ExecutionRow } from '../events/events.ts'

/** Maximum depth of an execution below its root. */
export const MAX_DEPTH = 5

/**
 * Maximum number of executions in a tree before calls can no longer delegate. Delegates need no capacity of their own.
 */
export const MAX_TREE = 200

/** Maximum number of executions in a tree, because one response lists them all. */
const MAX_FAMILY = 1000

/** Columns needed to end a run. */
const STANDING = {
  id: true,
  status: true,
  waitingFor: true,
  attempt: true,
  seqReserved: true,
  terminalSeq: true,
} as const
export type RunRef = Pick<ExecutionRow, keyof typeof STANDING>

/** Matches all executions of a tree but the root, which has no parent. The partial index covers rows with a parent. */
export const belowRoot = ({
  organizationId,
  rootExecutionId,
}: Pick<ExecutionRow, 'organizationId' | 'rootExecutionId'>) => ({
  organizationId,
  rootExecutionId,
  parentExecutionId: { not: null },
})

/** Finds the unfinished descendants of an execution, parents before their children. */
export async function findDescendants(db: Db | Tx, row: ExecutionRow) {
  const select = { ...STANDING, parentExecutionId: true }
  const tree = await db.execution.findMany({ where: belowRoot(row), orderBy: { depth: 'asc' }, select })
  const family = new Set([row.id])
  for (const { id, parentExecutionId } of tree) if (parentExecutionId && family.has(parentExecutionId)) family.add(id)
  return tree.filter(({ id, terminalSeq }) => id !== row.id && family.has(id) && terminalSeq === null)
}

/**
 * Returns how long the delegates of an execution's calls, and theirs, have waited for approvals (ms). Parallel waits
 * are added up.
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

/**
 * Locks the parent and checks that it may have another child. A cancel marks the parent before it looks for children,
 * so this either waits for the mark or the new child is found. Throws 400 if the parent is too deep, and 409 if it is
 * cancelled or the tree is full.
 */
export async function holdParent(tx: Tx, parent: ExecutionRow, now: Date): Promise<void> {
  if (parent.depth >= MAX_DEPTH) {
    throw badRequest(`Invalid parentExecutionId. Must be less than ${MAX_DEPTH} levels deep`, {
      detail: 'Name a parent nearer to the first run, or none.',
    })
  }
  const { count } = await tx.execution.updateMany({
    where: { id: parent.id, wantsCancel: false, status: { not: 'cancelled' } },
    data: { updatedAt: now },
  })
  if (!count) throw cancelled()
  if ((await tx.execution.count({ where: belowRoot(parent) })) >= MAX_FAMILY - 1) {
    throw conflict(`Execution tree limit reached: a tree can have at most ${MAX_FAMILY} executions`, {
      detail: 'Start another tree: execute without `parentExecutionId`.',
    })
  }
}
