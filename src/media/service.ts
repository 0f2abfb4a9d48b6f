import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { Transform } from 'node:stream'
import type { z } from 'zod'
import { type Actor, isAdmin, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { AppError, badRequest, bodyTooLarge, notFound } from '../errors.ts'
import { type Keep, whenCommitted } from '../idempotency.ts'
import { isUnavailable } from '../lib/database-errors.ts'
import { typeOf } from '../lib/file-type.ts'
import { newId } from '../lib/id.ts'
import { pageQuery, toPage } from '../lib/page.ts'
import { beginningWhole } from '../lib/text.ts'
import { countPassed } from './buffers.ts'
import { mediaLost } from './errors.ts'
import type { ListMedia, Media } from './schema.ts'
import type { Draft, Range } from './storage.ts'

type MediaRow = Prisma.MediaGetPayload<object>

/** Maximum size of one file (contract.md section 7, bytes). */
export const MAX_BYTES = 25 * 1024 * 1024
const MAX_NAME = 255
/** Number of bytes that `file-type` needs. */
const HEAD = 4100

/** Filters the organization's media. */
export const reachable = ({ organizationId }: Actor): Prisma.MediaWhereInput => ({ organizationId })

/** Returns the address of a file's content. */
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

/** GET /media/{id}/content: returns the metadata and the bytes, whole or a range. */
export async function content(actor: Actor, deps: Deps, id: string) {
  const { storage } = deps
  const row = await find(actor, deps, id)
  const read = async (range?: Range): Promise<Readable> => {
    const stream = await storage.read(row.id, range)
    if (stream) return stream
    // It may have been deleted since.
    await find(actor, deps, id)
    throw mediaLost()
  }
  return { ...row, read }
}

/** DELETE /media/{id}, by its uploader or an admin. Also removes the file. */
export async function remove(actor: Actor, deps: Deps, id: string) {
  const found = await find(actor, deps, id)
  const { size } = permit(found, found.userId === actor.userId || isAdmin(actor))
  await deps.db.$transaction(async (tx) => {
    const { count } = await tx.media.deleteMany({ where: { id } })
    if (!count) throw notFound('Media')
    const data = { mediaBytes: { decrement: size } }
    await tx.organization.update({ where: { id: actor.organizationId }, data, select: { id: true } })
    const now = deps.clock.now()
    await tx.mediaDraft.createMany({ data: { id, createdAt: now } })
    await audit(tx, actor, 'media.delete', id, now)
  })
  await whenCommitted(deps, () => removeFile(deps, id))
  return { message: 'Media deleted successfully' }
}

/**
 * Removes a file without a row. A paused server moves it to the trash instead, because the database may be a copy and
 * the original may still need it. A file that cannot be removed stays recorded, and a later start moves it to the
 * trash.
 */
async function removeFile({ db, storage, pause, clock, log }: Deps, id: string): Promise<void> {
  try {
    if (pause.isPaused()) await storage.trash(id, dayOf(clock.now()))
    else await storage.remove(id)
    await db.mediaDraft.deleteMany({ where: { id } })
  } catch (error) {
    log.warn({ err: error, mediaId: id }, 'failed to remove a file')
  }
}

/** Returns the day (YYYY-MM-DD, UTC) of a time. */
export const dayOf = (time: Date): string => time.toISOString().slice(0, 10)

/** A complete upload without a row. */
export type Upload = { draft: Draft; name: string; size: number; sha256: string }

/**
 * Stores a file while it arrives, without holding it in memory. The bytes count against the organization's quota until
 * `draft.discard`. Throws 413 above 25 MiB and above the quota, and then removes the file.
 */
export async function receive(actor: Actor, deps: Deps, source: Readable, name: string): Promise<Upload> {
  const { storage, settings, uploads } = deps
  const { organizationId } = actor
  const hash = createHash('sha256')
  let size = 0
  const count = (bytes: number) => {
    const total = (uploads.get(organizationId) ?? 0) + bytes
    if (total > 0) uploads.set(organizationId, total)
    else uploads.delete(organizationId)
    return total
  }
  const stored = await storedBytes(actor, deps).catch((error) => {
    source.resume()
    throw error
  })
  const meter = new Transform({
    transform(chunk: Buffer, _, done) {
      size += chunk.length
      const unfinished = count(chunk.length)
      hash.update(chunk)
      countPassed(chunk.length)
      if (size > MAX_BYTES) done(bodyTooLarge(MAX_BYTES))
      else if (stored + unfinished > settings.MEDIA_QUOTA) done(quotaExceeded())
      else done(null, chunk)
    },
  })
  try {
    const draft = await storage.draft(source, meter)
    let isCounted = true
    const discard = async () => {
      if (isCounted) count(-size)
      isCounted = false
      await draft.discard()
    }
    return { draft: { ...draft, discard }, name: cleanName(name), size, sha256: hash.digest('hex') }
  } catch (error) {
    count(-size)
    throw error
  }
}

const quotaExceeded = () =>
  new AppError(413, 'Media quota exceeded', { detail: 'Delete media, or ask the operator to raise MEDIA_QUOTA.' })

/** Returns the total size of the organization's files (bytes). */
async function storedBytes({ organizationId: id }: Actor, { db }: Deps): Promise<number> {
  const { mediaBytes } = await db.organization.findUniqueOrThrow({ where: { id }, select: { mediaBytes: true } })
  return Number(mediaBytes)
}

/**
 * Cleans a file name: removes folders, control and invisible characters, and limits its length. Joiners stay because
 * Persian, Hindi and emoji need them. The name is in Unicode's NFC, unlike those of macOS, because models write that.
 */
function cleanName(name: string): string {
  const base = name.toWellFormed().normalize('NFC').split(/[/\\]/).at(-1) ?? ''
  const clean = base.replace(/\p{Cc}|(?!\p{Join_Control})\p{Cf}/gu, '').trim()
  const isNone = /^[.\p{Join_Control}]*$/u.test(clean)
  return isNone ? 'unnamed' : beginningWhole(clean, MAX_NAME)
}

/** POST /media: assigns an upload to the organization. Throws 400 for an empty file and 413 above the quota. */
export async function create(actor: Actor, deps: Deps, { draft, name, size }: Upload, keep: Keep) {
  const { db, clock, settings } = deps
  const { organizationId, userId } = actor
  if (size === 0) throw badRequest('Missing required field: file')
  const mimeType = await typeOf(await draft.head(HEAD))
  const id = newId()
  const now = clock.now()
  // A crash leaves a file without a row, never the reverse, and a record with which a later start finds the file.
  await db.mediaDraft.create({ data: { id, createdAt: now } })
  try {
    await draft.keep(id)
    return await db.$transaction(async (tx) => {
      const { count } = await tx.organization.updateMany({
        where: { id: organizationId, mediaBytes: { lte: settings.MEDIA_QUOTA - size } },
        data: { mediaBytes: { increment: size } },
      })
      if (!count) throw quotaExceeded()
      const data = { id, organizationId, userId, name, mimeType, size, createdAt: now }
      const created = await tx.media.create({ data })
      await tx.mediaDraft.deleteMany({ where: { id } })
      await audit(tx, actor, 'media.create', id, now)
      return keep(tx, { id, name, media: toMedia(created) })
    })
  } catch (error) {
    // If the database is unavailable, the row may have been stored.
    if (!isUnavailable(error)) await removeFile(deps, id)
    throw error
  }
}

/** Throws 404 unless all of these unique ids are media that the caller may use. */
export async function checkAll(actor: Actor, { db }: Deps, ids: readonly string[]): Promise<void> {
  if (!ids.length) return
  const found = await db.media.count({ where: { id: { in: [...ids] }, ...reachable(actor) } })
  if (found !== ids.length) throw notFound('Media')
}
