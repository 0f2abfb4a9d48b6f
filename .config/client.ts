/**
 * Makes the package `@muster/client` in dist/client: the few lines of src/sdk, and the type of the router without the
 * service behind it, as the compiler tells it.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

const root = dirname(import.meta.dirname)
const target = join(root, 'dist', 'client')
const project = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

/** What the package may import: these, and its own files. */
const dependencies = {
  '@trpc/client': project.devDependencies['@trpc/client'],
  '@trpc/server': project.dependencies['@trpc/server'],
  eventsource: project.devDependencies.eventsource,
}

const FILES = ['sdk/index.js', 'sdk/index.d.ts', 'router.d.ts', 'wire.d.ts']

const manifest = {
  name: '@muster/client',
  version: project.version,
  description: 'The typed client of Muster',
  license: project.license,
  type: 'module',
  exports: { '.': { types: './sdk/index.d.ts', default: './sdk/index.js' } },
  files: FILES,
  dependencies,
}

const README = `# @muster/client

\`\`\`ts
import { createClient } from '@muster/client'

const muster = createClient({ url: 'http://127.0.0.1:3000', token: 'mst_…' })
const { agents } = await muster.agents.list.query()
\`\`\`

It is a client of [tRPC](https://trpc.io/docs/client/vanilla), with the types of the service's version ${project.version}.
`

/**
 * The type of the router alone. What a client never sees, its context and the notes for REST, becomes \`object\`; the
 * one type that contains itself is told in terms of the others.
 */
function withoutService(declarations: string): string {
  const [router = ''] = declarations.split(/^export declare const createCaller/m)
  const types = router
    .replaceAll('import("./trpc.ts").Context', 'object')
    .replaceAll('import("./trpc.ts").Meta', 'object')
    .replaceAll('import("./executions/schema.ts").ExecutionNode', 'ExecutionNode')
  return `${types.slice(types.indexOf('export declare const appRouter')).replace('export ', '')}
type Execution = import('@trpc/server').inferRouterOutputs<AppRouter>['executions']['get']['execution'];
/** An execution with those that it started. */
export type ExecutionNode = Execution & { children: ExecutionNode[] };
`
}

/** Throws when a file of the package needs what the package does not bring. */
function checkImports(file: string, text: string): void {
  for (const [, name = ''] of text.matchAll(/(?:from |import\()['"]([^'"]+)['"]/g)) {
    const isOwn = name.startsWith('.') && FILES.includes(join(dirname(file), name).replace(/\.ts$/, '.d.ts'))
    const isGiven = Object.keys(dependencies).some((given) => name === given || name.startsWith(`${given}/`))
    if (!isOwn && !isGiven) throw new Error(`${file} of the client refers to ${name}, which is the service's alone.`)
  }
}

const emitted = mkdtempSync(join(tmpdir(), 'muster-client-'))
try {
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc')
  const args = [tsc, '-p', join(root, '.config', 'client.json'), '--outDir', emitted]
  execFileSync(process.execPath, args, { stdio: 'inherit' })
  rmSync(target, { recursive: true, force: true })
  for (const file of FILES) {
    const text = readFileSync(join(emitted, 'src', file), 'utf8')
    const written = file === 'router.d.ts' ? withoutService(text) : text
    checkImports(file, written)
    mkdirSync(dirname(join(target, file)), { recursive: true })
    writeFileSync(join(target, file), written)
  }
  writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  writeFileSync(join(target, 'README.md'), README)
  cpSync(join(root, 'LICENSE'), join(target, 'LICENSE'))
} finally {
  rmSync(emitted, { recursive: true, force: true })
}
