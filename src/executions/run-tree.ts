import type { Actor } from '../auth/actor.ts'
import { type Db, Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import type { ExecutionRow } from './engine/events/events.ts'
import { belowRoot, MAX_DEPTH } from './engine/queue/tree.ts'
import type { ExecutionNode } from './schema.ts'
import { closedOf, mayRead, reachable, see } from './service.ts'
import { toExecution, toListed, toState } from './views.ts'

// The tree of a run and its delegates.

/** Maximum size of the texts of a tree that are returned whole (bytes). */
const MAX_TREE_TEXT = 1024 * 1024

/**
 * GET /executions/{id}/tree: returns the tree from the root down, as far as the caller may see it. Begins below an
 * unreachable ancestor. If the texts are too large for a response, only the execution itself is whole and the others
 * are as in a list. In old trees, executions below the current depth limit are placed beside their parents, because a
 * thousand levels cannot be serialized.
 */
export async function tree(actor: Actor, deps: Deps, id: string) {
  const { row: found, isReadable } = await see(actor, deps, id)
  const { text, usage } = await sumOf(deps.db, found)
  const isLong = text > MAX_TREE_TEXT
  const rows = await familyOf(actor, deps.db, found, { message: isLong, result: isLong })
  const others = rows.filter((row) => row.id !== id)
  const closed = await closedOf(actor, deps.db, others)
  const showOne = (row: ExecutionRow) => {
    if (row.id === id ? !isReadable : closed.has(row.id)) return toState(actor, row)
    return isLong && row.id !== id ? toListed(actor, row) : toExecution(actor, row)
  }
  return { tree: toTree(rows.map(showOne), id), usage }
}

/** Sums the usage of all runs of a tree, visible or not, and the size of their texts (bytes). */
async function sumOf(db: Db, { organizationId, rootExecutionId }: ExecutionRow) {
  const [sum] = await db.$queryRaw<{ input: unknown; output: unknown; text: unknown }[]>(Prisma.sql`
    SELECT sum("inputTokens") AS "input", sum("outputTokens") AS "output",
      sum(octet_length("message") + coalesce(octet_length("result"), 0)) AS "text"
    FROM (
      SELECT * FROM "Execution" WHERE "id" = ${rootExecutionId}
      UNION ALL SELECT * FROM "Execution"
        WHERE "organizationId" = ${organizationId} AND "rootExecutionId" = ${rootExecutionId}
          AND "parentExecutionId" IS NOT NULL) AS family`)
  const usage = { input_tokens: Number(sum?.input), output_tokens: Number(sum?.output) }
  return { text: Number(sum?.text), usage }
}

type Omitted = { message: boolean; result: boolean }

/** Finds the runs of a tree that the caller may read, parents first. `found` is one of them, already loaded. */
async function familyOf(actor: Actor, db: Db, found: ExecutionRow, omit: Omitted): Promise<ExecutionRow[]> {
  const { id, rootExecutionId } = found
  const [top, descendants] = await Promise.all([
    id === rootExecutionId
      ? found
      : db.execution.findFirst({ where: { AND: [{ id: rootExecutionId }, reachable(actor)] }, omit }),
    db.execution.findMany({
      where: { AND: [belowRoot(found), reachable(actor)] },
      omit,
      orderBy: [{ depth: 'asc' }, { createdAt: 'asc' }, { id: 'asc' }],
    }),
  ])
  const rows = [top ?? [], descendants].flat().filter((row) => mayRead(actor, row))
  return rows.map((row) => (row.id === id ? found : row))
}

/** Returns the highest visible ancestor of an execution with all of its descendants. */
function toTree(visible: readonly Omit<ExecutionNode, 'children'>[], id: string): ExecutionNode {
  const nodes = new Map(visible.map((execution) => [execution.id, { ...execution, children: [] } as ExecutionNode]))
  const parentOf = (node: ExecutionNode) => nodes.get(node.parentExecutionId ?? '')
  const places = new Map<ExecutionNode, ExecutionNode>()
  for (const node of nodes.values()) {
    const parent = parentOf(node)
    if (!parent) continue
    const place = (node.depth > MAX_DEPTH && places.get(parent)) || parent
    place.children.push(node)
    places.set(node, place)
  }
  let root = nodes.get(id)!
  for (let parent = parentOf(root); parent; parent = parentOf(root)) root = parent
  return root
}
