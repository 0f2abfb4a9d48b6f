import type { z } from 'zod'
import { executable, notPrivate } from '../agents/service.ts'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { covers } from '../auth/scopes.ts'
import { reachable as reachableChat } from '../chats/service.ts'
import type { Db, Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, chatFailed, conflict, forbidden, notFound } from '../errors.ts'
import { type IdempotencyKey, KeyTaken, lookUp } from '../idempotency.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { reachable as reachableSpace, visible as visibleSpace } from '../spaces/service.ts'
import type { AgentRow, Conversation } from './engine/claims.ts'
import {
  type ExecutionEvent,
  type ExecutionRow,
  META_SEQ,
  metaEvent,
  readEvents,
  terminalEvent,
} from './engine/events.ts'
import type {
  Execute,
  Executed,
  Execution,
  ExecutionNode,
  FollowExecution,
  ListExecutions,
  ReadLogs,
} from './schema.ts'

/** By id, and in lists: an execution follows its agent and its space (contract.md section 2). */
export const reachable = (actor: Actor): Prisma.ExecutionWhereInput => ({
  organizationId: actor.organizationId,
  ...(isAdmin(actor) ? {} : { space: visibleSpace(actor) }),
  ...notPrivate(actor),
})

export const listed = reachable

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
  ...(row.error !== null && { error: row.error }),
  model: row.model,
  usage: { input_tokens: row.inputTokens, output_tokens: row.outputTokens },
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

export const toExecution = (row: ExecutionRow): z.input<typeof Execution> => ({
  ...toListed(row),
  message: row.message,
  ...(row.result !== null && { result: row.result }),
})

/** GET /executions, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListExecutions>) {
  const { agentId, status, since, spaceId, chatId, taskId, missionId } = input
  const given = Object.entries({ agentId, status, spaceId, chatId, taskId, missionId }).filter(([, value]) => value)
  const where: Prisma.ExecutionWhereInput = {
    AND: [listed(actor), Object.fromEntries(given), since ? { createdAt: { gte: new Date(since) } } : {}],
  }
  const { where: after, ...page } = pageQuery(input)
  const found = await db.execution.findMany({
    where: { AND: [where, after ?? {}] },
    omit: PREVIEW_COLUMNS,
    ...page,
  })
  const { rows, nextCursor } = toPage(found, input)
  const total = input.count && { total: await db.execution.count({ where }) }
  return { executions: rows.map(toListed), nextCursor, ...total }
}

/** The execution, if the caller may see it. A token without `executions:read` sees its user's own runs only. */
async function find(actor: Actor, { db }: Deps, id: string): Promise<ExecutionRow> {
  const row = await db.execution.findFirst({ where: { AND: [{ id }, reachable(actor)] } })
  if (!row) throw notFound('Execution')
  if (row.userId !== actor.userId && !covers(actor.scopes, 'executions:read')) throw forbidden()
  return row
}

/** GET /executions/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { execution: toExecution(await find(actor, deps, id)) }
}

/**
 * POST /executions/{id}/cancel: by whoever started it, or an admin. When the run completes at the same moment, one of
 * the two wins, and the answer agrees with it.
 */
export async function cancel(actor: Actor, deps: Deps, id: string) {
  const row = await find(actor, deps, id)
  const allowed = permit(row, row.userId === actor.userId || isAdmin(actor))
  const ended = allowed.terminalSeq === null ? await deps.engine.cancel(allowed) : allowed
  if (ended === allowed || (ended.terminalSeq !== null && ended.status !== 'cancelled')) {
    throw badRequest(`Cannot cancel execution with status: ${ended.status}`)
  }
  return { message: 'Execution cancelled successfully', execution: toExecution(ended) }
}

/** Throws unless the caller may see the execution. */
export const checkVisible = async (actor: Actor, deps: Deps, id: string): Promise<void> => {
  await find(actor, deps, id)
}

/**
 * GET /executions/{id}/tree: from the root down, as far as the caller may see it. Where an ancestor is out of reach,
 * the tree begins below it.
 */
export async function tree(actor: Actor, deps: Deps, id: string) {
  const { organizationId, rootExecutionId } = await find(actor, deps, id)
  const family = { organizationId, rootExecutionId }
  const [rows, { _sum: sum }] = await Promise.all([
    deps.db.execution.findMany({
      where: { AND: [family, reachable(actor)] },
      orderBy: [{ depth: 'asc' }, { createdAt: 'asc' }, { id: 'asc' }],
    }),
    deps.db.execution.aggregate({ where: family, _sum: { inputTokens: true, outputTokens: true } }),
  ])
  const nodes = new Map(rows.map((row) => [row.id, { ...toExecution(row), children: [] } as ExecutionNode]))
  const parentOf = (node: ExecutionNode) => nodes.get(node.parentExecutionId ?? '')
  for (const node of nodes.values()) parentOf(node)?.children.push(node)
  let root = nodes.get(id)!
  for (let parent = parentOf(root); parent; parent = parentOf(root)) root = parent
  return { tree: root, usage: { input_tokens: sum.inputTokens ?? 0, output_tokens: sum.outputTokens ?? 0 } }
}

/** GET /executions/{id}/logs: its events so far. */
export async function logs(actor: Actor, deps: Deps, input: z.output<typeof ReadLogs>) {
  const { id, after = 0, limit = 10_000 } = input
  const row = await find(actor, deps, id)
  const events: ExecutionEvent[] = after < META_SEQ ? [metaEvent(row)] : []
  for await (const batch of readEvents(deps.db, id, after)) {
    events.push(...batch)
    if (events.length > limit) break
  }
  const terminal = terminalEvent(row)
  if (terminal && terminal.seq > after && events.length <= limit) events.push(terminal)
  const shown = events.slice(0, limit)
  return {
    logs: shown.map(({ at, ...event }) => ({ ...event, at: at.toISOString() })),
    nextAfter: events.length > limit ? shown.at(-1)!.seq : null,
  }
}

/**
 * The events after a number, in batches, live while it runs, until the caller's token or membership ends. Throws before
 * the first one, or not at all.
 */
export async function follow(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof FollowExecution>,
  signal: AbortSignal,
): Promise<AsyncGenerator<readonly ExecutionEvent[]>> {
  const row = await find(actor, deps, input.executionId)
  return (async function* () {
    using watch = deps.revocations.watch(actor)
    const until = AbortSignal.any([signal, watch.signal])
    yield* deps.engine.follow(row, input.lastEventId ?? input.after ?? 0, until)
  })()
}

/** How a run was asked for, beside its input. */
type Call = { signal: AbortSignal; idempotency: IdempotencyKey | null }

/**
 * POST /agents/{id}/execute: accepts the run, and waits for its end unless it is to be streamed or in the background.
 * 404 for an agent, space, chat, session or parent that the caller cannot use; 409 when the session is busy (`onBusy:
 * reject`) or the run was cancelled; 422 for an Idempotency-Key of another request; 500 `Chat execution failed`.
 */
export async function start(
  actor: Actor,
  deps: Deps,
  input: z.output<typeof Execute>,
  { signal, idempotency }: Call,
): Promise<z.input<typeof Executed>> {
  const agent = await deps.db.agent.findFirst({ where: { AND: [{ id: input.id }, executable(actor)] } })
  if (!agent) throw notFound('Agent')
  const row = await acceptOnce(actor, deps, agent, input, idempotency)
  const { id: executionId, chatId, sessionId } = row
  const accepted = { executionId, chatId, sessionId }
  if (input.stream || input.background) return { ...accepted, status: row.status }
  const ended = await deps.engine.ended(row, signal)
  if (ended.terminalSeq === null && input.onDisconnect === 'cancel') await deps.engine.cancel(ended)
  if (ended.status === 'cancelled') throw conflict('Execution was cancelled')
  if (ended.status === 'failed') throw chatFailed()
  return { ...accepted, status: ended.status, result: ended.result ?? '' }
}

/**
 * The run of this request: a new one, or the one that its Idempotency-Key is bound to, unless that has failed
 * (contract.md section 1).
 */
async function acceptOnce(
  actor: Actor,
  deps: Deps,
  agent: AgentRow,
  input: z.output<typeof Execute>,
  header: IdempotencyKey | null,
): Promise<ExecutionRow> {
  const { idempotencyKey, ...rest } = input
  const path = `/api/v1/agents/${agent.id}/execute`
  const key = header ?? (idempotencyKey ? { key: idempotencyKey, path, replayed: false } : null)
  const request = {
    actor,
    agent,
    message: input.message,
    model: input.model ?? null,
    conversation: await findConversation(actor, deps, agent, input),
    onBusy: input.onBusy ?? 'queue',
    parent: input.parentExecutionId ? await find(actor, deps, input.parentExecutionId) : null,
  } as const
  if (!key) return deps.engine.accept({ ...request, key: null })
  for (;;) {
    const { record, claim } = await lookUp(actor, deps, { ...key, path }, rest)
    const bound = record?.executionId
      ? await deps.db.execution.findUniqueOrThrow({ where: { id: record.executionId } })
      : null
    if (bound && bound.status !== 'failed') {
      key.replayed = true
      return bound
    }
    try {
      return await deps.engine.accept({ ...request, key: claim })
    } catch (error) {
      if (!(error instanceof KeyTaken)) throw error
    }
  }
}

async function findConversation(
  actor: Actor,
  { db }: Deps,
  agent: AgentRow,
  { spaceId, chatId, sessionId }: z.output<typeof Execute>,
): Promise<Conversation> {
  if (!chatId && !sessionId) {
    const wanted: Prisma.SpaceWhereInput = spaceId ? { id: spaceId } : { isDefault: true }
    const space = await db.space.findFirst({ where: { AND: [wanted, reachableSpace(actor)] }, select: { id: true } })
    if (!space) throw notFound('Space')
    return { spaceId: space.id }
  }
  const session = await db.session.findFirst({
    where: {
      agentId: agent.id,
      ...(sessionId && { id: sessionId }),
      ...(chatId && { chatId }),
      chat: reachableChat(actor),
    },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    select: { id: true, chat: { select: { id: true, spaceId: true } } },
  })
  if (!session && sessionId) {
    const chat = chatId && (await db.chat.findFirst({ where: { AND: [{ id: chatId }, reachableChat(actor)] } }))
    throw notFound(chatId && !chat ? 'Chat' : 'Session')
  }
  const where = { AND: [{ id: chatId as string }, reachableChat(actor)] }
  const chat = session?.chat ?? (await db.chat.findFirst({ where, select: { id: true, spaceId: true } }))
  if (!chat) throw notFound('Chat')
  if (spaceId && spaceId !== chat.spaceId) throw notFound('Space')
  return { spaceId: chat.spaceId, chatId: chat.id, ...(session && { sessionId: session.id }) }
}

/** The agent of a run that is about to begin, if its user is still a member and may still run it. */
export async function agentFor(db: Db, row: ExecutionRow): Promise<AgentRow | null> {
  const { organizationId, userId } = row
  const membership = await db.membership.findUnique({
    where: { organizationId_userId: { organizationId, userId } },
    include: { organization: { select: { slug: true } } },
  })
  if (!membership) return null
  const { role, organization } = membership
  const actor = { userId, organizationId, organizationSlug: organization.slug, role, scopes: [], tokenId: '' }
  return db.agent.findFirst({ where: { AND: [{ id: row.agentId }, executable(actor)] } })
}
