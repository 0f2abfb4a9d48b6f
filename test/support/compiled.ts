import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { createFolder } from './folder.ts'
import { spawnServer } from './process.ts'

const CACHE = join(import.meta.dirname, '..', '..', 'node_modules', '.cache', 'muster')

/**
 * Starts and stops the service once after an installation, because a killed server stores no compiled code: without it
 * each start would take more than twice the processor time.
 */
export async function setup(): Promise<void> {
  if (existsSync(CACHE)) return
  await using folder = await createFolder()
  await using server = await spawnServer(folder.path)
  await server.stop()
}
