import type { Tx } from '../../../db/client.ts'
import type { ExecutionRow, MessageData } from '../events/events.ts'
import type { SignIn } from '../run/run.ts'
import { type PartialState, releaseRun, withMessages } from './approvals.ts'
import { chatStatus } from './chat-status.ts'
import type { ClaimDeps } from './claims.ts'
import { giveSlotBack } from './concurrency.ts'

// Runs whose calls wait until their user has connected to an MCP server (contract-2.md section 2.13).

/**
 * Suspends a run until its user has connected to the MCP servers of some calls. The run releases its lease and slot and
 * keeps its session. Fenced by the attempt: returns false if another process took the run over or it is marked for
 * cancellation.
 */
export async function waitForConnection(
  deps: ClaimDeps,
  row: ExecutionRow,
  step: number,
  needed: readonly SignIn[],
  final: PartialState,
): Promise<boolean> {
  const now = deps.clock.now()
  const messages = needed.map(
    ({ call, server }): MessageData => ({
      messageType: 'authorization',
      mcpId: server.id,
      mcpName: server.name,
      toolUseId: call.id,
      name: call.name,
    }),
  )
  const partial = withMessages(final, messages, now)
  const { id: executionId, organizationId, chatId } = row
  return deps.db.$transaction(async (tx) => {
    if (!(await releaseRun(tx, row, 'authorization', partial, now))) return false
    for (const { call, server } of needed) {
      const where = { executionId, step, position: call.position }
      await tx.toolCall.updateMany({ where, data: { waitsForMcpId: server.id } })
    }
    const data = { status: 'needs_attention', updatedAt: now } as const
    await tx.chat.update({ where: { id: chatId }, data, select: { id: true } })
    await giveSlotBack(tx, deps, organizationId)
    return true
  })
}

/**
 * Lets a run continue whose user has connected while it was being suspended. Returns false if it still waits. To be
 * called after the suspension is committed: a connection is stored before the runs that wait for it are looked for.
 */
export async function resumeIfConnected(
  { db, clock }: ClaimDeps,
  row: ExecutionRow,
  needed: readonly SignIn[],
): Promise<boolean> {
  const mcpId = { in: needed.map(({ server }) => server.id) }
  const where = { mcpId, userId: row.userId, hasEnded: false, neededScope: null }
  if (!(await db.mcpConnection.findFirst({ where, select: { mcpId: true } }))) return false
  return db.$transaction((tx) => resume(tx, row, clock.now()))
}

/** Lets a user's runs continue that wait for a connection to an MCP server. Returns them. */
export async function resumeConnected(
  tx: Tx,
  { mcpId, ...who }: { organizationId: string; userId: string; mcpId: string },
  now: Date,
): Promise<ExecutionRow[]> {
  const where = {
    ...who,
    terminalSeq: null,
    waitingFor: 'authorization',
    toolCalls: { some: { waitsForMcpId: mcpId } },
  } as const
  const rows = await tx.execution.findMany({ where })
  const resumed = []
  for (const row of rows) if (await resume(tx, row, now)) resumed.push({ ...row, waitingFor: null })
  return resumed
}

/**
 * Ends the wait of a run for a connection: its waiting calls get error results. Returns false if it waits no longer.
 */
export async function expireConnection(tx: Tx, row: ExecutionRow, now: Date): Promise<boolean> {
  if (!(await resume(tx, row, now))) return false
  await tx.toolCall.updateMany({
    where: { executionId: row.id, completedAt: null, waitsForMcpId: { not: null } },
    data: { content: 'Not called: the user did not connect to the MCP server in time', isError: true },
  })
  return true
}

async function resume(tx: Tx, { id, organizationId, chatId }: ExecutionRow, now: Date): Promise<boolean> {
  const where = { id, waitingFor: 'authorization', status: 'pending', wantsCancel: false } as const
  const { count } = await tx.execution.updateMany({ where, data: { waitingFor: null, updatedAt: now } })
  if (!count) return false
  const status = await chatStatus(tx, { organizationId, chatId }, 'working', now)
  await tx.chat.updateMany({ where: { id: chatId }, data: { status } })
  return true
}
