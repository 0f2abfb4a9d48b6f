import { AsyncLocalStorage } from 'node:async_hooks'
import { asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { classifyModelError, ModelError, ReportedError } from './model-errors.ts'
import type { FailureKind } from './model-failures.ts'

/** Passes an event on to the provider package. */
export type Emit = (event: Fields) => void

/**
 * Reads the events of one answer and emits those that the provider package understands. Throws {@link ReportedError} or
 * {@link ModelError} if the answer failed.
 */
export type ProviderEvents = {
  /** Reads an event, or a whole answer in one JSON object. */
  read(event: Fields): void
  /** Shows that the server is alive, before or between the parts of its answer. */
  keepAlive(): void
  /** Ends the answer of a server that ends it as chat completions do (`[DONE]`), if it has content. */
  done(): void
  /** Ends the answer: emits the events that a server with a finish reason has left out. */
  close(): void
  /** Whether any part of an answer has arrived. */
  readonly isBegun: boolean
  /** Whether the finish reason has arrived, after which nothing can invalidate the answer. */
  readonly isSettled: boolean
  /** Whether the answer is complete. */
  readonly isWhole: boolean
}

/** The change of the request that a provider package makes in this context. */
export const requestChange = new AsyncLocalStorage<{
  changeBody: (body: Fields) => Fields
  omitHeaders: readonly string[] | undefined
}>()

/** Key that carries a failure in a `ping`, which all three packages ignore and pass on as a raw chunk. */
const FAILURE = 'musterFailure'
/** Key that marks usage as not reported. */
const NO_USAGE = 'musterNoUsage'

/** Marks the usage of the answer as unknown. */
export const unknownUsage: Fields = { type: 'ping', [NO_USAGE]: true }

/** Returns whether a raw chunk marks the usage as unknown. */
export const isUnknownUsage = (raw: unknown): boolean => asObject(raw)[NO_USAGE] === true

/** Returns the failure that a raw chunk carries; null if it carries none. */
export function failureIn(raw: unknown): Error | null {
  const failure = asObject(raw)[FAILURE]
  if (!isObject(failure)) return null
  if ('body' in failure) return new ReportedError(failure.body)
  return new ModelError(asText(failure.message), failure.kind as FailureKind)
}

/** Creates the event that carries a failure. */
export const failureEvent = (error: unknown): Fields => ({ type: 'ping', [FAILURE]: factsOf(error) })

function factsOf(error: unknown): Fields {
  if (error instanceof ReportedError) return { body: error.body }
  if (error instanceof ModelError) return { message: error.message, kind: error.kind }
  const { kind, detail } = classifyModelError(error)
  return { message: detail, kind }
}
