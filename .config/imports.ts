// Checks import directions: a file imports only from lower layers, and there are no circles. Type imports may point
// anywhere, because they do not exist at run time. See ARCHITECTURE.md.
import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** Layers from bottom to top. A file belongs to the first matching pattern. */
const LAYERS: readonly (readonly [name: string, pattern: RegExp])[] = [
  ['console', /^src\/console\//],
  ['foundation', /^src\/(lib\/|errors\.ts|settings\.ts|wire\.ts)/],
  ['infrastructure', /^src\/(crypto|db|auth|bus|telemetry)\/|^src\/(deps|idempotency|pause)\.ts/],
  ['resource schema', /^src\/(?!graphql)\w+\/schema\.ts/],
  ['engine', /^src\/executions\/engine\//],
  [
    'resource service',
    /^src\/(?!(graphql|http|protocols|admin|sdk)\/)\w+\/(?!schema|router|graphql)|^src\/(bootstrap|installation)\.ts/,
  ],
  [
    'procedure and type builders',
    /^src\/(trpc|trpc-errors|subscriptions)\.ts|^src\/graphql\/(?!schema|server|requests)/,
  ],
  ['resource router and graphql', /^src\/\w+\/(router|graphql(-\w+)?)\.ts/],
  ['all routers', /^src\/router\.ts/],
  ['graphql schema', /^src\/graphql\/schema\.ts/],
  ['http', /^src\/(http|graphql)\//],
  ['doors', /^src\/protocols\//],
  ['app', /^src\/app\.ts/],
  ['start', /^src\/(start|ready)\.ts/],
  ['programs', /^src\/(main|serve|greeting|demo)\.ts|^src\/(admin|sdk)\//],
]
const rankOf = (file: string) => LAYERS.findIndex(([, pattern]) => pattern.test(file))

const IMPORT = /^(?:import|export) (?!type )[^'"]*?from '(\.[^']+)'|^import '(\.[^']+)'/gm

/** An ES import of Node's `http` also loads its `fetch`, as this file says. */
const HTTP = 'src/lib/net/http.ts'
const HTTP_IMPORT = /^import (?!type )[^'"]*?from 'node:http'/m

const problems: string[] = []
const files = globSync('src/**/*.{ts,tsx}').map((file) => file.replaceAll('\\', '/'))
const imports = new Map<string, string[]>()
for (const file of files) {
  const text = readFileSync(file, 'utf8')
  if (file !== HTTP && HTTP_IMPORT.test(text)) problems.push(`${file} imports node:http: import it from ${HTTP}`)
  const targets = [...text.matchAll(IMPORT)].map(([, from, bare]) =>
    join(dirname(file), from ?? bare ?? '').replaceAll('\\', '/'),
  )
  imports.set(
    file,
    targets.filter((target) => target.startsWith('src/')),
  )
}

const FAST_PATH = 'src/db/fast-path/'
const isInside = (file: string) => file.startsWith(FAST_PATH)

/** The modules of the engine, each with the modules it may import. `engine.ts` may import all of them. */
const ENGINE = 'src/executions/engine/'
const ENGINE_FOLDERS: Record<string, readonly string[]> = {
  events: [],
  models: [],
  run: ['events', 'models', 'queue'],
  queue: ['events', 'run'],
  maintenance: ['events', 'queue', 'run'],
}
const folderOf = (file: string): string | undefined =>
  file.startsWith(ENGINE) ? file.slice(ENGINE.length).match(/^(\w+)\//)?.[1] : undefined

/** The console runs in browsers and reaches the server only through the API. It shares types, and this list. */
const SHARED = 'src/lib/built-in-tools.ts'
const isConsole = (file: string) => file.startsWith('src/console/')

for (const [file, targets] of imports) {
  if (rankOf(file) === -1) problems.push(`${file} belongs to no layer: add it to .config/imports.ts`)
  for (const target of targets) {
    if (target === SHARED) continue
    if (isInside(target) && target !== `${FAST_PATH}index.ts` && !isInside(file)) {
      problems.push(`${file} imports ${target}: outside ${FAST_PATH} only its index.ts is imported`)
    }
    if (isConsole(file) !== isConsole(target)) {
      problems.push(`${file} imports ${target}: the console and the server share types only`)
    }
    const [from, to] = [folderOf(file), folderOf(target)]
    if (from && to && from !== to && !ENGINE_FOLDERS[from]?.includes(to)) {
      problems.push(`${file} imports ${target}: the module ${from} of the engine may not import ${to}`)
    }
    if (rankOf(target) <= rankOf(file)) continue
    problems.push(`${file} (${LAYERS[rankOf(file)]?.[0]}) imports ${target} (${LAYERS[rankOf(target)]?.[0]})`)
  }
}

const done = new Set<string>()
function walk(file: string, path: string[]): void {
  if (path.includes(file)) problems.push(`circle: ${[...path.slice(path.indexOf(file)), file].join(' → ')}`)
  else if (!done.has(file)) for (const target of imports.get(file) ?? []) walk(target, [...path, file])
  done.add(file)
}
for (const file of files) walk(file, [])

if (problems.length) {
  console.error(problems.join('\n'))
  process.exit(1)
}
