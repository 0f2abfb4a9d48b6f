import type { LanguageModelV4Prompt } from '@ai-sdk/provider'
import { isStrict, type Output, parseAnswer } from '../../../lib/output.ts'
import type { ReplyPart } from '../run/steps.ts'
import { isCompatible } from './call-settings.ts'
import type { CallOptions } from './text-model.ts'

// How a model is asked for JSON that fits a schema (contract-2.md section 2.5).

const DEFAULT_NAME = 'answer'

/** Returns the options with which a provider constrains the answer, added to those of the call. */
export function formatOf({ schema: given, name }: Output, provider: string, options: CallOptions['providerOptions']) {
  const { $schema: _, ...schema } = given
  const own = isCompatible(provider) ? 'openaiCompatible' : provider.startsWith('openai.') ? 'openai' : null
  // OpenAI rejects a schema with optional properties in strict mode.
  const strictJsonSchema = isStrict(schema)
  return {
    responseFormat: { type: 'json', schema, name: name ?? DEFAULT_NAME },
    ...(own && { providerOptions: { ...options, [own]: { strictJsonSchema, ...options?.[own] } } }),
  } as Pick<CallOptions, 'responseFormat' | 'providerOptions'>
}

/**
 * Adds the schema to the system prompt, for a model that cannot be constrained. `hasTools`: whether it may call tools
 * before it answers.
 */
export const withSchema = (
  prompt: LanguageModelV4Prompt,
  { schema }: Output,
  hasTools: boolean,
): LanguageModelV4Prompt =>
  prompt.map((message, index) =>
    index === 0 && message.role === 'system'
      ? { ...message, content: `${message.content}\n\n${hasTools ? TOOLS_FIRST : ''}${inWords(schema)}` }
      : message,
  )

const TOOLS_FIRST =
  'Call the tools that you need first, as always. Only your last reply, without calls, is the answer. '

const inWords = (schema: unknown) =>
  `Answer with only a JSON value that fits this JSON Schema, without any other text:\n${JSON.stringify(schema)}`

/** Returns the request to answer again after an answer that does not fit. */
export const repairRequest = ({ schema }: Output, problem: string) =>
  `Your answer does not fit the required form: ${problem}.\n${inWords(schema)}`

/**
 * Makes reasoning that fits the schema the answer of a reply without one. Servers that constrain the text of a thinking
 * model may take all of it for reasoning.
 */
export function answerInReasoning(parts: ReplyPart[], output: Output): ReplyPart[] {
  const [only, ...others] = parts
  const fits = only?.type === 'reasoning' && !others.length && parseAnswer(output, only.text).problem === null
  return fits ? [{ type: 'text', text: only.text }] : parts
}
