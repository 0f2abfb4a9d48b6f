import { ModelError } from './model-errors.ts'

/** Maximum length of an event of a model's stream, or of a body without events (characters). */
export const MAX_EVENT = 16 * 1024 * 1024

/** Throws the error of a longer event. */
export function refuseLong(): never {
  throw new ModelError('The model sent more than 16 MiB in one event')
}
