import { randomBytes } from 'node:crypto'
import { chown, link, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

export type KeyFile = { path: string; key: Buffer }

/** The 32-byte key in a file, in base64; null when it holds something else. Throws when it cannot be read. */
export async function readKeyFile(path: string): Promise<Buffer | null> {
  const key = Buffer.from(await readFile(path, 'utf8'), 'base64')
  return key.length === 32 ? key : null
}

/** Makes the file whole or not at all, and leaves alone one that is there, even if it came a moment ago. */
export async function createKeyFile(path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
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
 * Writes a new key into a file of its own beside `path`, which its owner alone can read: the owner of `path`, where there
 * is one, though root may write it.
 */
export async function draftKeyFile(path: string): Promise<KeyFile> {
  const key = randomBytes(32)
  const draft = `${path}.${randomBytes(8).toString('hex')}`
  await writeFile(draft, `${key.toString('base64')}\n`, { mode: 0o600, flag: 'wx', flush: true })
  const old = await stat(path).catch(() => null)
  if (old && process.getuid?.() === 0) await chown(draft, old.uid, old.gid)
  return { path: draft, key }
}

/** The drafts beside `path` that nobody has put in its place. */
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

/** Puts a draft in the place of the file, unless somebody else has done it. */
export async function putInPlace(draft: KeyFile, path: string): Promise<void> {
  await rename(draft.path, path).catch((error: unknown) => {
    if (!hasCode(error, 'ENOENT')) throw error
  })
}

const hasCode = (error: unknown, code: string) => error instanceof Error && 'code' in error && error.code === code
