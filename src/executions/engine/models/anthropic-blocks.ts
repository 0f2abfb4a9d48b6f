import { parseJson } from '../../../lib/json.ts'
import { asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { unifiedReason } from './finish-reasons.ts'
import type { Emit } from './provider-events.ts'

/** A block that has begun and not ended. */
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

/** Emits the events of the blocks of one message. */
export type AnthropicBlocks = {
  start(index: number, block: Fields): void
  /** Adds a delta to its block, which begins with it if it has no start. */
  add(index: number, delta: Fields): void
  /** Ends a block. Returns false if there is none. */
  stop(index: number): boolean
  /** Ends the open blocks. A call that was cut off is dropped. */
  stopAll(reason: string): void
  /** Whether a block has begun. */
  readonly hasContent: boolean
}

/**
 * Creates the blocks of one message. Leaves out blocks of server-side tools, and block and delta types of later
 * versions, because they are neither text nor calls for this service.
 */
export function createAnthropicBlocks(emit: Emit): AnthropicBlocks {
  const open = new Map<number, Block>()
  /** Blocks that are left out together with their deltas. */
  const skipped = new Set<number>()
  let hasContent = false

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
    if (known) end(known)
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
    if (asText(given)) add(index, { type: `${type}_delta`, [type]: given })
    if (type === 'thinking' && asText(block.signature)) {
      add(index, { type: 'signature_delta', signature: block.signature })
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

  function end({ index, input, hasPieces }: Block): void {
    open.delete(index)
    if (input && !hasPieces) {
      const partial_json = typeof input === 'string' ? input : JSON.stringify(input)
      emit({ type: 'content_block_delta', index, delta: { type: 'input_json_delta', partial_json } })
    }
    emit({ type: 'content_block_stop', index })
  }

  function stopAll(reason: string): void {
    const isCut = CUT.has(unifiedReason(reason))
    for (const block of open.values()) {
      if (block.type !== 'tool_use' || reason === 'tool_use' || isComplete(block, isCut)) end(block)
    }
  }

  return {
    start,
    add,
    stop(index) {
      const block = open.get(index)
      if (block) end(block)
      return block !== undefined
    },
    stopAll,
    get hasContent() {
      return hasContent
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
