import { statSync } from 'node:fs'

/** SQLite's own code for a file that was moved since it was opened. */
export const MOVED = 'SQLITE_READONLY_DBMOVED'

/**
 * Returns a check whether the path of an open SQLite file leads to another file, or to none: somebody has deleted or
 * replaced it. SQLite would go on writing to the file without a name, and those writes would be lost at the next start.
 */
export function createMoveCheck(file: string): () => boolean {
  const identity = () => statSync(file, { bigint: true, throwIfNoEntry: false })?.ino
  const opened = identity()
  return () => {
    try {
      return identity() !== opened
    } catch {
      // A network drive that does not answer.
      return false
    }
  }
}
