/**
 * Makes the package `@muster/client` in dist/client: the few lines of src/sdk, and the type of the router without the
 * service behind it, as the compiler emits it. Its comments come from the OpenAPI document. With `--unchecked` the
 * compiler does not check the service, which takes twice as long as its declarations.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createDocument } from '../src/http/openapi.ts'
import { readSettings } from '../src/settings.ts'

const root = dirname(import.meta.dirname)
const target = join(root, 'dist', 'client')
const project = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

/** The packages that the client may import, beside its own files. */
const dependencies = { eventsource: `^${project.devDependencies.eventsource}` }
const peerDependencies = { '@trpc/client': '^11', '@trpc/server': '^11' }

const FILES = ['sdk/index.js', 'sdk/index.d.ts', 'router.d.ts', 'wire.d.ts']

const manifest = {
  name: '@muster/client',
  version: project.version,
  description: 'The typed client of Muster',
  license: project.license,
  type: 'module',
  keywords: ['muster', 'agents', 'trpc', 'client'],
  engines: project.engines,
  sideEffects: false,
  exports: { '.': { types: './sdk/index.d.ts', default: './sdk/index.js' }, './package.json': './package.json' },
  files: FILES,
  dependencies,
  peerDependencies,
  publishConfig: { access: 'public' },
}

const README = `# @muster/client

The typed client of Muster, for Node and browsers.

\`\`\`
npm install @muster/client @trpc/client@11 @trpc/server@11
\`\`\`

\`\`\`ts
import { createClient, type Outputs, TRPCClientError } from '@muster/client'

const muster = createClient({ url: 'http://127.0.0.1:3000', token: 'mst_…' })

const { agents } = await muster.agents.list.query({ limit: 10 })
const first: Outputs['agents']['list']['agents'][number] | undefined = agents[0]
const { total } = await muster.executions.list.query({ status: 'failed', count: true })

try {
  const run = await muster.agents.execute.mutate({ id: first?.id ?? '', message: 'Hello', background: true })
  const subscription = muster.executions.events.subscribe(run, {
    onData: ({ data }) => console.log(data.event, total),
    onComplete: () => subscription.unsubscribe(),
  })
} catch (error) {
  if (error instanceof TRPCClientError) console.error(error.message, error.data?.detail)
}
\`\`\`

- The client is a client of [tRPC](https://trpc.io/docs/client/vanilla), with the types of version ${project.version} of the
  service. Each procedure has a comment that says what it does and which scope it needs.
- Subscriptions reconnect by themselves and resume after the last event: \`executions.events\` follows a run,
  \`chats.events\` a chat. \`tasks.changes\` and \`approvals.changes\` send changes from now on: read the list in
  \`onStarted\`.
- A refused call throws a \`TRPCClientError\`. Its \`data\` has \`statusCode\`, \`errorCode\`, \`detail\` and \`requestId\`.
`

/**
 * Extracts the type of the router. Types that clients never use, its context and REST metadata, become \`object\`; the
 * one recursive type is defined in terms of the others.
 */
function withoutService(declarations: string): string {
  const [router = ''] = declarations.split(/^export declare const createCaller/m)
  const types = documented(router)
    .replaceAll('import("./trpc.ts").Context', 'object')
    .replaceAll('import("./trpc.ts").Meta', 'object')
    .replaceAll('import("./executions/schema.ts").ExecutionNode', 'ExecutionNode')
    .replaceAll('import("./tasks/follow.ts").TaskChange', 'TaskChange')
    .replaceAll('import("./approvals/follow.ts").ApprovalChange', 'ApprovalChange')
    .replaceAll('import("./events/show.ts").VisibleEvent', 'OrganizationEvent')
  return `${types.slice(types.indexOf('export declare const appRouter')).replace('export ', '')}
type Execution = import('@trpc/server').inferRouterOutputs<AppRouter>['executions']['get']['execution'];
/** An execution with those that it started. */
export type ExecutionNode = Execution & { children: ExecutionNode[] };
type Outputs = import('@trpc/server').inferRouterOutputs<AppRouter>;
/** An event of tasks.changes. */
export type TaskChange =
  | { event: 'changed'; data: { task: Outputs['tasks']['get']['task'] } }
  | { event: 'deleted'; data: { id: string } };
/** An event of approvals.changes. */
export type ApprovalChange = { event: 'changed'; data: { approval: Outputs['approvals']['list']['approvals'][number] } };
/** An event of events.follow. */
export type OrganizationEvent = Outputs['events']['list']['events'][number];
`
}

/** Adds a comment to each router and procedure: the description of its tag or operation in the OpenAPI document. */
function documented(declarations: string): string {
  const { tags = [], paths = {} } = createDocument(readSettings({}))
  const operations = Object.values(paths).flatMap((item) => Object.values(item as object))
  const comments = new Map<string, string>([
    ...tags.map(({ name, description }) => [name, description ?? ''] as const),
    ...operations.map(
      ({ operationId, summary, description }) => [operationId, `${summary}.\n\n${description}`] as const,
    ),
  ])
  let router = ''
  return declarations.replace(
    /^( {4}| {8})(\w+): import\("@trpc\/server"\)\.TRPC(?:BuiltRouter|\w+Procedure)</gm,
    (line, indent: string, name: string) => {
      if (indent.length === 4) router = name
      const id = indent.length === 4 ? name : `${router}${name.charAt(0).toUpperCase()}${name.slice(1)}`
      const comment = comments.get(id)
      if (!comment) throw new Error(`The OpenAPI document does not describe ${id}`)
      const lines = comment.replaceAll('*/', '').trim().split('\n')
      return `${indent}/**\n${lines.map((text) => `${indent} * ${text}`.trimEnd()).join('\n')}\n${indent} */\n${line}`
    },
  )
}

/** Throws if a file of the package imports anything that the package does not contain. */
function checkImports(file: string, text: string): void {
  for (const [, name = ''] of text.matchAll(/(?:from |import\()['"]([^'"]+)['"]/g)) {
    const isOwn = name.startsWith('.') && FILES.includes(join(dirname(file), name).replace(/\.ts$/, '.d.ts'))
    const isGiven = Object.keys({ ...dependencies, ...peerDependencies }).some(
      (given) => name === given || name.startsWith(`${given}/`),
    )
    if (!isOwn && !isGiven) throw new Error(`${file} of the client refers to ${name}, which is the service's alone.`)
  }
}

const emitted = mkdtempSync(join(tmpdir(), 'muster-client-'))
try {
  const tsc = join(root, 'node_modules', 'typescript', 'lib', 'tsc.js')
  const args = [tsc, '-p', join(root, '.config', 'client.json'), '--outDir', emitted, '--checkers', '1']
  if (process.argv.includes('--unchecked')) args.push('--noCheck')
  // Garbage is collected less often.
  execFileSync(process.execPath, args, { stdio: 'inherit', env: { GOGC: '400', ...process.env } })
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
