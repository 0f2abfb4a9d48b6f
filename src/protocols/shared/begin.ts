import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { ClientTool, Overrides } from '../../executions/engine/queue/accept.ts'
import type { IdempotencyKey } from '../../idempotency.ts'
import type { Context } from '../../trpc.ts'
import { giveClientResults, type RunFrom } from './client-tools.ts'
import { type Asked, startRun } from './runs.ts'
import type { ClientConversation, ClientResult } from './turns.ts'

type Request = {
  agent: CachedAgent
  /** Results of the client's own tools. They continue the run that waits for them. */
  results: readonly ClientResult[]
  idempotency: IdempotencyKey | null
  /** Returns the run that a request without results asks for. Throws 400 for one that no run can be. */
  asked: () => Asked | Promise<Asked>
}

/**
 * Continues the run whose tools the client has called, or starts one, which counts towards the rate limit of runs.
 * Throws the errors of {@link giveClientResults} and {@link startRun}.
 */
export async function continueOrStart(
  { deps, countRun }: Context,
  actor: Actor,
  { agent, results, idempotency, asked }: Request,
): Promise<RunFrom> {
  if (results.length) return giveClientResults(actor, deps, agent, results)
  const run = await asked()
  await countRun?.(actor)
  return { row: await startRun(actor, deps, run, { idempotency, onAccepted: null }), after: 0 }
}

/** Returns the instructions and the tools that the client gives a run. */
export const clientOf = (
  { instructions }: Pick<ClientConversation, 'instructions'>,
  clientTools: ClientTool[],
): Pick<Overrides, 'instructions' | 'clientTools'> => ({
  ...(instructions !== undefined && { instructions }),
  ...(clientTools.length && { clientTools }),
})
