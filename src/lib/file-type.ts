import { onceDone } from './once.ts'

/** Loaded with the first file, because the package has many modules. */
const loadPackage = onceDone(() => import('file-type'))

/** Types whose content is never plain text, even if it begins like text. */
const BINARY = /^(image|audio|video|font)\//

/**
 * Detects the type of a file by its first bytes. Some signatures have two or three letters (`GIF`, `BM`) and may begin
 * a text, so plain text is never an image, audio or video.
 */
export async function typeOf(head: Uint8Array): Promise<string> {
  const { fileTypeFromBuffer } = await loadPackage()
  const type = (await fileTypeFromBuffer(head))?.mime ?? 'application/octet-stream'
  return BINARY.test(type) && isText(head) && !type.endsWith('+xml') ? 'application/octet-stream' : type
}

/** Byte order marks of encodings that text files have beside UTF-8. */
const MARKS = [
  ['utf-16le', 0xff, 0xfe],
  ['utf-16be', 0xfe, 0xff],
] as const

/** The encoding of text files without a mark that are not UTF-8, such as the CSV of Excel in Western Europe. */
export const WESTERN = 'windows-1252'

/** A text with its encoding. */
export type DecodedText = { text: string; encoding: string }

/** Decodes the beginning of a text file. Returns null for anything else. The last character may be cut off. */
export function decodeFile(bytes: Uint8Array): DecodedText | null {
  const [marked] = MARKS.find(([, first, second]) => bytes[0] === first && bytes[1] === second) ?? []
  return decodeAs(marked ?? 'utf-8', bytes) ?? (!marked && isWestern(bytes) ? decodeAs(WESTERN, bytes) : null)
}

/** Decodes a text, or returns null if it has other bytes or control characters. */
function decodeAs(encoding: string, bytes: Uint8Array): DecodedText | null {
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes, { stream: true })
    return /[^\P{Cc}\t\n\f\r\u0085\u001b]/u.test(text) ? null : { text, encoding }
  } catch {
    return null
  }
}

/**
 * Returns whether a text may be in a Western language: most of its characters beyond ASCII are small letters, quotes and
 * other signs that stand alone. In other languages they follow one another, or take several bytes.
 */
function isWestern(bytes: Uint8Array): boolean {
  const runs =
    Buffer.from(bytes)
      .toString('latin1')
      .match(/[\x80-\xff]+/g) ?? []
  return runs.filter((run) => /^[\x80\x85\x91-\x97\xa0£§©«®°»ß-öø-ÿ]$/.test(run)).length * 2 > runs.length
}

/** Returns whether bytes are UTF-8 without control characters. The last character may be cut off. */
function isText(bytes: Uint8Array): boolean {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true })
    return !/[^\P{Cc}\t\n\f\r]/u.test(text)
  } catch {
    return false
  }
}
