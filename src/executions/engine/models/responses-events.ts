import { parseJson } from '../../../lib/json.ts'
import { asList, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { isEmpty } from './call-inputs.ts'
import { ModelError, ReportedError } from './model-errors.ts'
import { refuseChat } from './other-apis.ts'
import type { Emit, ProviderEvents } from './provider-events.ts'
import { errorIn, withStatus } from './reported-errors.ts'
import { usageOfReport } from './reported-usage.ts'

type Item = {
  type: 'message' | 'function_call' | 'reasoning'
  /** First id of the item. Some servers change it between events. */
  id: string
  /** Index that the server gives it, and the one that only this item has. */
  place: number | undefined
  index: number
  callId: string
  hasCallId: boolean
  name: string
  /** Text, arguments or reasoning so far. */
  text: string
  /** The part of a reasoning summary that is being streamed; -1 before the first. */
  part: number
  /** Whether the complete arguments of a call have arrived. */
  isRead: boolean
  isDone: boolean
}

const TYPES: ReadonlySet<unknown> = new Set(['message', 'function_call', 'reasoning'])

/**
 * Reads the events of OpenAI's Responses API. Derives missing deltas, starts and ends of items from the other events.
 * Leaves out items and events that are neither text, reasoning nor calls.
 */
export function createResponsesEvents(emit: Emit): ProviderEvents {
  const items: Item[] = []
  let isBegun = false
  let isWhole = false

  /** Finds the item of an event, or adds one of the given type. */
  function itemOf(event: Fields, type: Item['type'], given: Fields = {}): Item {
    const id = asText(given.id) || asText(event.item_id)
    const callId = asText(given.call_id)
    const place = typeof event.output_index === 'number' ? event.output_index : undefined
    const isOther = (item: Item) => item.isDone && item.place !== place && hasOtherCallId(item, callId)
    const named = items.findLast((item) => isNamed(item, id, callId) && !isOther(item))
    const there = place === undefined ? lastOpen(type) : items.findLast((item) => item.place === place)
    // Some servers give all items the same index, and others make up new ids for each event and for the whole answer.
    const hasBoth = Boolean(callId && there?.hasCallId)
    const isAnother =
      event.type === 'response.output_item.added'
        ? hasBoth || there?.isDone
        : hasBoth && there?.isDone && event.type === 'response.output_item.done'
    const known = named ?? (isAnother ? undefined : there)
    return known?.type === type ? known : addItem(type, given, id, place)
  }

  function addItem(type: Item['type'], given: Fields, id = asText(given.id), place?: number): Item {
    const free = Math.max(-1, ...items.map(({ index }) => index)) + 1
    const index = place === undefined || items.some((item) => item.index === place) ? free : place
    const callId = asText(given.call_id)
    const item: Item = {
      type,
      id: id || `item_${index}`,
      place,
      index,
      text: '',
      part: -1,
      isRead: false,
      isDone: false,
      callId: callId || id || `call_${index}`,
      hasCallId: callId !== '',
      name: asText(given.name),
    }
    items.push(item)
    if (type !== 'function_call' || item.name) begin(item, given)
    return item
  }

  const lastOpen = (type: Item['type']) => items.findLast((item) => item.type === type && !item.isDone)

  function begin({ type, id, index, callId, name }: Item, given: Fields): void {
    isBegun = true
    const encrypted = asText(given.encrypted_content)
    const item = {
      message: { type, id, ...phaseOf(given) },
      function_call: { type, id, call_id: callId, name, arguments: '' },
      reasoning: { type, id, ...(encrypted && { encrypted_content: encrypted }) },
    }[type]
    emit({ type: 'response.output_item.added', output_index: index, item })
  }

  function addText(item: Item, delta: string): void {
    if (!delta || item.isDone) return
    item.text += delta
    emit({ type: 'response.output_text.delta', item_id: item.id, output_index: item.index, delta })
  }

  function refuse(item: Item, delta: string): void {
    if (!delta || item.isDone) return
    item.text += delta
    emit({ type: 'response.refusal.delta', item_id: item.id, output_index: item.index, delta })
  }

  /** Adds the part of the complete text that the deltas did not contain. */
  function addRest(item: Item, whole: string, add: (item: Item, delta: string) => void): void {
    if (whole.length > item.text.length && whole.startsWith(item.text)) add(item, whole.slice(item.text.length))
  }

  function addArguments(item: Item, delta: string): void {
    if (!delta || item.isDone) return
    item.text += delta
    emit({ type: 'response.function_call_arguments.delta', item_id: item.id, output_index: item.index, delta })
  }

  function think(item: Item, delta: string, part = 0): void {
    if (!delta || item.isDone) return
    item.text += delta
    const at = { item_id: item.id, output_index: item.index }
    // The package knows the first part from the start of the item.
    for (; item.part < part; item.part++) {
      if (item.part >= 0) {
        emit({ type: 'response.reasoning_summary_part.done', ...at, summary_index: item.part })
      }
      emit({ type: 'response.reasoning_summary_part.added', ...at, summary_index: item.part + 1 })
    }
    emit({ type: 'response.reasoning_summary_text.delta', ...at, summary_index: item.part, delta })
  }

  /** Ends an item with the server's complete version of it. */
  function finish(item: Item, given: Fields): void {
    if (item.isDone) return
    const { id, index } = item
    const at = { type: 'response.output_item.done', output_index: index }
    if (item.type === 'message') {
      const refusal = textOf(given.content, 'refusal')
      if (refusal && !item.text) refuse(item, refusal)
      else addRest(item, textOf(given.content), addText)
      emit({ ...at, item: { type: 'message', id, ...phaseOf(given) } })
    } else if (item.type === 'reasoning') {
      const thinking = textOf(given.summary) || textOf(given.content)
      if (!item.text) think(item, thinking)
      const encrypted = asText(given.encrypted_content) || null
      const summary = thinking ? [{ type: 'summary_text', text: thinking }] : []
      emit({ ...at, item: { type: 'reasoning', id, encrypted_content: encrypted, summary } })
    } else {
      item.name = asText(given.name) || item.name
      finishCall(item, argumentsOf(given.arguments, item), asText(given.call_id) || item.callId)
    }
    item.isDone = true
  }

  function finishCall({ id, index, name }: Item, args: string, callId: string): void {
    isBegun = true
    const item = { type: 'function_call', id, call_id: callId, name, arguments: args || '{}', status: 'completed' }
    emit({ type: 'response.output_item.done', output_index: index, item })
  }

  /** Ends the answer with the items of its last event and complete items without an end event. */
  function end(response: Fields, isIncomplete: boolean): void {
    const output = asList(response.output).filter((given) => isObject(given) && TYPES.has(given.type)) as Fields[]
    for (const [given, item] of pairs(output, items)) finish(item ?? addItem(given.type as Item['type'], given), given)
    const text = asText(response.output_text)
    if (text && !items.some(({ type }) => type === 'message')) addText(itemOf({}, 'message'), text)
    for (const item of items) {
      if (item.isDone) continue
      if (item.type !== 'function_call') finish(item, {})
      else if (item.name && (item.isRead || (!isIncomplete && isObject(parseJson(item.text))))) {
        finishCall(item, item.text, item.callId)
      }
    }
    isBegun = true
    isWhole = true
    const reason = asText(asObject(response.incomplete_details).reason) || (isIncomplete ? 'incomplete' : '')
    const type = reason ? 'response.incomplete' : 'response.completed'
    const incomplete_details = reason ? { reason } : null
    emit({ type, response: { incomplete_details, usage: usageOf(response.usage) } })
  }

  function readResponse(response: Fields, isIncomplete: boolean): void {
    const { status, error } = response
    if (isObject(error) || asText(error)) throw new ReportedError(withStatus({ error }))
    if (status === 'failed' || status === 'cancelled') {
      throw new ModelError(`The model broke off its reply (finish reason: ${status})`, 'broken_off')
    }
    end(response, isIncomplete || status === 'incomplete')
  }

  function readOfItem(event: Fields): void {
    const delta = asText(event.delta)
    switch (event.type) {
      case 'response.output_item.added': {
        const item = asObject(event.item)
        if (!TYPES.has(item.type)) {
          emit({ type: 'ping' })
          return
        }
        void itemOf(event, item.type as Item['type'], item)
        return
      }
      case 'response.output_item.done': {
        const item = asObject(event.item)
        if (TYPES.has(item.type)) finish(itemOf(event, item.type as Item['type'], item), item)
        else emit({ type: 'ping' })
        return
      }
      case 'response.output_text.delta':
      case 'response.refusal.delta': {
        const item = itemOf(event, 'message')
        if (event.type === 'response.refusal.delta') refuse(item, delta)
        else addText(item, delta)
        return
      }
      case 'response.output_text.done':
      case 'response.content_part.done': {
        const text = asText(event.text) || textOf([event.part])
        if (text && asObject(event.part).type !== 'reasoning_text') addRest(itemOf(event, 'message'), text, addText)
        else emit(ALIVE)
        return
      }
      case 'response.function_call_arguments.delta':
        addArguments(itemOf(event, 'function_call'), delta)
        return
      case 'response.function_call_arguments.done': {
        const item = itemOf(event, 'function_call')
        item.text = argumentsOf(event.arguments, item)
        item.name ||= asText(event.name)
        item.isRead = true
        return
      }
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
      case 'response.reasoning.delta': {
        const part = typeof event.summary_index === 'number' ? event.summary_index : 0
        think(itemOf(event, 'reasoning'), delta, Math.max(0, Math.min(part, 1_000)))
        return
      }
      default:
        emit(ALIVE)
    }
  }

  function read(event: Fields): void {
    const error =
      event.type === 'response.error'
        ? new ReportedError(withStatus({ error: event.error ?? event.message }))
        : errorIn(event)
    // The `error` of a complete response is null or an error of its own.
    if (error) throw error
    refuseChat(event, 'OPENAI_RESPONSES_BASE_URL')
    const response = asObject(event.response)
    switch (event.type) {
      case 'response.created': {
        isBegun = true
        const { id, created_at: at, model } = response
        const created_at = typeof at === 'number' ? at : 0
        emit({ type: event.type, response: { id: asText(id), created_at, model: asText(model) } })
        return
      }
      case 'response.completed':
      case 'response.done':
        readResponse({ usage: event.usage, ...response }, false)
        return
      case 'response.incomplete':
        readResponse(response, true)
        return
      case 'response.failed':
        readResponse({ ...response, status: 'failed' }, false)
        return
      case 'response.cancelled':
      case 'response.canceled':
        readResponse({ ...response, status: 'cancelled' }, false)
        return
    }
    if (event.object === 'response' && Array.isArray(event.output)) {
      readResponse(event, false)
      return
    }
    readOfItem(event)
  }

  return {
    read,
    keepAlive: () => emit(ALIVE),
    done() {
      if (items.length) end({}, false)
    },
    close() {},
    get isBegun() {
      return isBegun
    },
    get isSettled() {
      return isWhole
    },
    get isWhole() {
      return isWhole
    },
  }
}

/** Returns whether a call has another id. Some servers give all calls the id of one item. */
const hasOtherCallId = (item: Item, callId: string): boolean =>
  callId !== '' && item.hasCallId && item.callId !== callId

const isNamed = (item: Item, id: string, callId: string): boolean =>
  (id !== '' && item.id === id) || (callId !== '' && item.hasCallId && item.callId === callId)

/**
 * Pairs the items of the complete answer with those of its events: by id, and the others of a type in their order. Some
 * servers give the answer new ids and leave out its reasoning.
 */
function pairs(output: readonly Fields[], items: readonly Item[]): [given: Fields, item: Item | undefined][] {
  const left = new Set(items)
  const take = (fits: (item: Item) => boolean) => {
    const found = left.values().find(fits)
    if (found) left.delete(found)
    return found
  }
  const named = output.map(({ type, id, call_id: callId }) =>
    take((item) => item.type === type && isNamed(item, asText(id), asText(callId))),
  )
  const isAlike = ({ type, name }: Item, given: Fields) => type === given.type && (!name || name === given.name)
  return output.map((given, at) => [given, named[at] ?? take((item) => isAlike(item, given))])
}

/** Event after which the provider package passes on what follows, before the answer has begun. */
const ALIVE: Fields = { type: 'response.in_progress', response: { id: '', created_at: 0, model: '' } }

/** Joins the texts of the parts of an item, which may be one text. */
const textOf = (parts: unknown, field: 'text' | 'refusal' = 'text'): string =>
  typeof parts === 'string' && field === 'text'
    ? parts
    : asList(parts)
        .map((part) => asText(asObject(part)[field]))
        .join('')

/** Returns what kind of message it is, which OpenAI expects back with it. */
const phaseOf = ({ phase }: Fields): Fields => (phase === 'commentary' || phase === 'final_answer' ? { phase } : {})

/**
 * Returns the arguments of a call that an event states, or those so far if it states none: LM Studio ends each call
 * with empty ones.
 */
function argumentsOf(value: unknown, { text }: Item): string {
  const stated = typeof value === 'string' ? value : isObject(value) ? JSON.stringify(value) : ''
  return isEmpty(stated) ? text || stated : stated
}

/**
 * Returns usage in the package's format, also if a server uses the names of chat completions; undefined if not
 * reported.
 */
function usageOf(value: unknown): Fields | undefined {
  if (!isObject(value)) return undefined
  const { inputTokens, outputTokens } = usageOfReport(value)
  if (inputTokens.total === undefined || outputTokens.total === undefined) return undefined
  const { cacheRead: cached_tokens } = inputTokens
  const { reasoning: reasoning_tokens } = outputTokens
  return {
    input_tokens: inputTokens.total,
    output_tokens: outputTokens.total,
    ...(cached_tokens !== undefined && { input_tokens_details: { cached_tokens } }),
    ...(reasoning_tokens !== undefined && { output_tokens_details: { reasoning_tokens } }),
  }
}
