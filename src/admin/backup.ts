import { randomBytes, randomInt } from 'node:crypto'
import { existsSync } from 'node:fs'
import { open, rename, rm, stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import Sqlite from 'better-sqlite3'
import { databaseFile, requireOwnLog } from '../db/client.ts'
import type { Settings } from '../settings.ts'
import { AdminError } from './values.ts'

/**
 * Copies the SQLite database as it is at one moment into a new file that only its owner can read, while a server may
 * go on writing. The encryption key is not in it. The copy is marked as one: a server that starts on it is paused.
 */
export async function backup(settings: Settings, target: string): Promise<{ file: string; bytes: number }> {
  const source = databaseFile(settings)
  if (!source) throw new AdminError('The database is PostgreSQL: back it up with pg_dump, and keep ENCRYPTION_KEY.')
  const file = resolve(target)
  if (existsSync(file)) throw exists(file)
  // It has its name when it is whole. What a process leaves that is killed before is taken for no backup.
  const draft = `${file}.${randomBytes(4).toString('hex')}.part`
  try {
    await reserve(draft)
    copy(source, draft)
    markCopy(draft)
    await flush(draft, 'r+')
    await reserve(file)
    await rename(draft, file)
  } catch (error) {
    for (const left of [draft, `${draft}-journal`]) await rm(left, { force: true })
    throw describe(error, source, file)
  }
  // Not every system can do it.
  await flush(dirname(file), 'r').catch(() => {})
  return { file, bytes: (await stat(file)).size }
}

const exists = (file: string) => new AdminError(`${file} exists already. A backup goes into a new file.`)

/** Makes the file, empty, if there is none. */
async function reserve(file: string): Promise<void> {
  await (await open(file, 'wx', 0o600)).close()
}

/**
 * Marks an SQLite file as a copy, whatever its version: by a negative `user_version`. It is a random one, so that a log
 * which is left beside the file is not taken for its own (db/sqlite/write-ahead-log.ts).
 */
export function markCopy(file: string): void {
  const connection = new Sqlite(file, { timeout: 10_000 })
  try {
    connection.pragma(`user_version = ${-randomInt(2 ** 16, 2 ** 30)}`)
  } finally {
    connection.close()
  }
}

function copy(source: string, file: string): void {
  requireOwnLog(source)
  const connection = new Sqlite(source, { readonly: true, timeout: 10_000 })
  try {
    const isEmpty = !connection.prepare('SELECT 1 FROM "sqlite_schema"').get()
    if (isEmpty) throw new AdminError('The database is empty. Start Muster once.')
    connection.prepare('VACUUM INTO ?').run(file)
  } finally {
    connection.close()
  }
}

/** A backup that is said to be there survives a power failure. */
export async function flush(path: string, flags: 'r' | 'r+'): Promise<void> {
  await using handle = await open(path, flags)
  await handle.sync()
}

/** The source is only read: what cannot be written is the copy. */
const UNWRITTEN = /^SQLITE_(FULL|IOERR_(WRITE|FSYNC|TRUNCATE))$/

function describe(error: unknown, source: string, file: string): unknown {
  const { code = '', syscall, message } = error as NodeJS.ErrnoException
  if (code === 'EEXIST') return exists(file)
  if (syscall) return new AdminError(`${file} cannot be written: ${code}`)
  if (UNWRITTEN.test(code)) return new AdminError(`${file} cannot be written: ${message}`)
  if (error instanceof Sqlite.SqliteError) return new AdminError(`The database ${source} cannot be used: ${message}`)
  return error
}
