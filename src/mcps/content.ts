import type { CallToolResult } from '@modelcontextprotocol/client'
import type { Picture, ToolResult } from '../executions/engine/run/tools.ts'
import { scrubber } from './scrub.ts'

/** In characters: what a model is shown of one answer. */
const MAX_CONTENT = 256 * 1024

/** Control characters, and what changes a direction or hides a text. The joiners that scripts and emoji need are none. */
const INVISIBLE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu

/**
 * A server's words as text that can be stored and shown: at most so many characters, without the invisible ones and
 * without what the server was sent and nobody may read.
 */
export type Clean = (text: string, max: number) => string

/** How everything that a server says is cleaned, whose credentials have these values. */
export function cleaner(secrets: readonly string[]): Clean {
  const scrub = scrubber(secrets)
  return (text, max) => {
    // What is shown is cut last, so that no secret is cut in two.
    const looked = text.slice(0, 2 * max)
    return scrub(visible(looked), looked !== text)
      .slice(0, max)
      .toWellFormed()
  }
}

const visible = (text: string) => text.toWellFormed().replaceAll('\r\n', '\n').replace(INVISIBLE, '')

/** A name: nothing in it is invisible, so that two that differ can be told apart. */
export const toName = (text: string): string => text.replace(/[\p{C}\p{Z}]+/gu, ' ').trim()

/** What all pictures of an answer may have, in characters of base64. */
const MAX_PICTURES = 8 * 1024 * 1024

/** An answer as the model reads it. A text that is too long is cut, and says so; pictures stand beside it. */
export function toToolResult(result: CallToolResult, clean: Clean): ToolResult {
  const pictures: Picture[] = []
  let size = 0
  const parts = result.content.map((part) => {
    if (part.type === 'text') return part.text
    if (part.type !== 'image') return ''
    const { mimeType: mediaType, data } = part
    const about = `${mediaType}, ${Math.floor((data.length * 3) / 4)} bytes`
    size += data.length
    if (size > MAX_PICTURES) return `[image, ${about}: not shown, together with others it is too large]`
    return `[image ${pictures.push({ mediaType, data })}: ${about}]`
  })
  const content = parts.join('\n\n')
  const cut = content.length > MAX_CONTENT ? `\n\n[Cut: ${content.length} characters in all]` : ''
  return {
    content: clean(content, MAX_CONTENT) + cut,
    isError: result.isError === true,
    ...(pictures.length && { pictures }),
  }
}
