import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { newToken } from '../../src/lib/token.ts'
import { callerAt } from '../support/api.ts'
import { createFolder } from '../support/folder.ts'
import { spawnServer } from '../support/process.ts'

/** Programs of declared MCP servers end with the service (contract-2.md section 2.12). */

const HOSTILE = join(import.meta.dirname, '..', 'support', 'hostile-program.js')

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

test.each<[NodeJS.Signals, string]>([
  ['SIGTERM', 'stubborn'],
  // A program that ignores the end of its input would run forever.
  ['SIGKILL', 'well'],
])('after %s no program of the service is left', async (signal, start) => {
  await using folder = await createFolder()
  const [config, pids, token] = [join(folder.path, 'mcp.json'), join(folder.path, 'pids'), newToken('mst')]
  const hostile = { command: process.execPath, args: [HOSTILE, start], env: { PIDS: pids } }
  writeFileSync(config, JSON.stringify({ mcpServers: { hostile } }))
  await using server = await spawnServer(folder.path, { BOOTSTRAP_TOKEN: token, MCP_CONFIG: config })
  const call = callerAt({ url: server.url, token })
  const [mcp] = (await call('GET', '/mcps')).body.mcps
  expect(mcp).toMatchObject({ name: 'hostile', source: 'operator' })
  const { tools } = (await call('GET', `/mcps/${mcp.id}/tools`)).body
  expect(tools.length).toBeGreaterThan(10)
  const [pid = 0] = readFileSync(pids, 'utf8').trim().split('\n').map(Number)
  expect(exists(pid)).toBe(true)
  const { code } = await server.stop(signal)
  expect(code).toBe(signal === 'SIGTERM' ? 0 : null)
  await expect.poll(() => exists(pid)).toBe(false)
})
