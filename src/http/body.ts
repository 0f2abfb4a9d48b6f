import type { IncomingMessage, ServerResponse } from 'node:http'
import { finished } from 'node:stream/promises'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { bodyTooLarge, invalidField, invalidJson, unsupportedType } from '../errors.ts'
import { typeOf } from '../lib/input-issues.ts'
import { toJson } from '../lib/preserialize.ts'
import { PIECE_BYTES, writeInPieces } from './back-pressure.ts'
import { compress, headersOf, MIN_LENGTH } from './compress.ts'
import { malformed } from './malformed.ts'
import { hasLongText, jsonPieces } from './pieces.ts'

const MIB = 1024 * 1024

/** Encoded in base64, a file of 1 MiB exceeds the general limit. Any request of GraphQL may have one. */
const FILE_CONTENT = /^\/(api\/v1\/spaces\/[\w-]+\/files\/content|api\/files\/write|trpc\/files\.write|graphql)(\?|$)/

/** Clients of other protocols send all messages of a conversation with each. */
const CONVERSATION = /^\/openai\/v1\/|^\/api\/v1\/agents\/[^/?]+\/(chat|ag-ui)(\?|$)/

/** Returns the maximum size of the body of a request (bytes). */
export const maxBytes = ({ url = '' }: IncomingMessage): number =>
  FILE_CONTENT.test(url) ? 4 * MIB : CONVERSATION.test(url) ? 8 * MIB : MIB

/** Returns whether a body is declared as supported JSON: UTF-8, not compressed. */
export function isJson({ headers }: IncomingMessage): boolean {
  const { 'content-type': type = '', 'content-encoding': encoding = 'identity' } = headers
  const [, charset = 'utf-8'] = /; *charset *= *"?([^\s;"]+)/i.exec(type) ?? []
  return /^application\/json *(;|$)/i.test(type) && /^(utf-?8|us-ascii)$/i.test(charset) && /^identity$/i.test(encoding)
}

/** Returns the declared length of the body, or NaN for a chunked one. */
const lengthOf = ({ headers }: IncomingMessage): number =>
  Number(headers['content-length'] ?? (headers['transfer-encoding'] ? Number.NaN : 0))

/** Returns whether a request has a body. */
export const hasBody = (req: IncomingMessage): boolean => lengthOf(req) !== 0

/**
 * Reads the JSON object in a request's body, or returns an empty one without a body. Throws 400, 413 and 415 according
 * to contract.md section 1.
 */
export async function readJson(req: IncomingMessage): Promise<Record<string, unknown>> {
  const length = lengthOf(req)
  if (length === 0) return {}
  // A chunked body may be empty and then needs no type.
  const bytes = await readBytes(req, length, maxBytes(req))
  if (bytes.length === 0) return {}
  if (!isJson(req)) throw unsupportedType()
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    // Only the position of the message is used, because the rest repeats the body.
    throw invalidJson(/at position (\d+)/.exec((error as Error).message)?.[1])
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalidField('body', 'object', `Send one JSON object, not ${typeOf(value)}.`)
  }
  return value as Record<string, unknown>
}

/** Reads a body of any type. Throws 413 beyond `most` bytes. */
export const readBody = (req: IncomingMessage, most: number): Promise<Buffer> =>
  hasBody(req) ? readBytes(req, lengthOf(req), most) : Promise.resolve(Buffer.alloc(0))

/** Uses events, because an iterator would leave its listeners on the request for the duration of the response. */
function readBytes(req: IncomingMessage, length: number, most: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let size = 0
    const add = (chunk: Buffer) => {
      size += chunk.length
      chunks.push(chunk)
      if (size > most) end(bodyTooLarge(most))
    }
    const end = (error?: Error) => {
      req.off('data', add).off('end', end).off('error', leave)
      if (error) reject(error)
      else resolve(Buffer.concat(chunks, size))
    }
    // The client aborted, so no response will arrive.
    const leave = () => end(malformed())
    if (length > most) reject(bodyTooLarge(most, length))
    // A request that was aborted earlier emits no event.
    else if (req.destroyed) reject(malformed())
    else req.on('data', add).on('end', end).on('error', leave)
  })
}

/** Sends JSON. As a text it leaves in one packet with its headers. */
export function sendJson(
  res: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): void {
  // Responses with secrets are not compressed, because the length would leak information.
  const mayShrink = !('token' in body || 'secret' in body)
  if (!hasLongText(body)) sendText(res, status, toJson(body), headers, mayShrink)
  else void writeJson(body).then((bytes) => sendText(res, status, bytes, headers, mayShrink))
}

/** Writes JSON with long texts in pieces, and yields to the event loop after each. */
export async function writeJson(body: object, onPiece: (bytes: Buffer) => void = () => {}): Promise<Buffer> {
  const pieces: Buffer[] = []
  for (const piece of jsonPieces(body)) {
    const bytes = Buffer.from(piece)
    onPiece(bytes)
    pieces.push(bytes)
    await nextTurn()
  }
  return Buffer.concat(pieces)
}

/** Sends serialized JSON. Compresses it if it is long, the client accepts that, and it `mayShrink`. */
export function sendText(
  res: ServerResponse,
  status: number,
  json: string | Buffer,
  headers: Readonly<Record<string, string>> = {},
  mayShrink = true,
): void {
  if (res.destroyed) return
  const length = Buffer.byteLength(json)
  const accepted = res.req.headers['accept-encoding']
  if (mayShrink && accepted !== undefined && length > MIN_LENGTH) {
    return void sendCompressed(res, status, Buffer.from(json), headers)
  }
  res.writeHead(status, { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': length, ...headers })
  finish(res, json)
}

/** Sends an answer compressed, if the client accepts that. */
async function sendCompressed(
  res: ServerResponse,
  status: number,
  bytes: Buffer,
  headers: Readonly<Record<string, string>>,
): Promise<void> {
  const compressed = await compress(res, bytes)
  if (res.destroyed) return
  res.appendHeader('Vary', 'Accept-Encoding')
  res.writeHead(status, {
    'Content-Type': 'application/json; charset=utf-8',
    ...headersOf(compressed),
    ...headers,
  })
  finish(res, compressed.bytes)
}

/** Maximum amount (bytes) and duration (ms) of reading the rest of a request that was answered early. */
const MAX_DRAINED = 64 * MIB
const DRAIN_TIMEOUT = 30_000

/**
 * Ends a response with a known length. If the client is still sending, the rest of its request is read afterwards,
 * because closing the connection early would discard the response. A request without end is disconnected.
 */
export function finish(res: ServerResponse, body: string | Buffer): void {
  if (res.req.complete && body.length > PIECE_BYTES) {
    void writeInPieces(res, typeof body === 'string' ? Buffer.from(body) : body)
  } else if (res.req.complete) res.end(body)
  else {
    res.write(body)
    drain(res.req).then(() => res.end())
  }
}

async function drain(req: IncomingMessage): Promise<void> {
  let left = MAX_DRAINED
  req.on('data', (chunk: Buffer) => {
    left -= chunk.length
    if (left < 0) req.destroy()
  })
  await finished(req.resume(), { signal: AbortSignal.timeout(DRAIN_TIMEOUT) }).catch(() => req.destroy())
}

/** Sends a browser to another address. */
export function redirect(res: ServerResponse, { href }: URL): void {
  res.writeHead(302, { Location: href, 'Content-Length': 0 }).end()
}
