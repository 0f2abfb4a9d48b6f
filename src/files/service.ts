import { isUtf8 } from 'node:buffer'
import type { z } from 'zod'
import { type Actor, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, invalidCursor, invalidField, notFound } from '../errors.ts'
import { chunk } from '../lib/chunk.ts'
import { decodePosition, encodePosition, MAX_ROWS } from '../lib/page.ts'
import { cut } from '../lib/text.ts'
import { find } from '../spaces/service.ts'
import { mayChange, reachable } from '../spaces/visibility.ts'
import {
  type FilePath,
  type FileResponse,
  isPath,
  type ListFiles,
  MAX_FILE_BYTES,
  MAX_FILES,
  MAX_SPACE_BYTES,
  type SpaceFile,
  type WriteFile,
} from './schema.ts'

const LISTED = { path: true, size: true, updatedAt: true } as const

type ListedRow = Prisma.SpaceFileGetPayload<{ select: typeof LISTED }>

const toListed = ({ path, size, updatedAt }: ListedRow): z.input<typeof SpaceFile> => ({
  path,
  size,
  updatedAt: updatedAt.toISOString(),
})

/** Returns content for the API, as text if it is valid UTF-8. */
export function toText(content: Uint8Array) {
  const bytes = Buffer.from(content)
  // JSON can contain NUL, but requests may not.
  const encoding = isUtf8(bytes) && !bytes.includes(0) ? ('utf8' as const) : ('base64' as const)
  return { content: bytes.toString(encoding), encoding }
}

const toFile = (row: ListedRow & { content: Uint8Array }): z.input<typeof FileResponse> => ({
  ...toListed(row),
  ...toText(row.content),
})

/**
 * GET /spaces/{id}/files, by path. Filters and sorts all files of a space (their number is limited) in memory, because
 * LIKE, `<` and ORDER BY differ between the databases.
 */
export async function list(actor: Actor, deps: Deps, input: z.output<typeof ListFiles>) {
  const { path: prefix = '', limit = MAX_ROWS, cursor } = input
  const after = cursor === undefined ? '' : decodeCursor(cursor)
  const { id: spaceId } = await find(actor, deps, input.id)
  const rows = await deps.db.spaceFile.findMany({ where: { spaceId }, select: LISTED })
  const wanted = inOrder(rows, prefix, after)
  const files = wanted.slice(0, limit)
  const last = files.at(-1)
  return { files: files.map(toListed), nextCursor: last && wanted.length > limit ? encodeCursor(last) : null }
}

/** Returns the files whose path begins with `prefix` and comes after `after`, by path. */
export const inOrder = <Row extends { path: string }>(rows: readonly Row[], prefix: string, after: string): Row[] =>
  rows.filter(({ path }) => path.startsWith(prefix) && path > after).sort((a, b) => (a.path < b.path ? -1 : 1))

const encodeCursor = ({ path }: ListedRow) => encodePosition(path)

function decodeCursor(cursor: string): string {
  const path = decodePosition(cursor)
  if (!isPath(path)) throw invalidCursor()
  return path
}

/** GET /spaces/{id}/files/content. */
export async function get(actor: Actor, deps: Deps, input: z.output<typeof FilePath>) {
  const { id: spaceId } = await find(actor, deps, input.id)
  const row = await deps.db.spaceFile.findUnique({ where: { spaceId_path: { spaceId, path: input.path } } })
  if (!row) throw notFound('File')
  return toFile(row)
}

/**
 * PUT /spaces/{id}/files/content: creates or replaces a file, for users who may change the space. Throws 400 beyond a
 * limit.
 */
export async function write(actor: Actor, deps: Deps, input: z.output<typeof WriteFile>) {
  const { id: spaceId, path } = input
  const content = decode(input)
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    await store(tx, actor, spaceId, { path, content }, now)
    await audit(tx, actor, 'file.write', `${spaceId}/${path}`, now)
  })
  deps.bus.publish('file', [actor.organizationId])
  return toFile({ path, content, size: content.length, updatedAt: now })
}

function decode({ content, encoding }: z.output<typeof WriteFile>): Buffer<ArrayBuffer> {
  const bytes = Buffer.from(content, encoding ?? 'utf8')
  if (encoding === 'base64' && bytes.toString('base64') !== content)
    throw invalidField(
      'content',
      'base64',
      'Encode the bytes of the file in base64 with padding, or send text with encoding utf8.',
    )
  return bytes
}

/**
 * Stores a file in the caller's transaction. The limits are conditions on the space's counters, whose row is locked
 * first, so that the existing file cannot change meanwhile. Throws 404 for the space, and 400 beyond a limit.
 */
async function store(
  tx: Tx,
  actor: Actor,
  spaceId: string,
  { path, content }: { path: string; content: Uint8Array<ArrayBuffer> },
  now: Date,
): Promise<void> {
  const size = content.length
  if (size > MAX_FILE_BYTES) throw fileTooLarge(size)
  const { fileCount } = await lock(tx, actor, spaceId, now)
  const key = { spaceId_path: { spaceId, path } }
  const before = await tx.spaceFile.findUnique({ where: key, select: { size: true } })
  await grow(tx, { id: spaceId, fileCount }, before ? 0 : 1, size - (before?.size ?? 0))
  const { organizationId, userId: updatedBy } = actor
  const data = { content, size, updatedBy, updatedAt: now }
  await tx.spaceFile.upsert({
    where: key,
    create: { organizationId, spaceId, path, ...data },
    update: data,
    select: { path: true },
  })
}

/** Returns the 400 for a file that is too large. */
export const fileTooLarge = (size: number) =>
  badRequest('File too large. At most 1 MiB', {
    detail: `A file has at most ${MAX_FILE_BYTES} bytes, and this one has ${size} or more. Upload it as media instead.`,
  })
/** Returns the 400 for a space with the maximum number of files. */
export const tooManyFiles = () =>
  badRequest(`Too many files. At most ${MAX_FILES} in a space`, { detail: 'Delete files that are no longer needed.' })
/** Returns the 400 for files that are too large together. */
export const spaceFull = () =>
  badRequest('Space is full. At most 50 MiB of files', { detail: 'Delete files that are no longer needed.' })

/** Updates the counters of a space whose row is locked. Throws 400 beyond a limit. */
async function grow(tx: Tx, { id, fileCount }: { id: string; fileCount: number }, files: number, bytes: number) {
  const { count } = await tx.space.updateMany({
    where: { id, fileCount: { lte: MAX_FILES - files }, fileBytes: { lte: MAX_SPACE_BYTES - bytes } },
    data: { fileCount: { increment: files }, fileBytes: { increment: bytes } },
  })
  if (!count && fileCount + files > MAX_FILES) throw tooManyFiles()
  if (!count) throw spaceFull()
}

type NewFile = { path: string; content: Uint8Array<ArrayBuffer> }

/**
 * Adds files in the caller's transaction, all or none. Sizes and paths are validated already. Existing files stay.
 * Returns the added paths. Throws like {@link store}.
 */
export async function add(tx: Tx, actor: Actor, spaceId: string, files: NewFile[], now: Date): Promise<string[]> {
  const space = await lock(tx, actor, spaceId, now)
  const rows = await tx.spaceFile.findMany({ where: { spaceId }, select: { path: true } })
  const there = new Set(rows.map(({ path }) => path))
  const added = files.filter(({ path }) => !there.has(path))
  const bytes = added.reduce((sum, { content }) => sum + content.length, 0)
  await grow(tx, { id: spaceId, fileCount: space.fileCount }, added.length, bytes)
  const { organizationId, userId: updatedBy } = actor
  const common = { organizationId, spaceId, updatedBy, updatedAt: now }
  const data = added.map(({ path, content }) => ({ ...common, path, content, size: content.length }))
  for (const part of chunk(data, 100)) await tx.spaceFile.createMany({ data: part })
  return added.map(({ path }) => path)
}

/** A replacement in a file of a space. */
type Edit = { id: string; path: string; find: string; replace: string; all: boolean }

/**
 * Replaces a text in a file, for users who may change the space. The second of two concurrent edits sees the first.
 * Throws 400 unless the text occurs exactly once, or at least once with `all`.
 */
export async function edit(actor: Actor, deps: Deps, { id: spaceId, path, find, replace, all }: Edit) {
  const now = deps.clock.now()
  return deps.db.$transaction(async (tx) => {
    await lock(tx, actor, spaceId, now)
    const row = await tx.spaceFile.findUnique({ where: { spaceId_path: { spaceId, path } }, select: { content: true } })
    if (!row) throw notFound('File')
    const { content, encoding } = toText(row.content)
    if (encoding !== 'utf8') throw badRequest('The file is not text', { detail: 'Write the whole file instead.' })
    const withEndsOf = lineEndsOf(content)
    const parts = content.split(withEndsOf(find))
    const count = parts.length - 1
    if (!count)
      throw badRequest('The text to replace is not in the file', {
        detail: 'Read the file, and copy the text exactly.',
      })
    if (count > 1 && !all)
      throw badRequest(`The text to replace occurs ${count} times. Give more of it, or all: true`, {
        detail: 'Include the lines around it.',
      })
    const changed = Buffer.from(parts.join(withEndsOf(replace)))
    await store(tx, actor, spaceId, { path, content: changed }, now)
    await audit(tx, actor, 'file.write', `${spaceId}/${path}`, now)
    return { path, size: changed.length, count }
  })
}

/** Returns a function that gives a text the line ends of a file from Windows, which models do not write. */
function lineEndsOf(content: string): (text: string) => string {
  const isWindows = content.includes('\r\n') && !/(?<!\r)\n/.test(content)
  return isWindows ? (text) => text.replace(/\r?\n/g, '\r\n') : (text) => text
}

type Search = { id: string; query: string; path?: string | undefined; limit: number; signal: AbortSignal }

/** Number of files that are searched at a time, and maximum length of a line that is returned (characters). */
const FILES_AT_ONCE = 20
const MAX_LINE = 300

/** Returns the lines of a space's text files that contain a text, regardless of case, by path. */
export async function search(actor: Actor, deps: Deps, { id, query, path = '', limit, signal }: Search) {
  const { id: spaceId } = await find(actor, deps, id)
  const rows = await deps.db.spaceFile.findMany({ where: { spaceId }, select: LISTED })
  const wanted = query.toLowerCase()
  const lines: { path: string; line: number; text: string }[] = []
  for (const part of chunk(inOrder(rows, path, ''), FILES_AT_ONCE)) {
    signal.throwIfAborted()
    const where = { spaceId, path: { in: part.map((row) => row.path) } }
    const files = await deps.db.spaceFile.findMany({ where, select: { path: true, content: true } })
    for (const file of inOrder(files, '', '')) {
      const { content, encoding } = toText(file.content)
      if (encoding !== 'utf8' || !content.toLowerCase().includes(wanted)) continue
      for (const [index, text] of content.split('\n').entries()) {
        if (!text.toLowerCase().includes(wanted)) continue
        if (lines.length === limit) return { lines, hasMore: true }
        lines.push({ path: file.path, line: index + 1, text: cut(text.trim(), MAX_LINE) })
      }
    }
  }
  return { lines, hasMore: false }
}

/** DELETE /spaces/{id}/files/content, for users who may change the space. */
export async function remove(actor: Actor, deps: Deps, { id: spaceId, path }: z.output<typeof FilePath>) {
  const now = deps.clock.now()
  await deps.db.$transaction(async (tx) => {
    await lock(tx, actor, spaceId, now)
    const key = { spaceId_path: { spaceId, path } }
    const file = await tx.spaceFile.findUnique({ where: key, select: { size: true } })
    if (!file) throw notFound('File')
    await tx.spaceFile.deleteMany({ where: { spaceId, path } })
    const less = { fileCount: { decrement: 1 }, fileBytes: { decrement: file.size } }
    await tx.space.update({ where: { id: spaceId }, data: less, select: { id: true } })
    await audit(tx, actor, 'file.delete', `${spaceId}/${path}`, now)
  })
  deps.bus.publish('file', [actor.organizationId])
  return { message: 'File deleted successfully' }
}

/**
 * Locks a space so that writers of its files take turns. Throws 403 for members who can only see the space, and 404 for
 * everyone else.
 */
async function lock(tx: Tx, actor: Actor, id: string, now: Date): Promise<{ fileCount: number }> {
  const [space] = await tx.space.updateManyAndReturn({
    where: { id, ...reachable(actor) },
    data: { updatedAt: now },
    select: { fileCount: true, ownerId: true },
  })
  if (!space) throw notFound('Space')
  return permit(space, mayChange(actor, space))
}

/** Throws 404 unless all of these unique paths are files of the space, which the caller can reach. */
export async function checkAll({ db }: Deps, spaceId: string, paths: readonly string[]): Promise<void> {
  const found = await db.spaceFile.count({ where: { spaceId, path: { in: [...paths] } } })
  if (found !== paths.length) throw notFound('File')
}
