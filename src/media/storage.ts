import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import type { Readable, Transform } from 'node:stream'
import { noMediaStore } from '../errors.ts'
import { inParts } from '../lib/parts.ts'
import type { Settings } from '../settings.ts'
import { createDrafts, HOUR } from './drafts.ts'
import { isInstallationId } from './installation.ts'

/** Something being uploaded, not yet anybody's. */
export type Draft = {
  /** The first bytes, by which its type is told. */
  head(length: number): Promise<Uint8Array>
  /** Keeps it under this id. */
  keep(id: string): Promise<void>
  discard(): Promise<void>
}

/** A part of a file: its first and its last byte. */
export type Range = { start: number; end: number }

/** A file in the trash, by the day (YYYY-MM-DD, UTC) on which it was put there. */
export type Trashed = { id: string; day: string }

/**
 * Stores the bytes of media under a prefix that names the installation. Ids are ours, never a name that a caller gave.
 * Files that an earlier version stored without the prefix are still read and deleted by their id, and never listed:
 * the storage may hold objects of others.
 */
export type MediaStorage = {
  /** Takes in a stream, through `meter` (which may refuse it), as it comes. Nothing is left of one that fails. */
  draft(source: Readable, meter: Transform): Promise<Draft>
  /** Removes what processes that have ended left half-uploaded: all of it, or only what is older than an hour. */
  cleanDrafts(which: 'all' | 'old'): Promise<void>
  /** Its bytes, or those from `start` to `end` (both included); null when it is gone. */
  read(id: string, range?: Range): Promise<Readable | null>
  has(id: string): Promise<boolean>
  /** Deletes a file for good. Nothing happens if it is gone already. */
  remove(id: string): Promise<void>
  /** Moves a file to the trash of a day. Nothing happens if it is gone already. */
  trash(id: string, day: string): Promise<void>
  /** Moves a file out of the trash. Returns false if the trash does not have it. */
  restore(id: string): Promise<boolean>
  /** Lists the ids of this installation's files that are older than an hour, in batches. */
  list(): AsyncGenerator<string[]>
  /** Lists the trash, in batches. */
  listTrash(): AsyncGenerator<Trashed[]>
  /** Deletes a file in the trash for good. */
  purge(trashed: Trashed): Promise<void>
}

const BATCH = 500

/** Where media lie on this machine when there is no bucket. */
export const mediaFolder = ({ MEDIA_DIR, DATA_DIR }: Pick<Settings, 'MEDIA_DIR' | 'DATA_DIR'>): string =>
  MEDIA_DIR ?? join(DATA_DIR, 'media')

/**
 * Opens the storage that the settings name: a bucket, or a folder. `installationId` is the prefix of its files. `isLocal`:
 * the database is a file of this machine, so that a folder of this machine is as good as any. Returns null where several
 * servers have no place in common.
 */
export async function openStorage(
  settings: Settings,
  installationId: string,
  isLocal: boolean,
): Promise<MediaStorage | null> {
  const { S3_BUCKET, MEDIA_DIR, DATA_DIR } = settings
  const local = join(DATA_DIR, 'media', installationId)
  // Imported only where it is configured: it is slow to load.
  if (S3_BUCKET) return (await import('./s3.ts')).createS3Storage({ ...settings, S3_BUCKET }, installationId, local)
  if (!MEDIA_DIR && !isLocal) return null
  return createFolderStorage(mediaFolder(settings), installationId)
}

const shardOf = (id: string) => id.slice(0, 2).toLowerCase()
const isShard = (name: string) => /^[0-9a-z]{2}$/.test(name)
const isMediaId = (name: string) => /^[0-9A-Za-z]{22}$/.test(name)

/** Media in a folder: `<installation>/<shard>/<id>`, with `drafts` and `trash/<day>` beside the shards. */
async function createFolderStorage(folder: string, installationId: string): Promise<MediaStorage> {
  const own = join(folder, installationId)
  const trash = join(own, 'trash')
  const pathOf = (id: string) => join(own, shardOf(id), id)
  /** Where an earlier version put it. */
  const oldPathOf = (id: string) => join(folder, shardOf(id), id)
  const drafts = await createDrafts(join(own, 'drafts'), (path, id) => move(path, pathOf(id)))

  async function* trashedFiles(): AsyncGenerator<Trashed[]> {
    for (const day of await readdirIfAny(trash)) {
      const ids = await readdirIfAny(join(trash, day))
      yield* inParts(
        ids.map((id) => ({ id, day })),
        BATCH,
      )
    }
  }

  return {
    ...drafts,
    async read(id, range) {
      const file = (await ifAny(open(pathOf(id)))) ?? (await ifAny(open(oldPathOf(id))))
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
        yield* inParts(old, BATCH)
      }
    },
    listTrash: trashedFiles,
    purge: ({ id, day }) => rm(join(trash, day, id), { force: true }),
  }
}

/** Returns what a system call finds; undefined where there is nothing. */
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
 * Returns a media folder that holds files of an installation, whichever; null when there are none. What else the folder
 * may hold (`lost+found`, `.snapshot`) is no concern of ours.
 */
export async function findMedia(folder: string): Promise<string | null> {
  const names = await readdirIfAny(folder)
  for (const name of names.filter((name) => isShard(name) || isInstallationId(name))) {
    const entries = await ifAny(readdir(join(folder, name), { recursive: true }))
    if (entries?.some((path) => isMediaId(basename(path)))) return join(folder, name)
  }
  return null
}

/** Throws 503, saying what to set, for every upload and download: there is no place for media. */
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
