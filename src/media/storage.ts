import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import type { Readable, Transform } from 'node:stream'
import { chunk } from '../lib/chunk.ts'
import type { Settings } from '../settings.ts'
import { createDrafts, HOUR, rethrow } from './drafts.ts'
import { noMediaStore } from './errors.ts'
import { isInstallationId } from './installation.ts'

/** An unfinished upload. */
export type Draft = {
  /** Returns the first bytes, from which the type is detected. */
  head(length: number): Promise<Uint8Array>
  /** Stores the upload under this id. */
  keep(id: string): Promise<void>
  discard(): Promise<void>
}

/** A byte range: the first and the last byte. */
export type Range = { start: number; end: number }

/** A file in the trash, with the day (YYYY-MM-DD, UTC) on which it was moved there. */
export type Trashed = { id: string; day: string }

/**
 * Stores the bytes of media under a prefix that names the installation. Ids are generated, never taken from a caller.
 * Files that an earlier version stored without the prefix are still read and deleted by id, but never listed, because
 * the storage may be shared.
 */
export type MediaStorage = {
  /** Stores a stream as it arrives, through `meter`, which may abort it. A failed upload leaves nothing behind. */
  draft(source: Readable, meter: Transform): Promise<Draft>
  /** Removes unfinished uploads of dead processes: all, or only those older than an hour. */
  cleanDrafts(which: 'all' | 'old'): Promise<void>
  /** Reads the bytes, or those from `start` to `end` (both included). Returns null if the file does not exist. */
  read(id: string, range?: Range): Promise<Readable | null>
  has(id: string): Promise<boolean>
  /** Deletes a file permanently. Does nothing if it does not exist. */
  remove(id: string): Promise<void>
  /** Moves a file to the trash of a day. Does nothing if it does not exist. */
  trash(id: string, day: string): Promise<void>
  /** Moves a file out of the trash. Returns false if it is not there. */
  restore(id: string): Promise<boolean>
  /** Lists the ids of this installation's files that are older than an hour, in batches. */
  list(): AsyncGenerator<string[]>
  /** Lists the trash, in batches. */
  listTrash(): AsyncGenerator<Trashed[]>
  /** Permanently deletes a file from the trash. */
  purge(trashed: Trashed): Promise<void>
}

const BATCH = 500

/** Returns the local media folder that is used without a bucket. */
export const mediaFolder = ({ MEDIA_DIR, DATA_DIR }: Pick<Settings, 'MEDIA_DIR' | 'DATA_DIR'>): string =>
  MEDIA_DIR ?? join(DATA_DIR, 'media')

/**
 * Opens the configured storage: a bucket, or a folder. `installationId` is the prefix of its files. `isLocal`: the
 * database is a local file, so that a local folder is sufficient. Returns null if several servers would have no common
 * storage.
 */
export async function openStorage(
  settings: Settings,
  installationId: string,
  isLocal: boolean,
): Promise<MediaStorage | null> {
  const { S3_BUCKET, MEDIA_DIR, DATA_DIR } = settings
  const local = join(DATA_DIR, 'media', installationId)
  // Imported on demand because it is slow to load.
  if (S3_BUCKET) return (await import('./s3.ts')).createS3Storage({ ...settings, S3_BUCKET }, installationId, local)
  if (!MEDIA_DIR && !isLocal) return null
  return createFolderStorage(mediaFolder(settings), installationId)
}

const shardOf = (id: string) => id.slice(0, 2).toLowerCase()
const isShard = (name: string) => /^[0-9a-z]{2}$/.test(name)
const isMediaId = (name: string) => /^[0-9A-Za-z]{22}$/.test(name)

/** Stores media in a folder: `<installation>/<shard>/<id>`, with `drafts` and `trash/<day>` beside the shards. */
async function createFolderStorage(folder: string, installationId: string): Promise<MediaStorage> {
  const own = join(folder, installationId)
  const trash = join(own, 'trash')
  const pathOf = (id: string) => join(own, shardOf(id), id)
  /** The path used by earlier versions. */
  const oldPathOf = (id: string) => join(folder, shardOf(id), id)
  const drafts = await createDrafts(join(own, 'drafts'), (path, id) => move(path, pathOf(id)))

  async function* trashedFiles(): AsyncGenerator<Trashed[]> {
    for (const day of await readdirIfAny(trash)) {
      const ids = await readdirIfAny(join(trash, day))
      yield* chunk(
        ids.map((id) => ({ id, day })),
        BATCH,
      )
    }
  }

  return {
    ...drafts,
    async read(id, range) {
      const file = (await ifAny(open(pathOf(id))).catch(rethrow)) ?? (await ifAny(open(oldPathOf(id))).catch(rethrow))
      return file?.createReadStream(range) ?? null
    },
    has: async (id) => Boolean((await ifAny(stat(pathOf(id)))) ?? (await ifAny(stat(oldPathOf(id))))),
    async remove(id) {
      await rm(pathOf(id), { force: true })
      await rm(oldPathOf(id), { force: true })
    },
    async trash(id, day) {
      for (const path of [pathOf(id), oldPathOf(id)]) await ifAny(move(path, join(trash, day, id)))
    },
    async restore(id) {
      for await (const some of trashedFiles()) {
        const found = some.find((trashed) => trashed.id === id)
        if (!found) continue
        await move(join(trash, found.day, id), pathOf(id))
        return true
      }
      return false
    },
    async *list() {
      for (const shard of (await readdirIfAny(own)).filter(isShard)) {
        const old: string[] = []
        for (const id of (await readdirIfAny(join(own, shard))).filter(isMediaId)) {
          const found = await ifAny(stat(join(own, shard, id)))
          if (found && found.mtimeMs < Date.now() - HOUR) old.push(id)
        }
        yield* chunk(old, BATCH)
      }
    },
    listTrash: trashedFiles,
    purge: ({ id, day }) => rm(join(trash, day, id), { force: true }),
  }
}

/** Returns undefined if a system call finds nothing. */
const ifAny = <T>(found: Promise<T>): Promise<T | undefined> =>
  found.catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error
    return undefined
  })

const readdirIfAny = async (folder: string): Promise<string[]> => (await ifAny(readdir(folder))) ?? []

async function move(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true, mode: 0o700 })
  await rename(from, to)
}

/**
 * Returns a media folder with files of any installation, or null. Ignores other contents (`lost+found`, `.snapshot`).
 */
export async function findMedia(folder: string): Promise<string | null> {
  const names = await readdirIfAny(folder)
  for (const name of names.filter((name) => isShard(name) || isInstallationId(name))) {
    const entries = await ifAny(readdir(join(folder, name), { recursive: true }))
    if (entries?.some((path) => isMediaId(basename(path)))) return join(folder, name)
  }
  return null
}

/** Storage that throws a 503, naming the setting to use, for every upload and download. */
export const noStorage: MediaStorage = {
  async draft(source) {
    source.resume()
    throw noMediaStore()
  },
  async read() {
    throw noMediaStore()
  },
  async cleanDrafts() {},
  has: async () => false,
  async remove() {},
  async trash() {},
  restore: async () => false,
  async *list() {},
  async *listTrash() {},
  async purge() {},
}
