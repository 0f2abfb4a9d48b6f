/**
 * Reads the data of an event in spite of broken framing: a repeated `data:` prefix, or several JSON values, because a
 * proxy has removed the blank lines or line breaks between events. Returns null if anything else is in it.
 */
export function splitData(data: string): string[] | null {
  // Most data of this kind are words that keep the connection alive.
  if (!/[{[]|^\s*data:/i.test(data)) return null
  const lines = data.split('\n').map((line) => line.replace(PREFIX, '').trim())
  const pieces = lines.filter(Boolean).flatMap((line) => (isJson(line) ? line : line.replace(SEAM, '}\n{').split('\n')))
  const isSplit = pieces.length > 1 || (pieces.length === 1 && pieces[0] !== data.trim())
  return isSplit && pieces.every((piece) => isJson(piece) || /^\[done\]$/i.test(piece)) ? pieces : null
}

/** Prefixes of a line inside the data. */
const PREFIX = /^\s*(?:data:\s*)+/i
/** Two objects without a separator. Inside a text of JSON it changes nothing that {@link isJson} accepts. */
const SEAM = /\}\s*\{/g

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
