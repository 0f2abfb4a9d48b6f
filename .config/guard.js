/**
 * Checks the prerequisites of every program: the right Node, and a fresh output of Prisma's generators. Written in
 * JavaScript, so that an old Node can report the problem and a new one needs only a few milliseconds.
 */
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'

const [major, minor] = process.versions.node.split('.')
if (Number(major) < 24) {
  console.error(
    `Muster needs Node 24; found ${major}.${minor}. Run npm ci in its folder, which brings Node 24 on Linux and Windows, ` +
      'or install Node 24 on macOS and Alpine Linux',
  )
  process.exit(1)
}

/** Files that determine the generated output. */
const sources = [
  'prisma/schema.prisma',
  '.config/generate.ts',
  'node_modules/prisma/package.json',
  'node_modules/@pothos/plugin-prisma/package.json',
]
const fromRoot = (path) => new URL(`../${path}`, import.meta.url)
const stamp = sources
  .reduce((hash, path) => hash.update(readFileSync(fromRoot(path))), createHash('sha256'))
  .digest('hex')
const found = fromRoot('prisma/generated/.stamp')
if (!existsSync(found) || readFileSync(found, 'utf8') !== stamp) {
  console.error('Preparing the database clients: after an installation or upgrade, this takes some seconds …')
  const { generate } = await import('./generate.ts')
  await generate(stamp).catch((error) => {
    if (error.code !== 'EACCES' && error.code !== 'EROFS') throw error
    console.error(
      `Prisma's output cannot be written (${error.path}): run node .config/guard.js as a user who may write there`,
    )
    process.exit(1)
  })
}

// Builds the console if its sources are newer than the built files. The API also starts without it, and /app then has
// the instructions.
const built = fromRoot('dist/console/')
const builtAt = existsSync(new URL('.stamp', built)) ? statSync(new URL('.stamp', built)).mtimeMs : 0
const consoleSources = fromRoot('src/console/')
const isNewer = (file) => statSync(file).mtimeMs > builtAt
const isStale = () =>
  ['.config/console.ts', 'package-lock.json'].some((path) => existsSync(fromRoot(path)) && isNewer(fromRoot(path))) ||
  readdirSync(consoleSources, { recursive: true }).some((path) => isNewer(new URL(path, consoleSources)))
if (existsSync(consoleSources) && isStale()) {
  try {
    console.error('Building the console …')
    const { buildConsole } = await import('./build-console.ts')
    await buildConsole(built)
  } catch (error) {
    console.error(`The console was not built: ${error.message.split('\n')[0]}. The API works without it.`)
  }
}
