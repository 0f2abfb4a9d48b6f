import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'

/** The file cannot be had for oneself: another server has it, or could have it unnoticed. The message says why. */
export class DatabaseLockedError extends Error {
  override name = 'DatabaseLockedError'
}

export type Lock = { release: () => void }

/** A connection that nobody refers to is closed by the garbage collector, and its lock is lost. */
const held = new Set<Sqlite.Database>()

/**
 * Keeps a second server off an SQLite file, which is made if it is missing, from before it is opened until `release`.
 * The operator's command line works beside a server and takes no lock, except to move the database. Throws a
 * DatabaseLockedError.
 *
 * The lock is the operating system's, on an empty file beside the database (as SQLite takes it), where symbolic links
 * lead to: it ends with the process, however that ends, so that no stale one can be left and no pid can be mistaken.
 * `<file>.pid` is for the message only.
 */
export function lockDatabase(path: string): Lock {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  // A link may lead to a file that is not there yet. One that is there must not be opened: closing it would take away
  // the locks that SQLite has on it in this process.
  if (!existsSync(path)) writeFileSync(path, '', { flag: 'a', mode: 0o600 })
  const file = realpathSync(path)
  const stats = statSync(file)
  if (!stats.isFile()) throw new DatabaseLockedError(`${file} is no file. An SQLite database is one.`)
  if (stats.nlink > 1) {
    throw new DatabaseLockedError(
      `${file} has hard links: a server that uses it by another name would not be noticed. Leave it one name.`,
    )
  }
  const pidFile = `${file}.pid`
  let connection: Sqlite.Database | undefined
  try {
    writeFileSync(`${file}.lock`, '', { flag: 'a', mode: 0o600 })
    connection = new Sqlite(`${file}.lock`, { timeout: 0 })
    connection.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    connection?.close()
    const { code, message: reason } = error as NodeJS.ErrnoException
    const message = code?.startsWith('SQLITE_BUSY')
      ? `Another Muster server${holder(pidFile)} uses ${file}. Stop it first, or set DATA_DIR to another folder.`
      : `${file} cannot be locked: ${reason} (${file}.lock).`
    throw new DatabaseLockedError(message, { cause: error })
  }
  held.add(connection)
  writeFileSync(pidFile, `${process.pid}\n`, { mode: 0o600 })
  return {
    release() {
      rmSync(pidFile, { force: true })
      held.delete(connection)
      connection.close()
    },
  }
}

function holder(pidFile: string): string {
  try {
    return ` (pid ${readFileSync(pidFile, 'utf8').trim()})`
  } catch {
    return ''
  }
}
