import type { LanguageModelV4Prompt } from '@ai-sdk/provider'
import { type Span, SpanStatusCode } from '@opentelemetry/api'
import type { Part, Parts } from '../executions/engine/models/text-model.ts'

/** Records the kind of a failure. */
export function mark(span: Span, type: string): void {
  span.setAttribute('error.type', type).setStatus({ code: SpanStatusCode.ERROR })
}

/** Records only the kind of an error, because its message may contain content. */
export function failed<E>(span: Span, error: E): E {
  const { statusCode } = Object(error) as { statusCode?: unknown }
  mark(span, typeof statusCode === 'number' ? String(statusCode) : error instanceof Error ? error.name : 'unknown')
  span.end()
  return error
}

/** Observes the parts of a stream. */
export async function* watchStream(stream: Parts, observe: Observer, span: Span): AsyncGenerator<readonly Part[]> {
  try {
    for await (const parts of stream) {
      for (const part of parts) observe(part)
      yield parts
    }
  } catch (error) {
    throw failed(span, error)
  } finally {
    span.end()
  }
}

type Observer = (part: Part) => void

/** Returns an observer that writes the parts of a reply into a span when it finishes. */
export function createObserver(span: Span, withContent: boolean): Observer {
  let text = ''
  const calls: object[] = []
  return (part) => {
    if (part.type === 'error') mark(span, part.error instanceof Error ? part.error.name : 'unknown')
    if (withContent && part.type === 'text-delta') text += part.delta
    if (withContent && part.type === 'tool-call')
      calls.push({ type: 'tool_call', id: part.toolCallId, name: part.toolName, arguments: part.input })
    if (part.type !== 'finish') return
    const { inputTokens, outputTokens } = part.usage
    span.setAttribute('gen_ai.response.finish_reasons', [part.finishReason.unified])
    if (inputTokens.total !== undefined) span.setAttribute('gen_ai.usage.input_tokens', inputTokens.total)
    if (outputTokens.total !== undefined) span.setAttribute('gen_ai.usage.output_tokens', outputTokens.total)
    if (!withContent) return
    const parts = [...(text ? [{ type: 'text', content: text }] : []), ...calls]
    span.setAttribute('gen_ai.output.messages', JSON.stringify([{ role: 'assistant', parts }]))
  }
}

/** Converts a prompt into the format of OpenTelemetry's conventions. Files are only mentioned. */
export function toMessages(prompt: LanguageModelV4Prompt): string {
  const messages = prompt.map(({ role, content }) => ({
    role,
    parts: typeof content === 'string' ? [{ type: 'text', content }] : content.map(toPart),
  }))
  return JSON.stringify(messages)
}

type PromptPart = Exclude<LanguageModelV4Prompt[number]['content'], string>[number]

function toPart(part: PromptPart): object {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return { type: part.type, content: part.text }
    case 'tool-call':
      return { type: 'tool_call', id: part.toolCallId, name: part.toolName, arguments: part.input }
    case 'tool-result': {
      const response = 'value' in part.output ? part.output.value : ''
      return { type: 'tool_call_response', id: part.toolCallId, response }
    }
    default:
      return { type: part.type }
  }
}
