import { parseJson } from './json.ts'

/**
 * Reads the data of an event in spite of broken framing: a repeated `data:` prefix, or several JSON values. Proxies
 * cause that when they remove the blank lines or line breaks between events. Returns null if anything else is in it.
 */
export function splitData(data: string): string[] | null {
  // Most data of this kind are words that keep the connection alive.
  if (!/[{[]|^\s*data:/i.test(data)) return null
  const pieces: string[] = []
  for (const line of data.split('\n')) {
    const text = line.replace(PREFIX, '').trim()
    if (!text) continue
    const found = isPiece(text) ? [text] : text.replace(SEAM, '}\n{').split('\n')
    if (!found.every(isPiece)) return splitValues(data)
    for (const piece of found) pieces.push(piece)
  }
  return pieces.length > 1 || (pieces.length === 1 && pieces[0] !== data.trim()) ? pieces : null
}

/** Splits several JSON values of more than one line each. Returns null if anything else is between them. */
function splitValues(data: string): string[] | null {
  const values = data.replace(SEAM, '}\0{').split('\0')
  return values.length > 1 && values.every(isPiece) ? values : null
}

/** Prefixes of a line inside the data. */
const PREFIX = /^\s*(?:data:\s*)+/i
/** Two objects without a separator. Inside a text of JSON it changes nothing that {@link isPiece} accepts. */
const SEAM = /\}\s*\{/g

const isPiece = (text: string): boolean => /^\[done\]$/i.test(text) || parseJson(text) !== undefined
