import { z } from 'zod'
import { asObject, asText, type Fields } from '../../lib/unknown.ts'
import { type GivenFile, withNotes } from '../shared/attachments.ts'

/** The content of a message: a text, or parts of which some are texts. */
export const Content = z.union([z.string(), z.array(z.record(z.string(), z.unknown()))]).nullish()
export type Content = z.output<typeof Content>

const TEXTS: ReadonlySet<unknown> = new Set(['text', 'input_text', 'output_text', 'summary_text', 'refusal'])

/** Types of thoughts in answers of other models, which are left out. */
const THOUGHTS: ReadonlySet<unknown> = new Set(['thinking', 'redacted_thinking', 'reasoning', 'reasoning_text'])

/** Returns the text of a message, and its files with its parts of other kinds, such as sound. */
export function contentOf(content: Content): { text: string; files: GivenFile[] } {
  if (typeof content === 'string') return { text: content, files: [] }
  const files: GivenFile[] = []
  let text = ''
  for (const part of content ?? []) {
    if (TEXTS.has(part.type)) text += asText(part.text) || asText(part.refusal)
    else if (!THOUGHTS.has(part.type)) files.push(fileOf(part))
  }
  return { text, files }
}

/** Returns the text of a message that is not the user's, with notes for its files. */
export const textOf = (content: Content): string => withNotes(contentOf(content))

/** Reads a picture or a file, in the form of chat completions or of responses. */
function fileOf(part: Fields): GivenFile {
  const { type } = part
  if (type === 'image_url' || type === 'input_image') {
    const { image_url: image } = part
    return { url: typeof image === 'string' ? image : asText(asObject(image).url) }
  }
  if (type === 'file' || type === 'input_file') {
    const { file_data: data, filename: name } = type === 'file' ? asObject(part.file) : part
    const given = asText(data)
    // OpenAI takes the bare base64, too.
    const url = given === '' || /^(?:data|https?):/.test(given) ? given : `data:;base64,${given}`
    return { url, ...(typeof name === 'string' && { name }) }
  }
  return { url: '', name: asText(type) || 'part without a type', isUnreadable: true }
}
