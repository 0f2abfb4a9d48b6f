import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * Creates a folder that only its owner can read, with its parents, unless it exists. Node's option `recursive` never
 * ends in a file system like /proc, which answers ENOENT although the parent exists.
 */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (error) {
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return
    const parent = dirname(path)
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || existsSync(parent)) throw error
    makeFolder(parent)
    makeFolder(path)
  }
}

/** Writes a file that only its owner can read. Names it if the disk is full, which Node does only while it opens files. */
export function writeOwnFile(path: string, text: string): void {
  try {
    writeFileSync(path, text, { mode: 0o600 })
  } catch (error) {
    const failure = error as NodeJS.ErrnoException
    if (failure.path === undefined) failure.message += ` '${path}'`
    throw failure
  }
}
