import { ModelError } from './model-errors.ts'

// Limits of the answers of model servers, for each of their APIs.

/** Maximum length of an event of a model's stream, or of a body without events (characters). */
export const MAX_EVENT = 16 * 1024 * 1024
/** Maximum length of the start of an answer that is kept to describe a failure (characters). */
export const MAX_HEAD = 4_000
/** Maximum size of the body of an unsuccessful response that is read (bytes, or characters once decoded). */
export const MAX_REFUSAL = 64 * 1024
/** Maximum wait for the rest of a settled answer, and for more of a refusal that a server leaves open (ms). */
export const MAX_REST = 1_000

/** Throws the error of an event that is longer than {@link MAX_EVENT}. */
export function refuseLong(): never {
  throw new ModelError('The model sent more than 16 MiB in one event')
}
