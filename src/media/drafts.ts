import { createWriteStream } from 'node:fs'
import { mkdir, open, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { makeFolder } from '../lib/folders.ts'
import { newId } from '../lib/id.ts'
import { diskFull, mediaUnusable } from './errors.ts'
import type { Draft, MediaStorage } from './storage.ts'

/** Maximum duration of an upload (ms). */
export const HOUR = 60 * 60 * 1000

/** Stores an upload in a temporary file until `keep` moves it to its place. */
export async function createDrafts(
  folder: string,
  keep: (path: string, id: string) => Promise<void>,
): Promise<Pick<MediaStorage, 'draft' | 'cleanDrafts'>> {
  makeFolder(folder)
  return {
    async cleanDrafts(which) {
      for (const name of await readdir(folder)) {
        const path = join(folder, name)
        const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }))
        if (which === 'all' || mtimeMs < Date.now() - HOUR) await rm(path, { force: true })
      }
    },
    async draft(source, meter): Promise<Draft> {
      const path = join(folder, newId())
      const discard = () => rm(path, { force: true })
      try {
        // The folder may have been deleted.
        await mkdir(folder, { recursive: true, mode: 0o700 })
        await pipeline(source, meter, createWriteStream(path, { flags: 'wx', mode: 0o600, flush: true }))
      } catch (error) {
        source.resume()
        await discard().catch(() => {})
        rethrow(error)
      }
      return {
        async head(length) {
          await using file = await open(path)
          const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, 0)
          return buffer.subarray(0, bytesRead)
        },
        keep: (id) => keep(path, id).catch(rethrow),
        discard,
      }
    },
  }
}

/** Codes of a full disk or quota, and of a folder that cannot be used. Errors of a caller's connection have other codes. */
const FULL = /^(ENOSPC|EDQUOT|EFBIG)$/
const UNUSABLE = /^(EACCES|EPERM|EROFS|EIO|ESTALE|ENOENT|ENOTDIR|EEXIST|EMFILE|ENFILE|ENODEV|ENXIO)$/

/** Throws the 503 of an error of the file system, which the operator has to mend, or another error itself. */
export function rethrow(error: unknown): never {
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  if (FULL.test(code)) throw diskFull(error)
  if (UNUSABLE.test(code)) throw mediaUnusable(error, code)
  throw error
}
