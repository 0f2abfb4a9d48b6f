import type { Logger } from 'pino'
import { isUnavailable } from '../../../lib/database-errors.ts'
import type { ExecutionRow } from '../events/events.ts'
import { UNEXPECTED } from '../models/model-errors.ts'
import type { ClaimDeps } from '../queue/claims.ts'
import { CANCELLED, type Ended, type FinalState, finish, type Outcome } from '../queue/endings.ts'
import { BEGIN } from './checkpoint.ts'
import { failedWith } from './failures.ts'

/** Fallback result for a run whose final state the database rejects. */
const NOTHING = {
  text: '',
  toolCalls: [],
  usage: { ...BEGIN.usage, usageEstimated: true },
  warnings: [],
  replay: null,
  reasoning: null,
  events: [],
}

/**
 * Writes the final state like {@link finish}, or that the run was cancelled if it is marked for cancellation. Returns
 * null if another process took the run over. If the database rejects the data, the run fails without it, because it
 * would otherwise never end.
 */
export async function finishAnyhow(
  deps: ClaimDeps,
  log: Logger,
  row: ExecutionRow,
  outcome: Outcome,
  final: FinalState,
): Promise<Ended | null> {
  const finishOrCancel = async (reached: Outcome, left: FinalState) =>
    (await finish(deps, row, reached, left)) ?? (await finish(deps, row, CANCELLED, left))
  return finishOrCancel(outcome, final).catch((error) => {
    if (isUnavailable(error)) throw error
    log.error(
      { err: error, executionId: row.id },
      'failed to store the final state of a run; the run fails without a result',
    )
    return finishOrCancel(failedWith(UNEXPECTED), { ...final, ...NOTHING, model: row.model })
  })
}
