import type { CallToolResult } from '@modelcontextprotocol/client'
import type { Picture, ToolResult } from '../../executions/engine/run/tools.ts'
import { scrubber } from '../../lib/scrub.ts'

/** Maximum length of one answer for a model (characters). */
export const MAX_CONTENT = 256 * 1024

/**
 * Control characters, and characters that change the text direction or hide text. Joiners needed by scripts and emoji
 * are kept.
 */
const INVISIBLE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu

/**
 * Cleans a server's text for storage and display: at most `max` characters, without invisible characters and secrets.
 */
export type Clean = (text: string, max: number) => string

/** Returns the function that cleans all texts of a server with these credentials. */
export function cleaner(secrets: readonly string[]): Clean {
  const scrub = scrubber(secrets)
  return (text, max) => {
    // The text is cut last, so that no secret is split.
    const looked = text.slice(0, 2 * max)
    return scrub(visible(looked), looked !== text)
      .slice(0, max)
      .toWellFormed()
  }
}

/** Colours and movements of a terminal, which tools that wrap a program pass on. */
const TERMINAL = /\x1b\[[\d;?]*[A-Za-z]/g

const visible = (text: string) =>
  text.toWellFormed().replaceAll('\r\n', '\n').replace(TERMINAL, '').replace(INVISIBLE, '')

/** Cleans a name of invisible characters, so that different names look different. */
export const toName = (text: string): string => text.replace(/[\p{C}\p{Z}]+/gu, ' ').trim()

/** Maximum size of all pictures of an answer (characters of base64). */
const MAX_PICTURES = 8 * 1024 * 1024

/** Converts an answer for the model. A long text is cut and marked; pictures are separate. */
export function toToolResult(result: CallToolResult, clean: Clean): ToolResult {
  const pictures: Picture[] = []
  let size = 0
  const { content: given, isError: _, _meta, structuredContent, ...others } = result
  const parts = given.map((part) => {
    if (part.type === 'text') return part.text
    if (part.type !== 'image') return ''
    const { mimeType: mediaType, data } = part
    const about = `${mediaType}, ${Math.floor((data.length * 3) / 4)} bytes`
    size += data.length
    if (size > MAX_PICTURES) return `[image, ${about}: not shown, together with others it is too large]`
    return `[image ${pictures.push({ mediaType, data })}: ${about}]`
  })
  // Some servers answer with fields of their own instead of content.
  const content = parts.length || !Object.keys(others).length ? parts.join('\n\n') : JSON.stringify(others)
  const cut = content.length > MAX_CONTENT ? `\n\n[Cut: ${content.length} characters in all]` : ''
  const text = clean(content, MAX_CONTENT) + cut
  return {
    content: result.isError && !text.trim() ? 'The tool failed, and did not say why.' : text,
    isError: result.isError === true,
    ...(pictures.length && { pictures }),
  }
}
