import { existsSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'
import { makeFolder, writeOwnFile } from '../../lib/folders.ts'
import { identityOf, leadsElsewhere } from './file-identity.ts'

/**
 * Thrown if the file cannot be used exclusively: another server uses it, or could use it unnoticed. The message states
 * the reason.
 */
export class DatabaseLockedError extends Error {
  override name = 'DatabaseLockedError'
}

export type Lock = { release: () => void }

/** Interval of the checks whether the file of a lock was deleted (ms). */
const INTERVAL = 1_000

/** An unreferenced connection is closed by the garbage collector, which would release its lock. */
const held = new Set<Sqlite.Database>()

/**
 * Locks an SQLite file against a second server until `release`, before the file is opened; creates it if it is missing.
 * The command line works beside a server and takes the lock only to move the database. Throws a DatabaseLockedError.
 *
 * The operating system holds the lock, on an empty file beside the database (where symbolic links lead), in SQLite's
 * own way. It ends with the process, so no stale lock can remain and no pid can be confused. `<file>.pid` is used only
 * in the message. If the file of the lock is deleted, a new one is locked a moment later. `onTaken` is called again
 * and again while another server holds that.
 */
export function lockDatabase(path: string, onTaken: () => void = () => {}): Lock {
  makeFolder(dirname(path))
  // A link may point to a missing file. An existing one must not be opened here, because closing it would release
  // SQLite's locks in this process.
  if (!existsSync(path)) writeFileSync(path, '', { flag: 'a', mode: 0o600 })
  const file = realpathSync(path)
  const stats = statSync(file)
  if (!stats.isFile()) throw new DatabaseLockedError(`${file} is not a regular file, which an SQLite database must be.`)
  if (stats.nlink > 1) {
    throw new DatabaseLockedError(
      `${file} has hard links: a server that uses it by another name would not be noticed. Remove the other links.`,
    )
  }
  const pidFile = `${file}.pid`
  const lockFile = `${file}.lock`
  let connection: Sqlite.Database
  try {
    connection = hold(lockFile)
  } catch (error) {
    const { message: reason } = error as Error
    const message = isBusy(error)
      ? usedBy(file, pidIn(pidFile))
      : `${file} cannot be locked: ${reason} (${lockFile}).${accessAdvice(error)}`
    throw new DatabaseLockedError(message, { cause: error })
  }
  let locked = identityOf(lockFile)
  writeOwnFile(pidFile, `${process.pid}\n`)

  function holdAgain(): void {
    if (!leadsElsewhere(lockFile, locked)) return
    try {
      const next = hold(lockFile)
      drop(connection)
      connection = next
      locked = identityOf(lockFile)
      writeOwnFile(pidFile, `${process.pid}\n`)
    } catch (error) {
      // The next check tries again, also if the folder is gone.
      if (isBusy(error)) onTaken()
    }
  }

  const timer = setInterval(holdAgain, INTERVAL).unref()
  return {
    release() {
      clearInterval(timer)
      // Another server's stays.
      if (pidIn(pidFile) === String(process.pid)) rmSync(pidFile, { force: true })
      drop(connection)
    },
  }
}

/** Describes a lock that is held. Its server has written its pid, unless there is none: SQLite reports both alike. */
const usedBy = (file: string, pid: string | null): string =>
  pid === null
    ? `Another program uses ${file}, or its file system knows no locks, as some network shares. Stop the program, or set DATA_DIR to a folder on a local disk.`
    : `Another Muster server (pid ${pid}) uses ${file}. Stop it first, or set DATA_DIR to another folder.`

const codeOf = (error: unknown): string => String((error as NodeJS.ErrnoException).code)

/** Returns advice on a disk or a process that has nothing left, as a sentence after a blank; empty for other errors. */
export const shortageAdvice = (error: unknown): string => {
  const code = codeOf(error)
  if (/^(?:ENOSPC|EDQUOT|SQLITE_FULL)$/.test(code))
    return ' Free space on its disk: df -h shows the space, and df -i the inodes.'
  return /^E[MN]FILE$/.test(code) ? ' Raise the limit of open files (ulimit -n).' : ''
}

const ACCESS =
  ' Give the user that runs the server write access to the file and its folder, for example with chown after a start as another user.'

const READ_ONLY =
  ' Its file system is read-only: mount it writable, in a container as a volume without :ro, or set DATA_DIR to another folder.'

/** Returns advice on a file that cannot be opened or written, as a sentence after a blank; empty for other errors. */
export function accessAdvice(error: unknown): string {
  const code = codeOf(error)
  // A disk without free inodes is reported as this, too.
  if (code.startsWith('SQLITE_CANTOPEN')) return `${ACCESS} If it has that, free inodes of the disk: df -i shows them.`
  if (code === 'EROFS') return READ_ONLY
  return /^(?:EACCES|EPERM|SQLITE_READONLY)/.test(code) ? ACCESS : shortageAdvice(error)
}

const isBusy = (error: unknown): boolean => codeOf(error).startsWith('SQLITE_BUSY')

/** Creates the file of a lock if it is missing, and locks it. */
function hold(lockFile: string): Sqlite.Database {
  writeFileSync(lockFile, '', { flag: 'a', mode: 0o600 })
  const connection = new Sqlite(lockFile, { timeout: 0 })
  try {
    connection.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    connection.close()
    throw error
  }
  held.add(connection)
  return connection
}

function drop(connection: Sqlite.Database): void {
  held.delete(connection)
  connection.close()
}

/** Returns the pid of the server that has locked a file, or null. */
function pidIn(pidFile: string): string | null {
  try {
    return readFileSync(pidFile, 'utf8').trim()
  } catch {
    return null
  }
}
