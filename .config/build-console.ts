import { readdir, readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import { build } from 'vite'

const toBrotli = promisify(brotliCompress)
const toGzip = promisify(gzip)

/** Builds the console into `dist/console`, each file compressed beside itself, and leaves the stamp last. */
export async function buildConsole(folder: URL): Promise<void> {
  const configFile = fileURLToPath(new URL('console.ts', import.meta.url))
  await build({ configFile, logLevel: 'error', mode: 'production' })
  const assets = new URL('assets/', folder)
  await Promise.all(
    (await readdir(assets)).map(async (name) => {
      const file = new URL(name, assets)
      const bytes = await readFile(file)
      const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }
      const [br, gz] = await Promise.all([toBrotli(bytes, quality), toGzip(bytes, { level: 9 })])
      await Promise.all([writeFile(new URL(`${name}.br`, assets), br), writeFile(new URL(`${name}.gz`, assets), gz)])
    }),
  )
  await writeFile(new URL('.stamp', folder), '')
}
