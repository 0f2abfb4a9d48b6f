import { randomBytes, randomInt } from 'node:crypto'
import { existsSync, statSync } from 'node:fs'
import { open, rename, rm, stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import Sqlite from 'better-sqlite3'
import { databaseFile, requireOwnLog } from '../db/client.ts'
import { requireOwnTables } from '../db/sqlite/migrate.ts'
import type { Settings } from '../settings.ts'
import type { Answer, Operator } from './command.ts'
import { AdminError } from './option-values.ts'

/** Backs the database up into a file, and says where the encryption key is. */
export async function backUp({ settings }: Operator, [target = '']: string[]): Promise<Answer> {
  const { file, bytes } = await writeBackup(settings, target)
  const key = settings.ENCRYPTION_KEY ? 'ENCRYPTION_KEY' : resolve(settings.DATA_DIR, 'encryption.key')
  const text = `Wrote ${file} (${bytes} bytes).
Keep ${key} too, elsewhere: without it the copy is of no use.
To restore it: npm run admin -- restore FILE. A server on it starts paused.`
  return { json: { file, bytes }, text }
}

/**
 * Copies a consistent snapshot of the SQLite database into a new file that only its owner can read, while a server may
 * continue writing. It does not contain the encryption key. The copy is marked: a server that starts on it is paused.
 */
async function writeBackup(settings: Settings, target: string): Promise<{ file: string; bytes: number }> {
  const source = databaseFile(settings)
  if (!source) throw new AdminError('The database is PostgreSQL: back it up with pg_dump, and keep ENCRYPTION_KEY.')
  const file = resolve(target)
  if (existsSync(file)) throw exists(file)
  // Renamed only when complete, so that an interrupted backup is not mistaken for one.
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
  // Not every system supports this.
  await flush(dirname(file), 'r').catch(() => {})
  return { file, bytes: (await stat(file)).size }
}

const exists = (file: string) =>
  new AdminError(
    statSync(file, { throwIfNoEntry: false })?.isDirectory()
      ? `${file} is a folder. Name a new file in it for the backup.`
      : `${file} already exists. Name a new file for the backup.`,
  )

/** Creates the file if it does not exist. */
async function reserve(file: string): Promise<void> {
  await (await open(file, 'wx', 0o600)).close()
}

/**
 * Marks an SQLite file of any version as a copy with a negative `user_version`. It is random, so that a leftover log
 * beside the file does not appear to belong to it (db/sqlite/write-ahead-log.ts).
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
    requireOwnTables(connection)
    const isEmpty = !connection.prepare('SELECT 1 FROM "sqlite_schema"').get()
    if (isEmpty) throw new AdminError('The database is empty. Start Muster once.')
    connection.prepare('VACUUM INTO ?').run(file)
  } finally {
    connection.close()
  }
}

/** Flushes a file or folder, so that a reported backup survives a power failure. */
export async function flush(path: string, flags: 'r' | 'r+'): Promise<void> {
  await using handle = await open(path, flags)
  await handle.sync()
}

/** The source is only read, so these errors concern the copy. */
const UNWRITTEN = /^SQLITE_(FULL|IOERR_(WRITE|FSYNC|TRUNCATE))$/

function describe(error: unknown, source: string, file: string): unknown {
  const { code = '', syscall, message } = error as NodeJS.ErrnoException
  if (code === 'EEXIST') return exists(file)
  if (code === 'ENOENT' && !existsSync(dirname(file)))
    return new AdminError(`There is no folder ${dirname(file)}. Make it first, or name another.`)
  if (syscall) return new AdminError(`${file} cannot be written: ${code}`)
  if (UNWRITTEN.test(code)) return new AdminError(`${file} cannot be written: ${message}`)
  if (error instanceof Sqlite.SqliteError) return new AdminError(`The database ${source} cannot be used: ${message}`)
  return error
}
