import { dirname } from 'node:path'

/**
 * Lets SQLite sort large tables in files beside the database, unless `SQLITE_TMPDIR` names a folder. The usual folders
 * are read-only in many containers, where an index of a large table fails otherwise. SQLite reads the variable once,
 * when the process opens its first file.
 */
export function sortBeside(file: string): void {
  process.env.SQLITE_TMPDIR ??= dirname(file)
}
