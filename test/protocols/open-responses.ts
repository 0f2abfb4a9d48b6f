import { Ajv2020 } from 'ajv/dist/2020.js'

// The rules of the Open Responses specification of 2026-04-24 for responses and events (protocols.md section 2).

const nullable = (schema: object) => ({ anyOf: [schema, { type: 'null' }] })
const text = { type: 'string' }
const whole = { type: 'integer' }
const flag = { type: 'boolean' }
const object = (properties: Record<string, object>) => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
})
const only = (...values: string[]) => ({ enum: values })
const list = (items: object) => ({ type: 'array', items })

const outputText = object({ type: only('output_text'), text, annotations: list({}), logprobs: list({}) })
const summaryText = object({ type: only('summary_text'), text })

const ITEM = {
  oneOf: [
    object({
      type: only('message'),
      id: text,
      role: only('assistant'),
      content: list(outputText),
      status: only('in_progress', 'completed', 'incomplete'),
    }),
    object({ type: only('reasoning'), id: text, summary: list(summaryText) }),
    object({
      type: only('function_call'),
      id: text,
      call_id: text,
      name: text,
      arguments: text,
      status: only('in_progress', 'completed', 'incomplete'),
    }),
    // Kinds of an implementation carry its prefix.
    object({ type: { type: 'string', pattern: '^[a-z]+:[a-z_]+$' }, id: text }),
  ],
}

const RESPONSE = object({
  id: text,
  object: only('response'),
  created_at: whole,
  completed_at: nullable(whole),
  status: only('queued', 'in_progress', 'completed', 'incomplete', 'failed', 'cancelled'),
  incomplete_details: nullable(object({ reason: text })),
  model: text,
  previous_response_id: nullable(text),
  instructions: nullable(text),
  output: list(ITEM),
  error: nullable(object({ code: text, message: text })),
  tools: list(
    object({
      type: only('function'),
      name: text,
      description: nullable(text),
      strict: nullable(flag),
      parameters: nullable({ type: 'object' }),
    }),
  ),
  tool_choice: only('auto', 'none', 'required'),
  truncation: only('auto', 'disabled'),
  parallel_tool_calls: flag,
  text: object({ format: object({ type: only('text', 'json_object', 'json_schema') }) }),
  top_p: { type: 'number' },
  presence_penalty: { type: 'number' },
  frequency_penalty: { type: 'number' },
  top_logprobs: whole,
  temperature: { type: 'number' },
  reasoning: nullable(object({ effort: nullable(text), summary: nullable(text) })),
  user: nullable(text),
  usage: nullable(
    object({
      input_tokens: whole,
      input_tokens_details: object({ cached_tokens: whole, cache_write_tokens: whole }),
      output_tokens: whole,
      output_tokens_details: object({ reasoning_tokens: whole }),
      total_tokens: whole,
    }),
  ),
  max_output_tokens: nullable(whole),
  max_tool_calls: nullable(whole),
  store: flag,
  background: flag,
  service_tier: text,
  metadata: { type: 'object', additionalProperties: text },
  safety_identifier: nullable(text),
  prompt_cache_key: nullable(text),
})

const inItem = { item_id: text, output_index: whole }
const inContent = { ...inItem, content_index: whole }
const inSummary = { ...inItem, summary_index: whole }

const EVENTS: Record<string, Record<string, object>> = {
  'response.created': { response: RESPONSE },
  'response.in_progress': { response: RESPONSE },
  'response.completed': { response: RESPONSE },
  'response.failed': { response: RESPONSE },
  'response.incomplete': { response: RESPONSE },
  error: { error: object({ type: text, code: nullable(text), message: text, param: nullable(text) }) },
  'response.output_item.added': { output_index: whole, item: ITEM },
  'response.output_item.done': { output_index: whole, item: ITEM },
  'response.content_part.added': { ...inContent, part: outputText },
  'response.content_part.done': { ...inContent, part: outputText },
  'response.output_text.delta': { ...inContent, delta: text, logprobs: list({}) },
  'response.output_text.done': { ...inContent, text, logprobs: list({}) },
  'response.reasoning_summary_part.added': { ...inSummary, part: summaryText },
  'response.reasoning_summary_part.done': { ...inSummary, part: summaryText },
  'response.reasoning_summary_text.delta': { ...inSummary, delta: text },
  'response.reasoning_summary_text.done': { ...inSummary, text },
  'response.function_call_arguments.delta': { ...inItem, delta: text },
  'response.function_call_arguments.done': { ...inItem, arguments: text },
}

const ajv = new Ajv2020({ allErrors: true, strict: false })
const checkResponse = ajv.compile(RESPONSE)
const checks = new Map(
  Object.entries(EVENTS).map(([type, fields]) => [
    type,
    ajv.compile(object({ type: only(type), sequence_number: whole, ...fields })),
  ]),
)

/** Returns the place where a response violates the specification; null if there is none. */
export function misfit({ output_text: _, ...response }: object & { output_text?: unknown }): string | null {
  return checkResponse(response) ? null : ajv.errorsText(checkResponse.errors)
}

/** Lists the places where events violate the specification. */
export const misfits = (events: readonly { type: string }[]): string[] =>
  events.flatMap((event: { type: string }) => {
    const check = checks.get(event.type)
    if (!check) return `${event.type} is unknown`
    const fits: boolean = check(event)
    return fits ? [] : `${event.type}: ${ajv.errorsText(check.errors)}`
  })
