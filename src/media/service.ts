import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { Transform } from 'node:stream'
import { fileTypeFromBuffer } from 'file-type'
import type { z } from 'zod'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { AppError, badRequest, bodyTooLarge, notFound } from '../errors.ts'
import type { Keep } from '../idempotency.ts'
import { countPassed } from '../lib/buffers.ts'
import { isUnavailable } from '../lib/database-errors.ts'
import { newId } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import type { ListMedia, Media } from './schema.ts'
import type { Draft } from './storage.ts'

type MediaRow = Prisma.MediaGetPayload<object>

/** Of one file (contract.md section 7). */
export const MAX_BYTES = 25 * 1024 * 1024
const MAX_NAME = 255
/** What `file-type` needs to see. */
const HEAD = 4100

/** Media are the organization's. */
export const reachable = ({ organizationId }: Actor): Prisma.MediaWhereInput => ({ organizationId })

/** Where its bytes are. */
export const contentUrl = (id: string): string => `/api/v1/media/${id}/content`

const toMedia = (row: MediaRow): z.input<typeof Media> => ({
  id: row.id,
  name: row.name,
  mimeType: row.mimeType,
  size: row.size,
  organizationId: row.organizationId,
  userId: row.userId,
  url: contentUrl(row.id),
  createdAt: row.createdAt.toISOString(),
})

/** GET /media, newest first. */
export async function list(actor: Actor, { db }: Deps, input: z.output<typeof ListMedia>) {
  const { where: after, ...page } = pageQuery(input)
  const found = await db.media.findMany({ where: { AND: [reachable(actor), after ?? {}] }, ...page })
  const { rows, nextCursor } = toPage(found, input)
  return { media: rows.map(toMedia), nextCursor }
}

async function find(actor: Actor, { db }: Deps, id: string): Promise<MediaRow> {
  const row = await db.media.findFirst({ where: { id, ...reachable(actor) } })
  if (!row) throw notFound('Media')
  return row
}

/** GET /media/{id}. */
export async function get(actor: Actor, deps: Deps, id: string) {
  return { media: toMedia(await find(actor, deps, id)) }
}

/** GET /media/{id}/content. */
export async function content(actor: Actor, deps: Deps, id: string) {
  const row = await find(actor, deps, id)
  const stream = await deps.storage.read(row.id)
  if (!stream) throw notFound('Media')
  return { ...row, stream }
}

/** DELETE /media/{id}, by whoever uploaded it or an admin. No file is left behind. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const found = await find(actor, deps, id)
  const { size } = permit(found, found.userId === actor.userId || isAdmin(actor))
  await deps.db.$transaction(async (tx) => {
    const { count } = await tx.media.deleteMany({ where: { id } })
    if (!count) throw notFound('Media')
    const data = { mediaBytes: { decrement: size } }
    await tx.organization.update({ where: { id: actor.organizationId }, data, select: { id: true } })
    await audit(tx, actor, 'media.delete', id, deps.clock.now())
  })
  await removeFile(deps, id)
  return { message: 'Media deleted successfully' }
}

/** What cannot be removed is an orphan, which a start removes. */
const removeFile = ({ storage, log }: Deps, id: string): Promise<void> =>
  storage.remove(id).catch((error) => log.warn({ err: error, mediaId: id }, 'a file could not be removed'))

/** What somebody is uploading: received as a whole, and nobody's yet. */
export type Upload = { draft: Draft; name: string; size: number; sha256: string }

/** Takes in a file as it comes, never as a whole in memory. 413 from the 26th megabyte on; nothing is left of it then. */
export async function receive({ storage }: Deps, source: Readable, name: string): Promise<Upload> {
  const hash = createHash('sha256')
  let size = 0
  const meter = new Transform({
    transform(chunk: Buffer, _, done) {
      size += chunk.length
      hash.update(chunk)
      countPassed(chunk.length)
      done(size > MAX_BYTES ? bodyTooLarge() : null, chunk)
    },
  })
  const draft = await storage.draft(source, meter)
  return { draft, name: cleanName(name), size, sha256: hash.digest('hex') }
}

/** A name is only ever shown: no folders, no control characters, not too long. */
function cleanName(name: string): string {
  const base = name.toWellFormed().split(/[/\\]/).at(-1) ?? ''
  const clean = base.replace(/[\p{Cc}\p{Cf}]/gu, '').trim()
  return [...clean].slice(0, MAX_NAME).join('').replace(/^\.+$/, '') || 'unnamed'
}

/**
 * POST /media: makes an upload the organization's. 400 for an empty file, 413 when it would go over the organization's
 * quota.
 */
export async function create(actor: Actor, deps: Deps, { draft, name, size }: Upload, keep: Keep) {
  const { db, clock, settings } = deps
  const { organizationId, userId } = actor
  if (size === 0) throw badRequest('Missing required field: file')
  const mimeType = (await fileTypeFromBuffer(await draft.head(HEAD)))?.mime ?? 'application/octet-stream'
  const id = newId()
  const now = clock.now()
  // The file first: what a crash leaves is then a file without a row, which is found and removed, never the reverse.
  await draft.keep(id)
  try {
    return await db.$transaction(async (tx) => {
      const { count } = await tx.organization.updateMany({
        where: { id: organizationId, mediaBytes: { lte: settings.MEDIA_QUOTA - size } },
        data: { mediaBytes: { increment: size } },
      })
      if (!count) throw new AppError(413, 'Media quota exceeded')
      const data = { id, organizationId, userId, name, mimeType, size, createdAt: now }
      const created = await tx.media.create({ data })
      await audit(tx, actor, 'media.create', id, now)
      return keep(tx, { id, name, media: toMedia(created) })
    })
  } catch (error) {
    // Of a database that has gone away nobody knows whether the row is there.
    if (!isUnavailable(error)) await removeFile(deps, id)
    throw error
  }
}

/** Throws 404 unless all of these ids, each of which is there once, are of media that the caller may use. */
export async function checkAll(actor: Actor, { db }: Deps, ids: readonly string[]): Promise<void> {
  if (!ids.length) return
  const found = await db.media.count({ where: { id: { in: [...ids] }, ...reachable(actor) } })
  if (found !== ids.length) throw notFound('Media')
}

/** Removes files that no row tells of: what crashes have left behind. */
export async function removeOrphans({ db, storage }: Pick<Deps, 'db' | 'storage'>): Promise<void> {
  for await (const ids of storage.list()) {
    const known = await db.media.findMany({ where: { id: { in: ids } }, select: { id: true } })
    const rows = new Set(known.map(({ id }) => id))
    for (const id of ids) if (!rows.has(id)) await storage.remove(id)
  }
}
