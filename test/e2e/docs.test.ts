import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { isWellFormed, newToken } from '../../src/lib/token.ts'
import { createFolder } from '../support/folder.ts'
import { spawnServer } from '../support/process.ts'
import { startServer } from '../support/server.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const read = (...path: string[]) => readFileSync(join(ROOT, ...path), 'utf8')

/**
 * Returns the code samples of a page in a language. Samples in `bash` are for this test, those in `sh` for readers
 * only.
 */
const samples = (page: string, language: string): string[] =>
  [...page.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].flatMap(([, name, text = '']) => (name === language ? text : []))

/** Runs the commands that a reader would paste, without the files that set up the developer's shell. */
async function paste(script: string, cwd: string, env: Record<string, string> = {}): Promise<string> {
  const options = { cwd, env: { PATH: process.env.PATH, ...env } }
  const { stdout } = await promisify(execFile)('bash', ['--norc', '-euo', 'pipefail', '-c', script], options)
  return stdout
}

/** Runs the commands of a page that starts from nothing, with its own server and token. */
async function follow(page: string): Promise<string> {
  await using folder = await createFolder()
  const token = newToken('mst')
  await using server = await spawnServer(folder.path, { BOOTSTRAP_TOKEN: token })
  const script = samples(page, 'bash').join('\n')
  return await paste(
    script.replace('mst_...', token).replaceAll('http://127.0.0.1:3000', server.url).replaceAll('curl -N', 'curl -sN'),
    folder.path,
  )
}

const idsIn = (out: string) => [...out.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index)

test('the image and the systemd unit start the service with the flags of `npm start`', () => {
  const { scripts } = JSON.parse(read('package.json'))
  const [command] = read('Dockerfile').match(/(?<=^CMD ).*/gm) ?? []
  const [node, ofContainer, ...rest] = JSON.parse(command ?? '[]')
  expect([node, ...rest]).toEqual(scripts.start.split(' '))
  expect(ofContainer).toBe('--max-old-space-size-percentage=45')
  expect(scripts.compile.replace('.config/compile.ts', 'src/main.js')).toBe(scripts.start)
  expect(read('docs', 'guides', 'operating.md')).toContain(
    `\nExecStart=/opt/muster/node_modules/.bin/${scripts.start}\n`,
  )
})

test('the servers of Docker Compose get every setting of .env', () => {
  expect(read('compose.yaml')).toMatch(
    /^x-muster: &muster$[\s\S]*^ {2}env_file:\n {4}- path: \.env$[\s\S]*^services:$/m,
  )
})

test('the commands of the README create an agent and stream a run', async () => {
  const out = await follow(read('README.md'))
  const ids = idsIn(out)
  expect(ids).toEqual(range(1, ids.length))
  expect(out.match(/^event: result$/gm)).toHaveLength(1)
})

test('the commands of the quick start run, replay, query and continue a conversation', async () => {
  const out = await follow(read('docs', 'quick-start.md'))
  const ids = idsIn(out)
  const last = ids.at(-1) ?? 0
  expect(ids).toEqual([...range(1, last), ...range(11, last)])
  expect(out.match(/^event: result$/gm)).toHaveLength(2)
  const [query, answer] =
    out
      .split('\n')
      .at(-1)
      ?.split(/(?<=\})(?=\{"success")/)
      .map((text) => JSON.parse(text)) ?? []
  expect(query.data.executions.nodes).toEqual([
    { status: 'completed', model: 'offline/echo', result: expect.stringContaining('Hello'), agent: { name: 'Ada' } },
  ])
  expect(answer).toMatchObject({ success: true, result: expect.stringMatching(/Turn 2.*And again\?/) })
})

describe('a guide', () => {
  const guides = readdirSync(join(ROOT, 'docs', 'guides')).filter(
    (name) => samples(read('docs', 'guides', name), 'bash').length,
  )

  test.each(guides)('%s has commands that all succeed', async (name) => {
    await using folder = await createFolder()
    await using server = await startServer()
    const script = samples(read('docs', 'guides', name), 'bash').join('\n')
    const out = await paste(script, folder.path, { TOKEN: server.token, API: `${server.url}/api/v1` })
    expect(out).toMatch(/"success":true|"data":/)
    expect(out).not.toContain('"error":true')
    expect(out).not.toContain('"errors":')
  })

  test('a guide about Python has a program that streams a run', async () => {
    await using folder = await createFolder()
    await using server = await startServer()
    const [program = ''] = samples(read('docs', 'guides', 'python-and-curl.md'), 'python')
    await writeFile(join(folder.path, 'run.py'), program)
    const out = await paste('python3 run.py', folder.path, { TOKEN: server.token, API: `${server.url}/api/v1` })
    expect(out).toMatch(/You said: Hello\ncompleted\n$/)
  })

  test('a guide about the typed client has a program that streams a run and sends much at once', async () => {
    await using folder = await createFolder()
    await using server = await startServer()
    const [client = ''] = samples(read('docs', 'guides', 'typed-client.md'), 'ts')
    const busy = `
await Promise.all(Array.from({ length: 11 }, () => muster.agents.get.query({ id: agent.id })))
const long = { id: agent.id, message: 'x'.repeat(150_000), background: true }
await Promise.all(Array.from({ length: 8 }, () => muster.agents.execute.mutate(long)))`
    await symlink(join(ROOT, 'src'), join(folder.path, 'src'))
    await writeFile(join(folder.path, 'client.ts'), client.replace('http://127.0.0.1:3000', server.url) + busy)
    const out = await paste('node client.ts', folder.path, { TOKEN: server.token })
    expect(out).toMatch(/Hello[\s\S]*\d+ tokens\n/)
  })

  test('a guide about front ends rejoins a run after a lost connection and a restart', async () => {
    await using folder = await createFolder()
    await using server = await startServer()
    const call = async (path: string, body?: object) => {
      const method = body ? { method: 'POST', body: JSON.stringify(body) } : {}
      const headers = { Authorization: `Bearer ${server.token}`, 'Content-Type': 'application/json' }
      return (await fetch(`${server.url}/api/v1${path}`, { headers, ...method })).json()
    }
    const { id: characterId } = await call('/agents', { name: 'Ada', systemPrompt: 'You are Ada.' })
    const [{ id: spaceId }] = (await call('/spaces')).spaces
    const [ask = ''] = samples(read('docs', 'guides', 'front-end.md'), 'ts')
    const question = JSON.stringify({ characterId, spaceId, message: 'Hello' })
    const program = `${ask}
// Not all browsers can iterate over streams.
const { pipeThrough } = ReadableStream.prototype
ReadableStream.prototype.pipeThrough = function (...given) {
  return Object.assign(pipeThrough.apply(this, given), { [Symbol.asyncIterator]: undefined })
}
const [real, wait] = [fetch, setTimeout]
// Timers of Node's fetch have arguments, and keep their time.
globalThis.setTimeout = (work, ms, ...given) => (given.length ? wait(work, ms, ...given) : wait(work))
let calls = 0
globalThis.fetch = async (...request) => {
  calls++
  if (calls === 2) return new Response('', { status: 503 })
  const response = await real(...request)
  if (calls > 1) return response
  const cut = new TransformStream({ transform: (chunk, controller) => controller.error(new TypeError('lost')) })
  return new Response(response.body.pipeThrough(cut), response)
}
const types = []
let text = ''
await ask('${server.url}', '${server.token}', ${question}, ({ type, delta }) => {
  types.push(type)
  text += delta?.text ?? ''
})
console.log(JSON.stringify({ calls, text, ends: [types.at(0), types.at(-1)] }))`
    await writeFile(join(folder.path, 'page.ts'), program)
    const { calls, text, ends } = JSON.parse(await paste('node page.ts', folder.path))
    expect({ calls, ends }).toEqual({ calls: 3, ends: ['meta', 'result'] })
    expect(text).toMatch(/^This is the offline model.*You said: Hello$/)
    expect((await call('/executions')).executions).toHaveLength(1)
  })

  test('a guide about operating has a command that prints a well-formed BOOTSTRAP_TOKEN', async () => {
    const command = samples(read('docs', 'guides', 'operating.md'), 'sh').find((text) => text.includes('newToken'))
    const out = await paste(command ?? '', ROOT)
    expect(isWellFormed(out.trim(), 'mst')).toBe(true)
  })

  test('a guide about operating has a tour of the command line whose every line succeeds', async () => {
    await using server = await startServer()
    const tour = samples(read('docs', 'guides', 'operating.md'), 'sh').find((text) => text.includes('org create'))
    const lines = tour?.trim().split('\n') ?? []
    let id = ''
    for (const line of lines) {
      const words = [...line.replace('npm run admin -- ', '').matchAll(/"([^"]*)"|\S+/g)].map(
        ([word, quoted]) => quoted ?? word,
      )
      const values: Record<string, string> = { ID: id, 'backup.db': join(server.folder, 'backup.db') }
      const argv = words.map((word) => values[word] ?? word)
      // A restore needs a stopped server.
      if (words[0] === 'restore') await server.service.stop()
      const { code, out, err } = await runAdmin([...argv, '--json'], { DATA_DIR: server.folder })
      expect([line, code, err]).toEqual([line, 0, ''])
      id = JSON.parse(out).id ?? id
    }
    expect(lines.length).toBeGreaterThan(7)
  })
})
