import type { Logger } from 'pino'
import { findRequestId } from '../../../auth/audit.ts'
import type { Db } from '../../../db/client.ts'
import { AppError } from '../../../errors.ts'
import type { ExecutionRow } from '../events/events.ts'
import { withAdvice } from '../models/advice.ts'
import { classifyModelError, ModelError, UNEXPECTED, withoutWords } from '../models/model-errors.ts'
import type { Models } from '../models/models.ts'
import { TimeoutError } from './abort.ts'
import { failedBy } from './failures.ts'

/**
 * Logs why a run failed, with the request that started it, and returns the cause for its caller. It has the provider's
 * message only where that may appear: a provider may repeat the prompt, which must not reach the log or another
 * organization. `model`: the full id of the model that was asked.
 */
export async function logCause(
  { db, models, log }: { db: Db; models: Pick<Models, 'describeError' | 'adviceOn'>; log: Logger },
  row: ExecutionRow,
  model: string | null,
  why: unknown,
): Promise<string> {
  const isOurs = why instanceof TimeoutError || why instanceof ModelError || why instanceof AppError
  const cause = statedBy(why) ?? models.describeError(why, row.organizationId)
  const isProviders = !(isOurs || cause === UNEXPECTED)
  const wordless = isProviders ? withoutWords(cause) : cause
  const { kind, status, provider } = classifyModelError(why, { provider: model?.split('/', 1)[0] ?? null })
  const advice = models.adviceOn(why, row.organizationId, model)
  // Errors of the network have no words of a provider. A caller only learns that time was over, not which limit.
  const logged = why instanceof TimeoutError ? why.message : kind === 'connection' ? cause : wordless
  const detail = withAdvice(logged, advice)
  const facts = { provider, model, status, code: failedBy(why, cause).errorCode, detail }
  const { id: executionId, organizationId } = row
  const requestId = await findRequestId(db, { organizationId, action: 'agent.execute', target: executionId })
  log.warn({ executionId, requestId, ...facts, ...(cause === UNEXPECTED && { err: why }) }, 'a run failed')
  return withAdvice(row.agentOrganizationId === row.organizationId ? cause : wordless, advice)
}

/** Returns the message of an error of the service, or null for any other error. */
function statedBy(why: unknown): string | null {
  if (why instanceof TimeoutError) return 'timeout'
  return why instanceof AppError ? (why.detail ?? why.message) : null
}
