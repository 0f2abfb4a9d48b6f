import type { Actor } from '../../auth/actor.ts'
import { AppError } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Overrides } from '../../executions/engine/queue/requests.ts'
import { outcomeOf } from '../../executions/execute.ts'
import type { Context } from '../../trpc.ts'

/**
 * Returns whether a run failed because its request's own limit (`max_tokens`) ended the answer before its first word.
 * OpenAI answers with an empty text then. Tests of connections rely on that: Dify's allows a reasoning model five tokens.
 */
export const isCutByRequest = (
  { overrides }: Pick<ExecutionRow, 'overrides'>,
  { stopReason, code }: { stopReason: string | null; code: string | null },
): boolean =>
  stopReason === 'max_tokens' &&
  code === 'provider_error' &&
  (overrides as Overrides).modelSettings?.maxOutputTokens !== undefined

/** Waits like {@link outcomeOf}, and also returns a run whose request's own limit ended the answer. */
export async function outcomeWithinLimit(actor: Actor, context: Context, row: ExecutionRow): Promise<ExecutionRow> {
  try {
    return await outcomeOf(actor, context.deps, row, context)
  } catch (error) {
    if (!(error instanceof AppError && error.code === 'provider_error')) throw error
    const ended = await context.deps.db.execution.findUniqueOrThrow({ where: { id: row.id } })
    if (isCutByRequest(ended, { stopReason: ended.stopReason, code: ended.errorCode })) return ended
    throw error
  }
}
