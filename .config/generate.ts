import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import Sqlite from 'better-sqlite3'

const root = dirname(import.meta.dirname)
const schemaPath = join(root, 'prisma', 'schema.prisma')
const generated = join(root, 'prisma', 'generated')

/**
 * Makes prisma/generated: the SQLite client with the Pothos types, and the PostgreSQL client from a twin of the schema.
 * Leaves `stamp` there at the end, and does nothing where it is already.
 */
export async function generate(stamp: string): Promise<void> {
  const stampPath = join(generated, '.stamp')
  const twinPath = join(generated, 'postgresql.prisma')
  mkdirSync(generated, { recursive: true })
  // One process at a time. The lock is the operating system's: it goes with a process that dies.
  const lock = new Sqlite(join(generated, '.lock'), { timeout: 120_000 })
  lock.exec('BEGIN EXCLUSIVE')
  try {
    if (read(stampPath) === stamp) return
    rmSync(stampPath, { force: true })
    writeFileSync(twinPath, postgresqlTwin(readFileSync(schemaPath, 'utf8')))
    await Promise.all([prismaGenerate(schemaPath), prismaGenerate(twinPath)])
    writeFileSync(stampPath, stamp)
  } finally {
    lock.close()
  }
}

/** A schema as it is on PostgreSQL: another provider and output; the Pothos types come from the SQLite one alone. */
export function postgresqlTwin(schema: string): string {
  return schema
    .replace('provider = "sqlite"', 'provider = "postgresql"')
    .replace('"./generated/sqlite"', '"./postgresql"')
    .replace(/^generator pothos \{.*?^\}\n/ms, '')
}

/** `prisma generate`, silent unless it fails. It finds its generators on PATH. */
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
