import type { LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { createChatReader } from '../../src/executions/engine/models/chat-stream.ts'
import type { Part } from '../../src/executions/engine/models/text-model.ts'

/** The tools in the request of the reply. */
export const TOOLS = ['add', 'get_weather', 'search', 'search_all']
export const DONE = 'data: [DONE]\n\n'

/** Makes an event of a JSON value, or of a text as it is. */
export const data = (value: unknown) => `data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`

/** Makes a chunk of a chat completion. */
export const chunk = (delta: unknown, finish_reason: string | null = null, more: object = {}) =>
  data({
    id: 'c',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    choices: [{ index: 0, delta, finish_reason }],
    ...more,
  })
export const calls = (...tool_calls: unknown[]) => chunk({ tool_calls })

/** Reads a reply with our reader. */
export function partsOf(pieces: readonly (string | Uint8Array)[], thinkTags = true): Part[] {
  const read = createChatReader({ metadataKey: 'compatible', tools: new Set(TOOLS), thinkTags })
  const parts: Part[] = []
  for (const piece of pieces) if (read(Buffer.from(piece), parts) === 'whole') return parts
  read(null, parts)
  return parts
}

/** Summarizes a reply, whatever the number of pieces. */
export function summarize(parts: readonly (Part | LanguageModelV4StreamPart)[]) {
  const joined = (type: string) =>
    parts.flatMap((part) => (part.type === type && 'delta' in part ? part.delta : [])).join('')
  const finish = parts.find((part) => part.type === 'finish')
  return {
    text: joined('text-delta'),
    reasoning: joined('reasoning-delta'),
    calls: parts.flatMap((part) => (part.type === 'tool-call' ? { name: part.toolName, input: part.input } : [])),
    finish: finish?.finishReason.unified,
    input: finish?.usage.inputTokens.total,
    output: finish?.usage.outputTokens.total,
  }
}
