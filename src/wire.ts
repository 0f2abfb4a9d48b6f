import type { TRPCDefaultErrorData, TRPCDefaultErrorShape } from '@trpc/server'

// Public types of clients. The typed client package contains this file, so it imports nothing from the service.

/** Lists the codes of errors (contract-2.md section 1.1). Clients treat an unknown code by its status. */
export const ERROR_CODES = [
  'missing_field',
  'invalid_value',
  'invalid_parameter',
  'unauthorized',
  'token_expired',
  'sign_in_required',
  'insufficient_scope',
  'forbidden',
  'not_found',
  'method_not_allowed',
  'conflict',
  'session_busy',
  'precondition_failed',
  'idempotency_conflict',
  'idempotency_in_progress',
  'unsupported_media_type',
  'too_large',
  'misdirected',
  'rate_limited',
  'budget_exceeded',
  'price_unknown',
  'queue_full',
  'provider_error',
  'model_not_available',
  'context_too_long',
  'content_filtered',
  'invalid_output',
  'mcp_unreachable',
  'secret_not_allowed',
  'timeout',
  'interrupted',
  'cancelled',
  'paused',
  'unavailable',
  'internal',
] as const

export type ErrorCode = (typeof ERROR_CODES)[number]

/** The error body of every REST response, and the fields of tRPC and GraphQL errors (contract.md section 1). */
export type ErrorBody = {
  error: true
  statusCode: number
  statusMessage: string
  message: string
  code: ErrorCode
  /** One sentence that says how to fix the problem. */
  detail?: string
  /** The run that failed. */
  executionId?: string
  requestId: string
}

/** An error in tRPC. `code` is tRPC's own code, `errorCode` that of the error body. */
export interface ErrorShape extends TRPCDefaultErrorShape {
  data: TRPCDefaultErrorData & Omit<ErrorBody, 'code'> & { errorCode: ErrorCode }
}

/** Lists the codes of warnings (contract-2.md section 1.8). */
export const WARNING_CODES = [
  'mcp_unreachable',
  'tool_missing',
  'attachment_not_read',
  'model_fallback',
  'setting_ignored',
  'cut_off',
  'secret_not_allowed',
  'history_cut',
] as const

export type WarningCode = (typeof WARNING_CODES)[number]

/** Names a missing feature of a run, for the person who reads its answer. */
export type Warning = { code: WarningCode; text: string }

/** Lists the reasons for which runs end (contract-2.md section 2.8). */
export const STOP_REASONS = [
  'end_turn',
  'max_tokens',
  'content_filter',
  'refusal',
  'max_turns',
  'client_tool',
  'budget',
  'timeout',
  'cancelled',
  'interrupted',
  'error',
] as const

export type StopReason = (typeof STOP_REASONS)[number]

/** Data of a `message` event (contract.md section 4, "SSE"). Steps count from 1. */
export type MessageData =
  | { messageType: 'stream_event'; step: number; delta: Delta }
  /** `text` is all text of the step (contract-2.md section 1.14). */
  | { messageType: 'assistant'; step: number; text: string; content: ContentBlock[] }
  | { messageType: 'tool_result'; toolUseId: string; content: string; isError: boolean }
  | ({ messageType: 'warning' } & Warning)
  /** The model is asked again after a wait (contract-2.md section 2.1). */
  | { messageType: 'retry'; attempt: number; afterMs: number; reason: string }
  /**
   * The earlier turns up to a message do not fit: first without a text, as the model is asked for a summary, then with
   * it (contract-2.md section 2.7).
   */
  | { messageType: 'summary'; messageId: string; text: string | null }
  | { messageType: 'approval'; approvalId: string; toolUseId: string; name: string }
  /**
   * The run waits for the client that started it to call one of the client's own tools (contract-2.md section 6.2).
   * `usage`: the tokens of the run so far. Events of older versions have none.
   */
  | {
      messageType: 'client_tool'
      calls: { id: string; name: string }[]
      usage?: { input_tokens: number; output_tokens: number }
    }
  /** The run waits until its user has connected to an MCP server (contract-2.md section 2.13). */
  | { messageType: 'authorization'; mcpId: string; mcpName: string; toolUseId: string; name: string }
  /** A run resumes after its process died: the deltas of that step start over. */
  | { messageType: 'resumed'; step: number }

/** A fragment of the answer, or of the reasoning before it (contract-2.md section 2.4). */
export type Delta = { type: 'text_delta' | 'thinking_delta'; text: string }

export type ContentBlock =
  | { type: 'text'; text: string }
  | { type: 'thinking'; text: string }
  | { type: 'tool_use'; id: string; name: string; input: unknown }

/** An event of an execution, the same in every API. `seq` strictly increases and may have gaps. */
export type ExecutionEvent =
  | { seq: number; at: Date; event: 'meta'; data: { executionId: string; chatId: string; sessionId: string } }
  | { seq: number; at: Date; event: 'message'; data: MessageData }
  | { seq: number; at: Date; event: 'result'; data: ResultData }
  | {
      seq: number
      at: Date
      event: 'error'
      data: ErrorData
    }

/**
 * An event of a chat (contract-2.md section 1.12): an event of one of its runs, or the chat's status. A reconnecting
 * client sends the last `id`. After a `reset` it must read the messages again.
 */
export type ChatEvent = { id: string; executionId: string | null; at: Date } & (
  | { event: 'status'; data: { executionId: string | null; status: ChatStatus; at: string } }
  | { event: 'reset'; data: { executionId: string | null } }
  | OfRun<ExecutionEvent>
)

type OfRun<Event extends ExecutionEvent> = Event extends ExecutionEvent
  ? Pick<Event, 'event' | 'seq'> & { data: Event['data'] & { executionId: string } }
  : never

export type ChatStatus = 'standby' | 'working' | 'done' | 'needs_attention' | 'error'

/** `code` and `detail` explain why a run failed (contract-2.md section 1.2). */
type ErrorData = {
  message: string
  executionId: string
  status: 'failed' | 'cancelled'
  code: string
  detail?: string
  stopReason: string | null
}

type ResultData = {
  executionId: string
  status: 'completed'
  sessionId: string
  usage: { input_tokens: number; output_tokens: number }
  stopReason: string | null
  /** The parsed answer of a run with an output schema (contract-2.md section 2.5). */
  resultObject?: unknown
}
