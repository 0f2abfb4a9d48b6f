import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { ClientTool, Overrides } from '../../executions/engine/queue/accept.ts'
import type { IdempotencyKey } from '../../idempotency.ts'
import type { Context } from '../../trpc.ts'
import { giveClientResults, type Manner, noneWaits, type RunFrom } from './client-tools.ts'
import { type Asked, startRun } from './runs.ts'
import type { ClientConversation, ClientResult } from './turns.ts'
import { takeUnanswered } from './unanswered.ts'

type Request = {
  agent: CachedAgent
  /** Results of the client's own tools. They continue the run that waits for them. */
  results: readonly ClientResult[]
  idempotency: IdempotencyKey | null
  /** The texts, tools and settings of the request for the run that its results continue. */
  manner?: Manner
  /** Whether the messages begin another run if no run waits for their results, such as those of another agent. */
  isConversation?: boolean
  /** Whether the answer is sent as a whole, which its caller may not wait for. */
  isWhole?: boolean
  /** Returns the run that a request without results of a run asks for. Throws 400 for one that no run can be. */
  asked: () => Asked | Promise<Asked>
}

/** A run that a request has started, and the request if `answerWhole` may note that its answer is lost. */
export type Begun = RunFrom & { asked?: Asked | null }

/**
 * Continues the run whose tools the client has called, or starts one, which counts towards the rate limit of runs. A
 * repetition of a request whose answer was lost joins its run.
 * Throws the errors of {@link giveClientResults} and {@link startRun}.
 */
export async function continueOrStart(
  { deps, countRun }: Context,
  actor: Actor,
  { agent, results, manner, idempotency, isConversation = false, isWhole = false, asked }: Request,
): Promise<Begun> {
  if (results.length) {
    const run = await giveClientResults(actor, deps, agent, results, manner)
    if (run) return run
    if (!isConversation) throw noneWaits()
  }
  const run = await asked()
  const repeatable = isWhole && !idempotency ? run : null
  const before = repeatable && (await takeUnanswered(actor, deps, repeatable))
  if (before) return { row: before, after: 0, asked: repeatable }
  await countRun?.(actor)
  const row = await startRun(actor, deps, run, { idempotency, onAccepted: null })
  return { row, after: 0, asked: repeatable }
}

/** Returns the instructions and the tools that the client gives a run. */
export const clientOf = (
  { instructions }: Pick<ClientConversation, 'instructions'>,
  clientTools: ClientTool[],
): Pick<Overrides, 'instructions' | 'clientTools'> => ({
  ...(instructions !== undefined && { instructions }),
  ...(clientTools.length && { clientTools }),
})
