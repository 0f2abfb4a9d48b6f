import type { IncomingMessage, ServerResponse } from 'node:http'
import { finished } from 'node:stream/promises'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { bodyTooLarge, invalidField, invalidJson, unsupportedType } from '../errors.ts'
import { toJson } from '../lib/constant.ts'
import { hasLongText, jsonPieces } from '../lib/pieces.ts'
import { compress, headersOf, MIN_LENGTH } from './compress.ts'
import { malformed } from './malformed.ts'
import { PIECE, writeInPieces } from './unread.ts'

const MIB = 1024 * 1024

/** Written in base64, a file of 1 MiB is larger than anything else may be. */
const FILE_CONTENT = /^\/api\/(v1\/spaces\/[\w-]+\/files\/content|files\/write)\/?(\?|$)/

const maxBytes = ({ url = '' }: IncomingMessage): number => (FILE_CONTENT.test(url) ? 4 * MIB : MIB)

/** Whether a body is said to be JSON as it is read here: in UTF-8, and not compressed. */
export function isJson({ headers }: IncomingMessage): boolean {
  const { 'content-type': type = '', 'content-encoding': encoding = 'identity' } = headers
  const [, charset = 'utf-8'] = /; *charset *= *"?([^\s;"]+)/i.exec(type) ?? []
  return /^application\/json *(;|$)/i.test(type) && /^(utf-?8|us-ascii)$/i.test(charset) && /^identity$/i.test(encoding)
}

/** How long the body is said to be; NaN when it comes in pieces. */
const lengthOf = ({ headers }: IncomingMessage): number =>
  Number(headers['content-length'] ?? (headers['transfer-encoding'] ? Number.NaN : 0))

export const hasBody = (req: IncomingMessage): boolean => lengthOf(req) !== 0

/**
 * The JSON object in a request's body; an empty one when there is no body. Throws 400, 413 and 415 as contract.md
 * section 1 says.
 */
export async function readJson(req: IncomingMessage): Promise<Record<string, unknown>> {
  const length = lengthOf(req)
  if (length === 0) return {}
  // One that comes in pieces may have none: then it needs no type.
  const bytes = await readBytes(req, length)
  if (bytes.length === 0) return {}
  if (!isJson(req)) throw unsupportedType()
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    // Of the message only the position: the rest repeats the body.
    throw invalidJson(/at position (\d+)/.exec((error as Error).message)?.[1])
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalidField('body', 'object')
  return value as Record<string, unknown>
}

/** By events: an iterator leaves its listeners on the request, as long as its answer takes. */
function readBytes(req: IncomingMessage, length: number): Promise<Buffer> {
  const most = maxBytes(req)
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
    // It broke off: nobody's fault here, and no answer arrives.
    const leave = () => end(malformed())
    if (length > most) reject(bodyTooLarge(most, length))
    // Whoever left before tells it no more.
    else if (req.destroyed) reject(malformed())
    else req.on('data', add).on('end', end).on('error', leave)
  })
}

/** Answers with JSON. As a text, it leaves in one piece with its headers. */
export function sendJson(
  res: ServerResponse,
  status: number,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): void {
  // What shows a secret stays as it is: the length of a compressed text would tell of its parts.
  const mayShrink = !('token' in body || 'secret' in body)
  if (!hasLongText(body)) sendText(res, status, toJson(body), headers, mayShrink)
  else void writeJson(body).then((bytes) => sendText(res, status, bytes, headers, mayShrink))
}

/** Writes JSON with long texts in it, a piece at a time, with a turn for everybody else behind each. */
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

/** Answers with JSON that was written, compressed if it is long, the client asks for it, and it `mayShrink`. */
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

/** Answers as the client asks, in zlib's threads. */
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

/** Of a request that was answered before its end: how much more is read, in bytes, and for how long, in milliseconds. */
const MAX_DRAINED = 64 * MIB
const DRAIN_TIMEOUT = 30_000

/**
 * Ends an answer whose length was told. Whoever is still sending is answered at once, and then heard to the end: a
 * connection that is closed before takes the answer with it. On what does not end the server hangs up.
 */
export function finish(res: ServerResponse, body: string | Buffer): void {
  if (res.req.complete && body.length > PIECE) {
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
