import type { LanguageModelV4Message, LanguageModelV4Prompt, SharedV4ProviderOptions } from '@ai-sdk/provider'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import { CONTENT_PARTS, OPAQUE, REASONING_DETAILS } from '../models/reasoning-fields.ts'
import { type CallPart, callsIn } from './call-ids.ts'

// The fields of earlier answers that servers of chat completions expect back.

type Answer = Extract<LanguageModelV4Message, { role: 'assistant' }>
type Part = Answer['content'][number]

/**
 * Moves reasoning and call metadata into the body fields they came from. If a server uses `reasoning_content`, every
 * assistant turn gets that field, because DeepSeek and Kimi reject turns without it. Reasoning that came as parts of
 * the content stands between its texts again. `isInline`: reasoning of the current turn that was part of the text
 * becomes part of it again.
 */
export function withFields(prompt: LanguageModelV4Prompt, key: string, isInline: boolean): LanguageModelV4Prompt {
  const question = prompt.findLastIndex(({ role }) => role === 'user')
  const thinks = prompt.some(
    (message) =>
      message.role === 'assistant' &&
      message.content.some(
        (part) => part.type === 'reasoning' && part.providerOptions?.[key]?.field === 'reasoning_content',
      ),
  )
  return prompt.map((message, index) => {
    if (message.role !== 'assistant') return message
    const blank = callsIn(message).length ? ' ' : ''
    const fields = thinks ? { reasoning_content: blank } : {}
    return withFieldsOf(message, key, fields, isInline && index > question)
  })
}

/** Moves the metadata of a message into its body fields, added to `given`. */
function withFieldsOf(message: Answer, key: string, given: Fields, isInline: boolean): Answer {
  const kept = message.content.map((part): Kept => ({ part, mine: asObject(part.providerOptions?.[key]) }))
  const content = kept.flatMap(({ part, mine }): Part[] => {
    if (part.type === 'reasoning') {
      const isText = isInline && mine.field === 'content' && !contentParts(mine).length
      return isText ? [{ type: 'text', text: `<think>${part.text}</think>\n\n` }] : []
    }
    return [part.type === 'tool-call' && (mine.extraContent || mine.specificFields) ? withExtra(part, key, mine) : part]
  })
  const extra = kept.findLast(({ part, mine }) => part.type === 'text' && mine.extraContent)?.mine.extraContent
  const fields = {
    ...given,
    ...reasoningFields(kept, isInline),
    ...(extra !== undefined && { extra_content: extra }),
    ...(kept.some(({ mine }) => contentParts(mine).length) && { content: kept.flatMap(toContent) }),
  }
  if (!Object.keys(fields).length) return { ...message, content }
  return { ...message, content, providerOptions: { openaiCompatible: fields as SharedV4ProviderOptions[string] } }
}

/** A part of an earlier answer with its metadata. */
type Kept = { part: Part; mine: Fields }

/** Returns the fields that hold the reasoning of an answer. A field of structured reasoning contains its text. */
function reasoningFields(kept: readonly Kept[], isInline: boolean): Fields {
  const texts: Record<string, string> = {}
  const others: Record<string, unknown> = {}
  for (const { part, mine } of kept) {
    const field = asText(mine.field)
    const isInText = contentParts(mine).length > 0 || (field === 'content' && isInline)
    if (part.type !== 'reasoning' || isInText) continue
    // Other reasoning that was part of the text is not sent back.
    if (field && field !== 'content' && part.text) texts[field] = (texts[field] ?? '') + part.text
    if (mine[OPAQUE]) others[OPAQUE] = mine[OPAQUE]
    for (const name of REASONING_DETAILS) {
      if (mine[name]) others[name] = [...asRows(others[name]), ...asRows(mine[name])]
    }
  }
  for (const name of REASONING_DETAILS) delete texts[name]
  return { ...others, ...texts }
}

/** Returns a part as parts of a content that has reasoning between its texts. */
function toContent({ part, mine }: Kept): unknown[] {
  if (part.type === 'reasoning') return contentParts(mine)
  return part.type === 'text' ? [{ type: 'text', text: part.text }] : []
}

const asRows = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

const contentParts = (mine: Fields): unknown[] => asRows(mine[CONTENT_PARTS])

/** Gives a call the fields that its server (Gemini, LiteLLM) expects back. */
const withExtra = (part: CallPart, key: string, { extraContent, specificFields, ...rest }: Fields): CallPart => ({
  ...part,
  providerOptions: {
    [key]: rest as SharedV4ProviderOptions[string],
    openaiCompatible: {
      ...(extraContent !== undefined && { extra_content: extraContent }),
      ...(specificFields !== undefined && { provider_specific_fields: specificFields }),
    } as SharedV4ProviderOptions[string],
  },
})
