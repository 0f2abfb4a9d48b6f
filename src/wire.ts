import type { TRPCDefaultErrorData, TRPCDefaultErrorShape } from '@trpc/server'

// What clients get under a name of its own. The package of the typed client carries this file: nothing of the service
// is imported here.

/** The error body of every REST answer, and the fields that tRPC and GraphQL errors carry (contract.md section 1). */
export type ErrorBody = {
  error: true
  statusCode: number
  statusMessage: string
  message: string
  requestId: string
}

/** An error as tRPC carries it. */
export interface ErrorShape extends TRPCDefaultErrorShape {
  data: TRPCDefaultErrorData & ErrorBody
}

/** What a `message` event tells (contract.md section 4, "SSE"). Steps count from 1. */
export type MessageData =
  | { messageType: 'stream_event'; step: number; delta: { type: 'text_delta'; text: string } }
  | { messageType: 'assistant'; step: number; content: ContentBlock[] }
  | { messageType: 'tool_result'; toolUseId: string; content: string; isError: boolean }
  | { messageType: 'approval'; approvalId: string; toolUseId: string; name: string }
  /** A run whose process died goes on: the deltas of that step begin anew. */
  | { messageType: 'resumed'; step: number }

export type ContentBlock =
  | { type: 'text'; text: string }
  | { type: 'tool_use'; id: string; name: string; input: unknown }

/** One event of an execution as every face shows it. `seq` strictly increases and may have gaps. */
export type ExecutionEvent =
  | { seq: number; at: Date; event: 'meta'; data: { executionId: string; chatId: string; sessionId: string } }
  | { seq: number; at: Date; event: 'message'; data: MessageData }
  | { seq: number; at: Date; event: 'result'; data: ResultData }
  | {
      seq: number
      at: Date
      event: 'error'
      data: { message: string; executionId: string; status: 'failed' | 'cancelled' }
    }

type ResultData = {
  executionId: string
  status: 'completed'
  sessionId: string
  usage: { input_tokens: number; output_tokens: number }
}
