import type { LanguageModelV4FinishReason } from '@ai-sdk/provider'

type Unified = LanguageModelV4FinishReason['unified']

/**
 * The finish reasons of known providers and servers, in lower case, by meaning. Provider packages map only a few and
 * call the rest `other`; this table takes precedence.
 */
const MEANINGS: Readonly<Partial<Record<Unified, readonly string[]>>> = {
  stop: [
    ...['stop', 'stop_sequence', 'end_turn', 'eos', 'eos_token', 'complete', 'completed', 'finished', 'done', 'end'],
    ...['normal', 'stop_str', 'stop_token'],
  ],
  'tool-calls': ['tool_calls', 'tool_call', 'tool_use', 'function_call', 'function_calls'],
  length: [
    ...[
      'length',
      'max_tokens',
      'max_output_tokens',
      'max_completion_tokens',
      'model_length',
      'max_length',
      'truncated',
    ],
    ...['context_length', 'max_new_tokens', 'length_limit', 'error_limit'],
    ...['max_tokens_reached', 'token_limit', 'model_context_window_exceeded', 'context_length_exceeded', 'incomplete'],
    // Anthropic interrupts its turn and expects the client to continue.
    'pause_turn',
  ],
  'content-filter': [
    ...['content_filter', 'content_filtered', 'contentfilter', 'refusal', 'sensitive', 'safety', 'recitation', 'spii'],
    ...['blocklist', 'prohibited_content', 'language', 'image_safety', 'image_prohibited_content', 'image_recitation'],
    ...['guardrail_intervened', 'moderation', 'violation', 'model_armor', 'ip_blocked', 'risk', 'blocked'],
    ...['content_blocked', 'filtered', 'guardrails', 'error_toxic'],
  ],
  error: [
    ...['error', 'abort', 'aborted', 'cancelled', 'canceled', 'cancel', 'failed', 'failure', 'timeout', 'server_error'],
    ...['network_error', 'insufficient_system_resource', 'overloaded', 'interrupted', 'malformed_function_call'],
    ...['malformed_response', 'unexpected_tool_call', 'too_many_tool_calls', 'missing_thought_signature'],
    ...['malformed_tool_use', 'malformed_model_output', 'internal_error', 'no_image', 'image_other', 'repetition'],
    ...['user_cancel', 'timed_out', 'preempted'],
  ],
}

const UNIFIED: ReadonlyMap<string, Unified> = new Map(
  Object.entries(MEANINGS).flatMap(([unified, words]) => words.map((word) => [word, unified as Unified] as const)),
)

/** Returns the meaning of a provider's finish reason in any spelling, or `otherwise` if it is unknown. */
export const unifiedReason = (raw: string, otherwise: Unified = 'other'): Unified =>
  UNIFIED.get(raw) ?? UNIFIED.get(plain(raw)) ?? otherwise

const plain = (raw: string): string =>
  raw
    .toLowerCase()
    // Gemini for OpenAI's clients: `function_call_filter: MALFORMED_FUNCTION_CALL`.
    .replace(/^function_call_filter: |^finish_?reason_/, '')
    .replaceAll('-', '_')
