import { createHash } from 'node:crypto'
import type { LanguageModelV4Message, LanguageModelV4Prompt, SharedV4ProviderOptions } from '@ai-sdk/provider'
import { BASE62 } from '../../../lib/id.ts'

// The ids and names of earlier calls in a prompt.

type AssistantPart = Extract<LanguageModelV4Message, { role: 'assistant' }>['content'][number]
/** A call of a tool in a message. */
export type CallPart = Extract<AssistantPart, { type: 'tool-call' }>

/** Returns the calls of a message. */
export const callsIn = (message: LanguageModelV4Message): CallPart[] =>
  message.role === 'assistant' ? message.content.flatMap((part) => (part.type === 'tool-call' ? part : [])) : []

/** Returns a called name as providers accept it in a later request. The result states the real name. */
const fitName = (name: string) =>
  /^[a-zA-Z_][\w-]{0,63}$/.test(name) ? name : `_${name.replace(/[^\w-]+/g, '_')}`.slice(0, 64)

const NINE = /^[a-zA-Z0-9]{9}$/

/**
 * Gives each call an id that strict servers accept (Mistral), stable across requests, and a valid name. `isKimi`: the
 * ids are those of Kimi K2, such as `functions.search:0`, numbered over the whole prompt.
 */
export function renameCalls(prompt: LanguageModelV4Prompt, isKimi: boolean): void {
  const taken = new Set<string>()
  let names: ReadonlyMap<string, string> = new Map()
  for (const [index, message] of prompt.entries()) {
    if (message.role === 'assistant') {
      names = newIdsOf(message, taken, isKimi)
      if (names.size) prompt[index] = { ...message, content: message.content.map((part) => renamed(part, names)) }
    } else if (message.role === 'tool') {
      const content = message.content.map((part) =>
        part.type === 'tool-result'
          ? { ...part, toolCallId: names.get(part.toolCallId) ?? part.toolCallId, toolName: fitName(part.toolName) }
          : part,
      )
      prompt[index] = { ...message, content }
    }
  }
}

/** Returns the new ids of the calls of a message, by the ids that they have. */
function newIdsOf(message: LanguageModelV4Message, taken: Set<string>, isKimi: boolean): ReadonlyMap<string, string> {
  const names = new Map<string, string>()
  for (const { toolCallId, toolName, providerOptions } of callsIn(message)) {
    // A call stored by the provider is known there by its own id, which some servers use for several calls.
    const isKept = providerOptions?.openai?.itemId !== undefined && !taken.has(toolCallId)
    const id = isKimi ? `functions.${fitName(toolName)}:${taken.size}` : isKept ? toolCallId : nineOf(toolCallId, taken)
    taken.add(id)
    names.set(toolCallId, id)
  }
  return names
}

function nineOf(id: string, taken: ReadonlySet<string>): string {
  let nine = id
  for (let count = 0; !NINE.test(nine) || taken.has(nine); count++) {
    const digest = createHash('sha256').update(`${id} ${count}`).digest()
    nine = Array.from(digest.subarray(0, 9), (byte) => BASE62[byte % BASE62.length]).join('')
  }
  return nine
}

/** Returns a call with its new id, and reasoning that refers to calls (OpenRouter) with their new ids. */
function renamed(part: AssistantPart, names: ReadonlyMap<string, string>): AssistantPart {
  if (part.type === 'tool-call') {
    return { ...part, toolCallId: names.get(part.toolCallId) ?? part.toolCallId, toolName: fitName(part.toolName) }
  }
  return part.type === 'reasoning' ? referringTo(names, part) : part
}

/** Returns reasoning that refers to calls by other ids. */
export function referringTo<Part extends { providerOptions?: SharedV4ProviderOptions }>(
  names: ReadonlyMap<string, string>,
  part: Part,
): Part {
  if (!part.providerOptions) return part
  const text = JSON.stringify(part.providerOptions, (key, value) =>
    key === 'id' && typeof value === 'string' ? (names.get(value) ?? value) : value,
  )
  return { ...part, providerOptions: JSON.parse(text) }
}
