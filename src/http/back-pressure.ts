import type { ServerResponse } from 'node:http'

// Writing as fast as the client reads.

/** Bytes that the writer of a response holds back until the client has read the written ones. */
const heldBack = new WeakMap<ServerResponse, number>()

/** Returns how much of its body the writer of a response holds back (bytes). */
export const heldBackOf = (res: ServerResponse): number => heldBack.get(res) ?? 0

/** States how much of its body the writer of a response holds back (bytes), for those that write in pieces. */
export const holdBack = (res: ServerResponse, bytes: number): void => void heldBack.set(res, bytes)

/** Size of one piece of a large response (bytes). */
export const PIECE_BYTES = 256 * 1024

/**
 * Writes a body piece by piece, as fast as the client reads, and ends the response. Resolves at its end, or once the
 * connection has closed.
 */
export async function writeInPieces(res: ServerResponse, body: Buffer): Promise<void> {
  for (let offset = 0; offset < body.length && !res.destroyed; ) {
    const piece = body.subarray(offset, offset + PIECE_BYTES)
    offset += piece.length
    holdBack(res, body.length - offset)
    if (!res.write(piece) && offset < body.length) await drained(res)
  }
  res.end()
}

/** Resolves when the client has read the written bytes, or disconnected. */
export function drained(res: ServerResponse): Promise<void> {
  const source = res.socket ?? res
  return new Promise((resolve) => {
    const done = () => {
      source.off('drain', done)
      res.off('close', done)
      resolve()
    }
    source.on('drain', done)
    res.on('close', done)
  })
}
