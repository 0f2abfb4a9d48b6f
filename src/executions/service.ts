import type { z } from 'zod'
import { notPrivate, notThenPrivate, ofPrivateAgents, ofThenPrivate } from '../agents/visibility.ts'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { covers } from '../auth/scopes.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import { columnsAre, countOf } from '../db/counting.ts'
import { whereWithoutIndex, withoutIndex } from '../db/without-index.ts'
import type { Deps } from '../deps.ts'
import { badRequest, lacksScopes, notFound } from '../errors.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { inPrivateSpaces, ofMissionFor, ofPrivateMissions, visible as visibleSpace } from '../spaces/visibility.ts'
import type { ExecutionRow } from './engine/events/events.ts'
import type { ListExecutions } from './schema.ts'
import { type ListedRow, LONG_COLUMNS, NO_TEXTS, toExecution, toListed, toState } from './views.ts'

/** Filters executions whose agent, space and mission the caller can see. */
const isOpen = (actor: Actor): Prisma.ExecutionWhereInput => ({
  ...(isAdmin(actor) ? {} : { space: visibleSpace(actor) }),
  AND: [notPrivate(actor), notThenPrivate(actor), { OR: [{ missionId: null }, { chat: ofMissionFor(actor) }] }],
})

/**
 * Filters executions whose texts the caller may read, which follow agent, space and mission (contract.md section 2).
 */
export const readable = (actor: Actor): Prisma.ExecutionWhereInput => ({
  organizationId: actor.organizationId,
  ...isOpen(actor),
})

/**
 * Filters access by id and lists: {@link readable} runs, and the state of the caller's own runs even after access was
 * lost (contract-2.md section 8.3).
 */
export const reachable = (actor: Actor): Prisma.ExecutionWhereInput => ({
  organizationId: actor.organizationId,
  OR: [{ userId: actor.userId }, isOpen(actor)],
})

const listed = reachable

/** Returns the filters of `list` besides the status and the time. */
const filtersOf = ({ agentId, spaceId, chatId, taskId, missionId }: z.output<typeof ListExecutions>) =>
  Object.entries({ agentId, spaceId, chatId, taskId, missionId }).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, value]],
  )

/**
 * Returns whether a status is that of runs under way. They are few: a list of them starts from the status, and its
 * other filters must not choose the index (docs/architecture/databases.md).
 */
const isLive = (status: string | undefined) => status === 'pending' || status === 'running'

/** Further filters of `list`, for A2A. `waitingFor` is null for runs that do not wait. */
export type Narrower = {
  sessionId?: string
  waitingFor?: { in: NonNullable<ExecutionRow['waitingFor']>[] } | null
  updatedAt?: { gte: Date }
}

/** Returns the filter of `list`: its input on top of {@link listed}. */
export function listedBy(
  actor: Actor,
  input: z.output<typeof ListExecutions>,
  narrower: Narrower = {},
): Prisma.ExecutionWhereInput {
  const { status, since } = input
  const given = filtersOf(input).map(
    ([name, value]): Prisma.ExecutionWhereInput =>
      isLive(status) ? whereWithoutIndex({ [name]: value }) : { [name]: value },
  )
  const from = since ? { createdAt: { gte: new Date(since) } } : {}
  return { AND: [listed(actor), narrower, status ? { status } : {}, ...given, from] }
}

/** Returns how many executions {@link listedBy} finds. */
export function countListed(
  actor: Actor,
  db: Db,
  input: z.output<typeof ListExecutions>,
  { sessionId, waitingFor, updatedAt }: Narrower = {},
) {
  const { status, since } = input
  const given = columnsAre(Object.fromEntries(filtersOf(input)))
  return countOf(db, {
    table: 'Execution',
    organizationId: actor.organizationId,
    given: [
      ...columnsAre({ status }),
      ...(isLive(status) ? given.map(withoutIndex) : given),
      ...(since ? [Prisma.sql`t."createdAt" >= ${new Date(since)}`] : []),
      ...columnsAre({ sessionId, waitingFor: waitingFor === null ? null : waitingFor?.in }),
      ...(updatedAt ? [Prisma.sql`t."updatedAt" >= ${updatedAt.gte}`] : []),
    ],
    hidden: [
      ofPrivateAgents(actor),
      ofThenPrivate(actor, 'Execution'),
      ofPrivateMissions(actor),
      ...inPrivateSpaces(actor),
    ].map((hidden) => ({ ...hidden, where: Prisma.sql`${hidden.where} AND t."userId" <> ${actor.userId}` })),
  })
}

/** Returns the ids whose texts the caller may read, in one statement, none without ids. */
export async function readableOf(actor: Actor, db: Tx, ids: readonly string[]): Promise<ReadonlySet<string>> {
  if (!ids.length) return new Set()
  const where = { AND: [{ id: { in: [...ids] } }, readable(actor)] }
  const rows = await db.execution.findMany({ where, select: { id: true } })
  return new Set(rows.map(({ id }) => id))
}

/** Returns the caller's own rows among {@link reachable} ones that are not readable. Other users' rows always are. */
export async function closedOf(actor: Actor, db: Db, rows: readonly { id: string; userId: string }[]) {
  const own = rows.flatMap(({ id, userId }) => (userId === actor.userId ? id : []))
  return new Set(own).difference(await readableOf(actor, db, own))
}

/** GET /executions, newest first. */
export async function list(
  actor: Actor,
  { db }: Deps,
  input: z.output<typeof ListExecutions>,
  narrower: Narrower = {},
) {
  const where = listedBy(actor, input, narrower)
  const { where: after, ...page } = pageQuery(input)
  const found = await db.execution.findMany({
    where: { AND: [where, after ?? {}] },
    omit: LONG_COLUMNS,
    ...page,
  })
  const { rows, nextCursor } = toPage(found, input)
  const total = input.count && { total: await countListed(actor, db, input, narrower) }
  const closed = await closedOf(actor, db, rows)
  const show = (row: ListedRow) =>
    closed.has(row.id)
      ? { ...toListed(actor, { ...row, ...NO_TEXTS }), restricted: true as const }
      : toListed(actor, row)
  return { executions: rows.map(show), nextCursor, ...total }
}

/** Returns the executions with these ids that the caller can reach, as in a list, or with their readable texts. */
export async function findMany(actor: Actor, { db }: Deps, ids: readonly string[], { isWhole = false } = {}) {
  const where = { AND: [{ id: { in: [...ids] } }, reachable(actor)] }
  const rows: readonly (ListedRow & Partial<ExecutionRow>)[] = isWhole
    ? await db.execution.findMany({ where })
    : await db.execution.findMany({ where, omit: LONG_COLUMNS })
  const closed = await closedOf(actor, db, rows)
  return rows.map((row) => {
    const texts = {
      message: row.message ?? row.preview,
      result: row.result ?? null,
      resultObject: row.resultObject ?? null,
    }
    return show(actor, { row: { ...row, ...texts }, isReadable: !closed.has(row.id) })
  })
}

/** A visible run, and whether its texts are readable. */
type Seen = { row: ExecutionRow; isReadable: boolean }

/** Finds a visible execution, or its state. Throws 404 for any other. */
export async function see(actor: Actor, { db }: Deps, id: string): Promise<Seen> {
  const row = await db.execution.findFirst({ where: { AND: [{ id }, readable(actor)] } })
  const { organizationId, userId } = actor
  const own = row ? null : await db.execution.findFirst({ where: { id, organizationId, userId } })
  const found = row ?? own
  if (!found) throw notFound('Execution')
  requireOwnRun(actor, found)
  return { row: found, isReadable: row !== null }
}

/**
 * Finds an execution that the caller may cancel: its starter, an admin, or the agent's owner in the agent's
 * organization, whether or not they can read it (contract-2.md section 8.3). Throws 403 for others who can see it,
 * otherwise 404.
 */
export async function findToCancel(actor: Actor, deps: Deps, id: string): Promise<Seen> {
  const { db } = deps
  const row = await db.execution.findFirst({ where: { id, organizationId: actor.organizationId } })
  if (!row) throw notFound('Execution')
  const isAllowed = row.userId === actor.userId || isAdmin(actor) || (await ownsAgent(actor, db, row))
  const isReadable = (await readableOf(actor, db, [id])).has(id)
  if (!isAllowed && !isReadable) throw notFound('Execution')
  requireOwnRun(actor, row)
  return { row: permit(row, isAllowed), isReadable }
}

async function ownsAgent({ organizationId, userId }: Actor, db: Db, { agentId: id }: ExecutionRow): Promise<boolean> {
  return (await db.agent.findFirst({ where: { id, organizationId, userId }, select: { id: true } })) !== null
}

/** Finds an execution that the caller may read. */
export async function find(actor: Actor, { db }: Deps, id: string): Promise<ExecutionRow> {
  const row = await db.execution.findFirst({ where: { AND: [{ id }, readable(actor)] } })
  if (!row) throw notFound('Execution')
  requireOwnRun(actor, row)
  return row
}

/** Returns whether a token may see a run. Without `executions:read` it can see only its user's own runs. */
export const mayRead = (actor: Actor, { userId }: { userId: string }): boolean =>
  userId === actor.userId || covers(actor.scopes, 'executions:read')

/** Throws 403 for a reachable run that the token does not cover. */
export function requireOwnRun(actor: Actor, row: { userId: string }): void {
  if (!mayRead(actor, row)) throw lacksScopes(['executions:read'])
}

/** GET /executions/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { execution: show(actor, await see(actor, deps, id)) }
}

const show = (actor: Actor, { row, isReadable }: Seen) => (isReadable ? toExecution(actor, row) : toState(actor, row))

/**
 * POST /executions/{id}/cancel, for callers accepted by {@link findToCancel}. If the run completes at the same moment,
 * the response states which of the two succeeded. `anew`: a repeated request, for which an already cancelled run is a
 * success.
 */
export async function cancel(actor: Actor, deps: Deps, id: string, anew = false) {
  const { row, isReadable } = await findToCancel(actor, deps, id)
  const tooLate = row.terminalSeq !== null && !(anew && row.status === 'cancelled')
  const ended = row.terminalSeq === null ? await deps.engine.cancel(row, actor) : row
  if (tooLate || (ended.terminalSeq !== null && ended.status !== 'cancelled')) {
    throw badRequest(`Cannot cancel execution with status: ${ended.status}`, {
      detail: 'The run has ended: there is nothing to cancel.',
    })
  }
  return { message: 'Execution cancelled successfully', execution: show(actor, { row: ended, isReadable }) }
}

/** Cancels a run unless it has ended. Throws 403 and 404 as {@link findToCancel} does. */
export async function cancelIfActive(actor: Actor, deps: Deps, id: string): Promise<void> {
  const { row } = await findToCancel(actor, deps, id)
  if (row.terminalSeq === null) await deps.engine.cancel(row, actor)
}

/** Removes texts that the caller may no longer read from a stored response. */
export async function withoutClosed<Answer extends Awaited<ReturnType<typeof cancel>>>(
  actor: Actor,
  { db }: Deps,
  answer: Answer,
): Promise<Answer> {
  const { id } = answer.execution
  if ((await readableOf(actor, db, [id])).has(id)) return answer
  const { result: _, error: __, resultObject: ___, ...execution } = answer.execution
  return { ...answer, execution: { ...execution, message: '', mediaIds: [], files: [], restricted: true } }
}
