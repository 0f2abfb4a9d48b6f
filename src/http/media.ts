import type { IncomingMessage, ServerResponse } from 'node:http'
import { pipeline } from 'node:stream/promises'
import { Busboy, type BusboyInstance } from '@fastify/busboy'
import { requireScope } from '../auth/actor.ts'
import { AppError, badRequest, unsupportedType } from '../errors.ts'
import { type IdempotencyKey, onceOutside } from '../idempotency.ts'
import { MediaCreated } from '../media/schema.ts'
import * as service from '../media/service.ts'
import type { Context } from '../trpc.ts'

/** POST /api/v1/media: multipart/form-data with one `file`, streamed into the storage as it comes. */
export async function upload(context: Context, req: IncomingMessage, idempotency: IdempotencyKey | null) {
  const { deps } = context
  const actor = await context.authenticate()
  requireScope(actor, 'media:write')
  const received = await receiveFile(context, req)
  try {
    const { name, size, sha256 } = received
    const effect = () => service.create(actor, deps, received)
    const created = await onceOutside({ deps, actor, idempotency }, { name, size, sha256 }, async () => {}, effect)
    return MediaCreated.parse(created)
  } finally {
    await received.draft.discard()
  }
}

/** The first file that is named `file`; what else the form holds is passed over. */
async function receiveFile({ deps }: Context, req: IncomingMessage): Promise<service.Upload> {
  const contentType = req.headers['content-type'] ?? ''
  if (!/^multipart\/form-data *;/i.test(contentType)) throw unsupportedType()
  let received: Promise<service.Upload> | undefined
  let form: BusboyInstance
  try {
    form = new Busboy({
      headers: { 'content-type': contentType },
      limits: { parts: 20, headerPairs: 50, fieldSize: 1024 },
    })
  } catch {
    throw malformed()
  }
  form.on('file', (field, stream, name) => {
    if (field !== 'file' || received) {
      stream.resume()
      return
    }
    received = service.receive(deps, stream, name ?? '')
    // What is wrong with the file ends the reading of the rest.
    received.catch((error) => form.destroy(error))
  })
  try {
    await pipeline(req, form)
  } catch (error) {
    // Too large is one reason for the rest not to be read, a form that breaks off another.
    const failure = await received?.then(
      ({ draft }) => draft.discard(),
      (refused: unknown) => refused,
    )
    throw [failure, error].find((reason) => reason instanceof AppError) ?? malformed()
  }
  if (!received) throw badRequest('Missing required field: file')
  return received
}

const malformed = () => badRequest('Malformed multipart body')

/**
 * GET /api/v1/media/{id}/content. Only pictures are shown by a browser, anything else is for saving, and never taken for
 * what it does not say it is (contract.md section 7).
 */
export async function download(context: Context, res: ServerResponse, id: string): Promise<void> {
  const actor = await context.authenticate()
  requireScope(actor, 'media:read')
  const { name, mimeType, size, stream } = await service.content(actor, context.deps, id)
  const disposition = service.INLINE.has(mimeType) ? 'inline' : 'attachment'
  res.writeHead(200, {
    'Content-Type': mimeType,
    'Content-Length': size,
    'Content-Disposition': `${disposition}; filename*=UTF-8''${encodeURIComponent(name).replace(/['()*]/g, escape)}`,
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': "default-src 'none'; sandbox",
    'Cache-Control': 'private, max-age=0',
  })
  await pipeline(stream, res)
}
