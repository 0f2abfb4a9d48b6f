import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { BusboyInstance } from '@fastify/busboy'
import { type Actor, requireScope } from '../auth/actor.ts'
import { newKey, toKey, write } from '../client/files.ts'
import { FileUploaded, UploadFile } from '../client/schema.ts'
import { AppError, badRequest, bodyTooLarge, invalidField, rangeNotSatisfiable, unsupportedType } from '../errors.ts'
import { MAX_FILE_BYTES } from '../files/schema.ts'
import { fileTooLarge } from '../files/service.ts'
import { type IdempotencyKey, idempotent, idempotentLease, namesNothing } from '../idempotency.ts'
import { onceDone } from '../lib/once.ts'
import { percentDecoded } from '../lib/text.ts'
import { MediaCreated, PICTURES } from '../media/schema.ts'
import * as service from '../media/service.ts'
import type { Range } from '../media/storage.ts'
import { find as findSpace } from '../spaces/service.ts'
import { actorAt, asRequested, type Context } from '../trpc.ts'
import { names } from './conditional.ts'

/** A file plus the overhead of a form (bytes). */
const MAX_FORM = service.MAX_BYTES + 1024 * 1024

/** POST /api/v1/media: multipart/form-data with one `file`, streamed into the storage while it arrives. */
export async function upload(context: Context, req: IncomingMessage, idempotency: IdempotencyKey | null) {
  const { deps } = context
  const sender = await context.authenticate()
  requireScope(sender, 'media:write')
  const received = await receiveFile(context, sender, req)
  try {
    // The file may have arrived long after the first check.
    const actor = asRequested(context, await context.authenticate())
    const { name, size, sha256 } = received
    const created = await idempotentLease(
      { deps, actor, idempotency },
      { name, size, sha256 },
      namesNothing,
      ({ keep }) => service.create(actor, deps, received, keep),
    )
    return MediaCreated.parse(created)
  } finally {
    await received.draft.discard()
  }
}

/**
 * POST /api/files/upload (contract-2.md section 1.15): multipart/form-data with one `file` of at most 1 MiB, which is
 * written into the given folder of the space.
 */
export async function uploadToSpace(
  context: Context,
  req: IncomingMessage,
  query: Readonly<Record<string, unknown>>,
  idempotency: IdempotencyKey | null,
) {
  const { deps } = context
  const authorize = () => actorAt(context, 'spaceId', ['spaces:write'], query)
  await authorize()
  const { spaceId, path: folder = '', organizationId } = UploadFile.parse(query)
  const { name, content } = await receiveForm(req, async (stream, name) => ({ name, content: await readFile(stream) }))
  // The file may have arrived long after the first check.
  const actor = asRequested(context, await authorize())
  const path = newKey([toKey(folder), name.replace(/^.*[/\\]/s, '')].join('/'))
  const input = { spaceId, path, content: content.toString('base64'), encoding: 'base64' as const, organizationId }
  const written = await idempotent(
    { deps, actor, idempotency },
    input,
    () => findSpace(actor, deps, spaceId),
    (deps) => write(actor, deps, input),
  )
  const fileName = written.path.replace(/^.*\//s, '')
  return FileUploaded.parse({ results: [{ success: true, fileName, filePath: written.path, size: written.size }] })
}

/** Reads a file for a space. Throws 400 if it is too large. */
async function readFile(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > MAX_FILE_BYTES) throw fileTooLarge(size)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks, size)
}

/** Receives the part named `file` and ignores other parts of the form. */
const receiveFile = ({ deps }: Context, actor: Actor, req: IncomingMessage): Promise<service.Upload> =>
  receiveForm(
    req,
    (stream, name) => service.receive(actor, deps, stream, name),
    ({ draft }) => draft.discard(),
  )

/** Receives the file of a form while it arrives. `discard` cleans up if the form turns out to be invalid. */
async function receiveForm<Received>(
  req: IncomingMessage,
  take: (stream: Readable, name: string) => Promise<Received>,
  discard: (received: Received) => unknown = () => undefined,
): Promise<Received> {
  const contentType = req.headers['content-type'] ?? ''
  if (!/^multipart\/form-data *(;|$)/i.test(contentType)) throw unsupportedType('multipart/form-data')
  if (!/; *boundary=("[^"]+"|[^\s;"]+)/i.test(contentType)) throw malformed()
  const length = Number(req.headers['content-length'])
  if (length > MAX_FORM) throw bodyTooLarge(service.MAX_BYTES, length)
  const form = await openForm(contentType)
  const files: Readable[] = []
  let received: Promise<Received> | undefined
  form.on('file', (field, stream, name) => {
    files.push(stream)
    // A form that breaks off emits an error here too, even without a listener.
    stream.on('error', () => {})
    if (field !== 'file') return void stream.resume()
    if (received) return void form.destroy(invalidField('file', 'one file', 'Send one file for each request.'))
    received = take(stream, decodeName(name ?? ''))
    // An invalid file ends the reading of the form.
    received.catch((error) => form.destroy(error))
  })
  try {
    await pipeline(readForm(req), form)
  } catch (error) {
    for (const file of files) file.destroy(error as Error)
    const failure = await received?.then(discard, (refused: unknown) => refused)
    throw reasonOf([error, failure])
  }
  if (!received) throw badRequest('Missing required field: file')
  return received
}

/** A name in percent-encoding alone (RFC 7578), as Python's aiohttp writes each: without other marks than these. */
const ENCODED = /^(?:[\w.~-]|%[0-9a-f]{2})+$/i

const decodeName = (name: string): string => (ENCODED.test(name) ? percentDecoded(name) : decodeWords(name))

/**
 * Decodes the encoded words of a file name (RFC 2047). Java's and .NET's clients send them as `filename`, before a
 * `filename*` that the parser does not read.
 */
const decodeWords = (name: string): string =>
  name
    .replace(/(\?=)\s+(?==\?)/g, '$1')
    .replace(/=\?([\w-]+)\?([bq])\?([^?\s]*)\?=/gi, (word, charset: string, form: string, text: string) => {
      const quoted = text
        .replaceAll('_', ' ')
        .replace(/=([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)))
      const bytes = Buffer.from(/b/i.test(form) ? text : quoted, /b/i.test(form) ? 'base64' : 'latin1')
      try {
        return new TextDecoder(charset).decode(bytes)
      } catch {
        return word
      }
    })

/** Loaded with the first form, because the package has many modules. */
const loadBusboy = onceDone(() => import('@fastify/busboy'))

async function openForm(contentType: string): Promise<BusboyInstance> {
  const { Busboy } = await loadBusboy()
  try {
    const limits = { parts: 20, headerPairs: 50, fieldSize: 1024 }
    return new Busboy({ headers: { 'content-type': contentType }, limits })
  } catch {
    throw malformed()
  }
}

/**
 * Yields the bytes of a form, with a limit for parts besides the file. A rejected form does not close the connection.
 */
async function* readForm(req: IncomingMessage): AsyncGenerator<Buffer> {
  let size = 0
  for await (const chunk of req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > MAX_FORM) throw bodyTooLarge(service.MAX_BYTES)
    yield chunk
  }
}

/**
 * Returns the reason why a form was rejected: first the service's errors, then the disk's; otherwise the form was
 * malformed or broke off.
 */
function reasonOf(errors: unknown[]): unknown {
  const isSystems = (error: unknown) => error instanceof Error && 'syscall' in error
  return errors.find((error) => error instanceof AppError) ?? errors.find(isSystems) ?? malformed()
}

const malformed = () =>
  badRequest('Malformed multipart body', {
    detail: 'Send multipart/form-data with one part named `file`. Most HTTP libraries build it from a form.',
  })

/**
 * GET /api/v1/media/{id}/content. Browsers display only pictures and download everything else, without content sniffing
 * (contract.md section 7).
 */
export async function download(context: Context, req: IncomingMessage, res: ServerResponse, id: string): Promise<void> {
  const actor = await context.authenticate()
  requireScope(actor, 'media:read')
  const { name, mimeType, size, read } = await service.content(actor, context.deps, id)
  // Files never change, so the id identifies the content.
  const etag = `"${id}"`
  const disposition = PICTURES.has(mimeType) ? 'inline' : 'attachment'
  const known = req.headers['if-none-match']
  if (known !== undefined && names(known, etag)) return void res.writeHead(304, { ETag: etag }).end()
  const range = rangeOf(req, size, etag)
  if (range === 'none') throw rangeNotSatisfiable(size)
  const stream = await read(range ?? undefined)
  const length = range ? range.end - range.start + 1 : size
  res.writeHead(range ? 206 : 200, {
    'Content-Type': mimeType,
    'Content-Length': length,
    ...(range && { 'Content-Range': `bytes ${range.start}-${range.end}/${size}` }),
    'Accept-Ranges': 'bytes',
    ETag: etag,
    'Content-Disposition': `${disposition}; filename="${inAscii(name)}"; filename*=UTF-8''${encodeName(name)}`,
    'Content-Security-Policy': "default-src 'none'; sandbox",
    'Cache-Control': 'private, max-age=0',
  })
  if (req.method === 'HEAD') {
    stream.destroy()
    res.end()
    return
  }
  await pipeline(stream, (parts: AsyncIterable<Buffer>) => exactly(length, parts), res).catch((error) => {
    // A client that disconnects causes no error.
    if (!context.gone().aborted) throw error
  })
}

/**
 * Yields the bytes of a stored file. Throws, which ends the connection, if the file on the disk has another length: a
 * client would wait for missing bytes, or read surplus ones as the next answer.
 */
async function* exactly(length: number, parts: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let size = 0
  for await (const part of parts) {
    size += part.length
    if (size > length) break
    yield part
  }
  if (size !== length) throw new Error('A stored file has another size than its upload')
}

/**
 * Returns the requested range of a file (RFC 9110 section 14); null for the whole file: several ranges, another unit,
 * or an If-Range that does not match. Returns `none` for an unsatisfiable range.
 */
export function rangeOf(
  { headers }: Pick<IncomingMessage, 'headers'>,
  size: number,
  etag: string,
): Range | null | 'none' {
  const { range = '', 'if-range': expected } = headers
  if (expected !== undefined && expected !== etag) return null
  const [, from = '', to = ''] = /^bytes=\s*(\d*)-(\d*)\s*$/i.exec(range) ?? []
  if (!from && !to) return null
  if (!from) return Number(to) && size ? { start: Math.max(0, size - Number(to)), end: size - 1 } : 'none'
  const [start, end] = [Number(from), to ? Math.min(Number(to), size - 1) : size - 1]
  if (to && Number(to) < start) return null
  return start < size ? { start, end } : 'none'
}

/** Returns a file name for clients that read no `filename*`, such as curl. */
const inAscii = (name: string): string => name.replace(/[^\w .,+@=~-]/gu, '_')

/** Encodes a file name for a header: also the characters that `encodeURIComponent` leaves as they are (RFC 8187). */
const encodeName = (name: string): string =>
  encodeURIComponent(name).replace(/['()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`)
