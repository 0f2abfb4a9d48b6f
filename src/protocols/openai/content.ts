import { badRequest } from '../../errors.ts'
import { asText } from '../../lib/unknown.ts'

/** The content of a message: a text, or parts of which some are texts. */
export type Content = string | readonly Readonly<Record<string, unknown>>[] | null | undefined

const TEXTS: ReadonlySet<unknown> = new Set(['text', 'input_text', 'output_text', 'summary_text', 'refusal'])

/** Returns the text of a message. Throws 400 for parts of other kinds, such as pictures. */
export function textOf(content: Content, field: string): string {
  if (typeof content === 'string') return content
  return (content ?? []).map((part) => partOf(part, field)).join('')
}

function partOf(part: Readonly<Record<string, unknown>>, field: string): string {
  if (TEXTS.has(part.type)) return asText(part.text) || asText(part.refusal)
  const detail = 'Upload files with POST /api/v1/media, and attach them with execute.'
  throw badRequest(`Invalid value for field: ${field}. Expected content of type text`, { detail })
}
