import type { ServerResponse } from 'node:http'
import { promisify } from 'node:util'
import { brotliCompress, brotliCompressSync, constants, gzip, gzipSync } from 'node:zlib'

// Compression of whole answers (contract-2.md section 1.17).

/** Minimum length of a compressed answer (bytes). */
export const MIN_LENGTH = 1024

/**
 * Maximum length of an answer that is compressed at once (bytes). 36 KB take 0.1 ms; a thread would take twice as long
 * and cost three times as much. Longer answers are compressed in zlib's threads, without blocking the event loop.
 */
const MAX_AT_ONCE = 128 * 1024

const toBrotli = promisify(brotliCompress)
const toGzip = promisify(gzip)

// Cheap levels: higher ones save a few per cent of the length.
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }
const GZIP = { level: 3 }

const isShort = ({ length }: Buffer) => length <= MAX_AT_ONCE

/** Encodings by header name. */
const ENCODERS = {
  br: (bytes: Buffer) => (isShort(bytes) ? brotliCompressSync(bytes, BROTLI) : toBrotli(bytes, BROTLI)),
  gzip: (bytes: Buffer) => (isShort(bytes) ? gzipSync(bytes, GZIP) : toGzip(bytes, GZIP)),
}

export type Encoding = keyof typeof ENCODERS

/** Returns the client's preferred encoding, `br` before `gzip`; null if it accepts neither. */
export function encodingFor(accepted: string | undefined): Encoding | null {
  if (accepted === undefined) return null
  const weights = new Map<string, number>()
  for (const part of accepted.toLowerCase().split(',')) {
    const [name = '', ...parameters] = part.split(';').map((text) => text.trim())
    const q = parameters.find((parameter) => parameter.startsWith('q='))
    weights.set(name, q === undefined ? 1 : Number(q.slice(2)) || 0)
  }
  const weightOf = (name: string) => weights.get(name) ?? weights.get('*') ?? 0
  const [br, gzip] = [weightOf('br'), weightOf('gzip')]
  const best = Math.max(br, gzip)
  if (best === 0 || best < (weights.get('identity') ?? 0)) return null
  return br === best ? 'br' : 'gzip'
}

/**
 * Compresses an answer as its client requests. Returns short answers, and those without a request for it, unchanged.
 */
export async function compress(
  res: ServerResponse,
  bytes: Buffer,
): Promise<{ bytes: Buffer; encoding: Encoding | null }> {
  const encoding = bytes.length > MIN_LENGTH ? encodingFor(res.req.headers['accept-encoding']) : null
  return { bytes: encoding ? await ENCODERS[encoding](bytes) : bytes, encoding }
}

/** Returns the headers of an encoding. */
export const headersOf = ({ bytes, encoding }: { bytes: Buffer; encoding: Encoding | null }) => ({
  'Content-Length': bytes.length,
  ...(encoding && { 'Content-Encoding': encoding }),
})

/**
 * Buffers the JSON that tRPC's handler writes, and sends it at the end as {@link compress} returns it. Answers of other
 * types pass through.
 */
export function compressWritten(res: ServerResponse): void {
  const { write, end } = res
  const chunks: Buffer[] = []
  const release = () => Object.assign(res, { write, end })
  const isWhole = () => String(res.getHeader('content-type')).startsWith('application/json') && !res.headersSent
  const hold = (chunk: unknown) => void chunks.push(Buffer.from(chunk as string))
  Object.assign(res, {
    write(...given: Parameters<ServerResponse['write']>) {
      if (!isWhole()) return Reflect.apply(release().write, res, given)
      hold(given[0])
      return true
    },
    end(...given: Parameters<ServerResponse['end']>) {
      if (!isWhole()) return Reflect.apply(release().end, res, given)
      if (given[0]) hold(given[0])
      release()
      void compress(res, Buffer.concat(chunks)).then((compressed) => {
        for (const [name, value] of Object.entries(headersOf(compressed))) res.setHeader(name, value)
        if (compressed.encoding) res.appendHeader('Vary', 'Accept-Encoding')
        res.end(compressed.bytes)
      })
      return res
    },
  })
}
