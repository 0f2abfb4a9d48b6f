import type { Transform } from 'node:stream'
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
import { ModelError } from './model-errors.ts'

/** Decodes an answer that its server has compressed, though nobody asked for that. */
export type Decoder = { write(bytes: Buffer): void; end(): void }

/** Maximum size of a refusal when it is decoded (bytes). */
const MAX_WHOLE = 1024 * 1024

/** What is there of a stream is wanted at once; one that was cut off tells what it has. */
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

function codingOf(encoding: string): (typeof CODINGS)[keyof typeof CODINGS] | null | undefined {
  const name = encoding.trim().toLowerCase().replace(/^x-/, '')
  if (name === '' || name === 'identity' || name === 'none') return null
  if (name === 'gzip' || name === 'deflate') return CODINGS.gzip
  return name === 'br' || name === 'zstd' ? CODINGS[name] : undefined
}

/**
 * The decoder of a `content-encoding`, null where the bytes are as they are. `take` is given the bytes, and null at their
 * end. Throws a {@link ModelError} for an encoding that nobody knows.
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
      `The model server encodes its answers as ${String(encoding).slice(0, 50)}: unknown`,
      'unreadable',
    )
  let stream: Transform | null = null
  const start = (first: Buffer) => {
    const made = isRawDeflate(String(encoding), first) ? createInflateRaw(ZLIB) : coding[0]()
    made.on('data', take)
    made.on('end', () => take(null))
    made.on('error', () =>
      fail(new ModelError('The model server sent an answer that cannot be decompressed', 'unreadable')),
    )
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

/** Whether the bytes are `deflate` without the zlib format around it, as some servers send it. */
const isRawDeflate = (encoding: string, [first = 0]: Buffer): boolean =>
  /^\s*deflate\s*$/i.test(encoding) && (first & 0x0f) !== 0x08

/** Decodes the body of a refusal; as it is where that is not possible. */
export function decodeWhole(encoding: string, bytes: Buffer): Buffer {
  try {
    if (isRawDeflate(encoding, bytes)) return inflateRawSync(bytes, { ...ZLIB, maxOutputLength: MAX_WHOLE })
    return codingOf(encoding)?.[1](bytes) ?? bytes
  } catch {
    return bytes
  }
}
