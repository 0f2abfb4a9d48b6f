import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import Sqlite from 'better-sqlite3'

const root = dirname(import.meta.dirname)
const schemaPath = join(root, 'prisma', 'schema.prisma')
const generated = join(root, 'prisma', 'generated')

/**
 * Generates prisma/generated: the SQLite client with the Pothos types, and the PostgreSQL client from a twin of the
 * schema. Writes `stamp` at the end, and does nothing if it is there already.
 */
export async function generate(stamp: string): Promise<void> {
  const stampPath = join(generated, '.stamp')
  const twinPath = join(generated, 'postgresql.prisma')
  mkdirSync(generated, { recursive: true })
  // One process at a time. The operating system's lock ends with its process.
  const lock = new Sqlite(join(generated, '.lock'), { timeout: 120_000 })
  lock.exec('BEGIN EXCLUSIVE')
  try {
    if (read(stampPath) === stamp) return
    rmSync(stampPath, { force: true })
    writeFileSync(twinPath, postgresqlTwin(readFileSync(schemaPath, 'utf8')))
    await Promise.all([prismaGenerate(schemaPath), prismaGenerate(twinPath)])
    for (const kind of ['sqlite', 'postgresql']) {
      const folder = join(generated, kind, 'internal')
      await unpackCompiler(folder)
      edit(join(folder, 'class.ts'), withoutSymbols)
      edit(join(folder, 'prismaNamespace.ts'), (text) => withoutClient(withoutSymbols(text)))
    }
    writeFileSync(stampPath, stamp)
  } finally {
    lock.close()
  }
}

/** Returns the PostgreSQL version of a schema: another provider and output, without Pothos types. */
export function postgresqlTwin(schema: string): string {
  return schema
    .replace('provider = "sqlite"', 'provider = "postgresql"')
    .replace('"./generated/sqlite"', '"./postgresql"')
    .replace(/^generator pothos \{.*?^\}\n/ms, '')
}

/**
 * Moves the query compiler, which Prisma embeds as text in a module (two copies of some MB per process), into a file,
 * and makes the client in `folder` read that.
 */
async function unpackCompiler(folder: string): Promise<void> {
  const path = join(folder, 'class.ts')
  const client = readFileSync(path, 'utf8')
  const loading = /const \{ wasm \} = await import\("(.+?)"\)\s+return await decodeBase64AsWasm\(wasm\)/
  const [found, module = ''] = loading.exec(client) ?? []
  if (!found) throw new Error(`Prisma's client loads its query compiler in another way: ${path}`)
  const { wasm } = (await import(module)) as { wasm: string }
  writeFileSync(join(folder, 'query_compiler.wasm'), Buffer.from(wasm, 'base64'))
  const reading = `const { readFile } = await import('node:fs/promises')
    return new WebAssembly.Module(await readFile(new URL('./query_compiler.wasm', import.meta.url)))`
  writeFileSync(path, client.replace(found, reading))
}

/**
 * Removes the characters beyond Latin-1 from a generated module, which has them in comments alone. With a single one,
 * V8 keeps two bytes for each character of the text.
 */
const withoutSymbols = (text: string): string => text.replace(/[^\0-\xff]/g, '')

/** Lets the namespace `Prisma` import the client as a type alone. Node would load a module that only types come from. */
function withoutClient(text: string): string {
  const found = 'import { type PrismaClient } from'
  if (!text.includes(found)) throw new Error(`Prisma's namespace imports its client in another way: no ${found}`)
  return text.replace(found, 'import type { PrismaClient } from')
}

const edit = (path: string, change: (text: string) => string): void =>
  writeFileSync(path, change(readFileSync(path, 'utf8')))

/** Runs `prisma generate`, silently unless it fails. It finds its generators on PATH. */
async function prismaGenerate(path: string): Promise<void> {
  const modules = join(root, 'node_modules')
  const pathKey = Object.keys(process.env).find((key) => key.toUpperCase() === 'PATH') ?? 'PATH'
  const env = {
    ...process.env,
    CHECKPOINT_DISABLE: '1',
    [pathKey]: [join(modules, '.bin'), process.env[pathKey]].join(delimiter),
  }
  const args = [join(modules, 'prisma', 'build', 'index.js'), 'generate', '--no-hints', '--schema', path]
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] })
  const exit = new Promise<number | null>((resolve, reject) => child.on('error', reject).on('close', resolve))
  const [code, out, err] = await Promise.all([exit, text(child.stdout), text(child.stderr)])
  if (code === 0) return
  console.error(`prisma generate failed for ${path}\n${out}${err}`)
  process.exit(1)
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
