import { createWriteStream } from 'node:fs'
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable, Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { newId } from '../lib/id.ts'

/** Something being uploaded, not yet anybody's. */
export type Draft = {
  /** The first bytes, by which its type is told. */
  head(length: number): Promise<Uint8Array>
  /** Keeps it under this id. */
  keep(id: string): Promise<void>
  discard(): Promise<void>
}

/** Where the bytes of media are. Ids are ours, never a name that somebody gave. */
export type MediaStorage = {
  /** Takes in a stream, through `meter` (which may refuse it), as it comes. Nothing is left of one that fails. */
  draft(source: Readable, meter: Transform): Promise<Draft>
  /** Its bytes; null when it is gone. */
  read(id: string): Promise<Readable | null>
  /** Nothing happens if it is gone already. */
  remove(id: string): Promise<void>
  /** The ids of what is older than an hour, in batches. */
  list(): AsyncGenerator<string[]>
}

const BATCH = 500
const HOUR = 60 * 60 * 1000

/** Media in a folder of this machine. What a crash left half-uploaded is removed at once. */
export async function createFolderStorage(folder: string): Promise<MediaStorage> {
  const drafts = join(folder, 'drafts')
  await rm(drafts, { recursive: true, force: true })
  await mkdir(drafts, { recursive: true })
  const pathOf = (id: string) => join(folder, id.slice(0, 2).toLowerCase(), id)

  return {
    async draft(source, meter) {
      const path = join(drafts, newId())
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
        async keep(id) {
          await mkdir(join(pathOf(id), '..'), { recursive: true })
          await rename(path, pathOf(id))
        },
        discard,
      }
    },
    async read(id) {
      const file = await open(pathOf(id)).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error
      })
      return file?.createReadStream() ?? null
    },
    remove: (id) => rm(pathOf(id), { force: true }),
    async *list() {
      for (const shard of await readdir(folder)) {
        if (shard === 'drafts') continue
        const old: string[] = []
        for (const id of await readdir(join(folder, shard))) {
          const { mtimeMs } = await stat(join(folder, shard, id)).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }))
          if (mtimeMs < Date.now() - HOUR) old.push(id)
        }
        for (let from = 0; from < old.length; from += BATCH) yield old.slice(from, from + BATCH)
      }
    },
  }
}
