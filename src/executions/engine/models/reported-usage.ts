import type { LanguageModelV4Usage } from '@ai-sdk/provider'
import { asObject, type Fields, isObject } from '../../../lib/unknown.ts'

/** Parses token counts as servers write them: numbers, floats, digit strings. Returns undefined for anything else. */
export function tokensOf(value: unknown): number | undefined {
  const tokens = typeof value === 'string' && value.trim() ? Number(value) : value
  return typeof tokens === 'number' && Number.isFinite(tokens) && tokens >= 0 ? Math.round(tokens) : undefined
}

/** Returns the sum of two counts; undefined without the first one. */
function sum(one: unknown, other: unknown): number | undefined {
  const tokens = tokensOf(one)
  return tokens === undefined ? undefined : tokens + (tokensOf(other) ?? 0)
}

function first(...values: unknown[]): number | undefined {
  for (const value of values) {
    const tokens = tokensOf(value)
    if (tokens !== undefined) return tokens
  }
}

/**
 * Returns the usage that a chunk reports, merged into the one `before`; null for a chunk that reports none. It stands
 * at the top level, in `x_groq`, or in the choice (Moonshot).
 */
export function usageIn(
  chunk: Fields,
  choice: Fields,
  before: LanguageModelV4Usage | null,
): LanguageModelV4Usage | null {
  const { usage, x_groq: groq, timings } = chunk
  // Fast path: most chunks have no usage.
  if (!usage && !groq && !timings && !choice.usage) return null
  for (const report of [usage, asObject(groq).usage, choice.usage, timings]) {
    const counts = isObject(report) ? countsOf(report) : {}
    if (counts.input !== undefined || counts.output !== undefined) return merged(before, counts)
  }
  return null
}

type Counts = Partial<Record<'input' | 'output' | 'cacheRead' | 'cacheWrite' | 'reasoning', number | undefined>>

/** Returns the counts of a report under any of their names. */
function countsOf(usage: Fields): Counts {
  const details = asObject(usage.prompt_tokens_details ?? usage.input_tokens_details)
  const outputDetails = asObject(usage.completion_tokens_details ?? usage.output_tokens_details)
  const counts: Counts = {
    input: first(
      ...[usage.prompt_tokens, usage.input_tokens, usage.promptTokens, usage.inputTokens, usage.promptTokenCount],
      // llama.cpp counts the tokens that it has read, without those of its cache.
      sum(usage.prompt_n, usage.cache_n),
    ),
    output: first(
      ...[usage.completion_tokens, usage.output_tokens, usage.completionTokens, usage.candidatesTokenCount],
      ...[usage.outputTokens, usage.predicted_n],
    ),
    cacheRead: first(
      ...[details.cached_tokens, usage.prompt_cache_hit_tokens, usage.cached_tokens, usage.cache_read_input_tokens],
      ...[details.cache_read_input_tokens, usage.cachedContentTokenCount, usage.cacheReadInputTokens],
      ...[usage.cachedInputTokens, usage.cached_input_tokens, usage.cache_read_tokens],
    ),
    cacheWrite: first(
      ...[details.cache_write_tokens, details.cache_creation_tokens, usage.cache_creation_input_tokens],
      ...[details.cache_creation_input_tokens, usage.cacheWriteInputTokens, usage.cache_write_tokens],
    ),
    reasoning: first(outputDetails.reasoning_tokens, usage.reasoning_tokens, usage.thoughtsTokenCount),
  }
  return withTotal(counts, first(usage.total_tokens, usage.totalTokens, usage.totalTokenCount))
}

/**
 * Adds the tokens that only the total contains: an output that is not reported, reasoning beside the output (xAI, and
 * Gemini without a count), or cached input beside the input.
 */
function withTotal(counts: Counts, total: number | undefined): Counts {
  const { input, output, cacheRead = 0, cacheWrite = 0, reasoning } = counts
  if (total === undefined || input === undefined) return counts
  const missing = total - input - (output ?? 0)
  if (output === undefined) return { ...counts, output: Math.max(0, missing) }
  if (missing <= 0) return counts
  if (missing === cacheRead + cacheWrite) return { ...counts, input: total - output }
  return missing === (reasoning ?? missing) ? { ...counts, output: total - input } : counts
}

/**
 * Merges a later report into an earlier one. Reports are cumulative, so the later number wins, except for a zero or
 * missing number after a real one (Vertex and some gateways end with `{output_tokens: 0}`).
 */
function merged(before: LanguageModelV4Usage | null, counts: Counts): LanguageModelV4Usage {
  const { input, output, cacheRead, cacheWrite, reasoning } = counts
  return usageOf({
    input: input || (before?.inputTokens.total ?? input),
    output: output || (before?.outputTokens.total ?? output),
    cacheRead: cacheRead || (before?.inputTokens.cacheRead ?? cacheRead),
    cacheWrite: cacheWrite || (before?.inputTokens.cacheWrite ?? cacheWrite),
    reasoning: reasoning || (before?.outputTokens.reasoning ?? reasoning),
  })
}

/** Returns the usage that a report states. */
export const usageOfReport = (report: Fields): LanguageModelV4Usage => merged(null, countsOf(report))

function usageOf({ input, output, cacheRead, cacheWrite, reasoning }: Counts): LanguageModelV4Usage {
  const noCache = input === undefined || cacheRead === undefined ? undefined : Math.max(0, input - cacheRead)
  const text = output === undefined || reasoning === undefined ? undefined : Math.max(0, output - reasoning)
  return {
    inputTokens: { total: input, noCache, cacheRead, cacheWrite },
    outputTokens: { total: output, text, reasoning },
  }
}

/**
 * Returns the usage that an event states before the end of its answer, which counts if the answer breaks off: Anthropic's
 * first event has the input, Google's have all tokens so far, and so has OpenAI's failure (see `readResponse`). Returns null for
 * any other event.
 */
export function interimUsage(event: unknown): LanguageModelV4Usage | null {
  const { type, message, usageMetadata } = asObject(event)
  if (isObject(usageMetadata)) return usageOfReport(usageMetadata)
  if (type !== 'message_start') return null
  const { input, output, cacheRead, cacheWrite } = countsOf(asObject(asObject(message).usage))
  // Anthropic counts cached tokens beside the input.
  const whole = (input ?? 0) + (cacheRead ?? 0) + (cacheWrite ?? 0)
  return whole ? usageOf({ input: whole, output, cacheRead, cacheWrite }) : null
}

/** Usage of a reply that reports none. */
export const NO_USAGE: LanguageModelV4Usage = usageOf({})
