import { z } from 'zod'
import { invalidField } from '../../errors.ts'
import { asObject, asText, type Fields } from '../../lib/unknown.ts'
import { type GivenFile, withNotes } from '../shared/attachments.ts'

/** The content of a message: a text, or parts of which some are texts. */
export const Content = z.union([z.string(), z.array(z.record(z.string(), z.unknown()))]).nullish()
export type Content = z.output<typeof Content>

const TEXTS: ReadonlySet<unknown> = new Set(['text', 'input_text', 'output_text', 'summary_text', 'refusal'])

/** Types of thoughts in answers of other models, which are left out. */
const THOUGHTS: ReadonlySet<unknown> = new Set(['thinking', 'redacted_thinking', 'reasoning', 'reasoning_text'])

/** Returns the text and the files of a message. Throws 400 for parts of other kinds, such as sound. */
export function contentOf(content: Content, field: string): { text: string; files: GivenFile[] } {
  if (typeof content === 'string') return { text: content, files: [] }
  const files: GivenFile[] = []
  let text = ''
  for (const part of content ?? []) {
    if (TEXTS.has(part.type)) text += asText(part.text) || asText(part.refusal)
    else if (!THOUGHTS.has(part.type)) files.push(fileOf(part, field))
  }
  return { text, files }
}

/** Returns the text of a message that is not the user's, with notes for its files. */
export const textOf = (content: Content, field: string): string => withNotes(contentOf(content, field))

/** Reads a picture or a file, in the form of chat completions or of responses. */
function fileOf(part: Fields, field: string): GivenFile {
  const { type } = part
  if (type === 'image_url' || type === 'input_image') {
    const { image_url: image } = part
    return { url: typeof image === 'string' ? image : asText(asObject(image).url) }
  }
  if (type === 'file' || type === 'input_file') {
    const { file_data: url, filename: name } = type === 'file' ? asObject(part.file) : part
    return { url: asText(url), ...(typeof name === 'string' && { name }) }
  }
  throw invalidField(field, 'content of type text, image or file')
}
