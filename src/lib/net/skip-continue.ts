import type { Socket } from 'node:net'

const H = 0x48
const ONE = 0x31
/** Index of the first digit of the status in `HTTP/1.1 100`. */
const STATUS = 9
const INTERIM = /^HTTP\/1\.[01] 100[ \r][^\n]*\r\n(?:[^\r\n]+\r\n)*\r\n/
/** Maximum length of an interim response (bytes). A longer one is left to the parser, which rejects it. */
const MAX_LENGTH = 4_096

/**
 * Removes unsolicited `100 Continue` responses before undici's parser, which closes the connection for them (undici 8;
 * RFC 9110, section 15.2, tells clients to ignore them). Only the first bytes after a request are inspected, so that a
 * body with the same text is unchanged.
 */
export function skipContinue<T extends Socket>(socket: T): T {
  const read = socket.read.bind(socket)
  /** Bytes sent when the last response began. A larger count means that another response is expected. */
  let answered = 0
  let held: Buffer | null = null
  socket.read = (size?: number) => {
    const chunk: Buffer | null = read(size)
    if (!chunk || (!held && (chunk[0] !== H || socket.bytesWritten === answered))) return chunk
    const rest = withoutInterim(held ? Buffer.concat([held, chunk]) : chunk)
    held = null
    if (!rest.length) return null
    if (isIncomplete(rest)) {
      held = rest
      return null
    }
    answered = socket.bytesWritten
    return rest
  }
  return socket
}

/** Removes the complete interim responses with which a chunk begins. */
function withoutInterim(chunk: Buffer): Buffer {
  let rest = chunk
  while (mayBeInterim(rest)) {
    const interim = INTERIM.exec(headOf(rest))?.[0]
    if (!interim) return rest
    rest = rest.subarray(interim.length)
  }
  return rest
}

/** Fast path: no interim response has another first digit. */
const mayBeInterim = (chunk: Buffer): boolean => chunk.length <= STATUS || chunk[STATUS] === ONE

const headOf = (chunk: Buffer): string => chunk.toString('latin1', 0, MAX_LENGTH)

const CONTINUE = 'HTTP/1.1 100'

/** Returns whether a chunk may be the incomplete beginning of an interim response. */
function isIncomplete(chunk: Buffer): boolean {
  if (!mayBeInterim(chunk) || chunk.length >= MAX_LENGTH) return false
  const start = headOf(chunk).replace(/^HTTP\/1\.0/, 'HTTP/1.1')
  return start.startsWith(CONTINUE) || CONTINUE.startsWith(start)
}
