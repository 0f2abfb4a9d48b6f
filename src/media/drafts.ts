import { createWriteStream } from 'node:fs'
import { mkdir, open, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { newId } from '../lib/id.ts'
import type { Draft, MediaStorage } from './storage.ts'

/** Nobody uploads for so long (ms). */
export const HOUR = 60 * 60 * 1000

/**
 * Takes uploads in as files of a folder; `keep` then puts such a file where it stays. What a crash left half-uploaded
 * is removed at once, or, where the folder is not this process's `alone`, once it is an hour old.
 */
export async function createDrafts(
  folder: string,
  alone: boolean,
  keep: (path: string, id: string) => Promise<void>,
): Promise<MediaStorage['draft']> {
  if (alone) await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  for (const name of await readdir(folder)) {
    const path = join(folder, name)
    const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }))
    if (mtimeMs < Date.now() - HOUR) await rm(path, { force: true })
  }

  return async (source, meter): Promise<Draft> => {
    const path = join(folder, newId())
    const discard = () => rm(path, { force: true })
    try {
      await pipeline(source, meter, createWriteStream(path, { flags: 'wx', flush: true }))
    } catch (error) {
      await discard()
      throw error
    }
    return {
      async head(length) {
        await using file = await open(path)
        const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, 0)
        return buffer.subarray(0, bytesRead)
      },
      keep: (id) => keep(path, id),
      discard,
    }
  }
}
