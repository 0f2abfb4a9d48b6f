import type { IncomingMessage } from 'node:http'
import { AppError, badRequest, invalidField } from '../errors.ts'

const MAX_BYTES = 1024 * 1024
const MAX_DEPTH = 64

/**
 * The JSON object in a request's body; an empty one when there is no body. Throws 400, 413 and 415 as contract.md
 * section 1 says.
 */
export async function readJson(req: IncomingMessage): Promise<Record<string, unknown>> {
  const length = Number(req.headers['content-length'] ?? (req.headers['transfer-encoding'] ? Number.NaN : 0))
  if (length === 0) return {}
  if (!/^application\/json *(;|$)/i.test(req.headers['content-type'] ?? '')) {
    throw new AppError(415, 'Unsupported content type')
  }
  const bytes = await readBytes(req, length)
  if (bytes.length === 0) return {}
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    throw badRequest('Invalid JSON in request body')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalidField('body', 'object')
  checkValue(value, 1)
  return value as Record<string, unknown>
}

async function readBytes(req: IncomingMessage, length: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  if (!(length > MAX_BYTES)) {
    for await (const chunk of req as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > MAX_BYTES) break
      chunks.push(chunk)
    }
    if (size <= MAX_BYTES) return Buffer.concat(chunks, size)
  }
  throw new AppError(413, 'Request body too large', { headers: { Connection: 'close' } })
}

/** No deeper than allowed, and no NUL, which PostgreSQL cannot keep. */
function checkValue(value: unknown, depth: number): void {
  if (typeof value === 'string' && value.includes('\0')) throw badRequest('Invalid character in request body: U+0000')
  if (typeof value !== 'object' || value === null) return
  if (depth > MAX_DEPTH) throw badRequest(`Request body too deep. At most ${MAX_DEPTH} levels`)
  for (const item of Object.values(value)) checkValue(item, depth + 1)
}
