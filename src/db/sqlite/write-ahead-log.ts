import { closeSync, existsSync, openSync, readSync, renameSync, rmSync, statSync } from 'node:fs'

// Every first write after a checkpoint raises the database's `user_version` by one (sqlite-turns.ts), in the first page of
// the file and of its log (`-wal`). A copy that is put in place of the file, with the log of the one before still beside
// it, is told by that: SQLite itself would apply the log to it and mix the two. `admin backup` gives its copies a random
// number, negative: they are marked as copies. Formats: https://sqlite.org/fileformat2.html, sections 1.3 and 4.

/** Where `user_version` is in the first page. */
const VERSION_AT = 60
const LOG_HEADER = 32
const FRAME_HEADER = 24
const CHUNK = 1024 * 1024

export const logOf = (file: string): string => `${file}-wal`

const sizeOf = (path: string): number => (existsSync(path) ? statSync(path).size : 0)

/** Returns whether there is a log although its database is missing or empty: SQLite would delete that log. */
export const isOrphanedLog = (file: string): boolean => sizeOf(file) === 0 && sizeOf(logOf(file)) > LOG_HEADER

/** Returns whether the log beside an SQLite file was written for another file. False where that cannot be told. */
export function hasForeignLog(file: string): boolean {
  if (sizeOf(file) < 100 || sizeOf(logOf(file)) <= LOG_HEADER) return false
  // Beside a running server both may change between two reads.
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

/** Reads the first and the last `user_version` in a log; null when no frame has the first page. */
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
        // Frames behind are of the log's earlier life.
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

/** Moves the log beside a file out of SQLite's way, and returns its new name. Nobody may have the file open. */
export function setLogAside(file: string, now: Date): string {
  const aside = `${logOf(file)}.replaced-${now.toISOString().replace(/\D/g, '').slice(0, 14)}`
  renameSync(logOf(file), aside)
  rmSync(`${file}-shm`, { force: true })
  return aside
}
