import { closeSync, existsSync, openSync, readSync, renameSync, statSync } from 'node:fs'
import { logOf, VERSION_AT } from './write-ahead-log.ts'

/** SQLite's own code for a file that was moved since it was opened. */
export const MOVED = 'SQLITE_READONLY_DBMOVED'

/**
 * State of an open SQLite file after a change from outside. `moved`: its path, or that of its log, leads to another
 * file or to none. `overwritten`: it has the content of another file. SQLite notices neither. Its writes would be lost
 * at the next start, or spoil the new content.
 */
export type Tampering = 'moved' | 'overwritten' | null

export type FileCheck = {
  /** Looks at the file, in 5 microseconds. `version`: the latest `user_version` that this server has written. */
  file: (version: number) => Tampering
  /** Looks at the log too. Its state is remembered. */
  fileAndLog: (version: number) => Tampering
  /** Closes all connections by `closeAll`, without a copy of the log into an overwritten file. */
  close: (closeAll: () => void, found: Tampering) => void
}

/**
 * Creates the check of a file that is open. It holds a descriptor until all connections are closed, because closing one
 * releases SQLite's locks in this process.
 */
export function createFileCheck(file: string): FileCheck {
  const handle = openSync(file, 'r')
  const head = Buffer.alloc(VERSION_AT + 4)
  const opened = identityOf(file)
  let log: bigint | null | undefined
  let isLogMoved = false
  /** The number in the file only rises, up to the one that was written last. */
  let lowest = Math.max(0, readVersion() ?? 0)

  /** Returns the file's number, -1 if its content is shorter, or null if it cannot be read. */
  function readVersion(): number | null {
    try {
      if (readSync(handle, head, 0, head.length, 0) < head.length) return -1
      return Math.abs(head.readInt32BE(VERSION_AT))
    } catch {
      return null
    }
  }

  function look(version: number): Tampering {
    log ??= identityOf(logOf(file))
    if (leadsElsewhere(file, opened)) return 'moved'
    const found = readVersion()
    if (found === null) return null
    if (found < lowest || found > version) return 'overwritten'
    lowest = found
    return isLogMoved ? 'moved' : null
  }

  return {
    file: look,
    fileAndLog(version) {
      if (log && leadsElsewhere(logOf(file), log)) isLogMoved = true
      return look(version)
    },
    close(closeAll, found) {
      // SQLite copies nothing into a file that its path does not lead to.
      const aside = asideOf(file)
      if (found === 'overwritten') renameSync(file, aside)
      try {
        closeAll()
      } finally {
        closeSync(handle)
        if (found === 'overwritten') renameSync(aside, file)
      }
    },
  }
}

/** Returns the name that an overwritten file has while it is closed. */
const asideOf = (file: string): string => `${file}.closing`

/**
 * Gives a file its name back if the process was killed while it closed it. Does nothing if there is content under its
 * own name. Returns whether it did.
 */
export function putBack(file: string): boolean {
  if (!existsSync(asideOf(file)) || (existsSync(file) && statSync(file).size > 0)) return false
  renameSync(asideOf(file), file)
  return true
}

/** Returns the inode that a path leads to, undefined for none, or null if a network drive does not answer. */
export function identityOf(path: string): bigint | null | undefined {
  try {
    return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino
  } catch {
    return null
  }
}

/** Returns whether a path leads to another file than the `opened` one, or to none. */
export function leadsElsewhere(path: string, opened: bigint | null | undefined): boolean {
  const found = identityOf(path)
  return found !== null && found !== opened
}
