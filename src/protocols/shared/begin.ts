import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { ClientTool, Overrides } from '../../executions/engine/queue/requests.ts'
import type { CallRecord } from '../../executions/engine/run/steps.ts'
import type { IdempotencyKey } from '../../idempotency.ts'
import type { Context } from '../../trpc.ts'
import { type ClientOverrides, giveClientResults, noneWaits, type RunFrom } from './client-tools.ts'
import { type RunRequest, startRun } from './runs.ts'
import type { ClientConversation, ClientResult } from './turns.ts'
import { takeUnanswered } from './unanswered.ts'

/** A request of a client that continues a run or starts one. */
export type ClientRequest = {
  agent: CachedAgent
  /** Results of the client's own tools. They continue the run that waits for them. */
  results: readonly ClientResult[]
  /** The calls of the last turn, if the client sends its whole conversation. */
  listed?: readonly CallRecord[] | undefined
  idempotency: IdempotencyKey | null
  /** The texts, tools and settings of the request for the run that its results continue. */
  overrides?: ClientOverrides
  /** Whether the messages begin another run if no run waits for their results, such as those of another agent. */
  isConversation?: boolean
  /** Whether the answer is sent as a whole, which its caller may not wait for. */
  isWhole?: boolean
  /** Returns the run that a request without results of a run asks for. Throws 400 for one that no run can be. */
  toRunRequest: () => RunRequest | Promise<RunRequest>
}

/** A run that a request has started, and the request if `answerWhole` may note that its answer is lost. */
export type Begun = RunFrom & { request?: RunRequest | null }

/**
 * Continues the run whose tools the client has called, or starts one. A repetition of a request whose answer was lost
 * joins its run.
 * Throws the errors of {@link giveClientResults} and {@link startRun}.
 */
export async function continueOrStart(
  { deps, countRun }: Context,
  actor: Actor,
  {
    agent,
    results,
    listed,
    overrides,
    idempotency,
    isConversation = false,
    isWhole = false,
    toRunRequest,
  }: ClientRequest,
): Promise<Begun> {
  if (results.length) {
    const run = await giveClientResults(actor, deps, agent, results, overrides, listed)
    if (run) return run
    if (!isConversation) throw noneWaits()
  }
  const request = await toRunRequest()
  const repeatable = isWhole && !idempotency ? request : null
  const before = repeatable && (await takeUnanswered(actor, deps, repeatable))
  if (before) return { row: before, after: 0, request: repeatable }
  const row = await startRun(actor, deps, request, { idempotency, onAccepted: null, countRun })
  return { row, after: 0, request: repeatable }
}

/** Returns the instructions and the tools that the client gives a run. */
export const clientOf = (
  { instructions }: Pick<ClientConversation, 'instructions'>,
  clientTools: ClientTool[],
): Pick<Overrides, 'instructions' | 'clientTools'> => ({
  ...(instructions !== undefined && { instructions }),
  ...(clientTools.length && { clientTools }),
})
