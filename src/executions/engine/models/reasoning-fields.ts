import { asList, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'

// The fields in which chat completions have reasoning, and which some servers expect back.

/** Reasoning fields. If a server sends several, they have the same text. */
export const REASONING = ['reasoning_content', 'reasoning', 'thinking', 'reasoning_text'] as const
/** Reasoning fields that must be sent back unchanged (OpenRouter, LiteLLM). */
export const REASONING_DETAILS = ['reasoning_details', 'thinking_blocks'] as const

/** Field with the signature of the reasoning, which is sent back beside its text (GitHub Copilot). */
export const OPAQUE = 'reasoning_opaque'

/** Key of the reasoning that came as parts of the content, and is sent back as such (Mistral, Databricks). */
export const CONTENT_PARTS = 'content_parts'

/** Fields that are sent back beside the text of reasoning. */
export type Details = { [Key in (typeof REASONING_DETAILS)[number] | typeof CONTENT_PARTS]?: readonly Fields[] } & {
  [OPAQUE]?: string
}

/** Returns a text, the text of an object, or the joined texts of a list. */
export function wordsOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (Array.isArray(value)) return value.map(wordsOf).join('')
  return isObject(value) ? asText(value.text) || asText(value.content) : ''
}

/** Merges the texts of the same entry, which arrive in pieces. */
export function mergeDetails(before: readonly Fields[], more: readonly Fields[]): readonly Fields[] {
  const merged = [...before]
  for (const entry of more) {
    const last = merged.at(-1)
    const isSame = last && last.type === entry.type && last.index === entry.index && (!entry.id || last.id === entry.id)
    if (!isSame || asText(entry.data)) merged.push(entry)
    else merged[merged.length - 1] = joined(last, entry)
  }
  return merged
}

function joined(last: Fields, entry: Fields): Fields {
  const known = Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== null && value !== ''))
  const texts = ['text', 'summary', 'thinking', 'reasoning'].filter((key) => entry[key])
  return { ...last, ...known, ...Object.fromEntries(texts.map((key) => [key, joinedText(last[key], entry[key])])) }
}

/** Joins two texts, each of which may be a list of texts. */
const joinedText = (one: unknown, other: unknown): unknown =>
  Array.isArray(other)
    ? mergeDetails(asList(one).map(asObject), other.map(asObject))
    : typeof other === 'string'
      ? asText(one) + other
      : other
