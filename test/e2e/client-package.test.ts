import { execFile, spawn } from 'node:child_process'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createSubject } from '../soak/service.ts'
import { createFolder } from '../support/folder.ts'
import { freePort } from '../support/free-port.ts'
import { startServer } from '../support/server.ts'

// The package as its users get it: built, packed, and installed into an empty folder.

const ROOT = join(import.meta.dirname, '..', '..')
const MODULES = join(ROOT, 'node_modules')
const run = promisify(execFile)
const npm = (args: readonly string[], cwd: string) => run('npm', args, { cwd, shell: process.platform === 'win32' })

/** The package's dependency from this repository, so that nothing is downloaded. */
const overrides = { eventsource: `file:${join(MODULES, 'eventsource')}` }

let folder: string

async function write(name: string, text: string): Promise<void> {
  await writeFile(join(folder, name), text)
}

beforeAll(async () => {
  const made = await createFolder()
  folder = made.path
  // `npm run check` checks the same sources.
  await run(process.execPath, ['.config/client.ts', '--unchecked'], { cwd: ROOT })
  await npm(['pack', '--silent', '--ignore-scripts', join(ROOT, 'dist', 'client')], folder)
  const [packed] = (await readdir(folder)).filter((name) => name.endsWith('.tgz'))
  const peers = Object.fromEntries(
    ['@trpc/client', '@trpc/server'].map((name) => [name, `file:${join(MODULES, name)}`]),
  )
  const dependencies = { '@muster/client': `file:${packed}`, ...peers }
  await write('package.json', JSON.stringify({ private: true, type: 'module', dependencies, overrides }))
  const quiet = ['--ignore-scripts', '--legacy-peer-deps', '--no-audit', '--no-fund', '--no-package-lock']
  await npm(['install', '--offline', ...quiet], folder)
  return () => made[Symbol.asyncDispose]()
})

describe('the package of the typed client', () => {
  it('installs neither the service nor a database, but only itself, tRPC and an EventSource', async () => {
    const installed = async (path: string) =>
      (await readdir(join(folder, 'node_modules', path))).filter((name) => !name.startsWith('.'))
    expect(await installed('')).toEqual(['@muster', '@trpc', 'eventsource'])
    expect(await installed('@trpc')).toEqual(['client', 'server'])
    const files = await readdir(join(folder, 'node_modules/@muster/client'), { recursive: true })
    expect(files.filter((name) => !['sdk'].includes(name)).toSorted()).toEqual([
      'LICENSE',
      'README.md',
      'package.json',
      'router.d.ts',
      'sdk/index.d.ts',
      'sdk/index.js',
      'wire.d.ts',
    ])
  })

  it('can be published: it is public, has a licence, and accepts any tRPC 11', async () => {
    const manifest = JSON.parse(await readFile(join(folder, 'node_modules/@muster/client/package.json'), 'utf8'))
    expect(manifest).toMatchObject({
      license: 'Apache-2.0',
      peerDependencies: { '@trpc/client': '^11', '@trpc/server': '^11' },
    })
    expect(manifest).not.toHaveProperty('private')
    expect(Object.keys(manifest.dependencies)).toEqual(['eventsource'])
  })

  it('has a comment on every exported name and every procedure', async () => {
    const read = (name: string) => readFile(join(folder, 'node_modules/@muster/client', name), 'utf8')
    const procedures = /(.*)\n {8}(\w+): import\("@trpc\/server"\)\.TRPC\w+Procedure</g
    const found = [...(await read('router.d.ts')).matchAll(procedures)]
    expect(found.length).toBeGreaterThan(90)
    expect(found.filter(([, before]) => before?.trim() !== '*/').map(([, , name]) => name)).toEqual([])
    const exported = /(.*)\nexport (?:declare function|type|interface) (\w+)/g
    const bare = [...(await read('sdk/index.d.ts')).matchAll(exported)].filter(([, before]) => !before?.endsWith('*/'))
    expect(bare.map(([, , name]) => name)).toEqual([])
  })

  it.each(['nodenext', 'bundler'])(
    'has complete types that report errors, and a README that compiles (%s, strict)',
    async (resolution) => {
      await write('index.ts', PROGRAM)
      const readme = await readFile(join(folder, 'node_modules/@muster/client/README.md'), 'utf8')
      await write('readme.ts', /^```ts\n([\s\S]*?)^```$/m.exec(readme)?.[1] ?? '-')
      const module = resolution === 'nodenext' ? 'nodenext' : 'esnext'
      const compilerOptions = {
        strict: true,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
        skipLibCheck: false,
        target: 'esnext',
        lib: ['esnext', 'dom'],
        types: [],
        noEmit: true,
        module,
        moduleResolution: resolution,
      }
      await write('tsconfig.json', JSON.stringify({ compilerOptions, files: ['index.ts', 'readme.ts'] }))
      const { stdout } = await run(process.execPath, [
        join(MODULES, 'typescript/lib/tsc.js'),
        '-p',
        folder,
        '--checkers',
        '1',
      ]).catch((error) => error)
      expect(stdout).toBe('')
    },
  )

  it('sends queries ten at a time, large mutations at once, and streams, by header', async () => {
    const server = await startServer()
    onTestFinished(() => server[Symbol.asyncDispose]())
    await write('talk.js', TALK)
    const { stdout } = await run(process.execPath, ['talk.js', server.url, server.token], { cwd: folder })
    const names = Array.from({ length: 11 }, (_, index) => `Ada ${index}`)
    expect(JSON.parse(stdout)).toEqual({
      names,
      found: names,
      events: ['meta', 'message', 'result'],
      refusal: [404, 'Agent not found'],
    })
  })

  it('follows a run to its end, each event once, even if the server is killed meanwhile', async () => {
    await using subject = await createSubject({ LEASE_DURATION: '1', PORT: String(await freePort()) })
    subject.model.script({ tokens: ['One ', 'two '], end: 'hang' })
    await write('follow.js', FOLLOW)
    const child = spawn(process.execPath, ['follow.js', subject.url, subject.token, subject.agentId], { cwd: folder })
    const events: { seq: number; event: string }[] = []
    for await (const line of createInterface({ input: child.stdout })) {
      if (events.push(JSON.parse(line)) !== 3) continue
      await subject.kill()
      await subject.start()
    }
    expect(events.map(({ event }) => event)).toEqual(['meta', 'message', 'message', 'error'])
    const numbers = events.map(({ seq }) => seq)
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b))
  })
})

const PROGRAM = `
import { createClient, type Outputs, TRPCClientError } from '@muster/client'

const muster = createClient({ url: 'http://127.0.0.1', token: 'mst_' })
const { agent } = await muster.agents.get.query({ id: 'a' })
export const name: string = agent.name
// @ts-expect-error a name is no number
export const wrong: number = agent.name
// @ts-expect-error there is no such field
agent.nothing
// @ts-expect-error a boolean is no text
await muster.executions.list.query({ count: 'true' })
await muster.executions.list.query({ count: true })
export const detailOf = (error: unknown) => (error instanceof TRPCClientError ? error.data?.detail : undefined)
// @ts-expect-error nor such a procedure
muster.agents.nothing
// @ts-expect-error a name is text
await muster.agents.create.mutate({ name: 5, systemPrompt: '' })

export type Tree = Outputs['executions']['tree']['tree']
export const deepest = ({ children: [child] }: Tree): string | undefined => child?.children[0]?.chatId
// @ts-expect-error at any depth
export const notThere = ({ children: [child] }: Tree) => child?.children[0]?.nothing

muster.executions.events.subscribe({ executionId: 'e' }, {
  onData({ data: { at, event, data } }) {
    const time: string = at
    if (event === 'message' && data.messageType === 'stream_event') console.log(time, data.delta.text)
    // @ts-expect-error only a result has it
    if (event === 'meta') console.log(data.usage)
  },
  onError(error) {
    const status: number | undefined = error.data?.statusCode
    console.log(status, error.data?.requestId)
  },
})
`

const TALK = `
import { createClient } from '@muster/client'

const [url, token] = process.argv.slice(2)
const muster = createClient({ url, token })
const create = (name) => muster.agents.create.mutate({ name, systemPrompt: 'é'.repeat(100_000) })
const agents = await Promise.all(Array.from({ length: 11 }, (_, index) => create(\`Ada \${index}\`)))
const found = await Promise.all(agents.map(({ id }) => muster.agents.get.query({ id })))
const run = { id: agents[0].id, message: 'Hi', background: true }
const { executionId } = await muster.agents.execute.mutate(run)
const events = new Set()
await new Promise((onComplete, onError) => {
  const onData = ({ data }) => events.add(data.event)
  muster.executions.events.subscribe({ executionId }, { onData, onError, onComplete })
})
const { data } = await muster.agents.get.query({ id: 'unknown' }).catch((error) => error)
const answer = {
  names: agents.map(({ name }) => name),
  found: found.map(({ agent }) => agent.name),
  events: [...events],
  refusal: [data.statusCode, data.message],
}
console.log(JSON.stringify(answer))
`

const FOLLOW = `
import { createClient } from '@muster/client'

const [url, token, id] = process.argv.slice(2)
const muster = createClient({ url, token })
const { executionId } = await muster.agents.execute.mutate({ id, message: 'Hi', background: true })
const onData = ({ data: { seq, event } }) => console.log(JSON.stringify({ seq, event }))
muster.executions.events.subscribe({ executionId }, { onData })
`
