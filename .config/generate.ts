/**
 * Makes what Prisma generates (prisma/generated) when it is missing or stale: the SQLite client with the Pothos types,
 * and the PostgreSQL client from a twin of the schema. Does nothing, and says nothing, when all is fresh.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'

const root = dirname(import.meta.dirname)
const generated = join(root, 'prisma', 'generated')
const schemaPath = join(root, 'prisma', 'schema.prisma')
const twinPath = join(generated, 'postgresql.prisma')
const stampPath = join(generated, '.stamp')
const modules = join(root, 'node_modules')

const schema = readFileSync(schemaPath, 'utf8')
const stamp = createHash('sha256')
for (const source of [
  import.meta.filename,
  schemaPath,
  join(modules, 'prisma', 'package.json'),
  join(modules, '@pothos', 'plugin-prisma', 'package.json'),
]) {
  stamp.update(readFileSync(source))
}
const expected = stamp.digest('hex')

function isFresh(): boolean {
  try {
    return readFileSync(stampPath, 'utf8') === expected
  } catch {
    return false
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
async function generate(path: string): Promise<void> {
  const pathKey = Object.keys(process.env).find((key) => key.toUpperCase() === 'PATH') ?? 'PATH'
  const child = spawn(
    process.execPath,
    [join(modules, 'prisma', 'build', 'index.js'), 'generate', '--no-hints', '--schema', path],
    {
      cwd: root,
      env: {
        ...process.env,
        CHECKPOINT_DISABLE: '1',
        [pathKey]: [join(modules, '.bin'), process.env[pathKey]].join(delimiter),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
  const exit = new Promise<number | null>((resolve, reject) => child.on('error', reject).on('close', resolve))
  const [code, out, err] = await Promise.all([exit, text(child.stdout), text(child.stderr)])
  if (code !== 0) throw new Error(`prisma generate failed for ${path}\n${out}${err}`)
}

if (!isFresh()) {
  // One process at a time; the lock is the operating system's, so it goes with a process that dies.
  const { default: Database } = await import('better-sqlite3')
  mkdirSync(generated, { recursive: true })
  const lock = new Database(join(generated, '.lock'), { timeout: 120_000 })
  lock.exec('BEGIN EXCLUSIVE')
  try {
    if (!isFresh()) {
      rmSync(stampPath, { force: true })
      writeFileSync(twinPath, postgresqlTwin(schema))
      await Promise.all([generate(schemaPath), generate(twinPath)])
      writeFileSync(stampPath, expected)
    }
  } finally {
    lock.close()
  }
}
