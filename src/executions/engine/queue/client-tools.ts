import { createHash } from 'node:crypto'
import type { Prisma, Tx } from '../../../db/client.ts'
import { conflict } from '../../../errors.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { Call } from '../run/steps.ts'
import type { Tool, ToolResult } from '../run/tools.ts'
import { type PartialState, releaseRun, withMessages } from './approvals.ts'
import type { ClaimDeps } from './claims.ts'
import { giveSlotBack } from './concurrency.ts'
import type { ClientTool, Overrides } from './requests.ts'

// Function tools of the client that started a run (contract-2.md section 6.2).

const PREFIX = 'client__'
/** Maximum length of a tool's name for the model (characters). */
const MAX_NAME = 64

/** Returns the name of a client's tool for the model. Long names keep their beginning and get a digest. */
export function clientToolName(name: string): string {
  if (name.length <= MAX_NAME - PREFIX.length) return PREFIX + name
  const digest = createHash('sha256').update(name).digest('hex').slice(0, 8)
  return `${PREFIX}${name.slice(0, MAX_NAME - PREFIX.length - digest.length - 1)}_${digest}`
}

/** Returns a client's tool as a tool of the run. */
export const toClientTool = ({ name, description, parameters }: ClientTool): Tool => ({
  name: clientToolName(name),
  aliases: [name],
  target: `client:${name}`,
  description,
  inputSchema: parameters,
  mode: 'allow',
  isClients: true,
  call: () => Promise.reject(new Error('The client makes the calls of its tools')),
})

/**
 * Suspends a run until its client has given the results of some calls. The run releases its lease and slot and keeps
 * its session. Fenced by the attempt: returns false if another process took the run over or it is marked for
 * cancellation.
 */
export async function waitForClient(
  deps: ClaimDeps,
  row: ExecutionRow,
  calls: readonly Call[],
  final: PartialState,
): Promise<boolean> {
  const now = deps.clock.now()
  const usage = { input_tokens: final.usage.inputTokens, output_tokens: final.usage.outputTokens }
  const asked = { messageType: 'client_tool' as const, calls: calls.map(({ id, name }) => ({ id, name })), usage }
  const partial = withMessages(final, [asked], now)
  return deps.db.$transaction(async (tx) => {
    if (!(await releaseRun(tx, row, 'client_tool', partial, now))) return false
    await giveSlotBack(tx, deps, row.organizationId)
    return true
  })
}

/** A call that a run waits for its client to make, with its place in the run. */
export type OpenCall = { step: number; position: number; toolUseId: string }

/** Finds the calls that a run waits for its client to make. */
export async function findOpenCalls(tx: Tx, executionId: string): Promise<OpenCall[]> {
  return tx.toolCall.findMany({
    where: { executionId, completedAt: null, content: null, target: { startsWith: 'client:' } },
    orderBy: [{ step: 'asc' }, { position: 'asc' }],
    select: { step: true, position: true, toolUseId: true },
  })
}

/**
 * Stores the results of all calls that a run waits for. The run can be claimed again afterwards. `overrides`: those of
 * the rest of the run, if they change. Throws 409 if the run waits no longer.
 */
export async function giveResults(
  tx: Tx,
  executionId: string,
  results: readonly (OpenCall & ToolResult)[],
  now: Date,
  overrides: Overrides | null = null,
): Promise<void> {
  const { count } = await tx.execution.updateMany({
    where: { id: executionId, waitingFor: 'client_tool', status: 'pending', wantsCancel: false },
    data: { waitingFor: null, updatedAt: now, ...(overrides && { overrides: overrides as Prisma.JsonObject }) },
  })
  if (!count)
    throw conflict('The run does not wait for these results', {
      detail: 'Send a result for each call that the run waits for, and for no other.',
    })
  for (const { step, position, content, isError } of results) {
    await tx.toolCall.updateMany({
      where: { executionId, step, position, completedAt: null },
      data: { content, isError },
    })
  }
}
