import type { ModelSettings } from '../../../lib/model-settings.ts'

/**
 * A change of the requests to one model, which leaves a part out that its provider rejects (contract-2.md section 2.1).
 * `here` means in this run only.
 */
export type Change =
  // Leaves out a setting, a field of `providerOptions`, or a field or header that a provider package adds by itself.
  | Exclude<keyof ModelSettings, 'providerOptions'>
  | `extra:${string}`
  | `omit:${string}`
  | 'stream_options'
  // Asks for the whole answer at once.
  | 'stream'
  // Lowers the limit of the answer (tokens): to that of the model, to the rest of the context window behind this
  // prompt, or to what the credit of the account pays.
  | `max_tokens:${number}`
  | `answer:${number}`
  | `afford:${number}`
  // Uses this name for the limit of the answer.
  | 'max_completion_tokens'
  // Turns reasoning off where tools are offered.
  | 'no_effort'
  // Moves the system prompt into the first message of the user, or into OpenAI's field of this name.
  | 'system'
  | 'instructions'
  // Leaves out the ids of earlier items of OpenAI's Responses API.
  | 'item_ids'
  // Sends texts as such, not as lists of parts.
  | 'plain_content'
  // Leaves out a field of earlier messages that Google's server does not know.
  | `parts:${string}`
  // Sends only the names of files: of all, of those with these digests (`,` between them) which the provider cannot
  // read or with which the request is too large, of all but the last ones, or of PDF files.
  | 'files'
  | `files:${string}`
  | `large_files:${string}`
  | `latest_files:${number}`
  | 'documents'
  // Sends the pictures in results of tools as those of a user.
  | 'pictures_apart'
  // Leaves out earlier reasoning, or gives earlier answers without any an empty one.
  | 'reasoning'
  | 'reasoning:here'
  | 'add_reasoning'
  // Gives earlier calls without a signature the one that Google does not check, or all calls.
  | 'signatures'
  | 'signatures:here'
  // Gives earlier calls an empty text, a blank or a note beside them, or leaves the texts beside them out.
  | 'empty_content'
  | 'blank_content'
  | 'filled_content'
  | 'calls_alone'
  // Names the tool of each result.
  | 'tool_names'
  // Leaves earlier calls out, because this run offers no tools.
  | 'calls:here'
  // Writes `ref` for `$ref` in results, which Google's servers would look up.
  | 'plain_references'
  // Sends calls that were made at once as if they followed each other.
  | 'single_calls'
  // Leaves out the turns up to the last one that a content filter has blocked.
  | 'after_block'
  // Asks for the form of the answer in the prompt, because the provider supports no schema, or not this one.
  | 'output'
  | 'output:schema'
  // Writes underscores for hyphens in the names of tools.
  | 'plain_names'
  // Offers no tools: never, in this run, or because the server needs another flag. Or offers only the first ones.
  | 'tools'
  | 'tools:here'
  | 'tools:flag'
  | `tools:${number}`
  | `tool:${string}`
  // Describes the inputs of all tools in the plainest form, in Google's older field, or without those that are empty.
  | 'schemas'
  | 'older_parameters'
  | 'empty_inputs'
  // Leaves out the schema of this tool's input.
  | `schema:${string}`

export type Changes = ReadonlySet<Change>

/** Changes of one request's contents: these, and those that name a part of it. */
const OF_CONTENTS: ReadonlySet<Change> = new Set<Change>([
  ...(['maxOutputTokens', 'output:schema', 'schemas', 'after_block', 'tools:here', 'tools:flag'] as const),
  ...(['reasoning:here', 'signatures:here', 'calls:here'] as const),
])
const OF_PART = /^(?:schema|tool|files|large_files|answer|afford):/

/** Returns whether a change applies to every request to the model rather than to one request's contents. */
export const isOfModel = (change: Change): boolean => !OF_CONTENTS.has(change) && !OF_PART.test(change)

/** Returns whether a change applies to the next turns of the session, which send the files again. */
export const isOfSession = (change: Change): boolean => /^(?:large_)?files:/.test(change)

/** Returns whether no tools are offered. */
export const refusesTools = (changes: Changes): boolean =>
  changes.has('tools') || changes.has('tools:here') || changes.has('tools:flag')

/** Returns whether the answer's form is asked for in the prompt instead of a field of the request. */
export const refusesOutput = (changes: Changes): boolean => changes.has('output') || changes.has('output:schema')

/** Returns the texts behind the colon of the changes with this name. */
export const valuesOf = (name: string, changes: Changes): string[] =>
  [...changes].flatMap((change) => (change.startsWith(`${name}:`) ? change.slice(name.length + 1) : []))

/** Returns the smallest number that changes with this name state; null without one. */
export function numberOf(name: string, changes: Changes): number | null {
  const numbers = valuesOf(name, changes).map(Number)
  return numbers.length ? Math.min(...numbers) : null
}
