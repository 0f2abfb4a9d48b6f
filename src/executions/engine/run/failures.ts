import { AppError } from '../../../errors.ts'
import type { ErrorCode, StopReason } from '../../../wire.ts'
import { classifyModelError, isModelError, ModelError, UNEXPECTED } from '../models/model-errors.ts'
import type { FailureKind } from '../models/model-failures.ts'
import { TimeoutError } from './abort.ts'

/** A reply without text and calls. */
export class EmptyReply extends ModelError {
  readonly stopReason: StopReason
  constructor(stopReason: StopReason, raw: string | undefined, returned: string) {
    const isFiltered = stopReason === 'content_filter' || stopReason === 'refusal'
    const why = raw ? ` (finish reason: ${raw.slice(0, 100)})` : ''
    const what = isFiltered
      ? 'The provider blocked the answer'
      : stopReason === 'max_tokens'
        ? 'The model reached its token limit before it answered'
        : `The model returned ${returned}`
    super(what + why, isFiltered ? 'content_filter' : 'broken_off')
    this.stopReason = stopReason === 'end_turn' ? 'error' : stopReason
  }
}

/** An answer that does not fit the schema of the run's output (contract-2.md section 2.5). */
export class InvalidOutput extends AppError {
  readonly stopReason: StopReason
  constructor(problem: string, stopReason: StopReason) {
    const cut = stopReason === 'end_turn' ? '' : ` (the answer ended with ${stopReason})`
    const detail = `The answer does not fit the output schema: ${problem}${cut}`
    super(500, 'Chat execution failed', { code: 'invalid_output', detail })
    this.stopReason = stopReason === 'end_turn' ? 'error' : stopReason
  }
}

/** Error codes of model server failures (contract-2.md section 1.1). Every other kind is a provider error. */
const CODES: Partial<Record<FailureKind, ErrorCode>> = {
  context_too_long: 'context_too_long',
  content_filter: 'content_filtered',
  unknown_model: 'model_not_available',
  not_configured: 'model_not_available',
}

type Failed = { status: 'failed'; error: string; errorCode: ErrorCode; stopReason: StopReason }

/** Returns the outcome of a run that ended with a thrown error. `error` is its public message. */
export function failedBy(thrown: unknown, error: string): Failed {
  const outcome = { status: 'failed', error, errorCode: codeOf(thrown, error) } as const
  if (thrown instanceof EmptyReply || thrown instanceof InvalidOutput)
    return { ...outcome, stopReason: thrown.stopReason }
  return { ...outcome, stopReason: outcome.errorCode === 'timeout' ? 'timeout' : 'error' }
}

function codeOf(thrown: unknown, error: string): ErrorCode {
  if (thrown instanceof TimeoutError) return 'timeout'
  if (thrown instanceof AppError) return thrown.code
  if (error === UNEXPECTED || !isModelError(thrown)) return 'internal'
  return CODES[classifyModelError(thrown).kind] ?? 'provider_error'
}

/** Returns the outcome of a run that could not continue, with the sentence that states the reason. */
export function failedWith(error: string): Failed {
  const failed = { status: 'failed', error } as const
  if (error === 'interrupted' || error === 'timeout') return { ...failed, errorCode: error, stopReason: error }
  const errorCode = /not found$/.test(error) ? 'not_found' : 'internal'
  return { ...failed, errorCode, stopReason: 'error' }
}
