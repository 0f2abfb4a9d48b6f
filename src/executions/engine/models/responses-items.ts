import { parseJson } from '../../../lib/json.ts'
import { asList, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { isEmpty } from './call-inputs.ts'
import { ModelError } from './model-errors.ts'
import type { Emit } from './provider-events.ts'

type ItemType = 'message' | 'function_call' | 'reasoning'

/** An item of the answer as received so far. */
export type Item = {
  type: ItemType
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
  /** Pieces of a message that arrived after its end and repeat its beginning so far. */
  repeated: string
  /** The part of a reasoning summary that is being streamed, and the server's number of it; -1 before the first. */
  part: number
  summary: number
  /** Whether the complete arguments of a call have arrived. */
  isRead: boolean
  isDone: boolean
}

/** Maximum number of items in an answer. */
const MAX_ITEMS = 1_000

/** Assembles the items of one answer, and emits their events. */
export type ResponseItems = {
  /** Finds the item of an event, or adds one of the given type. */
  find(event: Fields, type: ItemType, given?: Fields): Item
  /** Adds a piece of a message. */
  addText(item: Item, delta: string): void
  addRefusal(item: Item, delta: string): void
  /** Adds the part of a message's complete text that the pieces did not contain. */
  addRest(item: Item, whole: string): void
  addArguments(item: Item, delta: string): void
  /** Replaces the arguments of a call by the complete ones. */
  readCall(item: Item, event: Fields): void
  /** Adds a piece of the part of a reasoning summary that has this number. */
  addReasoning(item: Item, delta: string, summary?: number): void
  /** Ends an item with the server's complete version of it. */
  finish(item: Item, given: Fields): void
  /** Ends the items with those of the complete answer, and complete items without an end event. */
  finishAll(response: Fields, isIncomplete: boolean): void
  readonly size: number
  /** Whether an event of an item was emitted. */
  readonly isBegun: boolean
}

/** Returns whether an item is one of those that the provider package reads. */
export const isItem = (given: Fields): given is Fields & { type: ItemType } => TYPES.has(given.type)

const TYPES: ReadonlySet<unknown> = new Set(['message', 'function_call', 'reasoning'])

/** Creates the items of one answer. Derives missing deltas, starts and ends of items from the other events. */
export function createResponseItems(emit: Emit): ResponseItems {
  const items: Item[] = []
  let isBegun = false

  function find(event: Fields, type: ItemType, given: Fields = {}): Item {
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
    return known?.type === type ? known : add(type, given, id, place)
  }

  const lastOpen = (type: ItemType) => items.findLast((item) => item.type === type && !item.isDone)

  function add(type: ItemType, given: Fields, id = asText(given.id), place?: number): Item {
    const free = Math.max(-1, ...items.map(({ index }) => index)) + 1
    const index = place === undefined || items.some((item) => item.index === place) ? free : place
    const callId = asText(given.call_id)
    const item: Item = {
      type,
      id: id || `item_${index}`,
      place,
      index,
      text: '',
      repeated: '',
      part: -1,
      summary: -1,
      isRead: false,
      isDone: false,
      callId: callId || id || `call_${index}`,
      hasCallId: callId !== '',
      name: asText(given.name),
    }
    if (items.push(item) > MAX_ITEMS) throw new ModelError(`The model sent more than ${MAX_ITEMS} items at once`)
    if (type !== 'function_call' || item.name) begin(item, given)
    return item
  }

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

  /** Returns the function that adds a piece to an item with an event of this type. */
  const adder = (type: string) => (item: Item, delta: string) => {
    if (!delta || item.isDone) return
    item.text += delta
    emit({ type, item_id: item.id, output_index: item.index, delta })
  }
  const addOpenText = adder('response.output_text.delta')
  const addRefusal = adder('response.refusal.delta')
  const addArguments = adder('response.function_call_arguments.delta')

  /** Some servers end a message before its text, or send the text again after the end. */
  function addText(item: Item, delta: string): void {
    if (!item.isDone) {
      addOpenText(item, delta)
      return
    }
    item.repeated += delta
    if (item.text.startsWith(item.repeated)) return
    const late = item.repeated.slice(item.repeated.startsWith(item.text) ? item.text.length : 0)
    item.repeated = ''
    addToEnded(item, late)
  }

  function addToEnded(item: Item, text: string): void {
    if (item.isDone) begin(item, {})
    item.isDone = false
    addOpenText(item, text)
  }

  function addRest(item: Item, whole: string): void {
    if (whole.length > item.text.length && whole.startsWith(item.text)) addToEnded(item, whole.slice(item.text.length))
  }

  function addReasoning(item: Item, delta: string, summary = 0): void {
    if (!delta || item.isDone) return
    item.text += delta
    const at = { item_id: item.id, output_index: item.index }
    // Numbers may have gaps. The package knows the first part from the start of the item.
    if (summary > item.summary) {
      if (item.part >= 0) emit({ type: 'response.reasoning_summary_part.done', ...at, summary_index: item.part })
      item.summary = summary
      item.part++
      emit({ type: 'response.reasoning_summary_part.added', ...at, summary_index: item.part })
    }
    emit({ type: 'response.reasoning_summary_text.delta', ...at, summary_index: item.part, delta })
  }

  function readCall(item: Item, event: Fields): void {
    item.text = argumentsOf(event.arguments, item)
    item.name ||= asText(event.name)
    item.isRead = true
  }

  function finish(item: Item, given: Fields): void {
    if (item.isDone && item.type === 'message') addRest(item, textOf(given.content))
    if (item.isDone) return
    if (item.type === 'message') finishMessage(item, given)
    else if (item.type === 'reasoning') finishReasoning(item, given)
    else {
      item.name = asText(given.name) || item.name
      finishCall(item, argumentsOf(given.arguments, item), asText(given.call_id) || item.callId)
    }
    item.isDone = true
  }

  const emitDone = (index: number, item: Fields) =>
    emit({ type: 'response.output_item.done', output_index: index, item })

  function finishMessage(item: Item, given: Fields): void {
    const refusal = textOf(given.content, 'refusal')
    if (refusal && !item.text) addRefusal(item, refusal)
    else addRest(item, textOf(given.content))
    emitDone(item.index, { type: 'message', id: item.id, ...phaseOf(given) })
  }

  function finishReasoning(item: Item, given: Fields): void {
    const thinking = textOf(given.summary) || textOf(given.content)
    if (!item.text) addReasoning(item, thinking)
    const encrypted_content = asText(given.encrypted_content) || null
    const summary = thinking ? [{ type: 'summary_text', text: thinking }] : []
    emitDone(item.index, { type: 'reasoning', id: item.id, encrypted_content, summary })
  }

  function finishCall({ id, index, name }: Item, args: string, call_id: string): void {
    isBegun = true
    emitDone(index, { type: 'function_call', id, call_id, name, arguments: args || '{}', status: 'completed' })
  }

  function finishAll(response: Fields, isIncomplete: boolean): void {
    const output = asList(response.output).filter(isObject).filter(isItem)
    for (const [given, item] of pairs(output, items)) finish(item ?? add(given.type, given), given)
    const text = asText(response.output_text)
    if (text && !items.some(({ type }) => type === 'message')) addText(find({}, 'message'), text)
    for (const item of items) {
      if (item.isDone) continue
      if (item.type !== 'function_call') finish(item, {})
      else if (item.name && (item.isRead || (!isIncomplete && isObject(parseJson(item.text))))) {
        finishCall(item, item.text, item.callId)
      }
    }
  }

  return {
    find,
    addText,
    addRefusal,
    addRest,
    addArguments,
    readCall,
    addReasoning,
    finish,
    finishAll,
    get size() {
      return items.length
    },
    get isBegun() {
      return isBegun
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
function pairs<Given extends Fields>(output: readonly Given[], items: readonly Item[]): [Given, Item | undefined][] {
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

/** Joins the texts of the parts of an item, which may be one text. */
export const textOf = (parts: unknown, field: 'text' | 'refusal' = 'text'): string =>
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
