import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { glob, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const PROGRAM = fileURLToPath(import.meta.resolve('@modelcontextprotocol/conformance/dist/index.js'))
const PATIENCE = new URL('patient-timers.mjs', import.meta.url).href

/**
 * Runs the official conformance tests with some options. Returns the failed checks by scenario, none for a passed one.
 */
export async function runConformance(
  options: readonly string[],
  env: Record<string, string> = {},
): Promise<Record<string, string[]>> {
  const folder = await mkdtemp(join(tmpdir(), 'muster-conformance-'))
  try {
    const program = spawn(process.execPath, ['--import', PATIENCE, PROGRAM, ...options, '--output-dir', folder], {
      stdio: 'ignore',
      env: { ...process.env, ...env },
    })
    await once(program, 'close')
    return await failuresIn(folder)
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function failuresIn(folder: string): Promise<Record<string, string[]>> {
  const failures: Record<string, string[]> = {}
  for await (const path of glob('**/checks.json', { cwd: folder })) {
    const checks: { id: string; status: string }[] = JSON.parse(await readFile(join(folder, path), 'utf8'))
    const scenario = dirname(path)
      .replace(/^server-/, '')
      .replace(/-\d{4}-\d\d-\d\dT.*$/, '')
    failures[scenario] = checks.filter(({ status }) => status === 'FAILURE').map(({ id }) => id)
  }
  return failures
}
