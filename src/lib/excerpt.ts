import { z } from 'zod'
import { badRequest } from '../errors.ts'
import { endOf } from './text.ts'

/** Maximum length of a section of a text for a model (characters). */
const MAX_SECTION = 50_000

/** Returns the section of a text that begins at an offset (characters), and says where the next one begins. */
export function excerpt(content: string, offset: number): string {
  const length = z.core.util.codePointLength(content)
  if (offset > length) throw badRequest(`Invalid offset. The text has ${length} characters`)
  const start = endOf(content, offset)
  const text = content.slice(start, endOf(content, MAX_SECTION, start))
  const next = offset + MAX_SECTION
  if (next < length) return `${text}\n[Cut off after ${next} of ${length} characters: continue with offset ${next}]`
  return text || '[Nothing: the text ends here]'
}
