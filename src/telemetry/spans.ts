import type { LanguageModelV4Prompt, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { type Span, SpanStatusCode } from '@opentelemetry/api'

/** The kind of what went wrong. */
export function mark(span: Span, type: string): void {
  span.setAttribute('error.type', type).setStatus({ code: SpanStatusCode.ERROR })
}

/** The kind of an error alone: its text may hold what it was about. */
export function failed<E>(span: Span, error: E): E {
  const { statusCode } = Object(error) as { statusCode?: unknown }
  mark(span, typeof statusCode === 'number' ? String(statusCode) : error instanceof Error ? error.name : 'unknown')
  span.end()
  return error
}

type Parts = AsyncIterable<LanguageModelV4StreamPart>
type Looker = Transformer<LanguageModelV4StreamPart, LanguageModelV4StreamPart>

/** Looks at what passes. What can be cancelled still can: the engine relies on it. */
export function watchStream(stream: Parts, look: Look, span: Span): Parts {
  if (!(stream instanceof ReadableStream)) return watchParts(stream, look, span)
  // `cancel` is newer than its type: the reader has gone, or the source has failed.
  const looked: Looker & { cancel: (reason: unknown) => void } = {
    transform(part, controller) {
      look(part)
      controller.enqueue(part)
    },
    flush: () => span.end(),
    cancel: (reason) => void failed(span, reason),
  }
  return (stream as ReadableStream<LanguageModelV4StreamPart>).pipeThrough(new TransformStream(looked))
}

async function* watchParts(parts: Parts, look: Look, span: Span): Parts & AsyncGenerator<LanguageModelV4StreamPart> {
  try {
    for await (const part of parts) {
      look(part)
      yield part
    }
  } catch (error) {
    throw failed(span, error)
  } finally {
    span.end()
  }
}

type Look = (part: LanguageModelV4StreamPart) => void

export function createLook(span: Span, withContent: boolean): Look {
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

/** A prompt as OpenTelemetry's conventions tell it; of files only that they are there. */
export function toMessages(prompt: LanguageModelV4Prompt): string {
  const messages = prompt.map(({ role, content }) => ({
    role,
    parts: (typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content).map((part) => {
      if (part.type === 'text' || part.type === 'reasoning') return { type: part.type, content: part.text }
      if (part.type === 'tool-call')
        return { type: 'tool_call', id: part.toolCallId, name: part.toolName, arguments: part.input }
      if (part.type === 'tool-result')
        return {
          type: 'tool_call_response',
          id: part.toolCallId,
          response: 'value' in part.output ? part.output.value : '',
        }
      return { type: part.type }
    }),
  }))
  return JSON.stringify(messages)
}
