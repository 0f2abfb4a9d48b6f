import { asList, asObject, asText, type Fields } from '../../../lib/unknown.ts'
import { createAnthropicBlocks } from './anthropic-blocks.ts'
import { ModelError } from './model-errors.ts'
import { refuseChat } from './other-apis.ts'
import { type Emit, type ProviderEvents, unknownUsage } from './provider-events.ts'
import { errorIn } from './reported-errors.ts'
import { tokensOf } from './reported-usage.ts'

/** Counts of tokens, and their names in chat completions, which gateways keep. */
const TOKENS: readonly (readonly [name: string, other: string])[] = [
  ['input_tokens', 'prompt_tokens'],
  ['output_tokens', 'completion_tokens'],
  ['cache_creation_input_tokens', ''],
  ['cache_read_input_tokens', ''],
]

/**
 * Reads the events of Anthropic's Messages API. Leaves out event types of later versions.
 */
export function createAnthropicEvents(emit: Emit): ProviderEvents {
  const blocks = createAnthropicBlocks(emit)
  let usage: Record<string, number> = {}
  let isOpen = false
  let isBegun = false
  let messageId = ''
  let isSettled = false
  let isWhole = false

  function begin(message: Fields): void {
    const id = asText(message.id)
    // A gateway that asks again after a failure may send the second message behind a part of the first.
    if (blocks.hasContent && messageId && id && id !== messageId)
      throw new ModelError('The model server began another answer within its answer', 'broken_off')
    if (isBegun) return
    isBegun = true
    messageId = id
    readUsage(message.usage)
    openMessage(message)
  }

  function openMessage(message: Fields): void {
    if (isOpen) return
    isOpen = true
    const { input_tokens = 0, output_tokens = 0, ...cache } = usage
    emit({
      type: 'message_start',
      message: {
        id: asText(message.id) || null,
        model: asText(message.model) || null,
        role: 'assistant',
        content: [],
        stop_reason: null,
        usage: { input_tokens, output_tokens, ...cache },
      },
    })
  }

  function readUsage(reported: unknown): void {
    const fields = asObject(reported)
    for (const [name, other] of TOKENS) {
      const tokens = tokensOf(fields[name] ?? fields[other])
      // Gateways repeat the input as 0 in the last event.
      if (tokens !== undefined && (tokens > 0 || usage[name] === undefined)) usage = { ...usage, [name]: tokens }
    }
  }

  function finish(delta: Fields, reported: unknown): void {
    readUsage(reported)
    const reason = asText(delta.stop_reason)
    if (!reason) {
      emit({ type: 'ping' })
      return
    }
    blocks.stopAll(reason)
    if (!isSettled) settle(reason, asText(delta.stop_sequence) || null)
  }

  function settle(stop_reason: string, stop_sequence: string | null): void {
    isSettled = true
    const { input_tokens, output_tokens = 0, ...cache } = usage
    if (input_tokens === undefined || usage.output_tokens === undefined) emit(unknownUsage)
    const counted = { ...(input_tokens && { input_tokens }), output_tokens, ...cache }
    emit({ type: 'message_delta', delta: { stop_reason, stop_sequence }, usage: counted })
  }

  function readMessage(message: Fields): void {
    begin(message)
    const { content } = message
    const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : asList(content)
    for (const [index, part] of parts.entries()) {
      blocks.start(index, asObject(part))
      blocks.stop(index)
    }
    finish(message, message.usage)
    isWhole = true
  }

  function read(event: Fields): void {
    const error = errorIn(event)
    if (error) throw error
    refuseChat(event, 'ANTHROPIC_BASE_URL')
    const index = Number(event.index ?? 0) || 0
    switch (event.type) {
      case 'message':
        readMessage(event)
        return
      case 'message_start':
        begin(asObject(event.message))
        return
      case 'content_block_start':
        begin({})
        blocks.start(index, asObject(event.content_block))
        return
      case 'content_block_delta':
        begin({})
        blocks.add(index, asObject(event.delta))
        return
      case 'content_block_stop':
        if (!blocks.stop(index)) emit({ type: 'ping' })
        return
      case 'message_delta':
        begin({})
        finish(asObject(event.delta), event.usage)
        return
      case 'message_stop':
        if (isBegun) end()
        return
      default:
        if (event.role === 'assistant' && event.content) readMessage(event)
        else keepAlive()
    }
  }

  function end(): void {
    blocks.stopAll('end_turn')
    if (!isSettled) settle('end_turn', null)
    isWhole = true
  }

  /** Begins the message, before which the provider package passes nothing on. */
  function keepAlive(): void {
    openMessage({})
    emit({ type: 'ping' })
  }

  return {
    read,
    keepAlive,
    done() {
      if (blocks.hasContent) end()
    },
    close() {
      if (isSettled) emit({ type: 'message_stop' })
    },
    get isBegun() {
      return isBegun
    },
    get isSettled() {
      return isSettled
    },
    get isWhole() {
      return isWhole
    },
  }
}
