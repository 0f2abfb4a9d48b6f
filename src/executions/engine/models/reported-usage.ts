import type { LanguageModelV4Usage } from '@ai-sdk/provider'
import { asObject, type Fields, isObject } from '../../../lib/unknown.ts'

/** Parses token counts as servers write them: numbers, floats, digit strings. Returns undefined for anything else. */
export function tokensOf(value: unknown): number | undefined {
  const tokens = typeof value === 'string' && value.trim() ? Number(value) : value
  return typeof tokens === 'number' && Number.isFinite(tokens) && tokens >= 0 ? Math.round(tokens) : undefined
}

const first = (...values: unknown[]): number | undefined => values.map(tokensOf).find((tokens) => tokens !== undefined)

/** Returns the usage of a chunk: at its top level, in `x_groq`, or in its choice (Moonshot). */
export function usageIn(chunk: Fields, choice: Fields): Fields | null {
  const { usage, x_groq: groq, timings } = chunk
  // Fast path: most chunks have no usage.
  if (!usage && !groq && !timings && !choice.usage) return null
  const found = [usage, asObject(groq).usage, choice.usage, timings]
  return (found.find((one) => isObject(one) && total(one)) as Fields | undefined) ?? null
}

/** Returns the two totals under any of their names, or undefined if there is neither. */
function total(usage: Fields): { input: number | undefined; output: number | undefined } | undefined {
  const input = first(
    usage.prompt_tokens,
    usage.input_tokens,
    usage.promptTokens,
    usage.inputTokens,
    usage.promptTokenCount,
    usage.prompt_n,
  )
  const output = first(
    ...[usage.completion_tokens, usage.output_tokens, usage.completionTokens, usage.candidatesTokenCount],
    ...[usage.outputTokens, usage.predicted_n],
  )
  if (input === undefined && output === undefined) return undefined
  const all = output === undefined && input !== undefined ? first(usage.total_tokens, usage.totalTokens) : undefined
  return { input, output: all === undefined ? output : Math.max(0, all - Number(input)) }
}

/**
 * Merges a later report into an earlier one. Reports are cumulative, so the later number wins, except for a zero or
 * missing number after a real one (Vertex and some gateways end with `{output_tokens: 0}`).
 */
export function laterUsage(before: LanguageModelV4Usage | null, usage: Fields): LanguageModelV4Usage {
  const { input, output } = total(usage) ?? {}
  const details = asObject(usage.prompt_tokens_details ?? usage.input_tokens_details)
  const outputDetails = asObject(usage.completion_tokens_details ?? usage.output_tokens_details)
  const cacheRead = first(
    ...[details.cached_tokens, usage.prompt_cache_hit_tokens, usage.cached_tokens, usage.cache_read_input_tokens],
    details.cache_read_input_tokens,
  )
  const cacheWrite = first(
    ...[details.cache_write_tokens, details.cache_creation_tokens, usage.cache_creation_input_tokens],
    details.cache_creation_input_tokens,
  )
  const reasoning = first(outputDetails.reasoning_tokens, usage.reasoning_tokens)
  const merged = {
    input: input || (before?.inputTokens.total ?? input),
    output: output || (before?.outputTokens.total ?? output),
    cacheRead: cacheRead || (before?.inputTokens.cacheRead ?? cacheRead),
    cacheWrite: cacheWrite || (before?.inputTokens.cacheWrite ?? cacheWrite),
    reasoning: reasoning || (before?.outputTokens.reasoning ?? reasoning),
  }
  return usageOf(merged)
}

type Counts = Partial<Record<'input' | 'output' | 'cacheRead' | 'cacheWrite' | 'reasoning', number | undefined>>

function usageOf({ input, output, cacheRead, cacheWrite, reasoning }: Counts): LanguageModelV4Usage {
  const noCache = input === undefined || cacheRead === undefined ? undefined : Math.max(0, input - cacheRead)
  const text = output === undefined || reasoning === undefined ? undefined : Math.max(0, output - reasoning)
  return {
    inputTokens: { total: input, noCache, cacheRead, cacheWrite },
    outputTokens: { total: output, text, reasoning },
  }
}

/** Usage of a reply that reports none. */
export const NO_USAGE: LanguageModelV4Usage = usageOf({})
