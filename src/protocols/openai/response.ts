import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Overrides } from '../../executions/engine/queue/requests.ts'
import { toResponseCode } from './errors.ts'
import type { Item } from './items.ts'

/** A response: a run, from the event after a number on, up to its end or to calls that its client has to make. */
export type ResponseRef = { row: ExecutionRow; after: number }

/**
 * Returns the id of a conversation for the one of its session. Microsoft's Agent Framework and .NET libraries send ids
 * without this prefix as `previous_response_id`.
 */
const toConversationId = (sessionId: string): string => `conv_${sessionId}`

/** Returns the id of the session that a conversation's id may have. */
export const readConversationId = (id: string): string => id.replace(/^conv_/, '')

/** Returns the id of a response. Results of the client's tools continue the run in a response of its own. */
export const toResponseId = ({ row, after }: ResponseRef): string => `resp_${row.id}${after ? `_${after}` : ''}`

/** Reads the id of a response. Returns null for any other text. */
export function readResponseId(id: string): { executionId: string; after: number } | null {
  const [, executionId, after = '0'] = /^(?:resp_)?(exec-\d{1,15}-[0-9A-Za-z]{22})(?:_(\d{1,10}))?$/.exec(id) ?? []
  return executionId ? { executionId, after: Number(after) } : null
}

/** Fields of the request that a response repeats. */
export type Echo = {
  model: string
  metadata: Record<string, string>
  previousResponseId: string | null
  background: boolean
  /** Whether the response was deleted. */
  isDeleted?: boolean
}

/** Returns the request's fields that a run's response repeats. A run of another API has no request of this kind. */
export const echoOf = ({ overrides, agentId }: Pick<ExecutionRow, 'overrides' | 'agentId'>): Echo => {
  const { echo } = overrides as Overrides
  return { model: agentId, metadata: {}, previousResponseId: null, background: false, ...(echo as Partial<Echo>) }
}

/** State of a response. */
export type State = {
  status: 'queued' | 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'cancelled'
  error?: { code: string; message: string } | undefined
  /** Why the answer is incomplete. */
  reason?: string | undefined
  usage?: { input_tokens: number; output_tokens: number } | undefined
  completedAt?: Date
}

const seconds = (time: Date): number => Math.floor(time.getTime() / 1000)

/** Returns a response with every key of the Open Responses specification (protocols.md section 2). */
export function toResponse(ref: ResponseRef, output: readonly Item[], state: State) {
  const { row } = ref
  const {
    modelSettings = {},
    instructions = null,
    clientTools = [],
    demandedTool,
    output: form,
  } = row.overrides as Overrides
  const offered = clientTools.filter(({ isFormer }) => !isFormer)
  const demanded = offered.find(({ name }) => name === demandedTool)
  const { model, metadata, previousResponseId, background } = echoOf(row)
  const { temperature = 1, topP = 1, maxOutputTokens = null, reasoningEffort, toolChoice = 'auto' } = modelSettings
  const { usage, completedAt } = state
  return {
    id: toResponseId(ref),
    object: 'response',
    created_at: seconds(row.createdAt),
    completed_at: state.status === 'completed' && completedAt ? seconds(completedAt) : null,
    status: state.status,
    incomplete_details: state.reason === undefined ? null : { reason: state.reason },
    model,
    previous_response_id: previousResponseId,
    instructions,
    output,
    error: state.error ? { ...state.error, code: toResponseCode(state.error.code) } : null,
    tools: offered.map(({ name, description, parameters, format }) => ({
      type: format ? 'custom' : 'function',
      name,
      description,
      ...(format ? { format } : { parameters, strict: false }),
    })),
    tool_choice: demanded ? { type: demanded.format ? 'custom' : 'function', name: demanded.name } : toolChoice,
    truncation: 'auto',
    parallel_tool_calls: modelSettings.parallelToolCalls ?? true,
    text: {
      format: form
        ? { type: 'json_schema', name: form.name ?? 'answer', description: null, schema: form.schema, strict: true }
        : { type: 'text' },
    },
    top_p: topP,
    presence_penalty: 0,
    frequency_penalty: 0,
    top_logprobs: 0,
    temperature,
    reasoning: reasoningEffort === undefined ? null : { effort: reasoningEffort, summary: null },
    user: null,
    usage: usage
      ? {
          input_tokens: usage.input_tokens,
          input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
          output_tokens: usage.output_tokens,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: usage.input_tokens + usage.output_tokens,
        }
      : null,
    max_output_tokens: maxOutputTokens,
    max_tool_calls: null,
    store: true,
    background,
    service_tier: 'default',
    metadata,
    safety_identifier: null,
    prompt_cache_key: null,
    conversation: { id: toConversationId(row.sessionId) },
  }
}
