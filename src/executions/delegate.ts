import { z } from 'zod'
import { reachable } from '../agents/visibility.ts'
import { type Db, Prisma, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { conflict, notFound } from '../errors.ts'
import { requiredText } from '../lib/fields.ts'
import { cut } from '../lib/text.ts'
import { toSlug } from '../organizations/service.ts'
import type { ExecutionRow } from './engine/events/events.ts'
import type { AgentRow } from './engine/queue/claims.ts'
import { MAX_DEPTH, MAX_TREE } from './engine/queue/tree.ts'
import { retryWhileUnavailable } from './engine/run/retry.ts'
import { defineTool, type IsOffered, type Tool, type ToolCall, type ToolUser } from './engine/run/tools.ts'

const MAX_NAME = 64
const MAX_DESCRIPTION = 1_000

const Task = z.object({
  message: requiredText(200_000).describe('The task, with all information that the agent needs'),
})

/**
 * Creates a tool for each agent that the run's agent may delegate to and its user can reach. A call is a run of that
 * agent in a chat of its own, and returns the result. Another organization's agent has no such tools.
 */
export async function delegates(deps: Deps, user: ToolUser, isOffered: IsOffered): Promise<Tool[]> {
  const { row, agent } = user
  const ids = agent.organizationId === row.organizationId ? (agent.subagentIds as string[]) : []
  if (!ids.length) return []
  const where = { AND: [{ id: { in: ids } }, reachable(await user.actor())] }
  const found = new Map((await deps.db.agent.findMany({ where })).map((subagent) => [subagent.id, subagent]))
  const taken = new Set<string>()
  return ids.flatMap((id) => {
    const subagent = found.get(id)
    if (!subagent) return []
    const plain = nameOf(subagent)
    let unique = plain
    for (let count = 2; taken.has(unique); count++) unique = `${plain}_${count}`
    taken.add(unique)
    return isOffered(new Set([plain, unique])) ? delegate(deps, user, subagent, unique) : []
  })
}

function nameOf({ name }: AgentRow): string {
  const slug = toSlug(name).replace(/[^a-z0-9-]/g, '')
  return `delegate_to_${slug || 'agent'}`.slice(0, MAX_NAME - 4)
}

function delegate(deps: Deps, user: ToolUser, { id, name, role, description }: AgentRow, tool: string): Tool {
  const about = `Delegates a task to the agent ${name} (${role}) and returns its result. ${description ?? ''}`.trim()
  const define = defineTool(tool, cut(about, MAX_DESCRIPTION), Task)
  const run = define(async ({ message }, call) => {
    let hasTried = false
    // A briefly unavailable database must neither lose the delegate nor start a second one.
    const child = await retryWhileUnavailable(async () => {
      const known = call.childExecutionId ?? (hasTried ? await call.findChild() : null)
      hasTried = true
      if (known) return deps.db.execution.findUniqueOrThrow({ where: { id: known } })
      return acceptDelegate(deps, user, id, message, call)
    }, call.signal)
    const { status, result, error, stopReason } = await retryWhileUnavailable(
      () => deps.engine.ended(child, call.signal),
      call.signal,
    )
    call.signal.throwIfAborted()
    if (status === 'failed') throw conflict(`${name} failed: ${error}`)
    if (status === 'cancelled') throw conflict(`The work of ${name} was cancelled`)
    if (stopReason === 'end_turn' || stopReason === null) return result ?? ''
    return `${result ?? ''}\n\n[The answer of ${name} is incomplete: it ended with ${stopReason}]`.trim()
  })
  return { ...run, target: id, delegates: true }
}

/** Accepts the run of a call. Throws errors for the model if it is not allowed. */
async function acceptDelegate(deps: Deps, user: ToolUser, agentId: string, message: string, call: ToolCall) {
  const { row } = user
  if (row.depth >= MAX_DEPTH) throw conflict(`Delegation limit reached: at most ${MAX_DEPTH} levels`)
  if ((await line(deps.db, row)).has(agentId)) throw conflict('This agent itself waits for the result of this run')
  const actor = await user.actor()
  const agent = await deps.db.agent.findFirst({ where: { AND: [{ id: agentId }, reachable(actor)] } })
  if (!agent) throw notFound('Agent')
  return deps.engine.accept({
    actor,
    agent,
    message,
    mediaIds: [],
    model: null,
    overrides: {},
    conversation: { spaceId: row.spaceId },
    onBusy: 'queue',
    parent: row,
    key: null,
    taskId: null,
    mission: null,
    delegated: true,
    also: async (tx, executionId) => {
      await checkTree(tx, row)
      await call.adopt(tx, executionId)
    },
  })
}

/**
 * Throws 409 if a tree has reached its delegation limit. Counts only delegates, not runs that the user attached
 * (`parentExecutionId`). Called after the new run is written, which makes its siblings wait for this transaction, and
 * before the call adopts it.
 */
async function checkTree(tx: Tx, { organizationId, rootExecutionId: root }: ExecutionRow): Promise<void> {
  const [delegated] = await tx.$queryRaw<{ count: number | bigint }[]>(Prisma.sql`
    SELECT count(*) AS "count" FROM "ToolCall" c WHERE c."childExecutionId" IS NOT NULL AND c."executionId" IN (
      SELECT "id" FROM "Execution" WHERE "id" = ${root}
      UNION ALL SELECT "id" FROM "Execution"
        WHERE "organizationId" = ${organizationId} AND "rootExecutionId" = ${root} AND "parentExecutionId" IS NOT NULL)`)
  // The new run and the root are part of the tree, too.
  if (Number(delegated?.count ?? 0) + 2 > MAX_TREE) {
    throw conflict(`Delegation limit reached: a run tree can have at most ${MAX_TREE} runs`)
  }
}

/** Returns the agents of an execution and its ancestors. */
async function line(db: Db, { agentId, parentExecutionId }: ExecutionRow): Promise<Set<string>> {
  const agents = new Set([agentId])
  for (let id = parentExecutionId; id; ) {
    const parent = await db.execution.findUniqueOrThrow({
      where: { id },
      select: { agentId: true, parentExecutionId: true },
    })
    agents.add(parent.agentId)
    id = parent.parentExecutionId
  }
  return agents
}
