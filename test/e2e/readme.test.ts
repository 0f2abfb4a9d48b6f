import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { isWellFormed, newToken } from '../../src/lib/token.ts'
import { ERROR_CODES } from '../../src/wire.ts'
import { createFolder } from '../support/folder.ts'
import { spawnServer } from '../support/process.ts'
import { startServer } from '../support/server.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8')
const blocks = [...readme.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(([, language, text = '']) => ({
  language,
  text,
}))

/** Runs what a reader would paste. */
async function paste(script: string, cwd: string, env: Record<string, string> = {}): Promise<string> {
  const options = { cwd, env: { PATH: process.env.PATH, ...env } }
  const { stdout } = await promisify(execFile)('bash', ['-euo', 'pipefail', '-c', script], options)
  return stdout
}

test('every setting is in the table of the README, and nothing else is', () => {
  const source = readFileSync(join(ROOT, 'src', 'settings.ts'), 'utf8')
  const settings = [...source.matchAll(/^ {4}([A-Z][A-Z_]+):/gm)].map(([, name]) => name)
  const cells = [...readme.matchAll(/^\| (`[A-Z_`, ]+`) \|/gm)].flatMap(([, cell = '']) => cell.match(/[A-Z_]+/g) ?? [])
  expect(settings.length).toBeGreaterThan(20)
  // NODE_EXTRA_CA_CERTS is Node's own.
  expect(cells.filter((name) => name !== 'NODE_EXTRA_CA_CERTS').toSorted()).toEqual(settings.toSorted())
})

test('every error code is on the page of error codes, once', () => {
  const page = readFileSync(join(ROOT, 'docs', 'error-codes.md'), 'utf8')
  const [tables = '', reserved = ''] = page.split('\nReserved')
  const listed = [...tables.matchAll(/^\| `(\w+)`/gm), ...reserved.matchAll(/`(\w+)`/g)].map(([, code]) => code)
  expect(listed.toSorted()).toEqual(ERROR_CODES.toSorted())
})

test('the image and the unit of systemd start the service as `npm start` does, with the flags it is compiled with', () => {
  const read = (...path: string[]) => readFileSync(join(ROOT, ...path), 'utf8')
  const { scripts } = JSON.parse(read('package.json'))
  const [command] = read('Dockerfile').match(/(?<=^CMD ).*/gm) ?? []
  expect(JSON.parse(command ?? '[]')).toEqual(scripts.start.split(' '))
  expect(scripts.compile.replace('.config/compile.ts', 'src/main.js')).toBe(scripts.start)
  expect(read('docs', 'operating.md')).toContain(`\nExecStart=/opt/muster/node_modules/.bin/${scripts.start}\n`)
})

test("the README's first steps work when pasted: create, stream, replay, GraphQL", async () => {
  await using folder = await createFolder()
  const token = newToken('mst')
  await using server = await spawnServer(folder.path, { BOOTSTRAP_TOKEN: token })
  const script = blocks.flatMap(({ language, text }) => (language === 'bash' ? text : [])).join('\n')
  const out = await paste(
    script.replace('mst_...', token).replaceAll('http://127.0.0.1:3000', server.url).replaceAll('curl -N', 'curl -sN'),
    folder.path,
  )
  const ids = [...out.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))
  const last = ids.at(-1) ?? 0
  const upTo = (from: number) => Array.from({ length: last - from + 1 }, (_, index) => from + index)
  expect(ids).toEqual([...upTo(1), ...upTo(11)])
  expect(out.match(/^event: result$/gm)).toHaveLength(2)
  const { data } = JSON.parse(out.split('\n').at(-1) ?? '')
  expect(data.executions.nodes).toEqual([
    { status: 'completed', model: 'offline/echo', result: expect.stringContaining('Hello'), agent: { name: 'Ada' } },
  ])
})

test("the README's typed client streams a run, asks much at once, and sends much at once", async () => {
  await using folder = await createFolder()
  await using server = await startServer()
  const client = blocks.find(({ language, text }) => language === 'ts' && text.includes('createClient'))?.text ?? ''
  const busy = `
await Promise.all(Array.from({ length: 11 }, () => muster.agents.get.query({ id: agent.id })))
const long = { id: agent.id, message: 'x'.repeat(150_000), background: true }
await Promise.all(Array.from({ length: 8 }, () => muster.agents.execute.mutate(long)))`
  await symlink(join(ROOT, 'src'), join(folder.path, 'src'))
  await writeFile(join(folder.path, 'client.ts'), client.replace('http://127.0.0.1:3000', server.url) + busy)
  const out = await paste('node client.ts', folder.path, { TOKEN: server.token })
  expect(out).toMatch(/Hello[\s\S]*\d+ tokens\n/)
})

test("the README's command for a BOOTSTRAP_TOKEN prints one", async () => {
  const command = blocks.find(({ text }) => text.includes('newToken'))?.text ?? ''
  const out = await paste(command, ROOT)
  expect(isWellFormed(out.trim(), 'mst')).toBe(true)
})

test("each line of the README's tour of the command line is understood and done", async () => {
  await using server = await startServer()
  const lines =
    blocks
      .find(({ text }) => text.includes('npm run admin'))
      ?.text.trim()
      .split('\n') ?? []
  let id = ''
  for (const line of lines) {
    const words = [...line.replace('npm run admin -- ', '').matchAll(/"([^"]*)"|\S+/g)].map(
      ([word, quoted]) => quoted ?? word,
    )
    const given: Record<string, string> = { ID: id, 'backup.db': join(server.folder, 'backup.db') }
    const argv = words.map((word) => given[word] ?? word)
    // A restore wants the server stopped, as the README says.
    if (words[0] === 'restore') await server.service.stop()
    const { code, out, err } = await runAdmin([...argv, '--json'], { DATA_DIR: server.folder })
    expect([line, code, err]).toEqual([line, 0, ''])
    id = JSON.parse(out).id ?? id
  }
  expect(lines.length).toBeGreaterThan(7)
})
