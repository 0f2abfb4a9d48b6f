import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Overrides } from '../../executions/engine/queue/requests.ts'
import type { Fields } from '../../lib/unknown.ts'
import { asksPerson, customInputOf, type Part } from '../shared/run-parts.ts'

/** An item of a response, as the Open Responses specification has it; the service's own kinds begin with `muster:`. */
export type Item = { id: string; type: string } & Fields

/** Returns whether an item is of one of the service's own kinds. */
export const isOwn = ({ type }: Pick<Item, 'type'>): boolean => type.startsWith('muster:')

/** An event of a response without its number. */
export type ItemEvent = { type: string } & Fields

type Open = { item: Item; index: number; step: number; isVoid: boolean; isDone: boolean }

/** Reads the parts of one response, in order. */
export type ItemReader = {
  /** Returns the events of a part. */
  read(part: Part): ItemEvent[]
  /** Returns the events that end open items at the end of the response. `isCut`: its last text is incomplete. */
  finish(isCut: boolean): ItemEvent[]
  /** Lists the items so far, without those of restarted steps. */
  output(): Item[]
}

const outputText = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] })
const summaryText = (text: string) => ({ type: 'summary_text', text })

/** Parts that start another item, or their step anew. */
const STARTS: ReadonlySet<Part['type']> = new Set(['text-start', 'reasoning-start', 'tool-call', 'reset'])

/** Type of the items for calls that a person must approve. */
const APPROVAL = 'muster:approval_request'

/** Number of places in the output that a restart leaves out, more than a step has items. */
const LOST = 1000

/**
 * Creates a reader of the items of a run. The ids and the order of the items are the same each time that it is read.
 * `noteOf`: what a person reads if the run begins to wait for one.
 */
export function createItemReader(
  { id: executionId, overrides }: Pick<ExecutionRow, 'id' | 'overrides'>,
  noteOf: (part: Part) => string,
): ItemReader {
  const { clientTools = [] } = overrides as Overrides
  const items: Open[] = []
  const calls = new Map<string, Open>()
  let current: Open | null = null
  /** A message whose text has ended. Whether it was cut off is known when another item or the end comes. */
  let ended: Open | null = null
  let text = ''
  let step = 0
  let resets = 0
  let nextIndex = 0

  const newId = (prefix: string, name: string) => `${prefix}_${executionId}_${name}${resets ? `_${resets}` : ''}`

  function add(item: Item): { open: Open; events: ItemEvent[] } {
    const open = { item, index: nextIndex++, step, isVoid: false, isDone: false }
    items.push(open)
    return { open, events: [{ type: 'response.output_item.added', output_index: open.index, item }] }
  }

  function end(open: Open, fields: Fields = {}): ItemEvent[] {
    open.item = { ...open.item, ...fields }
    open.isDone = true
    return [{ type: 'response.output_item.done', output_index: open.index, item: open.item }]
  }

  const place = ({ item, index }: Open) => ({ item_id: item.id, output_index: index })

  function startText(id: string): ItemEvent[] {
    const item = { id: newId('msg', id), type: 'message', status: 'in_progress', role: 'assistant', content: [] }
    const { open, events } = add(item)
    current = open
    text = ''
    const part = { ...place(open), content_index: 0, part: outputText('') }
    return [...events, { type: 'response.content_part.added', ...part }]
  }

  function endText(status: 'completed' | 'incomplete'): ItemEvent[] {
    const open = ended
    ended = null
    if (!open) return []
    const at = { ...place(open), content_index: 0 }
    return [
      { type: 'response.output_text.done', ...at, text, logprobs: [] },
      { type: 'response.content_part.done', ...at, part: outputText(text) },
      ...end(open, { status, content: [outputText(text)] }),
    ]
  }

  function startReasoning(id: string): ItemEvent[] {
    const { open, events } = add({ id: newId('rs', id), type: 'reasoning', summary: [] })
    current = open
    text = ''
    const part = { ...place(open), summary_index: 0, part: summaryText('') }
    return [...events, { type: 'response.reasoning_summary_part.added', ...part }]
  }

  /** Tells a person in the reasoning what the run waits for, unless it did so. The response itself has no such item. */
  function tell(part: Part): ItemEvent[] {
    if (!asksPerson(part) || items.at(-1)?.item.type === APPROVAL) return []
    const started = startReasoning(`wait_${nextIndex}`)
    const open = items.at(-1)!
    text = noteOf(part)
    const delta = { type: 'response.reasoning_summary_text.delta', ...place(open), summary_index: 0, delta: text }
    open.isVoid = true
    current = null
    return [...started, delta, ...endReasoning(open)]
  }

  function endReasoning(open: Open): ItemEvent[] {
    const at = { ...place(open), summary_index: 0 }
    return [
      { type: 'response.reasoning_summary_text.done', ...at, text },
      { type: 'response.reasoning_summary_part.done', ...at, part: summaryText(text) },
      ...end(open, { summary: [summaryText(text)] }),
    ]
  }

  function call(part: Extract<Part, { type: 'tool-call' }>): ItemEvent[] {
    const { id, name } = part
    const written = part.isCustom ? customInputOf(part) : JSON.stringify(part.input)
    if (!part.isClients) {
      const fields = { call_id: id, name, arguments: written, status: 'in_progress', output: null }
      const { open, events } = add({ id: newId('tc', id.slice(-40)), type: 'muster:tool_call', ...fields })
      calls.set(id, open)
      return events
    }
    const namespace = clientTools.find((tool) => tool.name === name)?.namespace
    const own = namespace === undefined ? { name } : { name: name.slice(namespace.length + 2), namespace }
    const fields = { call_id: id, ...own, status: 'in_progress' }
    const slot = `${step}_${items.length}`
    if (part.isCustom) {
      const { open, events } = add({ id: newId('ctc', slot), type: 'custom_tool_call', ...fields, input: '' })
      return [
        ...events,
        { type: 'response.custom_tool_call_input.delta', ...place(open), delta: written },
        { type: 'response.custom_tool_call_input.done', ...place(open), input: written },
        ...end(open, { input: written, status: 'completed' }),
      ]
    }
    const { open, events } = add({ id: newId('fc', slot), type: 'function_call', ...fields, arguments: '' })
    return [
      ...events,
      { type: 'response.function_call_arguments.delta', ...place(open), delta: written },
      { type: 'response.function_call_arguments.done', ...place(open), name: own.name, arguments: written },
      ...end(open, { arguments: written, status: 'completed' }),
    ]
  }

  /** Ends the items of a restarted step, which are no part of the response. */
  function reset(isShown: boolean): ItemEvent[] {
    const voided = isShown ? items.filter((open) => open.step === step && !open.isVoid) : []
    for (const open of voided) open.isVoid = true
    resets++
    // A client may have seen items that the crash has lost: theirs are never used again.
    nextIndex = (Math.floor(nextIndex / LOST) + 1) * LOST
    current = null
    return voided.flatMap((open) => (open.isDone ? [] : end(open, incomplete(open))))
  }

  const incomplete = ({ item }: Open): Fields => {
    if (item.type === 'message') return { status: 'incomplete', content: [outputText(text)] }
    return item.type === 'reasoning' ? { summary: [summaryText(text)] } : { status: 'incomplete' }
  }

  function convert(part: Part): ItemEvent[] {
    switch (part.type) {
      case 'step-start':
        step = part.step
        return []
      case 'text-start':
        return startText(part.id)
      case 'reasoning-start':
        return startReasoning(part.id)
      case 'text-delta':
      case 'reasoning-delta': {
        if (!current || !part.text) return []
        text += part.text
        if (part.type === 'reasoning-delta') {
          const at = { ...place(current), summary_index: 0, delta: part.text }
          return [{ type: 'response.reasoning_summary_text.delta', ...at }]
        }
        const at = { ...place(current), content_index: 0, delta: part.text, logprobs: [] }
        return [{ type: 'response.output_text.delta', ...at }]
      }
      case 'text-end':
        ended = current
        current = null
        return []
      case 'reasoning-end': {
        const open = current
        current = null
        return open ? endReasoning(open) : []
      }
      case 'tool-call':
        return call(part)
      case 'tool-result': {
        const open = calls.get(part.id)
        return open ? end(open, { output: part.content, status: part.isError ? 'failed' : 'completed' }) : []
      }
      case 'approval': {
        const { approvalId, id: callId, name, input } = part
        const fields = { approval_id: approvalId, call_id: callId, name, arguments: JSON.stringify(input) }
        const { open, events } = add({ id: `apr_${approvalId}`, type: APPROVAL, ...fields })
        return [...events, ...end(open)]
      }
      case 'reset':
        return reset(part.isShown)
      default:
        return []
    }
  }

  return {
    read: (part) => [...(STARTS.has(part.type) ? endText('completed') : []), ...tell(part), ...convert(part)],
    finish: (isCut) => [
      ...endText(isCut ? 'incomplete' : 'completed'),
      ...items.flatMap((open) => (open.isDone ? [] : end(open, incomplete(open)))),
    ],
    output: () => items.flatMap(({ item, isVoid }) => (isVoid ? [] : item)),
  }
}
