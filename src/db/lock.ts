import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'

/** Another server has the database. The message names it. */
export class DatabaseLockedError extends Error {
  override name = 'DatabaseLockedError'
}

export type Lock = { release: () => void }

/** A connection that nobody refers to is closed by the garbage collector, and its lock is lost. */
const held = new Set<Sqlite.Database>()

/**
 * Keeps a second server off an SQLite file, from before it is opened until `release`. The operator's command line takes
 * no lock and works beside a server. Throws a DatabaseLockedError.
 *
 * The lock is the operating system's, on an empty file beside the database (as SQLite takes it): it ends with the
 * process, however that ends, so that no stale one can be left and no pid can be mistaken. `<file>.pid` is for the
 * message only.
 */
export function lockDatabase(file: string): Lock {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  const pidFile = `${file}.pid`
  const connection = new Sqlite(`${file}.lock`, { timeout: 0 })
  try {
    connection.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    connection.close()
    if (!(error instanceof Sqlite.SqliteError && error.code.startsWith('SQLITE_BUSY'))) throw error
    throw new DatabaseLockedError(
      `Another Muster server${holder(pidFile)} uses ${file}. Stop it first, or give this one a DATA_DIR of its own.`,
    )
  }
  held.add(connection)
  writeFileSync(pidFile, `${process.pid}\n`)
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
