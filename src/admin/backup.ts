import { open, rm, stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import Sqlite from 'better-sqlite3'
import { databaseFile } from '../db/client.ts'
import type { Settings } from '../settings.ts'
import { AdminError } from './values.ts'

/**
 * Copies the SQLite database as it is at one moment into a new file that only its owner can read, while a server may
 * go on writing. The encryption key is not in it.
 */
export async function backup(settings: Settings, target: string): Promise<{ file: string; bytes: number }> {
  const source = databaseFile(settings)
  if (!source) throw new AdminError('The database is PostgreSQL: back it up with pg_dump, and keep ENCRYPTION_KEY.')
  const file = resolve(target)
  await reserve(file)
  try {
    copy(source, file)
    await flush(file)
  } catch (error) {
    await rm(file, { force: true })
    throw error
  }
  return { file, bytes: (await stat(file)).size }
}

/** Makes the file, empty, if there is none. */
async function reserve(file: string): Promise<void> {
  try {
    await (await open(file, 'wx', 0o600)).close()
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') throw new AdminError(`${file} exists already. A backup goes into a new file.`)
    throw new AdminError(`${file} cannot be written: ${code ?? message}`)
  }
}

function copy(source: string, file: string): void {
  const connection = new Sqlite(source, { readonly: true, timeout: 10_000 })
  try {
    connection.prepare('VACUUM INTO ?').run(file)
  } finally {
    connection.close()
  }
}

/** A backup that is said to be there survives a power failure. */
async function flush(file: string): Promise<void> {
  await using handle = await open(file, 'r+')
  await handle.sync()
}
