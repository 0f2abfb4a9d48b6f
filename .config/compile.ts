/**
 * `npm run compile`: uses the whole service once, so that the first start finds it compiled. For container images,
 * because a container's own compile cache is lost with it.
 */
import '../src/compile-cache.js'
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { flushCompileCache } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const root = new URL('../', import.meta.url)
/** Commands, threads, and files for other programs and for browsers. */
const exclude = ['src/demo.ts', 'src/admin/main.ts', 'src/web/markdown-thread.ts', 'src/sdk/index.ts', 'src/console/**']
const paths = globSync(['src/**/*.ts', 'prisma/generated/*/client.ts'], { cwd: root, exclude })
for (const path of paths) await import(new URL(path, root).href)
// Provider packages are loaded only with their models.
const { dependencies } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8'))
for (const name of Object.keys(dependencies)) if (name.startsWith('@ai-sdk/')) await import(name)

const { createLog } = await import('../src/lib/log.ts')
const { readSettings } = await import('../src/settings.ts')
const { startService } = await import('../src/start.ts')

const folder = mkdtempSync(join(tmpdir(), 'muster-compile-'))
try {
  const settings = readSettings({ DATA_DIR: folder, PORT: '0', LOG_LEVEL: 'silent' })
  const service = await startService(settings, createLog(settings.LOG_LEVEL))
  try {
    await use(service.url, service.firstToken ?? '')
  } finally {
    await service.stop()
  }
} finally {
  rmSync(folder, { recursive: true })
}
flushCompileCache()

/** Creates an agent, streams a run, and reads it. */
async function use(url: string, token: string): Promise<void> {
  const call = async (path: string, body: object): Promise<string> => {
    const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' }
    const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) })
    const text = await response.text()
    if (!response.ok) throw new Error(`POST ${path} answered ${response.status}: ${text}`)
    return text
  }
  const { agent } = JSON.parse(
    await call('/api/v1/agents', { name: 'Ada', systemPrompt: 'You are a helpful assistant.' }),
  )
  await call(`/api/v1/agents/${agent.id}/execute`, { message: 'Hello', stream: true })
  await call('/graphql', { query: '{ agents { nodes { name } } }' })
}
