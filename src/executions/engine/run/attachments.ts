import { buffer } from 'node:stream/consumers'
import type { LanguageModelV4FilePart, LanguageModelV4TextPart } from '@ai-sdk/provider'
import type { Db } from '../../../db/client.ts'
import { decodeFile, typeOf, WESTERN } from '../../../lib/file-type.ts'
import { PICTURES } from '../../../media/schema.ts'
import type { MediaStorage } from '../../../media/storage.ts'
import type { Warn } from './warnings.ts'

// Attachments of the messages in a prompt (contract-2.md section 2.6).

/** Type of the documents that some models read. */
const PDF = 'application/pdf'

/** Maximum size of all pictures and documents in one prompt, and of the text files of one message (bytes). */
const MAX_FILES = 25 * 1024 * 1024
const MAX_TEXT = 200 * 1024

type Part = LanguageModelV4TextPart | LanguageModelV4FilePart

/** The attachments of one message: ids of media, and paths of files of the space. */
export type Attached = { mediaIds: readonly string[]; files: readonly string[]; spaceId: string }

/** A file that can be attached. */
type Source = {
  name: string
  /** Size of the whole file (bytes). */
  size: number
  /** Type by its content, if it is known already. */
  type: string | null
  /** Reads the first bytes, or null if the file is gone. */
  read(limit: number): Promise<Buffer | null>
}

type Deps = { db: Db; storage: MediaStorage; maxHistory: number; warn: Warn; organizationId: string }

/**
 * Reads the attachments of each message: pictures and PDF as files, text as text, anything else by its name. Later
 * prompts repeat them as far as they fit, the latest message first. Warns about attachments of the last message that
 * the model does not read. Files that were deleted since are named.
 */
export async function readAttachments(deps: Deps, messages: readonly Attached[]): Promise<Part[][]> {
  const parts: Part[][] = messages.map(() => [])
  if (!messages.some(({ mediaIds, files }) => mediaIds.length || files.length)) return parts
  const sources = await findSources(deps, messages)
  const remaining = { files: MAX_FILES, texts: deps.maxHistory }
  for (const [index, found] of [...sources.entries()].reverse()) {
    const isLast = index === messages.length - 1
    const warn: Warn = isLast ? deps.warn : () => {}
    const texts = isLast ? MAX_TEXT : Math.min(MAX_TEXT, remaining.texts)
    const left = { files: remaining.files, texts }
    for (const source of found) parts[index]?.push(await read(source, left, warn))
    remaining.files = left.files
    if (!isLast) remaining.texts -= texts - left.texts
  }
  return parts
}

/** Finds the files of each message. Media that were deleted are left out. */
async function findSources({ db, storage, organizationId }: Deps, messages: readonly Attached[]): Promise<Source[][]> {
  const ids = [...new Set(messages.flatMap(({ mediaIds }) => mediaIds))]
  const rows = ids.length ? await db.media.findMany({ where: { organizationId, id: { in: ids } } }) : []
  const media = new Map(rows.map((row) => [row.id, row]))
  return Promise.all(
    messages.map(async ({ mediaIds, files, spaceId }) => {
      const paths = [...files]
      const select = { path: true, size: true } as const
      const stored = paths.length
        ? await db.spaceFile.findMany({ where: { organizationId, spaceId, path: { in: paths } }, select })
        : []
      const sizes = new Map(stored.map(({ path, size }) => [path, size]))
      return [
        ...mediaIds.flatMap((id): Source[] => {
          const row = media.get(id)
          if (!row) return []
          const { name, size, mimeType } = row
          const type = mimeType === 'application/octet-stream' ? null : mimeType
          const readFirst = async (limit: number) => {
            const stream = await storage.read(id, limit < size ? { start: 0, end: limit - 1 } : undefined)
            return stream && buffer(stream)
          }
          return [{ name, size, type, read: readFirst }]
        }),
        ...paths.map((path): Source => {
          const readFirst = async () => {
            const where = { spaceId_path: { spaceId, path } }
            const row = await db.spaceFile.findUnique({ where, select: { content: true } })
            return row && Buffer.from(row.content)
          }
          return { name: path, size: sizes.get(path) ?? 0, type: null, read: readFirst }
        }),
      ]
    }),
  )
}

const text = (content: string): LanguageModelV4TextPart => ({ type: 'text', text: content })

/** Maximum number of bytes that are read to find out the type of a file. */
const HEAD = 64 * 1024

/** Reads a file as a part of a message, and reduces what remains for further ones. */
async function read(source: Source, left: { files: number; texts: number }, warn: Warn): Promise<Part> {
  const { name, size } = source
  const label = name.replace(/["<>\r\n]/g, '_')
  const type = source.type ?? (await source.read(HEAD).then((head) => head && typeOf(head)))
  const gone = () => {
    warn('attachment_not_read', `The attached file ${name} no longer exists`)
    return text(`[Attached file: ${label}, which no longer exists]`)
  }
  if (type === null) return gone()
  if (PICTURES.has(type) || type === PDF) {
    if (size > left.files) {
      warn('attachment_not_read', `The attached file ${name} was not read: the attachments exceed 25 MiB`)
      return text(`[Attached file: ${label} (${type})]`)
    }
    const data = await source.read(size)
    if (!data) return gone()
    left.files -= size
    return { type: 'file', mediaType: type, filename: name, data: { type: 'data', data } }
  }
  const bytes = await source.read(Math.min(size, left.texts + 1))
  if (!bytes) return gone()
  const decoded = decodeFile(bytes.subarray(0, left.texts))
  if (decoded === null) {
    warn(
      'attachment_not_read',
      `The attached file ${name} (${type}) was not read: it is no picture, no PDF and no text in UTF-8`,
    )
    return text(`[Attached file: ${label} (${type})]`)
  }
  if (decoded.encoding === WESTERN)
    warn(
      'attachment_not_read',
      `The attached file ${name} is not in UTF-8, and was read as ${WESTERN}. If letters are wrong, save it as UTF-8`,
    )
  const length = Math.min(size, left.texts)
  left.texts -= length
  const isCut = length < size
  if (isCut) warn('attachment_not_read', `The attached file ${name} was read up to byte ${length} of ${size} only`)
  const mark = isCut ? `\n[Cut off here: ${length} of ${size} bytes]` : ''
  return text(`<attached-file name="${label}">\n${decoded.text}${mark}\n</attached-file>`)
}
