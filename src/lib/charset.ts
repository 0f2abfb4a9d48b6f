/** Decodes a text that arrives in pieces. `end` returns the rest. */
export type TextReader = { read(bytes: Uint8Array): string; end(): string }

/** Returns the charset that a content type states, or null for UTF-8, for none, and for an unknown one. */
export function foreignCharset(contentType: string | null | undefined): string | null {
  const label = /;\s*charset\s*=\s*["']?([\w.:-]+)/i.exec(contentType ?? '')?.[1]
  if (!label) return null
  try {
    const { encoding } = new TextDecoder(label)
    return encoding === 'utf-8' ? null : encoding
  } catch {
    return null
  }
}

/** Returns whether bytes begin with the byte order mark of UTF-16. */
export const isUtf16 = ([one, two]: Uint8Array): boolean =>
  (one === 0xff && two === 0xfe) || (one === 0xfe && two === 0xff)

/**
 * Creates the reader of a body with this content type. Many servers state a charset but send UTF-8, so the stated one
 * applies from the first bytes that are not UTF-8.
 */
export function createTextReader(contentType: string | null | undefined): TextReader {
  const charset = foreignCharset(contentType)
  let reader = charset && !charset.startsWith('utf-16') ? guessing(charset) : null
  let first: Uint8Array = new Uint8Array()
  return {
    read(bytes) {
      if (reader) return reader.read(bytes)
      first = Buffer.concat([first, bytes])
      if (charset && first.length < 2) return ''
      reader = of(charsetOfFirst(first, charset))
      return reader.read(first)
    },
    end: () => reader?.end() ?? '',
  }
}

/** Decodes a complete body. */
export function decodeText(bytes: Uint8Array, contentType: string | null | undefined): string {
  const reader = createTextReader(contentType)
  return reader.read(bytes) + reader.end()
}

/** Returns the charset of a text in UTF-8 or UTF-16 by its first bytes: JSON and events begin with ASCII characters. */
function charsetOfFirst(bytes: Uint8Array, charset: string | null): string {
  const [one, two] = bytes
  if (one === 0xfe && two === 0xff) return 'utf-16be'
  if (one === 0xff && two === 0xfe) return 'utf-16le'
  if (charset === null || (one !== 0 && two !== 0)) return 'utf-8'
  return one === 0 ? 'utf-16be' : 'utf-16le'
}

function of(charset: string): TextReader {
  const decoder = new TextDecoder(charset)
  return { read: (bytes) => decoder.decode(bytes, { stream: true }), end: () => decoder.decode() }
}

/** Reads UTF-8 until bytes are not, then the given charset. */
function guessing(charset: string): TextReader {
  const strict = new TextDecoder('utf-8', { fatal: true })
  let other: TextReader | null = null
  /** The start of a character that was cut. */
  let held: Uint8Array = new Uint8Array()
  return {
    read(bytes) {
      if (other) return other.read(bytes)
      const all = Buffer.concat([held, bytes])
      const end = all.length - cutLength(all)
      try {
        const text = strict.decode(all.subarray(0, end))
        held = all.subarray(end)
        return text
      } catch {
        other = of(charset)
        return other.read(all)
      }
    },
    end() {
      if (other) return other.end()
      return held.length ? new TextDecoder(charset).decode(held) : ''
    },
  }
}

/** Returns the length of an incomplete UTF-8 character at the end (bytes). */
function cutLength(bytes: Uint8Array): number {
  for (let length = 1; length <= Math.min(3, bytes.length); length++) {
    const byte = bytes.at(-length) ?? 0
    if (byte < 0x80) return 0
    if (byte >= 0xc0) return length < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) ? length : 0
  }
  return 0
}
