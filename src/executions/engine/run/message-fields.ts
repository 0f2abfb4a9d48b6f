import type { LanguageModelV4Message, LanguageModelV4Prompt, SharedV4ProviderOptions } from '@ai-sdk/provider'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import { CONTENT_PARTS, OPAQUE, REASONING_DETAILS } from '../models/reasoning-fields.ts'
import { type CallPart, callsIn } from './call-ids.ts'

// The fields of earlier answers that servers of chat completions expect back.

type Answer = Extract<LanguageModelV4Message, { role: 'assistant' }>
type Part = Answer['content'][number]

/**
 * Moves reasoning and call metadata into the body fields they came from. If a server uses `reasoning_content`, every
 * assistant turn gets that field, because DeepSeek and Kimi reject turns without it. Reasoning that came as parts of the
 * content stands between its texts again. `isInline`: reasoning of the current turn that was part of the text becomes
 * part of it again.
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

/** Moves the metadata of a message into its body fields, added to `fields`. */
function withFieldsOf(message: Answer, key: string, fields: Record<string, unknown>, isInline: boolean): Answer {
  const texts = new Map<string, string>()
  const contents: unknown[] = []
  let hasContents = false
  const content = message.content.flatMap((part): Part[] => {
    const mine = asObject(part.providerOptions?.[key])
    if (part.type === 'reasoning') {
      const own = asRows(mine[CONTENT_PARTS])
      contents.push(...own)
      hasContents ||= own.length > 0
      if (own.length) return []
      const field = asText(mine.field)
      if (field === 'content' && isInline) return [{ type: 'text', text: `<think>${part.text}</think>\n\n` }]
      // Other reasoning that was part of the text is not sent back.
      if (field && field !== 'content' && part.text) texts.set(field, (texts.get(field) ?? '') + part.text)
      if (mine[OPAQUE]) fields[OPAQUE] = mine[OPAQUE]
      for (const name of REASONING_DETAILS)
        if (mine[name]) fields[name] = [...asRows(fields[name]), ...asRows(mine[name])]
      return []
    }
    if (part.type === 'text') contents.push({ type: 'text', text: part.text })
    if (part.type === 'text' && mine.extraContent) fields.extra_content = mine.extraContent
    return [part.type === 'tool-call' && mine.extraContent ? withExtra(part, key, mine) : part]
  })
  // A field of structured reasoning contains its text.
  for (const [field, text] of texts) if (!REASONING_DETAILS.includes(field as never)) fields[field] = text
  if (hasContents) fields.content = contents
  if (!Object.keys(fields).length) return { ...message, content }
  return { ...message, content, providerOptions: { openaiCompatible: fields as SharedV4ProviderOptions[string] } }
}

const asRows = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

const withExtra = (part: CallPart, key: string, { extraContent, ...rest }: Fields): CallPart => ({
  ...part,
  providerOptions: {
    [key]: rest as SharedV4ProviderOptions[string],
    openaiCompatible: { extra_content: extraContent } as SharedV4ProviderOptions[string],
  },
})
