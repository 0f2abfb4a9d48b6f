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

/** Returns whether bytes may begin a text in UTF-16: with its byte order mark, or with an ASCII character. */
export const mayBeUtf16 = ([one, two]: Uint8Array): boolean =>
  two === undefined || one === 0 || two === 0 || (one === 0xff && two === 0xfe) || (one === 0xfe && two === 0xff)

/**
 * Creates the reader of a body with this content type. Many servers state a charset but send UTF-8, so the stated one
 * applies from the first bytes that are not UTF-8.
 */
export function createTextReader(contentType: string | null | undefined): TextReader {
  const charset = foreignCharset(contentType)
  let reader: TextReader | null = null
  let first: Uint8Array = new Uint8Array()
  return {
    read(bytes) {
      if (reader) return reader.read(bytes)
      first = Buffer.concat([first, bytes])
      if (first.length < 2) return ''
      reader = readerFor(first, charset)
      return reader.read(first)
    },
    end: () => reader?.end() ?? new TextDecoder().decode(first),
  }
}

/** Decodes a complete body. */
export function decodeText(bytes: Uint8Array, contentType: string | null | undefined): string {
  const reader = createTextReader(contentType)
  return reader.read(bytes) + reader.end()
}

/** Creates the reader of a text by its first bytes: JSON and events begin with ASCII characters. */
function readerFor(bytes: Uint8Array, charset: string | null): TextReader {
  if (mayBeUtf16(bytes)) return of(bytes[0] === 0 || bytes[0] === 0xfe ? 'utf-16be' : 'utf-16le')
  if (charset === null || charset.startsWith('utf-16')) return of('utf-8')
  // Its bytes are ASCII, so they would pass for UTF-8.
  return charset === 'iso-2022-jp' ? of(charset) : guessing(charset)
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
