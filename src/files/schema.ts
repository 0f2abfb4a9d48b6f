import { z } from 'zod'
import { ok, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'

/** Maximum number of files in a space (contract.md section 6). */
export const MAX_FILES = 2000
export const MAX_FILE_BYTES = 1024 * 1024
export const MAX_SPACE_BYTES = 50 * 1024 * 1024

const MAX_PATH_BYTES = 512

/**
 * Characters that no path may contain: control characters, line ends, invisible characters except joiners, and
 * replacement characters.
 */
const UNSEEN = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\ufffd]|(?![\u200c\u200d])\p{Cf}/u

/** Empty, or only dots and blanks, which some file systems treat as equal. */
const NO_NAME = /^[.\s]*$/

/**
 * Returns whether a text is a valid path: a key of the form `a/b.md` in Unicode's NFC, which never names a path of the
 * server. Rejects everything that could escape if the file is written to a disk: absolute paths, `..`, `.` or empty
 * parts, backslashes, drives and percent-encoding, including look-alikes (contract.md section 6).
 */
export function isPath(path: string): boolean {
  if (path !== path.normalize('NFC') || Buffer.byteLength(path) > MAX_PATH_BYTES || UNSEEN.test(path)) return false
  const look = path.normalize('NFKC').replace(/\p{Cf}/gu, '')
  if (/\\|^[a-z]:|%[0-9a-f]{2}/i.test(look)) return false
  return !look.split('/').some((part) => NO_NAME.test(part) || part !== part.trim())
}

/** Names reserved by git or by the file system of a machine that a space is written to. */
const RESERVED = /^(\.git|git~\d)([. ]*$|:)|^(con|prn|aux|nul|conin\$|conout\$|com[\d¹²³]|lpt[\d¹²³])\s*([.:]|$)/i

/**
 * Returns whether a new file may have this path: a path ({@link isPath}) without `.git` and device names. Existing
 * files with such names can still be read and deleted.
 */
export const isNewPath = (path: string): boolean =>
  isPath(path) &&
  !path
    .replace(/\p{Cf}/gu, '')
    .split('/')
    .some((part) => RESERVED.test(part.normalize('NFKC')) || RESERVED.test(part))

export const BAD_PATH_DETAIL =
  `A path has names separated by \`/\`, and at most ${MAX_PATH_BYTES} bytes. It begins and ends with a name. No name is ` +
  '`..` or reserved (`.git`, `con`), has blanks around it, or contains `\\`, percent-encoding or invisible characters.'

const INVALID = { error: 'Invalid path', params: { detail: BAD_PATH_DETAIL } }

const Path = z
  .string()
  .normalize('NFC')
  .refine((text) => text.trim() !== '', 'Missing required field: path')
  .refine(isPath, INVALID)
  .describe('Path of the file, such as `docs/plan.md`')

const Prefix = z
  .string()
  .normalize('NFC')
  .refine((text) => text === '' || isPath(text.replace(/\/$/, '')), INVALID)
  .describe('Only files whose path begins with this text')

const spaceId = z.string().describe('The space')

export const Encoding = z
  .enum(['utf8', 'base64'])
  .meta({ id: 'FileEncoding', description: 'Encoding of the content of a file' })

export const ListFiles = z.object({
  id: spaceId,
  path: Prefix.optional().describe('Only files whose path begins with this text'),
  ...pageInput,
})
export const FilePath = z.object({ id: spaceId, path: Path })
export const WriteFile = z
  .object({
    id: spaceId,
    path: Path.refine(isNewPath, INVALID).meta({ param: { in: 'query' } }),
    content: z.string().describe('Content of the file, at most 1 MiB'),
    encoding: Encoding.nullish().describe('Encoding of the content. Default: `utf8`'),
  })
  .meta({ examples: [{ content: '# Plan' }] })

const listed = {
  path: z.string().describe('Path of the file in the space'),
  size: z.int().describe('Size of the file (bytes)'),
  updatedAt: timestamp.describe('Time of the last change to the file'),
}

/** A file of a space (contract.md section 6). */
export const SpaceFile = z.object(listed).meta({ id: 'SpaceFile', description: 'A file of a space' })

export const FilesResponse = ok({ files: z.array(SpaceFile).describe('Files of the space'), nextCursor })
export const FileResponse = ok({
  ...listed,
  content: z.string().describe('Content of the file, in the given encoding'),
  encoding: Encoding.describe('`base64` for files that are no text'),
})
export const FileDeleted = ok({ message: z.string().describe('Confirmation for people') })
