import { PassThrough, pipeline, type Transform } from 'node:stream'
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

type Coding = (typeof CODINGS)[keyof typeof CODINGS]

/** Returns null for a name that is no content encoding, and undefined for an unknown one. */
function codingOf(encoding: string): Coding | null | undefined {
  const name = encoding.trim().toLowerCase().replace(/^x-/, '')
  if (/^(?:identity|none|(?:aws-)?chunked|8bit|binary|utf-?8|us-ascii)?$/.test(name)) return null
  if (name === 'gzip' || name === 'deflate') return CODINGS.gzip
  return name === 'br' || name === 'zstd' ? CODINGS[name] : undefined
}

/** Maximum number of encodings of an answer, each of which may multiply its size. */
const MAX_ENCODINGS = 3

/** Returns the names of the encodings of an answer in the order in which they were applied. Proxies repeat the header. */
const namesIn = (encoding: string): string[] => encoding.split(',').filter((name) => codingOf(name) !== null)

/** Returns whether a `content-encoding` names an encoding, also an unknown one. */
export const isEncoded = (encoding: string | undefined): encoding is string =>
  encoding !== undefined && namesIn(encoding).length > 0

/**
 * Decodes bytes as they are read, and no further, because a few compressed ones may be very many. Throws a
 * {@link ModelError} for bytes that cannot be decoded.
 */
export async function* decodedBytes(encoding: string, source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, void> {
  const names = namesIn(encoding)
  if (names.length > MAX_ENCODINGS) throw unknown(names.join())
  yield* names.reduceRight((bytes, name) => decodedLayer(name, bytes), buffersOf(source))
}

async function* buffersOf(source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, void> {
  for await (const { buffer, byteOffset, length } of source) yield Buffer.from(buffer, byteOffset, length)
}

async function* decodedLayer(name: string, source: AsyncGenerator<Buffer, void>): AsyncGenerator<Buffer, void> {
  const { done, value: first } = await source.next()
  if (done) return
  const stream = openStream(name, first)
  if (!stream) throw unknown(name)
  let broken: unknown
  const all = startingWith(first, source)
  async function* read() {
    try {
      yield* all
    } catch (error) {
      broken = error
      throw error
    }
  }
  try {
    yield* pipeline(read, stream, () => {})
  } catch {
    throw broken ?? damaged()
  }
}

/** Returns bytes that have been read, and those that follow. */
export async function* startingWith(
  first: Uint8Array,
  rest: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void> {
  yield first
  yield* rest
}

/** Opens the stream that decodes bytes of an encoding, chosen by the first ones. Returns null for an unknown encoding. */
function openStream(name: string, first: Buffer): Transform | null {
  if (isPlain(first)) return new PassThrough()
  if (isRawDeflate(name, first)) return createInflateRaw(ZLIB)
  return (codingOf(name) ?? (isGzip(first) ? CODINGS.gzip : null))?.[0]() ?? null
}

const unknown = (name: string) =>
  new ModelError(`The model server uses an unknown content encoding: ${name.trim().slice(0, 50)}`, 'unreadable')

/** Makes the error of an answer that cannot be decoded. */
const damaged = () =>
  new ModelError(
    'The model server sent an answer that cannot be decompressed: check the proxies before it, or turn off its compression',
    'unreadable',
  )

/** Returns whether bytes begin an answer as text: proxies decode answers and leave the header. */
const isPlain = (first: Buffer): boolean =>
  /^(?:\xef\xbb\xbf)?\s*(?:[{[]|data:|event:|id:|:|<[!a-z])/i.test(first.toString('latin1', 0, 16))

/** Returns whether the bytes begin a gzip file, which some servers send without the header. */
export const isGzip = ([one, two, three]: Uint8Array): boolean => one === 0x1f && two === 0x8b && three === 0x08

/** Returns whether the bytes are raw `deflate` without the zlib wrapper, as some servers send it. */
const isRawDeflate = (encoding: string, [first = 0]: Buffer): boolean =>
  /^\s*deflate\s*$/i.test(encoding) && (first & 0x0f) !== 0x08

/** Decodes an error body. Returns it as far as it could be decoded. */
export function decodeWhole(encoding: string, bytes: Buffer): Buffer {
  let whole = bytes
  for (const name of namesIn(encoding).slice(-MAX_ENCODINGS).reverse()) whole = decodeLayer(name, whole)
  return whole
}

function decodeLayer(name: string, bytes: Buffer): Buffer {
  if (isPlain(bytes)) return bytes
  try {
    if (isRawDeflate(name, bytes)) return inflateRawSync(bytes, { ...ZLIB, maxOutputLength: MAX_WHOLE })
    return codingOf(name)?.[1](bytes) ?? bytes
  } catch {
    return bytes
  }
}
