import type { Fields } from '../../lib/unknown.ts'
import { endsAnswer, failureText, type Part } from '../shared/run-parts.ts'

/** An event of AG-UI 1.0 (protocols.md section 4). */
export type AgUiEvent = { type: string } & Fields
/** A message as AG-UI's clients keep it. */
export type AgUiMessage = { id: string; role: string } & Fields

/** The question for a decision. */
export type AskedPart = Omit<Extract<Part, { type: 'approval' }>, 'seq' | 'at'>

/** The schema of the answer to an interrupt. */
const RESPONSE_SCHEMA = {
  type: 'object',
  properties: { approved: { type: 'boolean' }, reason: { type: 'string' }, input: { type: 'object' } },
  required: ['approved'],
}

type Request = { threadId: string; runId: string; messages: readonly AgUiMessage[] }

/**
 * Creates a function that converts the parts of a run to events. `isOver` reports that the stream has ended: the run
 * has ended, or the client must call tools. `interrupt` ends a stream whose run waits for decisions: by
 * default those that the stream has asked for.
 */
export function createAgUiWriter({ threadId, runId, messages }: Request, executionId: string) {
  let step: string | null = null
  let stepNumber = 0
  let resets = 0
  /** The messages of this stream, each with the step that it belongs to. */
  let made: { step: number; message: AgUiMessage }[] = []
  let text = ''
  let open: { kind: 'text' | 'reasoning'; id: string } | null = null
  const asked: AskedPart[] = []

  const finished = (outcome: Fields) => ({ type: 'RUN_FINISHED', threadId, runId, outcome })

  function endStep(): AgUiEvent[] {
    const events = [...endText(), ...(step === null ? [] : [{ type: 'STEP_FINISHED', stepName: step }])]
    step = null
    return events
  }

  function startText(kind: 'text' | 'reasoning', name: string): AgUiEvent[] {
    const messageId = `${executionId}_${name}${resets ? `_${resets}` : ''}`
    open = { kind, id: messageId }
    text = ''
    if (kind === 'text') return [{ type: 'TEXT_MESSAGE_START', messageId, role: 'assistant' }]
    return [
      { type: 'REASONING_START', messageId },
      { type: 'REASONING_MESSAGE_START', messageId, role: 'reasoning' },
    ]
  }

  function endText(): AgUiEvent[] {
    if (!open) return []
    const { kind, id: messageId } = open
    open = null
    const role = kind === 'text' ? 'assistant' : 'reasoning'
    made.push({ step: stepNumber, message: { id: messageId, role, content: text } })
    if (kind === 'text') return [{ type: 'TEXT_MESSAGE_END', messageId }]
    return [
      { type: 'REASONING_MESSAGE_END', messageId },
      { type: 'REASONING_END', messageId },
    ]
  }

  function call({ id: toolCallId, name, input }: Extract<Part, { type: 'tool-call' }>): AgUiEvent[] {
    const delta = JSON.stringify(input)
    const last = made.findLast((one) => one.step === stepNumber && one.message.role === 'assistant')
    const parentMessageId = last?.message.id ?? `${executionId}_calls_${stepNumber}`
    const written = { id: toolCallId, type: 'function', function: { name, arguments: delta } }
    if (last) {
      const before = (last.message.toolCalls ?? []) as readonly unknown[]
      last.message = { ...last.message, toolCalls: [...before, written] }
    } else made.push({ step: stepNumber, message: { id: parentMessageId, role: 'assistant', toolCalls: [written] } })
    return [
      { type: 'TOOL_CALL_START', toolCallId, toolCallName: name, parentMessageId },
      { type: 'TOOL_CALL_ARGS', toolCallId, delta },
      { type: 'TOOL_CALL_END', toolCallId },
    ]
  }

  /** Ends the open events of a step, and sends the messages without it. */
  function reset(): AgUiEvent[] {
    const events = endText()
    made = made.filter((one) => one.step !== stepNumber)
    resets++
    return [...events, { type: 'MESSAGES_SNAPSHOT', messages: [...messages, ...made.map(({ message }) => message)] }]
  }

  function toEvents(part: Part): AgUiEvent[] {
    switch (part.type) {
      case 'step-start': {
        const name = `step_${part.step}`
        if (step === name) return []
        const events = [...endStep(), { type: 'STEP_STARTED', stepName: name }]
        step = name
        stepNumber = part.step
        return events
      }
      case 'text-start':
        return startText('text', part.id)
      case 'reasoning-start':
        return startText('reasoning', part.id)
      case 'text-delta':
      case 'reasoning-delta': {
        if (!open) return []
        text += part.text
        const type = open.kind === 'text' ? 'TEXT_MESSAGE_CONTENT' : 'REASONING_MESSAGE_CONTENT'
        return [{ type, messageId: open.id, delta: part.text }]
      }
      case 'text-end':
      case 'reasoning-end':
        return endText()
      case 'tool-call':
        return call(part)
      case 'tool-result': {
        const message = { id: `${part.id}_result`, role: 'tool', toolCallId: part.id, content: part.content }
        made.push({ step: stepNumber, message })
        const { id: messageId, toolCallId, content, role } = message
        return [{ type: 'TOOL_CALL_RESULT', messageId, toolCallId, content, role }]
      }
      case 'approval':
        asked.push(part)
        return []
      case 'client-tools':
        // Clients before version 1.0 refuse `pendingToolCallIds`. Later ones find the calls without a result by
        // themselves.
        return [...endStep(), finished({ type: 'success' })]
      case 'reset':
        return part.isShown ? reset() : []
      case 'warning':
        return [{ type: 'CUSTOM', name: 'muster:warning', value: { code: part.code, text: part.text } }]
      case 'summarizing':
        return [{ type: 'CUSTOM', name: 'muster:summarizing', value: {} }]
      case 'retry': {
        const { attempt, afterMs, reason } = part
        return [{ type: 'CUSTOM', name: 'muster:retry', value: { attempt, afterMs, reason } }]
      }
      case 'completed': {
        const { usage, stopReason } = part
        return [...endStep(), { ...finished({ type: 'success' }), result: { executionId, usage, stopReason } }]
      }
      case 'cancelled':
      case 'failed':
        return [...endStep(), { type: 'RUN_ERROR', message: failureText(part), code: part.code }]
      case 'start':
      case 'step-end':
        return []
    }
  }

  return {
    begin: (): AgUiEvent => ({ type: 'RUN_STARTED', threadId, runId }),
    write: (part: Part) => ({
      events: toEvents(part),
      isOver: endsAnswer(part),
    }),
    interrupt: (open: readonly AskedPart[] = asked): AgUiEvent[] => [
      ...endStep(),
      finished({
        type: 'interrupt',
        interrupts: open.map(({ approvalId: id, id: toolCallId, name, input }) => ({
          id,
          reason: 'approval',
          toolCallId,
          responseSchema: RESPONSE_SCHEMA,
          message: `The agent wants to call ${name}`,
          metadata: { tool: name, input },
        })),
      }),
    ],
  }
}
