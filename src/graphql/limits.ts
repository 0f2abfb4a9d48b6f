import { GraphQLError } from 'graphql'
import { tooLong } from '../errors.ts'
import { sizeOf } from '../lib/page.ts'

/**
 * Limits of a document (contract-2.md section 1.9). The cost is the number of values in the response if every list has
 * its maximum length; long texts and looked-up values count more. Validation stops after `errors` errors. The size of
 * the `answer` (bytes, counting six per character) is checked while it is built; the longest text of a model fits.
 * `page` is the maximum number of rows of a nested list unless its parent is a single row.
 */
export const LIMITS = {
  length: 100_000,
  tokens: 2_000,
  variables: 50,
  depth: 15,
  rootFields: 20,
  fields: 200,
  aliases: 30,
  directives: 30,
  cost: 250_000,
  page: 100,
  errors: 10,
  answer: 120_000_000,
}

export const TOO_MUCH = 'LIMIT_EXCEEDED'

const LESS = 'Ask for fewer rows with `first`, for fewer fields, or with several documents.'

/** Size of the data read for a response so far (upper bound, bytes). */
export type Answer = { size: number }

/** Adds data to a response. Throws if the response becomes too long. */
export function addTo(answer: Answer, read: unknown): void {
  answer.size += sizeOf(read)
  if (answer.size > LIMITS.answer) throw answerTooLong()
}

/** Returns the error for an answer that would be too long. */
export const answerTooLong = () => new GraphQLError(tooLong().message, { extensions: { code: TOO_MUCH, detail: LESS } })

/** Returns the error for a document that is beyond a limit. */
export const tooMuch = (what: string, atMost: string) =>
  new GraphQLError(`The document ${what}. At most ${atMost}`, { extensions: { code: TOO_MUCH, detail: LESS } })

/** Refuses a document that is beyond a limit. */
export function refuse(what: string, atMost: string): never {
  throw tooMuch(what, atMost)
}
