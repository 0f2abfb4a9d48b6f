import type { z } from 'zod'
import { notPrivate, ofPrivateAgents } from '../agents/service.ts'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { covers } from '../auth/scopes.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { columnsAre, countOf } from '../db/counting.ts'
import type { Deps } from '../deps.ts'
import { badRequest, lacksScopes, notFound } from '../errors.ts'
import { pageQuery, ROOM, toPage } from '../lib/page.ts'
import { inPrivateSpaces, ofMissionFor, ofPrivateMissions, visible as visibleSpace } from '../spaces/service.ts'
import {
  type ExecutionEvent,
  type ExecutionRow,
  edgeOf,
  META_SEQ,
  metaEvent,
  readEvents,
  terminalEvent,
} from './engine/events.ts'
import { belowRoot, MAX_DEPTH } from './engine/tree.ts'
import { warningsOf } from './engine/warnings.ts'
import type { Execution, ExecutionNode, FollowExecution, ListExecutions, ReadLogs } from './schema.ts'

/**
 * By id, and in lists: an execution follows its agent and its space (contract.md section 2), and a mission's run its
 * mission, whose goal it says.
 */
export const reachable = (actor: Actor): Prisma.ExecutionWhereInput => ({
  organizationId: actor.organizationId,
  ...(isAdmin(actor) ? {} : { space: visibleSpace(actor) }),
  AND: [notPrivate(actor), { OR: [{ missionId: null }, { chat: ofMissionFor(actor) }] }],
})

const listed = reachable

const PREVIEW_COLUMNS = { message: true, result: true } as const

type ListedRow = Omit<ExecutionRow, keyof typeof PREVIEW_COLUMNS>

const toListed = (row: ListedRow): Omit<z.input<typeof Execution>, 'result'> => ({
  id: row.id,
  executionId: row.id,
  agentId: row.agentId,
  agentVersion: row.agentVersion,
  organizationId: row.organizationId,
  userId: row.userId,
  status: row.status,
  ...(row.waitingFor && { waitingFor: row.waitingFor }),
  message: row.preview,
  mediaIds: row.mediaIds as string[],
  ...(row.error !== null && { error: row.error }),
  model: row.model,
  modelsTried: row.modelsTried as string[],
  usage: { input_tokens: row.inputTokens, output_tokens: row.outputTokens },
  warnings: warningsOf(row),
  usageEstimated: row.usageEstimated,
  chatId: row.chatId,
  sessionId: row.sessionId,
  spaceId: row.spaceId,
  ...(row.taskId && { taskId: row.taskId }),
  ...(row.missionId && { missionId: row.missionId }),
  ...(row.parentExecutionId && { parentExecutionId: row.parentExecutionId }),
  depth: row.depth,
  attempt: row.attempt,
  ...(row.startedAt && row.completedAt && { executionTime: row.completedAt.getTime() - row.startedAt.getTime() }),
  createdAt: row.createdAt.toISOString(),
  ...(row.startedAt && { startedAt: row.startedAt.toISOString() }),
  ...(row.completedAt && { completedAt: row.completedAt.toISOString() }),
  updatedAt: row.updatedAt.toISOString(),
})

const toExecution = (row: ExecutionRow): z.input<typeof Execution> => ({
  ...toListed(row),
  message: row.message,
  ...(row.result !== null && { result: row.result }),
})

/** What `list` filters by beside the status and the time. */
const filtersOf = ({ agentId, spaceId, chatId, taskId, missionId }: z.output<typeof ListExecutions>) =>
  Object.entries({ agentId, spaceId, chatId, taskId, missionId }).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, value]],
  )

/**
 * Whether a status is that of runs under way. They are few: a list of them starts from the status, and its other filters
 * are written `NOT (NOT …)`, so that SQLite uses no index for them (ARCHITECTURE.md, "The rarer one first").
 */
const isLive = (status: string | undefined) => status === 'pending' || status === 'running'

/** What `list` lists: the filters of its input on top of {@link listed}. */
export function listedBy(actor: Actor, input: z.output<typeof ListExecutions>): Prisma.ExecutionWhereInput {
  const { status, since } = input
  const given = filtersOf(input).map(
    ([name, value]): Prisma.ExecutionWhereInput =>
      isLive(status) ? { NOT: { NOT: { [name]: value } } } : { [name]: value },
  )
  return {
    AND: [listed(actor), status ? { status } : {}, ...given, since ? { createdAt: { gte: new Date(since) } } : {}],
  }
}

/** How many {@link listedBy} finds. */
export function countListed(actor: Actor, db: Db, input: z.output<typeof ListExecutions>) {
  const { status, since } = input
  const given = columnsAre(Object.fromEntries(filtersOf(input)))
  return countOf(db, {
    table: 'Execution',
    organizationId: actor.organizationId,
    given: [
      ...columnsAre({ status }),
      ...(isLive(status) ? given.map((condition) => Prisma.sql`NOT (NOT ${condition})`) : given),
      ...(since ? [Prisma.sql`t."createdAt" >= ${new Date(since)}`] : []),
    ],
    hidden: [ofPrivateAgents(actor), ofPrivateMissions(actor), ...inPrivateSpaces(actor)],
  })
}

/** GET /executions, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListExecutions>) {
  const where = listedBy(actor, input)
  const { where: after, ...page } = pageQuery(input)
  const found = await db.execution.findMany({
    where: { AND: [where, after ?? {}] },
    omit: PREVIEW_COLUMNS,
    ...page,
  })
  const { rows, nextCursor } = toPage(found, input)
  const total = input.count && { total: await countListed(actor, db, input) }
  return { executions: rows.map(toListed), nextCursor, ...total }
}

/** The execution, if the caller may see it. */
export async function find(actor: Actor, { db }: Deps, id: string): Promise<ExecutionRow> {
  const row = await db.execution.findFirst({ where: { AND: [{ id }, reachable(actor)] } })
  if (!row) throw notFound('Execution')
  requireOwnRun(actor, row)
  return row
}

/** Returns those of the ids that are executions the caller can reach. One statement at most. */
export async function findIds(actor: Actor, db: Tx, ids: readonly string[]): Promise<Set<string>> {
  const where = { AND: [{ id: { in: [...new Set(ids)] } }, reachable(actor)] }
  const rows = ids.length ? await db.execution.findMany({ where, select: { id: true } }) : []
  return new Set(rows.map(({ id }) => id))
}

/** A token without `executions:read` sees its user's own runs only. */
const mayRead = (actor: Actor, { userId }: { userId: string }): boolean =>
  userId === actor.userId || covers(actor.scopes, 'executions:read')

/** Throws 403 for a run that the token is not for, of those that its user can reach. */
export function requireOwnRun(actor: Actor, row: { userId: string }): void {
  if (!mayRead(actor, row)) throw lacksScopes(['executions:read'])
}

/** GET /executions/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { execution: toExecution(await find(actor, deps, id)) }
}

/**
 * POST /executions/{id}/cancel: by whoever started it, or an admin. When the run completes at the same moment, one of
 * the two wins, and the answer agrees with it. `anew`: this caller asked before, and may have had it
 * done; that it is cancelled already is what they asked for.
 */
export async function cancel(actor: Actor, deps: Deps, id: string, anew = false) {
  const row = await find(actor, deps, id)
  const allowed = permit(row, row.userId === actor.userId || isAdmin(actor))
  const tooLate = allowed.terminalSeq !== null && !(anew && allowed.status === 'cancelled')
  const ended = allowed.terminalSeq === null ? await deps.engine.cancel(allowed, actor) : allowed
  if (tooLate || (ended.terminalSeq !== null && ended.status !== 'cancelled')) {
    throw badRequest(`Cannot cancel execution with status: ${ended.status}`)
  }
  return { message: 'Execution cancelled successfully', execution: toExecution(ended) }
}

/** How long the texts of a tree may be together (bytes), so that all are shown. */
const MAX_TREE_TEXT = 1024 * 1024

/**
 * GET /executions/{id}/tree: from the root down, as far as the caller may see it. Where an ancestor is out of reach,
 * the tree begins below it. Of a tree with more text than an answer can bear the execution itself is shown whole, the
 * others as in a list. Of old ones, what lies deeper than is allowed now stands beside its parent: nobody could write down
 * a thousand levels.
 */
export async function tree(actor: Actor, deps: Deps, id: string) {
  const found = await find(actor, deps, id)
  const { text, usage } = await sumOf(deps.db, found)
  const isLong = text > MAX_TREE_TEXT
  const rows = await familyOf(actor, deps.db, found, { message: isLong, result: isLong })
  const show = (row: ExecutionRow) => (isLong && row.id !== id ? toListed(row) : toExecution(row))
  return { tree: toTree(rows.map(show), id), usage }
}

/** What all runs of a tree used, seen or not, and how long their texts are together (bytes). */
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

/** The runs of a tree that the caller may read, parents first; `found` is one of them, as it was read already. */
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

/** The highest ancestor of an execution among those that are shown, with all below it. */
function toTree(shown: readonly Omit<ExecutionNode, 'children'>[], id: string): ExecutionNode {
  const nodes = new Map(shown.map((execution) => [execution.id, { ...execution, children: [] } as ExecutionNode]))
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

/** GET /executions/{id}/logs: its events so far. They end early once they have said much. */
export async function logs(actor: Actor, deps: Deps, input: z.output<typeof ReadLogs>) {
  const { id, after = 0, limit = 10_000 } = input
  const row = await find(actor, deps, id)
  const events: ExecutionEvent[] = after < META_SEQ ? [metaEvent(row)] : []
  let said = 0
  let isWhole = true
  for await (const batch of readEvents(deps.db, id, after)) {
    isWhole = events.length <= limit && said <= ROOM
    if (!isWhole) break
    for (const event of batch) events.push(event)
    said += Buffer.byteLength(JSON.stringify(batch))
  }
  const terminal = terminalEvent(row)
  if (isWhole && terminal && terminal.seq > after) events.push(terminal)
  const shown = events.slice(0, limit)
  return {
    logs: shown.map(({ at, ...event }) => ({ ...event, at: at.toISOString() })),
    nextAfter: isWhole && events.length <= limit ? null : shown.at(-1)!.seq,
  }
}

/** The events after a number, in batches, as {@link followFrom} gives them. Throws before the first one, or not at all. */
export async function follow(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof FollowExecution>,
  streamTo: (actor: Actor) => AbortSignal,
): Promise<AsyncGenerator<readonly ExecutionEvent[]>> {
  const row = await find(actor, deps, input.executionId)
  return followFrom(actor, deps, row, input.lastEventId ?? input.after ?? 0, streamTo)
}

/**
 * The events after a number of an execution that the caller can see, in batches, live while it runs, as long as they may
 * follow it.
 */
export function followFrom(
  actor: Actor,
  deps: Deps,
  row: ExecutionRow,
  after: number,
  streamTo: (actor: Actor) => AbortSignal,
): AsyncGenerator<readonly ExecutionEvent[]> {
  // No more of its row: it is kept as long as the stream is on.
  return deps.engine.follow(edgeOf(row), after, streamTo(actor))
}
