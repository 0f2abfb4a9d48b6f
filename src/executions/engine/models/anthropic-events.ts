import { parseJson } from '../../../lib/json.ts'
import { asList, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { unifiedReason } from './finish-reasons.ts'
import { refuseChat } from './other-apis.ts'
import { type Emit, type ProviderEvents, unknownUsage } from './provider-events.ts'
import { errorIn } from './reported-errors.ts'
import { tokensOf } from './reported-usage.ts'

type Block = {
  type: string
  index: number
  /** Input in the start event of a call, used if no pieces follow; JSON text from some gateways. */
  input: Fields | string | null
  json: string
  hasPieces: boolean
}

/** Delta types that the provider package reads for each block type. */
const DELTAS: Readonly<Record<string, readonly string[]>> = {
  text: ['text_delta'],
  thinking: ['thinking_delta', 'signature_delta'],
  redacted_thinking: [],
  tool_use: ['input_json_delta'],
}
const TEXT_OF: Readonly<Record<string, string>> = {
  text_delta: 'text',
  thinking_delta: 'thinking',
  signature_delta: 'signature',
  input_json_delta: 'partial_json',
}
const DELTA_TYPES = Object.keys(TEXT_OF)
/** Block type of a delta without a start. */
const TYPE_OF: Readonly<Record<string, string>> = {
  text_delta: 'text',
  thinking_delta: 'thinking',
  signature_delta: 'thinking',
}

/** Distance between the index of a block and that of another one for deltas that do not fit its type. */
const BESIDE = 1_000_000

/** Counts of tokens, and their names in chat completions, which gateways keep. */
const TOKENS: readonly (readonly [name: string, other: string])[] = [
  ['input_tokens', 'prompt_tokens'],
  ['output_tokens', 'completion_tokens'],
  ['cache_creation_input_tokens', ''],
  ['cache_read_input_tokens', ''],
]

/**
 * Reads the events of Anthropic's Messages API. Leaves out blocks of server-side tools, and block, delta and event
 * types of later versions, because they are neither text nor calls for this service.
 */
export function createAnthropicEvents(emit: Emit): ProviderEvents {
  const open = new Map<number, Block>()
  /** Blocks that are left out together with their deltas. */
  const skipped = new Set<number>()
  let usage: Record<string, number> = {}
  let isOpen = false
  let isBegun = false
  let hasContent = false
  let isSettled = false
  let isWhole = false

  function begin(message: Fields): void {
    if (isBegun) return
    isBegun = true
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

  function start(index: number, block: Fields): void {
    const { type } = block
    // The deltas show the type.
    if (type === undefined) return
    if (typeof type !== 'string' || !DELTAS[type]) {
      skipped.add(index)
      emit({ type: 'ping' })
      return
    }
    const known = open.get(index)
    if (known) stop(known)
    skipped.delete(index)
    hasContent = true
    open.set(index, { type, index, input: inputOf(block), json: '', hasPieces: false })
    const content_block = {
      text: { type, text: '' },
      thinking: { type, thinking: '', signature: '' },
      redacted_thinking: { type, data: asText(block.data) },
      tool_use: { type, id: asText(block.id), name: asText(block.name), input: {} },
    }[type]
    emit({ type: 'content_block_start', index, content_block })
    const given = type === 'text' ? block.text : type === 'thinking' ? block.thinking : ''
    if (asText(given)) read({ type: 'content_block_delta', index, delta: { type: `${type}_delta`, [type]: given } })
    if (type === 'thinking' && asText(block.signature)) {
      read({ type: 'content_block_delta', index, delta: { type: 'signature_delta', signature: block.signature } })
    }
  }

  function add(index: number, delta: Fields): void {
    const type = asText(delta.type) || DELTA_TYPES.find((one) => (TEXT_OF[one] ?? '') in delta) || ''
    const field = TEXT_OF[type]
    const given = field && delta[field]
    const text = isObject(given) && type === 'input_json_delta' ? JSON.stringify(given) : asText(given)
    if (!field || !text || skipped.has(index)) {
      emit({ type: 'ping' })
      return
    }
    const typeOfBlock = TYPE_OF[type]
    const there = open.get(index)
    // SGLang adds texts to the block of a call.
    if (there && typeOfBlock && typeOfBlock !== there.type && type !== 'signature_delta' && index < BESIDE) {
      add(index + BESIDE, delta)
      return
    }
    if (!there && typeOfBlock) start(index, { type: typeOfBlock })
    const block = open.get(index)
    if (!block || !DELTAS[block.type]?.includes(type)) {
      emit({ type: 'ping' })
      return
    }
    if (type === 'input_json_delta') {
      block.json += text
      block.hasPieces = true
    }
    emit({ type: 'content_block_delta', index, delta: { type, [field]: text } })
  }

  function stop({ index, input, hasPieces }: Block): void {
    open.delete(index)
    if (input && !hasPieces) {
      const partial_json = typeof input === 'string' ? input : JSON.stringify(input)
      emit({ type: 'content_block_delta', index, delta: { type: 'input_json_delta', partial_json } })
    }
    emit({ type: 'content_block_stop', index })
  }

  /** Ends the open blocks. A call that was cut off is dropped. */
  function stopAll(reason: string): void {
    const isCut = CUT.has(unifiedReason(reason))
    for (const block of open.values()) {
      if (block.type !== 'tool_use' || reason === 'tool_use' || isComplete(block, isCut)) stop(block)
    }
  }

  function finish(delta: Fields, reported: unknown): void {
    readUsage(reported)
    const reason = asText(delta.stop_reason)
    if (!reason) {
      emit({ type: 'ping' })
      return
    }
    stopAll(reason)
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
    const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : asList(content)
    for (const [index, block] of blocks.entries()) {
      start(index, asObject(block))
      const opened = open.get(index)
      if (opened) stop(opened)
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
        start(index, asObject(event.content_block))
        return
      case 'content_block_delta':
        begin({})
        add(index, asObject(event.delta))
        return
      case 'content_block_stop': {
        const block = open.get(index)
        if (block) stop(block)
        else emit({ type: 'ping' })
        return
      }
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
    stopAll('end_turn')
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
      if (hasContent) end()
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

/** Returns the input in the start event of a call; null if it is empty or the block is no call. */
function inputOf({ type, input }: Fields): Block['input'] {
  if (type !== 'tool_use') return null
  return isObject(input) && Object.keys(input).length ? input : asText(input).trim() || null
}

/** Reasons after which an input that has not begun may be missing. Gateways do not end the blocks of other calls. */
const CUT: ReadonlySet<string> = new Set(['length', 'content-filter'])

/** Returns whether the input of a call is complete. */
const isComplete = ({ json, input, hasPieces }: Block, isCut: boolean): boolean =>
  hasPieces ? isObject(parseJson(json)) : input !== null || !isCut
