import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Readable, Transform } from 'node:stream'
import { unavailable } from '../errors.ts'
import { inParts } from '../lib/parts.ts'
import type { Settings } from '../settings.ts'
import { createDrafts, HOUR } from './drafts.ts'

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

/**
 * The storage that the settings name: a bucket, or a folder. `alone`: no other server uses the database, so that a
 * folder of this machine is as good as any. Null where several servers have no place in common.
 */
export async function openStorage(settings: Settings, alone: boolean): Promise<MediaStorage | null> {
  const { S3_BUCKET, MEDIA_DIR, DATA_DIR } = settings
  const local = join(DATA_DIR, 'media')
  // Imported only where it is configured: it is slow to load.
  if (S3_BUCKET) return (await import('./s3.ts')).createS3Storage({ ...settings, S3_BUCKET }, local)
  if (!MEDIA_DIR && !alone) return null
  return createFolderStorage(MEDIA_DIR ?? local, alone)
}

/** Media in a folder. */
async function createFolderStorage(folder: string, alone: boolean): Promise<MediaStorage> {
  const pathOf = (id: string) => join(folder, id.slice(0, 2).toLowerCase(), id)
  const draft = await createDrafts(join(folder, 'drafts'), alone, async (path, id) => {
    await mkdir(dirname(pathOf(id)), { recursive: true })
    await rename(path, pathOf(id))
  })

  return {
    draft,
    async read(id) {
      const file = await open(pathOf(id)).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error
      })
      return file?.createReadStream() ?? null
    },
    remove: (id) => rm(pathOf(id), { force: true }),
    async *list() {
      for (const shard of await readdir(folder)) {
        // Beside the drafts a folder may hold what is not ours: `lost+found`, `.snapshot`.
        if (!/^[0-9a-z]{2}$/.test(shard)) continue
        const old: string[] = []
        for (const id of await readdir(join(folder, shard))) {
          const { mtimeMs } = await stat(join(folder, shard, id)).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }))
          if (mtimeMs < Date.now() - HOUR) old.push(id)
        }
        yield* inParts(old, BATCH)
      }
    },
  }
}

/** No place for media: whoever uploads or downloads is told so with 503. */
export const noStorage: MediaStorage = {
  async draft(source) {
    source.resume()
    throw unavailable()
  },
  async read() {
    throw unavailable()
  },
  async remove() {},
  async *list() {},
}
