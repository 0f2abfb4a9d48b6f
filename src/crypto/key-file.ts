import { randomBytes } from 'node:crypto'
import { chown, link, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { makeFolder } from '../lib/folders.ts'

export type KeyFile = { path: string; key: Buffer }

/**
 * Reads the 32-byte key in a file, in base64. Returns null if the file holds something else. Throws if it is
 * unreadable.
 */
export async function readKeyFile(path: string): Promise<Buffer | null> {
  const key = Buffer.from(await readFile(path, 'utf8'), 'base64')
  return key.length === 32 ? key : null
}

/** Creates the file atomically, unless it exists, even since a moment ago. */
export async function createKeyFile(path: string): Promise<void> {
  makeFolder(dirname(path))
  const draft = await draftKeyFile(path)
  try {
    await link(draft.path, path)
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error
  } finally {
    await rm(draft.path, { force: true })
  }
}

/**
 * Writes a new key into a draft file beside `path`, readable by its owner only: the owner of `path` if it exists, even
 * if root writes it.
 */
export async function draftKeyFile(path: string): Promise<KeyFile> {
  const key = randomBytes(32)
  const draft = `${path}.${randomBytes(8).toString('hex')}`
  await writeFile(draft, `${key.toString('base64')}\n`, { mode: 0o600, flag: 'wx', flush: true })
  const old = await stat(path).catch(() => null)
  if (old && process.getuid?.() === 0) await chown(draft, old.uid, old.gid)
  return { path: draft, key }
}

/** Finds the drafts beside `path` that were not put in its place. */
export async function findDrafts(path: string): Promise<KeyFile[]> {
  const names = await readdir(dirname(path))
  const drafts = names.filter((name) => name.startsWith(`${basename(path)}.`))
  const read = drafts.map(async (name) => {
    const draft = join(dirname(path), name)
    const key = await readKeyFile(draft).catch(() => null)
    return key ? [{ path: draft, key }] : []
  })
  return (await Promise.all(read)).flat()
}

/** Replaces the file with a draft, unless another process already did. */
export async function putInPlace(draft: KeyFile, path: string): Promise<void> {
  await rename(draft.path, path).catch((error: unknown) => {
    if (!hasCode(error, 'ENOENT')) throw error
  })
}

const hasCode = (error: unknown, code: string) => error instanceof Error && 'code' in error && error.code === code
