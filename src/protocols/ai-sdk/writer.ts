import { DENIED } from '../../executions/engine/run/calls.ts'
import { endsAnswer, failureText, type Part } from '../shared/run-parts.ts'

/** A frame of the AI SDK's UI message stream, version 1 (protocols.md section 3). */
export type Chunk = { type: string } & Readonly<Record<string, unknown>>

const FINISH: Readonly<Record<string, string>> = {
  end_turn: 'stop',
  max_tokens: 'length',
  max_turns: 'length',
  content_filter: 'content-filter',
  refusal: 'content-filter',
}

/**
 * Creates a function that converts the parts of a run to chunks. `isOver` of an answer means that the client has the
 * whole message: the run has ended, or waits for the client to call tools.
 */
export function createChunkWriter(): (part: Part) => { chunks: Chunk[]; isOver: boolean } {
  /** Whether a step is open. Results of tools belong to the step that called them. */
  let isOpen = false
  let isReset = false
  const approvals = new Map<string, string>()
  const dynamicCalls = new Set<string>()

  function endStep(): Chunk[] {
    const chunks: Chunk[] = isOpen ? [{ type: 'finish-step' }] : []
    isOpen = false
    return chunks
  }

  function startStep(): Chunk[] {
    // The client keeps the beginning of a step that it resets.
    if (isReset) {
      isReset = false
      return []
    }
    const chunks = [...endStep(), { type: 'start-step' }]
    isOpen = true
    return chunks
  }

  /** Returns the decision about a call that waited for one, if there was one. */
  function responseOf(toolCallId: string, isDenied: boolean, content: string): Chunk[] {
    const approvalId = approvals.get(toolCallId)
    if (approvalId === undefined) return []
    approvals.delete(toolCallId)
    const reason = isDenied ? content.slice(DENIED.length + 2) : ''
    return [{ type: 'tool-approval-response', approvalId, approved: !isDenied, ...(reason && { reason }) }]
  }

  function resultOf({ id: toolCallId, content, isError }: Extract<Part, { type: 'tool-result' }>): Chunk[] {
    const isDenied = isError && content.startsWith(DENIED)
    const response = responseOf(toolCallId, isDenied, content)
    if (isDenied && response.length) return [...response, { type: 'tool-output-denied', toolCallId }]
    const result = isError
      ? { type: 'tool-output-error', toolCallId, errorText: content }
      : { type: 'tool-output-available', toolCallId, output: content }
    // Version 5 of the SDK looks for the call among the dynamic ones only then.
    return [...response, dynamicCalls.has(toolCallId) ? { ...result, dynamic: true } : result]
  }

  function toChunks(part: Part): Chunk[] {
    switch (part.type) {
      case 'start': {
        const { executionId, chatId, sessionId } = part
        return [{ type: 'start', messageId: executionId, messageMetadata: { executionId, chatId, sessionId } }]
      }
      case 'step-start':
        return startStep()
      case 'text-start':
      case 'text-end':
      case 'reasoning-start':
      case 'reasoning-end':
        return [{ type: part.type, id: part.id }]
      case 'text-delta':
      case 'reasoning-delta':
        return part.text ? [{ type: part.type, id: part.id, delta: part.text }] : []
      case 'tool-call': {
        const { id: toolCallId, name: toolName, input, isClients } = part
        // The page has no type for the tools of the service.
        if (!isClients) dynamicCalls.add(toolCallId)
        return [{ type: 'tool-input-available', toolCallId, toolName, input, ...(!isClients && { dynamic: true }) }]
      }
      case 'tool-result':
        return resultOf(part)
      case 'approval':
        approvals.set(part.id, part.approvalId)
        return [{ type: 'tool-approval-request', approvalId: part.approvalId, toolCallId: part.id }]
      case 'client-tools':
        return [...endStep(), { type: 'finish', finishReason: 'tool-calls' }]
      case 'reset':
        if (!part.isShown) return []
        isReset = isOpen
        return [{ type: 'reset-step' }]
      case 'warning':
        return [{ type: 'data-warning', data: { code: part.code, text: part.text } }]
      case 'summarizing':
        return [{ type: 'data-summarizing', data: {}, transient: true }]
      case 'retry': {
        const { attempt, afterMs, reason } = part
        return [{ type: 'data-retry', data: { attempt, afterMs, reason }, transient: true }]
      }
      case 'completed': {
        const { usage, stopReason } = part
        const finishReason = FINISH[stopReason ?? 'end_turn'] ?? 'other'
        return [...endStep(), { type: 'finish', finishReason, messageMetadata: { usage, stopReason } }]
      }
      case 'failed':
        return [
          ...endStep(),
          { type: 'error', errorText: failureText(part) },
          { type: 'finish', finishReason: 'error' },
        ]
      case 'cancelled':
        return [...endStep(), { type: 'abort', reason: part.message }]
      case 'step-end':
        return []
    }
  }

  return (part) => ({ chunks: toChunks(part), isOver: endsAnswer(part) })
}
