import type { ServerResponse } from 'node:http'
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'

// Compression of whole answers (contract-2.md section 1.17), in zlib's threads: the event loop goes on meanwhile.

/** Minimum length of an answer that is worth it (bytes). */
export const MIN_LENGTH = 1024

const toBrotli = promisify(brotliCompress)
const toGzip = promisify(gzip)

/** By their names in headers: levels that cost little. */
const ENCODERS = {
  br: (bytes: Buffer) => toBrotli(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 3 } }),
  gzip: (bytes: Buffer) => toGzip(bytes, { level: 3 }),
}

export type Encoding = keyof typeof ENCODERS

/** Returns the encoding that a client likes most, `br` before `gzip`; null if it takes neither or asks for none. */
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

/** Compresses an answer as its client asks; as it is where it is short or the client does not ask. */
export async function compress(
  res: ServerResponse,
  bytes: Buffer,
): Promise<{ bytes: Buffer; encoding: Encoding | null }> {
  const encoding = bytes.length > MIN_LENGTH ? encodingFor(res.req.headers['accept-encoding']) : null
  return { bytes: encoding ? await ENCODERS[encoding](bytes) : bytes, encoding }
}

/** Returns the headers that tell of it. */
export const headersOf = ({ bytes, encoding }: { bytes: Buffer; encoding: Encoding | null }) => ({
  'Content-Length': bytes.length,
  ...(encoding && { 'Content-Encoding': encoding }),
})

/**
 * Holds what others write to an answer until its end, and then sends it as {@link compress} makes it: the JSON of tRPC,
 * whose handler writes it itself. An answer of another type passes as it comes.
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
