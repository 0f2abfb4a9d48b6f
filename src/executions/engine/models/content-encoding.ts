import { PassThrough, type Transform } from 'node:stream'
import {
  brotliDecompressSync,
  constants,
  createBrotliDecompress,
  createInflateRaw,
  createUnzip,
  createZstdDecompress,
  inflateRawSync,
  unzipSync,
  zstdDecompressSync,
} from 'node:zlib'
import { causesOf } from '../../../lib/causes.ts'
import { ModelError } from './model-errors.ts'

/** Decodes a compressed answer, which some servers send unasked. */
export type Decoder = { write(bytes: Buffer): void; end(): void }

/** Maximum decoded size of an error body (bytes). */
const MAX_WHOLE = 1024 * 1024

/** Flush partial output at once, and return the decoded start of a truncated stream. */
const ZLIB = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH }
const BROTLI = { flush: constants.BROTLI_OPERATION_FLUSH, finishFlush: constants.BROTLI_OPERATION_FLUSH }
const ZSTD = { flush: constants.ZSTD_e_flush, finishFlush: constants.ZSTD_e_flush }

const CODINGS = {
  gzip: [() => createUnzip(ZLIB), (bytes: Buffer) => unzipSync(bytes, { ...ZLIB, maxOutputLength: MAX_WHOLE })],
  br: [
    () => createBrotliDecompress(BROTLI),
    (bytes: Buffer) => brotliDecompressSync(bytes, { ...BROTLI, maxOutputLength: MAX_WHOLE }),
  ],
  zstd: [
    () => createZstdDecompress(ZSTD),
    (bytes: Buffer) => zstdDecompressSync(bytes, { ...ZSTD, maxOutputLength: MAX_WHOLE }),
  ],
} as const

/** Returns null for plain bytes, also under a name that is no content encoding, and undefined for unknown ones. */
function codingOf(encoding: string): (typeof CODINGS)[keyof typeof CODINGS] | null | undefined {
  const name = encoding.trim().toLowerCase().replace(/^x-/, '')
  if (/^(?:identity|none|(?:aws-)?chunked|8bit|binary|utf-?8|us-ascii)?$/.test(name)) return null
  if (name === 'gzip' || name === 'deflate') return CODINGS.gzip
  return name === 'br' || name === 'zstd' ? CODINGS[name] : undefined
}

/**
 * Creates the decoder of a `content-encoding`, or returns null for plain bytes. `take` receives the bytes, and null at
 * their end. Throws a {@link ModelError} for an unknown encoding.
 */
export function createDecoder(
  encoding: string | string[] | undefined,
  take: (bytes: Buffer | null) => void,
  fail: (error: Error) => void,
): Decoder | null {
  if (encoding === undefined) return null
  const coding = codingOf(String(encoding))
  if (coding === null) return null
  if (!coding)
    throw new ModelError(
      `The model server uses an unknown content encoding: ${String(encoding).slice(0, 50)}`,
      'unreadable',
    )
  let stream: Transform | null = null
  const start = (first: Buffer) => {
    const made = isPlain(first)
      ? new PassThrough()
      : isRawDeflate(String(encoding), first)
        ? createInflateRaw(ZLIB)
        : coding[0]()
    made.on('data', take)
    made.on('end', () => take(null))
    made.on('error', () => fail(damaged()))
    return made
  }
  return {
    write(bytes) {
      stream ??= start(bytes)
      stream.write(bytes)
    },
    end() {
      if (stream) stream.end()
      else take(null)
    },
  }
}

/** Makes the error of an answer that cannot be decoded. */
const damaged = () =>
  new ModelError(
    'The model server sent an answer that cannot be decompressed: check the proxies before it, or turn off its compression',
    'unreadable',
  )

/** Codes of zlib for bytes that it cannot decode. The end of an incomplete stream (`Z_BUF_ERROR`) has another cause. */
const UNDECODABLE = /^(?:Z_(?!BUF_)|ZSTD_|ERR__ERROR_)/

/** Returns the error of an answer that could not be decoded, from the error of a stream; null for any other one. */
export function damagedBy(error: unknown): ModelError | null {
  for (const cause of causesOf(error)) if ('code' in cause && UNDECODABLE.test(String(cause.code))) return damaged()
  return null
}

/** Returns whether bytes begin an answer as text: proxies decode answers and leave the header. */
const isPlain = (first: Buffer): boolean => /^(?:\s*[{[]|data:|event:|id:|:)/.test(first.toString('latin1', 0, 16))

/** Returns whether the bytes begin a gzip file, which some servers send without the header. */
export const isGzip = ([one, two, three]: Uint8Array): boolean => one === 0x1f && two === 0x8b && three === 0x08

/** Returns whether the bytes are raw `deflate` without the zlib wrapper, as some servers send it. */
const isRawDeflate = (encoding: string, [first = 0]: Buffer): boolean =>
  /^\s*deflate\s*$/i.test(encoding) && (first & 0x0f) !== 0x08

/** Decodes an error body. Returns it unchanged if that fails. */
export function decodeWhole(encoding: string, bytes: Buffer): Buffer {
  try {
    if (isRawDeflate(encoding, bytes)) return inflateRawSync(bytes, { ...ZLIB, maxOutputLength: MAX_WHOLE })
    return (isPlain(bytes) ? null : codingOf(encoding))?.[1](bytes) ?? bytes
  } catch {
    return bytes
  }
}
