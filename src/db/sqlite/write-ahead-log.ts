import { closeSync, openSync, readSync, renameSync, rmSync, statSync } from 'node:fs'

// Detects a write-ahead log that does not belong to its database file.
//
// The first write after each checkpoint increments the database's `user_version` (transaction-queue.ts), in the first
// page of the file and of its log (`-wal`). If a copy replaces the file while the old log remains, the numbers differ;
// SQLite itself would apply the log and corrupt the data. `admin backup` marks its copies with a random negative
// number. Formats: https://sqlite.org/fileformat2.html, sections 1.3 and 4.

/** Offset of `user_version` in the first page (bytes). */
export const VERSION_AT = 60
const LOG_HEADER = 32
const FRAME_HEADER = 24
const CHUNK = 1024 * 1024

/** Returns the path of a file's log. */
export const logOf = (file: string): string => `${file}-wal`

/** Returns the path of a backup on its way to replace a file. */
export const restoringOf = (file: string): string => `${file}.restoring`

/** Returns the size of a file (bytes), 0 if it is missing. */
export const sizeOf = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0

/** Returns whether a log exists although its database is missing or empty. SQLite would delete that log. */
export const isOrphanedLog = (file: string): boolean => sizeOf(file) === 0 && sizeOf(logOf(file)) > LOG_HEADER

/**
 * Returns whether the log beside an SQLite file was written for another file. Returns false if that cannot be
 * determined.
 */
export function hasForeignLog(file: string): boolean {
  if (sizeOf(file) < 100 || sizeOf(logOf(file)) <= LOG_HEADER) return false
  // With a running server both may change between two reads.
  for (let attempt = 0; attempt < 3; attempt++) if (fits(file)) return false
  return true
}

function fits(file: string): boolean {
  const version = Math.abs(readHead(file).readInt32BE(VERSION_AT))
  const logged = readVersions(logOf(file))
  return !logged || (logged.first - 1 <= version && version <= logged.last)
}

function readHead(file: string): Buffer {
  const head = Buffer.alloc(100)
  const handle = openSync(file, 'r')
  try {
    readSync(handle, head, 0, head.length, 0)
  } finally {
    closeSync(handle)
  }
  return head
}

/** Reads the first and last `user_version` in a log. Returns null if no frame contains the first page. */
function readVersions(log: string): { first: number; last: number } | null {
  const handle = openSync(log, 'r')
  try {
    const header = Buffer.alloc(LOG_HEADER)
    readSync(handle, header, 0, LOG_HEADER, 0)
    const frameSize = FRAME_HEADER + header.readUInt32BE(8)
    const chunk = Buffer.alloc(frameSize * Math.max(1, Math.floor(CHUNK / frameSize)))
    let versions = null as { first: number; last: number } | null
    for (let at = LOG_HEADER; ; at += chunk.length) {
      const length = readSync(handle, chunk, 0, chunk.length, at)
      for (let frame = 0; frame + frameSize <= length; frame += frameSize) {
        // Later frames belong to a previous generation of the log.
        if (chunk.compare(header, 16, 24, frame + 8, frame + 16) !== 0) return versions
        if (chunk.readUInt32BE(frame) !== 1) continue
        const last = Math.abs(chunk.readInt32BE(frame + FRAME_HEADER + VERSION_AT))
        versions = { first: versions?.first ?? last, last }
      }
      if (length < chunk.length) return versions
    }
  } finally {
    closeSync(handle)
  }
}

/** Renames the log of a file so that SQLite ignores it. Returns the new name. No process may have the file open. */
export function setLogAside(file: string, now: Date): string {
  const aside = `${logOf(file)}.replaced-${now.toISOString().replace(/\D/g, '').slice(0, 14)}`
  renameSync(logOf(file), aside)
  rmSync(`${file}-shm`, { force: true })
  return aside
}
